"""The twin of `kernels.queues.index_file`: RocketMQ's IndexFile over a bytearray (docs/formats/index-file.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reput.formats.index_file import (
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    encode_entry,
    encode_header,
    entry_position,
    file_size,
    slot_position,
)
from tests.oracles.record_scan import Row, add_properties, read_record

_MAX_INT32 = 0x7FFFFFFF


class IndexFile:
    """One index file: `slots` slots, room for `capacity` - 1 entries; `data` are its bytes."""

    def __init__(self, slots: int, capacity: int, *, previous: IndexFile | None = None) -> None:
        self.slots = slots
        self.capacity = capacity
        self.data = bytearray(file_size(slots, capacity))
        self.header = IndexHeader(index_count=1)
        if previous:
            timestamp, offset = previous.header.end_timestamp, previous.header.end_phy_offset
            self.header = IndexHeader(timestamp, timestamp, offset, offset, index_count=1)

    def _slot(self, key_hash: int) -> int:
        position = slot_position(key_hash % self.slots)
        return int.from_bytes(self.data[position : position + 4], "big", signed=True)

    def put_key(self, key_hash: int, phy_offset: int, store_timestamp: int) -> bool:
        """`IndexFile.putKey`; False where the file is full."""
        header = self.header
        number = header.index_count
        if number >= self.capacity:
            return False
        previous = self._slot(key_hash)
        if previous <= 0 or previous > number:
            previous = 0
        seconds = 0
        if header.begin_timestamp > 0:
            seconds = min(max((store_timestamp - header.begin_timestamp) // 1000, 0), _MAX_INT32)
        position = entry_position(self.slots, number)
        self.data[position : position + 20] = encode_entry(IndexEntry(key_hash, phy_offset, seconds, previous))
        slot = slot_position(key_hash % self.slots)
        self.data[slot : slot + 4] = number.to_bytes(4, "big")
        if number <= 1:
            header = header._replace(begin_phy_offset=phy_offset, begin_timestamp=store_timestamp)
        self.header = header._replace(
            hash_slot_count=header.hash_slot_count + (previous == 0),
            index_count=number + 1,
            end_phy_offset=phy_offset,
            end_timestamp=store_timestamp,
        )
        self.data[:40] = encode_header(self.header)
        return True

    def _chain(self, key_hash: int) -> Iterator[IndexEntry]:
        """The entries of a slot; each must be older than the one before, or a damaged chain could go round for ever."""
        number, limit = self._slot(key_hash), self.header.index_count
        while 0 < number < limit:
            entry = decode_entry(self.data, entry_position(self.slots, number))
            yield entry
            number, limit = entry.slot_value, number

    def select_phy_offset(
        self, key_hash: int, max_num: int, begin: int, end: int, is_hit: Callable[[int], bool] = lambda offset: True
    ) -> list[int]:
        """`IndexFile.selectPhyOffset` within one file: offsets, newest first, those alone that are hits."""
        found: list[int] = []
        for entry in self._chain(key_hash):
            if len(found) >= max_num or entry.time_diff < 0:
                break
            timestamp = self.header.begin_timestamp + 1000 * entry.time_diff
            if entry.key_hash == key_hash and begin <= timestamp <= end and is_hit(entry.phy_offset):
                found.append(entry.phy_offset)
            if timestamp < begin:
                break
        return found


def header_of(data: bytes) -> IndexHeader:
    """The header of a file's bytes."""
    return decode_header(data)


def verify_key(log: dict[int, bytes], file_size: int, offset: int, topic: bytes, key: bytes) -> bool:
    """Whether the record at a commit log offset has the topic and the key (`MQAdminImpl.queryMessage`).

    `log` holds the readable bytes of each file by its first offset.
    """
    start = offset - offset % file_size
    if start not in log or not key:
        return False
    row = read_record(log[start], offset - start, offset)
    if isinstance(row, int):
        return False
    row = add_properties(row)
    return row["topic"] == topic and (row["unique_key"] == key or key in _elements(row))


def _elements(row: Row) -> list[bytes]:
    return [key for key in row["keys"].split(b" ") if key]
