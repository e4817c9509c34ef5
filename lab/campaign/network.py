"""A broker in the hands of its clients: connections with hostile frames that end in every way, and odd requests.

No request of any code ends its connection, or is logged as a bug. Whatever a connection sends, others are served. The
broker stops and starts again, and its log is read to its end.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path

from lab.campaign.cases import Part
from lab.campaign.frames import hostile_frame
from reput import read_log
from reput.remoting.command import decode_command
from reput.remoting.frame_buffer import FrameBuffer
from tests.support.async_tests import run as run_async
from tests.support.broker import Client, serving_broker, with_topic
from tests.support.certificates import write_certificate
from tests.support.odd_requests import logged_bugs, odd_request

_CONNECTIONS, _REQUESTS, _BATCH = 150, 1500, 50
_KEYS = {"recallMessageEnable": True, "transactionCheckInterval": 300, "authenticationMetadataProvider": "local"}
_ENDS_AT_ONCE = struct.pack("ii", 1, 0)


def run(folder: Path, seed: int, connections: int = _CONNECTIONS, requests: int = _REQUESTS) -> Counter[str]:
    """One broker."""
    with logged_bugs() as bugs:
        counts = run_async(_case(folder, random.Random(seed), connections, requests))
        assert not bugs, f"{len(bugs)} bugs, the first: {bugs[0][:500]}"
    return counts


async def _case(folder: Path, chance: random.Random, connections: int, requests: int) -> Counter[str]:
    store, counts = folder / "store", Counter[str]()
    keys = _KEYS | write_certificate(folder).server_keys | {"enable_property_filter": chance.random() < 0.5}
    async with serving_broker(store, **keys) as served:
        client = await served.client()
        await with_topic(client, "t")
        for _ in range(connections):
            await asyncio.to_thread(_attack, served.controller.address, chance)
            await client.round_trip()
        counts["connections"] += connections
        counts += await _ask(served.controller.address, client, chance, requests)
    async with serving_broker(store, **keys) as served:
        client = await served.client()
        await with_topic(client, "end")
        assert (await client.send_message("end")).code == 0
    counts["messages stored"] += sum(batch.num_rows for batch in read_log(store, ["body"]))
    return counts


def _attack(address: str, chance: random.Random) -> None:
    """A connection of an enemy, with TLS or without: frames in writes of any size, and an end of any kind."""
    data = b"".join(hostile_frame(chance)[1] for _ in range(chance.randrange(1, 20)))
    way = chance.randrange(5)
    if way == 0:
        data = chance.randbytes(chance.randrange(400))
    elif way == 1:
        data = data[: chance.randrange(len(data) + 1)]
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 10) as plain:
        if chance.random() < 0.3:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ENDS_AT_ONCE)
        one = plain
        if chance.random() < 0.2:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            one = context.wrap_socket(plain)
        position, most = 0, chance.choice((100, 5000, 1 << 20))
        while position < len(data):
            step = chance.randrange(1, most)
            one.sendall(data[position : position + step])
            position += step
        if chance.random() < 0.3:
            one.settimeout(0.05)  # part of a frame has no answer
            one.recv(1 << 16)


async def _ask(address: str, other: Client, chance: random.Random, requests: int) -> Counter[str]:
    """Send odd requests over one connection, and count what is answered meanwhile."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    counts: Counter[str] = Counter({"requests": requests})
    reading = asyncio.create_task(_count(reader, counts))
    for begin in range(0, requests, _BATCH):
        frames = [odd_request(chance, opaque) for opaque in range(begin, begin + _BATCH)]
        writer.writelines(frames)
        await writer.drain()
        await other.round_trip()
        assert not reading.done(), f"one of these ended the connection: {[frame[:300] for frame in frames]}"
    reading.cancel()
    writer.close()
    return counts


async def _count(reader: asyncio.StreamReader, counts: Counter[str]) -> None:
    buffer = FrameBuffer()
    while data := await reader.read(1 << 16):
        position = 0
        while position < len(data):
            room = buffer.room()
            size = min(len(room), len(data) - position)
            room[:size] = data[position : position + size]
            buffer.received(size)
            position += size
        for frame in buffer.frames():
            command = decode_command(frame)
            counts["answered"] += command.is_response
            counts["answered SUCCESS"] += command.is_response and command.code == 0


PART = Part(
    "network", "connections with hostile frames, and requests of all codes with odd fields and bodies", 60, run,
    ("connections", "requests", "answered SUCCESS", "messages stored"),
)  # fmt: skip
