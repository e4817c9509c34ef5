"""Peer of a socket: its address, and its end if its machine is gone."""

from __future__ import annotations

import asyncio
import socket

from reput.formats.hosts import THIS_MACHINE
from reput.formats.java import INT32_MAX


def peer_of(transport: asyncio.Transport) -> tuple[tuple[str, int], str]:
    """((address, port), "host:port") of a peer."""
    name = transport.get_extra_info("peername") or (THIS_MACHINE, 0)  # a client of this process
    address, port = name[0].partition("%")[0], name[1]  # an IPv6 address may name its interface
    return (address, port), f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def end_unacknowledged(transport: asyncio.Transport | None, seconds: float) -> None:
    """Let a connection end if the peer's machine acknowledges nothing for so long: it may be gone."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux has it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(int(seconds * 1000), INT32_MAX))
