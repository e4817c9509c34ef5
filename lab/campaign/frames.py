"""Frames of the network made by an enemy: recorded ones with bits, sizes, texts and levels changed, and noise.

A case is a stream of frames, in reads of any size, through FrameBuffer, decode_command, the header classes and the
bodies. Whoever decodes must raise nothing but RemotingDecodeError and RemotingCommandError, and keep no memory.
"""

from __future__ import annotations

import os
import random
import re
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from lab.campaign.cases import Part
from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.remoting import client_bodies, consumer_headers, namesrv_headers, pull_headers, route_bodies, topic_headers
from reput.remoting.body import decode_body, encode_body
from reput.remoting.client_bodies import LockBatchBody, decode_heartbeat
from reput.remoting.codes import RequestCode, SerializeType
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from reput.remoting.frame_buffer import FrameBuffer
from reput.remoting.header import decode_header, encode_header
from reput.remoting.route_bodies import decode_register_body, encode_register_body
from reput.remoting.send_headers import SendMessageRequestHeader, SendMessageResponseHeader, decode_send_header
from tests.support.frames import frame_of, recorded_frames

FRAMES_OF_A_CASE = 10_000
#: What a frame may take: a bomb at its bound takes a few tenths.
_SECONDS = 10
#: A process that decodes for hours stays within so much of what it had after its first case.
_MOST_GROWTH = 64 << 20
_NUMBERS = (0, 1, 2, 4, 7, 21, 127, 128, 255, 4095, 32_767, 65_535, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_TEXTS = (
    "null", "true", "false", "0", "-1", "2147483648", "9223372036854775808", "1e999", "-1e-999", "NaN", "-Infinity",
    "{}", "[]", '""', '"\\ud800"', '"\\u0000"', '"x', "{1:2}", '{"$ref":"$"}', '"9223372036854775807"', "9" * 4301,
    '"' + "9" * 400 + '"', '"' + "0" * 5000 + '"', '"' + "a" * 3000 + '"', "[[[[1]]]]", '{"a":{"b":{}}}', '"1"', "1.5",
    '"TRUE"',
)  # fmt: skip
_DEPTHS = (1, 3, 30, 99, 101, 300, 900, 990, 1000, 5000)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+|true|false|null|[{}\[\],:]')
_SEND_CODES = (10, 310, 320, 324, 325)
_HEADERS: dict[int, type[Any]] = {
    11: pull_headers.PullMessageRequestHeader, 12: pull_headers.QueryMessageRequestHeader,
    14: consumer_headers.QueryConsumerOffsetRequestHeader, 15: consumer_headers.UpdateConsumerOffsetRequestHeader,
    17: topic_headers.CreateTopicRequestHeader, 30: consumer_headers.GetMaxOffsetRequestHeader,
    35: consumer_headers.UnregisterClientRequestHeader, 103: namesrv_headers.RegisterBrokerRequestHeader,
    105: namesrv_headers.GetRouteInfoRequestHeader, 361: pull_headers.PullMessageRequestHeader,
}  # fmt: skip


def _classes(*modules: Any, of: str) -> tuple[type[Any], ...]:
    """The dataclasses of modules whose names match."""
    return tuple(
        kind
        for module in modules
        for name, kind in sorted(vars(module).items())
        if hasattr(kind, "__dataclass_fields__") and kind.__module__ == module.__name__ and re.search(of, name)
    )


_ALL_HEADERS = (
    *_classes(consumer_headers, namesrv_headers, pull_headers, topic_headers, of="Header$"),
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
_BODIES = (*_classes(route_bodies, of="."), client_bodies.LockBatchBody)


@cache
def _frames() -> tuple[bytes, ...]:
    """Frames to change: the recorded ones, and a registration in the compressed form."""
    recorded = [one.frame for one in recorded_frames()]
    (plain,) = [one for one in map(decode_command, recorded) if one.code == 103 and not one.is_response]
    packed = encode_register_body(decode_register_body(plain.body), compressed=True)
    fields = {**(plain.ext_fields or {}), "compressed": "true"}
    return (*recorded, encode_command(RemotingCommand(103, 1, ext_fields=fields, body=packed)))


@cache
def _bomb() -> bytes:
    return encode_command(
        RemotingCommand(103, 1, ext_fields={"compressed": "true"}, body=zlib.compress(bytes(80 << 20)))
    )


# -- ways to change a frame


def _parts(frame: bytes) -> tuple[int, bytes, bytes]:
    """(serialize type, header, body) of a whole frame."""
    (word,) = struct.unpack_from(">I", frame, 4)
    end = 8 + (word & 0xFFFFFF)
    return word >> 24, frame[8:end], frame[end:]


def _flip(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _flip_inside(frame: bytes, chance: random.Random) -> bytes:
    return frame[:8] + _flip(frame[8:], chance)


def _cut(frame: bytes, chance: random.Random) -> bytes:
    kind, header, body = _parts(frame)
    if chance.random() < 0.5 or not body:
        return frame_of(header[: chance.randrange(len(header))], body, kind=kind)
    return frame_of(header, body[: chance.randrange(len(body))], kind=kind)


def _splice(frame: bytes, chance: random.Random) -> bytes:
    kind, header, body = _parts(frame)
    _, other, other_body = _parts(chance.choice(_frames()))
    position = chance.randrange(len(header))
    return frame_of(
        header[:position] + other[min(position, len(other)) :], chance.choice((body, other_body)), kind=kind
    )


def _other_sizes(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    struct.pack_into(">I", data, chance.choice((0, 4)), chance.choice(_NUMBERS))
    return bytes(data)


def _other_kind(frame: bytes, chance: random.Random) -> bytes:
    _, header, body = _parts(frame)
    return frame_of(header, body, kind=chance.choice((0, 1, 2, 255)))


def _numbers_inside(frame: bytes, chance: random.Random) -> bytes:
    """Two or four bytes of a header become another number: sizes of a binary header's texts among them."""
    kind, header, body = _parts(frame)
    data = bytearray(header)
    size = chance.choice((2, 4))
    for _ in range(chance.choice((1, 1, 3))):
        position = chance.randrange(len(data) - size)
        data[position : position + size] = (chance.choice(_NUMBERS) % (1 << 8 * size)).to_bytes(size, "big")
    return frame_of(bytes(data), body, kind=kind)


def _entries(frame: bytes, chance: random.Random) -> bytes:
    """A binary header whose fields have any names, values and sizes."""
    entries = []
    for _ in range(chance.randrange(6)):
        name, value = (chance.randbytes(chance.choice((0, 1, 7))) for _ in range(2))
        wrong = chance.random() < 0.1
        entries.append(struct.pack(">H", chance.choice(_NUMBERS) & 0xFFFF if wrong else len(name)) + name)
        entries.append(struct.pack(">I", chance.choice(_NUMBERS) if chance.random() < 0.1 else len(value)) + value)
    fields = b"".join(entries)
    size = chance.choice(_NUMBERS) if chance.random() < 0.1 else len(fields)
    remark = chance.randbytes(chance.choice((0, 5)))
    head = struct.pack(
        ">hBhiiI", chance.choice(list(RequestCode)) & 0x7FFF, chance.randrange(256), 479, 1, 0, len(remark)
    )
    return frame_of(head + remark + struct.pack(">I", size) + fields, _parts(frame)[2], kind=1)


def _tokens(data: bytes, chance: random.Random) -> bytes:
    """JSON whose tokens are swapped, doubled, lost, or replaced by an enemy's."""
    tokens = _TOKEN.findall(data)
    if not tokens:
        return data
    for _ in range(chance.choice((1, 1, 2, 5))):
        position = chance.randrange(len(tokens))
        match chance.randrange(5):
            case 0:
                tokens[position] = chance.choice(tokens)
            case 1:
                tokens[position] = b""
            case 2:
                tokens[position] *= 2
            case 3:
                depth = chance.choice(_DEPTHS)
                left, right = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
                tokens[position] = left * depth + b"1" + right * depth
            case _:
                tokens[position] = chance.choice(_TEXTS).encode()
    return b"".join(tokens)


def _json_header(frame: bytes, chance: random.Random) -> bytes:
    kind, header, body = _parts(frame)
    return frame_of(_tokens(header, chance), body, kind=kind)


def _json_body(frame: bytes, chance: random.Random) -> bytes:
    kind, header, body = _parts(frame)
    return frame_of(header, _tokens(body, chance), kind=kind)


def _packed_body(frame: bytes, chance: random.Random) -> bytes:
    """A registration whose parts are changed before they are compressed."""
    if chance.random() < 0.002:
        return _bomb()
    command = decode_command(_frames()[-1])
    data = bytearray(zlib.decompress(command.body))
    for _ in range(chance.choice((1, 2))):
        if chance.random() < 0.5:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            position = chance.randrange(len(data) - 4)
            data[position : position + 4] = chance.choice(_NUMBERS).to_bytes(4, "big")
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    command.body = zlib.compress(bytes(data), 1)
    return encode_command(command)


def _other_fields(frame: bytes, chance: random.Random) -> bytes:
    """A command of another code whose fields have an enemy's values; the frame itself is right."""
    command = decode_command(frame)
    fields = dict(command.ext_fields or {})
    for name in chance.sample(sorted(fields), min(len(fields), 3)):
        fields[name] = chance.choice(_TEXTS)
    command.ext_fields = fields
    command.code = chance.choice((command.code, *_HEADERS, *_SEND_CODES, 34, 41, 103))
    command.serialize_type = chance.choice(list(SerializeType))
    return encode_command(command)


def _noise(frame: bytes, chance: random.Random) -> bytes:
    data = chance.randbytes(chance.choice((0, 1, 8, 40, 300)))
    return data if chance.random() < 0.2 else frame_of(data, chance.randbytes(8), kind=chance.choice((0, 1)))


def _none(frame: bytes, chance: random.Random) -> bytes:
    return frame


_WAYS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _flip_inside, _flip_inside, _cut, _splice, _other_sizes, _other_kind, _numbers_inside, _numbers_inside,
    _entries, _json_header, _json_header, _json_body, _json_body, _packed_body, _other_fields, _other_fields, _noise,
    _none,
)  # fmt: skip


def hostile_frame(chance: random.Random) -> tuple[str, bytes]:
    """A frame, and the way that it was changed."""
    way = chance.choice(_WAYS)
    return way.__name__.strip("_"), way(chance.choice(_frames()), chance)


# -- what looks at them


def _look(frame: memoryview, chance: random.Random) -> None:
    """All that a server would make of one frame, and a few things that it would not."""
    command = decode_command(frame)
    with suppress(RemotingDecodeError):
        again = encode_command(command)
        assert encode_command(decode_command(again)) == again
    for kind in (chance.choice(_ALL_HEADERS), _HEADERS.get(command.code, SendMessageResponseHeader)):
        with suppress(RemotingCommandError):
            header: Any = decode_header(kind, command.ext_fields)
            assert decode_header(kind, encode_header(header)) == header
    if command.code in _SEND_CODES:
        with suppress(RemotingCommandError):
            decode_send_header(command.code, command.ext_fields)
    with suppress(RemotingCommandError):
        encode_body(decode_body(chance.choice(_BODIES), command.body))
    for code, decode in ((34, decode_heartbeat), (41, _decode_lock), (42, _decode_lock), (103, _decode_registration)):
        if command.code == code:
            with suppress(RemotingCommandError):
                decode(command.body)


def _decode_lock(body: bytes) -> object:
    return decode_body(LockBatchBody, body)


def _decode_registration(body: bytes) -> None:
    for compressed in (False, True):
        with suppress(RemotingCommandError):
            encode_register_body(decode_register_body(body, compressed=compressed), compressed=compressed)


def take(data: bytes, chance: random.Random) -> Counter[str]:
    """Result of a connection for these bytes, which come in reads of any size."""
    buffer, position, counts = FrameBuffer(), 0, Counter[str]()
    while position < len(data):
        room = buffer.room()
        size = min(len(room), len(data) - position, chance.choice((1, 7, 100, 1 << 20, 1 << 20)))
        room[:size] = data[position : position + size]
        buffer.received(size)
        position += size
        assert buffer.capacity <= (192 << 10) + 2 * len(buffer), f"{buffer.capacity} bytes for {len(buffer)}"
        try:
            for frame in buffer.frames():
                _look(frame, chance)
                counts["understood"] += 1
        except RemotingDecodeError:
            counts["refused"] += 1
            break
    return counts


@cache
def _first_rss() -> int:
    return _rss()


def _rss() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(folder: Path, seed: int, frames: int = FRAMES_OF_A_CASE) -> Counter[str]:
    """One stream after the other; a frame that breaks a promise is told in hexadecimal digits."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter({"hostile frames": frames})
    for _ in range(frames):
        way, data = hostile_frame(chance)
        started = time.perf_counter()
        try:
            counts += take(data, chance)
        except Exception as error:
            raise AssertionError(f"{way}: {type(error).__name__}: {error}: {data[:4000].hex()}") from error
        seconds = time.perf_counter() - started
        assert seconds < _SECONDS, f"{way}: {seconds:.0f} s: {data[:4000].hex()}"
        counts[f"way: {way}"] += 1
    assert _rss() <= _first_rss() + _MOST_GROWTH, f"from {_first_rss() >> 20} to {_rss() >> 20} MiB"
    return counts


PART = Part(
    "frames", "frames of the network made by an enemy: flips, cuts, sizes, tokens, levels, bombs, noise", 1000, run,
    ("hostile frames",),
)  # fmt: skip
