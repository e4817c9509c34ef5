"""Hosts: as records have them, 4 or 16 bytes of address and an int32 (docs/formats/commit-log.md), and as texts."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from reput.errors import MessageIllegalError

HOST_V4_SIZE = 8
HOST_V6_SIZE = 20
#: By so much an IPv6 host moves what follows it.
HOST_GROWTH = HOST_V6_SIZE - HOST_V4_SIZE
_PORT_SIZE = 4
_PORT_DIGITS = 5
#: Printable characters that no host has: `http://x:1` is none.
_NO_HOST = frozenset("/@ ")
#: Where a server listens that this machine alone reaches, and one that others reach.
THIS_MACHINE, ALL_ADDRESSES = "127.0.0.1", "0.0.0.0"


def is_of_this_machine(host: str) -> bool:
    """Whether this machine alone reaches an address or a host name; of names `localhost` alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(text: str) -> bool:
    """Whether it is "host:port" of a peer, with a port of 1 to 65535; nobody resolves the name."""
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS and 0 < int(port) <= 0xFFFF
    return is_port and bool(host) and host.isprintable() and not _NO_HOST.intersection(host)


@lru_cache(maxsize=4096)
def encode_host(text: str) -> bytes:
    """Bytes of "10.0.0.1:10911" (8) or "[2001:db8::1]:10911" (20).

    Raises MessageIllegalError if the text is no address with a port of 0 to 65535. Names are not resolved.
    """
    address, _, port = text.rpartition(":")
    try:
        if not (port.isascii() and port.isdigit() and int(port) <= 0xFFFF) or "%" in address:
            raise ValueError
        packed = (
            ipaddress.IPv6Address(address[1:-1]).packed
            if address.startswith("[") and address.endswith("]")
            else ipaddress.IPv4Address(address).packed
        )
    except ValueError:
        reason = f"host {text!r} is no address with a port; write 10.0.0.1:10911 or [2001:db8::1]:10911"
        raise MessageIllegalError(reason) from None
    return packed + int(port).to_bytes(_PORT_SIZE, "big")


@lru_cache(maxsize=4096)
def decode_host(host: bytes) -> str:
    """Text of a host of 8 or 20 bytes, in the form that encode_host takes; a port out of range is shown as stored."""
    assert len(host) in (HOST_V4_SIZE, HOST_V6_SIZE), "a host takes 8 or 20 bytes"
    port = int.from_bytes(host[-_PORT_SIZE:], "big", signed=True)
    if len(host) == HOST_V4_SIZE:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    return f"[{ipaddress.IPv6Address(host[:-_PORT_SIZE])}]:{port}"
