"""The twin of `kernels.records.record_scan`: one record after the other, field by field, with `struct`.

The rules are those of `CommitLog.checkMessageAndReturnSize` and docs/formats/commit-log.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reput.formats.java import index_hash, string_hash

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
DELAYS_MS = [1000 * s for s in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)]

END_OF_BUFFER, BLANK_FOUND, BAD_MAGIC, BAD_SIZE, OFFSET_MISMATCH, FULL = range(6)
BAD_BODY_CRC, BAD_PROPERTY_CRC = 1, 16

Row = dict[str, Any]
"""Column name -> number; and body, topic, properties, tags, keys, unique_key -> bytes."""


@dataclass
class Scan:
    """What a scan finds; `key_hashes` are (row, hash) pairs, `queues` are (topic, queue id) pairs by number."""

    rows: list[Row] = field(default_factory=list)
    consumed: int = 0
    stop: int = FULL
    queues: list[tuple[bytes, int]] = field(default_factory=list)
    key_hashes: list[tuple[int, int]] = field(default_factory=list)


class _Reader:
    """Takes fields from the front of a record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self.data, self.position)
        self.position += struct.calcsize(">" + code)
        return int(value)

    def bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise struct.error
        self.position += size
        return self.data[self.position - size : self.position]


def read_record(data: bytes, position: int, offset: int | None) -> Row | int:
    """The row of the record at a position, or why there is none; `offset` None: it may say that it lies anywhere."""
    left = data[position:]
    if len(left) < 8:
        return END_OF_BUFFER
    size, magic = struct.unpack_from(">iI", left)
    if magic == BLANK:
        return BLANK_FOUND if size == len(left) else BAD_SIZE
    if magic not in (V1, V2):
        return BAD_MAGIC
    if size < 91:
        return BAD_SIZE
    if len(left) < size:
        return END_OF_BUFFER
    try:
        row = _parse(left[:size], magic)
    except struct.error:
        return BAD_SIZE
    if offset is not None and row["commit_log_offset"] != offset:
        return OFFSET_MISMATCH
    return row | {"position": position}


def _parse(record: bytes, magic: int) -> Row:
    """The fields of a whole record; struct.error where the parts do not make up the whole."""
    reader = _Reader(record)
    row: Row = {"store_size": reader.number("i"), "magic_code": reader.number("i")}
    for name in ("body_crc", "queue_id", "flag"):
        row[name] = reader.number("i")
    row["queue_offset"], row["commit_log_offset"] = reader.number("q"), reader.number("q")
    row["sys_flag"] = reader.number("i")
    row["born_timestamp"] = reader.number("q")
    row["born_host"] = reader.bytes(20 if row["sys_flag"] & 0x10 else 8)
    row["store_timestamp"] = reader.number("q")
    row["store_host"] = reader.bytes(20 if row["sys_flag"] & 0x20 else 8)
    row["reconsume_times"], row["prepared_transaction_offset"] = reader.number("i"), reader.number("q")
    row["body"] = reader.bytes(reader.number("i"))
    row["topic"] = reader.bytes(reader.number("h" if magic == V2 else "b"))
    row["properties"] = reader.bytes(reader.number("h"))
    if reader.position != len(record):
        raise struct.error
    return row


def pairs(properties: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values of a properties text (`MessageDecoder.string2messageProperties`)."""
    for pair in properties.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            yield name, value


def delay_level(properties: bytes) -> int:
    """The value of DELAY as `Integer.parseInt` reads digits; 0 where there is none."""
    text = dict(pairs(properties)).get(b"DELAY", b"")
    return int(text) if text.isdigit() and int(text) < 2**31 else 0


def bad_property_crc(record: bytes, row: Row, required: bool) -> bool:
    """Whether the properties' last pair is a CRC of the record that does not fit it, or must be one and is none."""
    *_, last = (b"\x02" + row["properties"][:-1]).rpartition(b"\x02")
    is_crc = len(last) == 19 and last.startswith(b"__CRC32#\x01") and last[9:].isdigit()
    if not is_crc or not row["properties"].endswith(b"\x02"):
        return required
    return last[9:] != str(zlib.crc32(record[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()


def keys_of(row: Row, *, index_tags: bool = False) -> list[bytes]:
    """UNIQ_KEY, the elements of KEYS, and T#TAGS in RocketMQ 5.5.0 (`IndexService.buildIndex`)."""
    tags = [b"T#" + row["tags"]] if index_tags and row["tags"] else []
    return [key for key in [row["unique_key"], *row["keys"].split(b" "), *tags] if key]


def hash_of(text: bytes) -> int:
    """Java's hash of a text that may be no UTF-8."""
    return string_hash(text.decode("utf-8", "replace"))


def add_properties(row: Row) -> Row:
    """The row with its tags, keys, unique key and tags code."""
    found = dict(pairs(row["properties"]))
    row |= {name: found.get(text, b"") for name, text in (("tags", b"TAGS"), ("keys", b"KEYS"))}
    return row | {"unique_key": found.get(b"UNIQ_KEY", b""), "tags_code": hash_of(found.get(b"TAGS", b""))}


def scan(
    data: bytes,
    base_offset: int,
    *,
    check_crc: bool = True,
    require_property_crc: bool = False,
    max_rows: int = 1 << 30,
    key_room: int = 1 << 30,
    delays_ms: Sequence[int] = DELAYS_MS,
    index_tags: bool = False,
) -> Scan:
    """Everything that `RecordScanner.scan` can find, at all levels."""
    result = Scan()
    while len(result.rows) < max_rows:
        row = read_record(data, result.consumed, base_offset + result.consumed)
        if isinstance(row, int):
            result.stop = row
            return result
        row = add_properties(row)
        level = min(delay_level(row["properties"]), len(delays_ms))
        if row["topic"] == b"SCHEDULE_TOPIC_XXXX" and level > 0:
            row["tags_code"] = row["store_timestamp"] + delays_ms[level - 1]
        crc_fits = zlib.crc32(row["body"]) & 0x7FFFFFFF == row["body_crc"]
        row["status"] = BAD_BODY_CRC if check_crc and row["body"] and not crc_fits else 0
        if check_crc and bad_property_crc(data[row["position"] :][: row["store_size"]], row, require_property_crc):
            row["status"] |= BAD_PROPERTY_CRC
        keys = [] if row["sys_flag"] & 0xC == 0xC else keys_of(row, index_tags=index_tags)
        if len(result.key_hashes) + len(keys) > key_room:
            return result
        topic = row["topic"].decode("utf-8", "replace")
        result.key_hashes += [
            (len(result.rows), index_hash(f"{topic}#{key.decode('utf-8', 'replace')}")) for key in keys
        ]
        queue = row["topic"], row["queue_id"]
        if queue not in result.queues:
            result.queues.append(queue)
        row["queue"] = result.queues.index(queue)
        result.rows.append(row)
        result.consumed += row["store_size"]
    return result


def find_record(data: bytes, base_offset: int, position: int = 0, records: int = 3) -> int:
    """The first position from `position` on where a record proves itself, tried one by one; -1 if there is none."""
    for start in range(position, len(data)):
        if _proves_itself(data, base_offset, start, records):
            return start
    return -1


def _proves_itself(data: bytes, base_offset: int, start: int, records: int) -> bool:
    """A record, and those behind it, so many in all, are whole records or the end of what was written."""
    position = start
    for _ in range(records):
        row = read_record(data, position, base_offset + position)
        if isinstance(row, int):
            is_end = row in (END_OF_BUFFER, BLANK_FOUND) or data[position : position + 8] == bytes(8)
            return position > start and is_end
        position += row["store_size"]
    return True


def find_proven(data: bytes, base_offset: int, position: int, file_begin: int, not_before: int) -> int:
    """The first position from `position` on where a record proves itself with its body CRC, one by one; or -1."""
    for start in range(position, len(data)):
        row = read_record(data, start, base_offset + start)
        if isinstance(row, int) or row["store_timestamp"] < not_before:
            continue
        if row["body"] or base_offset + start == file_begin:
            if not row["body"] or zlib.crc32(row["body"]) & 0x7FFFFFFF == row["body_crc"]:
                return start
        elif _proves_itself(data, base_offset, start, 3):
            return start
    return -1
