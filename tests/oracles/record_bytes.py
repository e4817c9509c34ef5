"""Bytes of records to feed kernels with: made field by field, well-formed or not, and strategies for them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.oracles.record_scan import BLANK, V1, V2

SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True)
class Record:
    """The fields of one record; sizes are what the bytes take, `body_crc` None is the right one."""

    magic: int = V1
    body_crc: int | None = None
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body: bytes = b""
    topic: bytes = b"topic"
    properties: bytes = b""
    property_crc: bool = False

    def pack(self) -> bytes:
        """The bytes; host bits of the system flag follow the hosts, the properties may end with the record's CRC."""
        if self.property_crc:
            text = self.properties + b"\x02" * (self.properties[-1:] not in (b"", b"\x02"))
            data = replace(self, properties=text + bytes(20), property_crc=False).pack()[:-20]
            return data + b"__CRC32#\x01%s\x02" % str(zlib.crc32(data) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()
        sys_flag = self.sys_flag & ~0x30 | 0x10 * (len(self.born_host) == 20) | 0x20 * (len(self.store_host) == 20)
        crc = zlib.crc32(self.body) & 0x7FFFFFFF if self.body_crc is None else self.body_crc
        parts = [
            struct.pack(">Iiii", self.magic, crc, self.queue_id, self.flag),
            struct.pack(">qqiq", self.queue_offset, self.commit_log_offset, sys_flag, self.born_timestamp),
            self.born_host,
            struct.pack(">q", self.store_timestamp),
            self.store_host,
            struct.pack(">iqi", self.reconsume_times, self.prepared_transaction_offset, len(self.body)),
            self.body,
            struct.pack(">h" if self.magic == V2 else ">b", len(self.topic)),
            self.topic,
            struct.pack(">h", len(self.properties)),
            self.properties,
        ]
        data = b"".join(parts)
        return struct.pack(">i", len(data) + 4) + data


def pack_log(records: list[Record], base_offset: int) -> bytes:
    """Records one behind the other, each saying that it lies where it lies."""
    data = b""
    for record in records:
        data += replace(record, commit_log_offset=base_offset + len(data)).pack()
    return data


def blank(size: int) -> bytes:
    """The eight bytes that end a file."""
    return struct.pack(">iI", size, BLANK)


def numbers(bits: int) -> SearchStrategy[int]:
    """Signed numbers of a width, the extremes often."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.sampled_from([0, 1, -1, low, high]) | st.integers(low, high)


_NAMES = st.sampled_from(
    [
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b"DELAY",
        b"TAG",
        b"TAGSX",
        b"KEYZ",
        b"UNIQ_KEX",
        b"UNIQ",
        b"a",
        b"",
        "名".encode(),
        b"__CRC32#",
    ]
) | st.binary(max_size=12)
_VALUES = (
    st.sampled_from(
        [b"", b"a", b"k1 k2", b" k1  k2 ", b"3", b"007", b"19", b"-1", b"2147483648", b"\xff", b"a\x01b", b"1234567890"]
    )
    | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))
    | st.binary(max_size=90)
)
_PAIRS = st.tuples(_NAMES, st.sampled_from([b"\x01", b"\x01", b"\x01", b""]), _VALUES).map(b"".join)
PROPERTIES = st.tuples(st.lists(_PAIRS, max_size=6).map(b"\x02".join), st.sampled_from([b"", b"\x02"])).map(b"".join)

_TOPICS = st.sampled_from(
    [b"order", b"topic-0", b"", "订单".encode(), b"\xe8\xae\xa2\xe5", SCHEDULE_TOPIC, SCHEDULE_TOPIC[:-1], b"t" * 127]
)
_HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
_TIMES = st.integers(1_600_000_000_000, 1_900_000_000_000) | numbers(64)

RECORDS = st.builds(
    Record,
    magic=st.sampled_from([V1, V2]),
    body_crc=st.sampled_from([None, None, None, 0, 12345, -1]),
    queue_id=st.integers(0, 3) | numbers(32),
    flag=numbers(32),
    queue_offset=numbers(64),
    sys_flag=st.sampled_from([0, 4, 8, 12]) | numbers(32),
    born_timestamp=_TIMES,
    born_host=_HOSTS,
    store_timestamp=_TIMES.map(lambda ms: max(min(ms, 2**63 - 10**8), -(2**63))),
    store_host=_HOSTS,
    reconsume_times=numbers(32),
    prepared_transaction_offset=numbers(64),
    body=st.binary(max_size=40) | st.binary(min_size=60, max_size=150),
    topic=_TOPICS | st.binary(max_size=20),
    properties=PROPERTIES,
    property_crc=st.booleans(),
)
BASE_OFFSETS = st.sampled_from([0, 1, 1 << 30, 1 << 40]) | st.integers(0, 1 << 50)


@st.composite
def tails(draw: st.DrawFn) -> bytes:
    """What may stand behind the last whole record."""
    kind = draw(st.sampled_from(["nothing", "blank", "zeros", "torn", "magic", "size", "inner", "offset", "noise"]))
    data = draw(RECORDS).pack()
    cut = draw(st.integers(0, len(data) - 1))
    extremes = st.sampled_from([0, 1, -1, 90, 91, 0x7FFFFFFF, -(2**31)])
    match kind:
        case "nothing":
            return b""
        case "blank":
            return blank(draw(extremes)) + draw(st.binary(max_size=100))
        case "zeros":
            return bytes(cut)
        case "torn":
            return data[:cut]
        case "magic":
            return data[:4] + draw(st.binary(min_size=4, max_size=4)) + data[8:]
        case "size":
            size = draw(extremes | st.just(len(data) - 1) | st.just(len(data) + 1))
            return struct.pack(">i", size) + data[4:] + bytes(draw(st.integers(0, 2)))
        case "inner":
            at = draw(st.integers(36, len(data) - 4))
            return data[:at] + struct.pack(">i", draw(extremes)) + data[at + 4 :]
        case "noise":
            return draw(st.binary(max_size=120))
    return data


@st.composite
def logs(draw: st.DrawFn, max_records: int = 8) -> tuple[bytes, int]:
    """A log's bytes and its base offset: whole records, then one of the ways in which a log ends."""
    base_offset = draw(BASE_OFFSETS)
    data = pack_log(draw(st.lists(RECORDS, max_size=max_records)), base_offset)
    tail = draw(tails())
    if draw(st.booleans()) and len(tail) >= 36:  # a tail whose own offset is right fails by its own fault alone
        tail = tail[:28] + struct.pack(">q", base_offset + len(data)) + tail[36:]
    return data + tail, base_offset
