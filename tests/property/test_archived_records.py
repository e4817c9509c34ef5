"""Whatever the bytes of a log file are, an archive gives them back: odd records, damage, torn tails, flipped bits."""

from __future__ import annotations

import random
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reput.formats.record_layout import MagicCode, SysFlag
from tests.support.archives import there_and_back
from tests.support.examples import examples

BASE = 8192

#: Texts of properties: what RocketMQ writes, and what it does not.
names = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"b", b"WAIT", b"INNER_NUM", b"__CRC32#", b"\xff", b"", b"TAG"]
)
values = st.sampled_from(
    [b"", b"x", b"a b", b"a  b", b" a", b"\xc3\x28", "ä€".encode(), b"long " * 9, b"v\x01w", b"\x00", b"U" * 32]
)
pairs = st.builds(lambda name, value: name + b"\x01" + value, names, values)
properties = st.one_of(
    st.builds(
        lambda items, end: b"\x02".join(items) + end, st.lists(pairs, max_size=6), st.sampled_from([b"\x02", b""])
    ),
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"x", b" "]), max_size=12).map(b"".join),
)
topics = st.sampled_from([b"orders", b"%RETRY%g", b"\xff\xfe", b"", b"t" * 127, "ö".encode()])
int32s = st.sampled_from([0, 1, -1, 7, 2**31 - 1, -(2**31)])
int64s = st.sampled_from([0, 1, -1, 1_700_000_000_000, 2**63 - 1, -(2**63), -62_135_596_800_001])
hosts_v4 = st.sampled_from([b"\x0a\0\0\x01\0\0\x2a\x9f", b"\0" * 8, b"\xff" * 8, b"\x0a\0\0\x01\x00\x01\x00\x00"])
hosts_v6 = st.sampled_from([bytes(range(16)) + b"\0\0\x2a\x9f", b"\0" * 10 + b"\xff\xff\1\2\3\4\0\0\0\1", b"\xff" * 20])
bodies = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(300), b"\xda\xa3\x20\xa7" * 20]))


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, ...]:
    """All of a record but its offset."""
    return (
        draw(topics), draw(bodies), draw(properties), draw(st.booleans()), draw(int32s), draw(int32s), draw(int64s),
        draw(int32s), draw(int64s), draw(hosts_v4 | hosts_v6), draw(int64s), draw(hosts_v4 | hosts_v6), draw(int32s),
        draw(int64s),
    )  # fmt: skip


def encoded(record: tuple[Any, ...], offset: int) -> bytes:
    """The bytes of a record, written as `docs/formats/commit-log.md` says, with a right CRC."""
    (topic, body, text, is_v2, queue_id, flag, queue_offset, sys_flag, born, born_host, stored, store_host, times,
     prepared) = record  # fmt: skip
    flags = sys_flag & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    flags |= SysFlag.BORN_HOST_V6 if len(born_host) > 8 else 0
    flags |= SysFlag.STORE_HOST_V6 if len(store_host) > 8 else 0
    magic = MagicCode.MESSAGE_V2 if is_v2 else MagicCode.MESSAGE_V1
    head = struct.pack(
        ">iIiiqqiq", magic, zlib.crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, offset, flags, born
    )
    middle = born_host + struct.pack(">q", stored) + store_host + struct.pack(">iqi", times, prepared, len(body))
    size = struct.pack(">h" if is_v2 else ">b", len(topic))
    end = body + size + topic + struct.pack(">h", len(text)) + text
    return struct.pack(">i", 4 + len(head + middle + end)) + head + middle + end


def log_of(drawn: list[tuple[Any, ...]], tail: bytes) -> bytes:
    data = b""
    for record in drawn:
        data += encoded(record, BASE + len(data))
    return data + tail


tails = st.one_of(
    st.just(b""), st.just(bytes(500)), st.binary(max_size=30),
    st.integers(8, 9000).map(lambda size: struct.pack(">ii", size, MagicCode.BLANK) + bytes(size - 8)),
    st.just(bytes(5000) + b"\x01" + bytes(4095) + b"\x02" + bytes(4097) + b"\x03"),
)  # fmt: skip


def check(data: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return there_and_back(data, BASE, Path(folder)).messages


@settings(max_examples=examples(200))
@given(st.lists(records(), max_size=8), tails)
def test_odd_records_come_back(drawn: list[tuple[Any, ...]], tail: bytes) -> None:
    if data := log_of(drawn, tail):
        check(data)


@settings(max_examples=examples(100))
@given(st.lists(records(), min_size=1, max_size=8), tails, st.randoms(use_true_random=False))
def test_damaged_files_come_back(drawn: list[tuple[Any, ...]], tail: bytes, chance: random.Random) -> None:
    data = bytearray(log_of(drawn, tail))
    for _ in range(chance.choice((1, 3, 50))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    begin = chance.randrange(len(data))
    end = min(len(data), begin + chance.choice((0, 1, 100, 2000)))
    data[begin:end] = chance.choice((bytes(end - begin), chance.randbytes(end - begin)))
    check(bytes(data[: chance.choice((len(data), max(1, end)))]))


@settings(max_examples=examples(50))
@given(properties)
def test_every_record_that_proves_itself_is_a_row_whatever_its_properties_are(text: bytes) -> None:
    record = (b"orders", b"body", text, False, 1, 0, 5, 0, 1, b"\x0a\0\0\x01\0\0\x2a\x9f", 2, bytes(8), 0, 0)
    assert check(log_of([record] * 3, bytes(100))) == 3
