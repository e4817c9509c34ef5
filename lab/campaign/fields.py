"""Meaning of each byte of a store: the fields of all files, by the formats and by oracles that read bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reput.formats import batch_consume_queue, checkpoint, consume_queue, index_file
from reput.formats.consume_queue_ext import END_MARK, MIN_UNIT_SIZE
from reput.formats.consume_queue_ext import FIELDS as EXT_FIELDS
from reput.formats.field import Field
from reput.formats.record_layout import BLANK_SIZE, FIELDS, V1_MAX_TOPIC_SIZE, SysFlag
from tests.support.invariants import SMALL, log_records

#: Of bytes that nothing uses, so many from the first on are looked at.
_SHOWN_UNUSED = 8
_HOSTS = {"BORNHOST": SysFlag.BORN_HOST_V6, "STOREHOSTADDRESS": SysFlag.STORE_HOST_V6}


class FileField(NamedTuple):
    """One field of one file: `size` bytes from `position` on; fields of one meaning have one name."""

    file: Path
    name: str
    position: int
    size: int


def fields_of(store: Path) -> Iterator[FileField]:
    """All fields of the files of a store of `SMALL` files, and the first bytes behind them that nothing uses."""
    yield from _log(store)
    for folder, kind, unit_fields in (
        ("consumequeue", "queue", consume_queue.FIELDS),
        ("batchconsumequeue", "batch queue", batch_consume_queue.FIELDS),
    ):
        size = sum(field.size or 0 for field in unit_fields)
        for file in sorted((store / folder).glob("*/*/*")):
            data = file.read_bytes()
            used = next((begin for begin in range(0, len(data), size) if not any(data[begin : begin + size])), None)
            count = len(data) // size if used is None else used // size
            yield from _repeated(file, kind, unit_fields, 0, count)
            yield from _unused(file, kind, count * size)
    for file in sorted((store / "consumequeue_ext").glob("*/*/*")):
        yield from _extension(file)
    for file in sorted((store / "index").glob("*")):
        yield from _index(file)
    for file in sorted(store.glob("checkpoint")):
        yield from _repeated(file, "checkpoint", checkpoint.FIELDS, 0, 1)
        yield from _unused(file, "checkpoint", sum(field.size or 0 for field in checkpoint.FIELDS))
    for file in sorted((store / "config").glob("*.json*")):
        if file.suffix == ".json":
            yield FileField(file, f"config {file.name}", 0, file.stat().st_size)
        else:
            yield from _unused(file, f"config {file.name}", 0)
    for name, size in (("abort", 1), ("lock", 4)):
        for file in store.glob(name):
            yield FileField(file, name, 0, size)


def _log(store: Path) -> Iterator[FileField]:
    ends = dict.fromkeys(sorted((store / "commitlog").iterdir()), 0)
    file_size = next(iter(ends)).stat().st_size
    for record in log_records(store):
        file = store / "commitlog" / f"{record.offset - record.offset % file_size:020d}"
        position, row = record.offset % file_size, record.row
        sizes = {"BODY": len(row["body"]), "TOPIC": len(row["topic"]), "PROPERTIES": len(row["properties"])}
        sizes["TOPICLENGTH"] = 2 if sizes["TOPIC"] > V1_MAX_TOPIC_SIZE else 1
        suffix = "" if record.has_unit else ", of a message that no queue has"
        for field in FIELDS:
            size = sizes.get(field.name, field.size) or 0
            size = 20 if row["sys_flag"] & _HOSTS.get(field.name, 0) else size
            if size:
                what = ", of an empty body" if field.name == "BODYCRC" and not sizes["BODY"] else suffix
                yield FileField(file, f"log {field.name}{what}", position, size)
            position += size
        ends[file] = position
    for file, end in ends.items():
        if any(file.read_bytes()[end:]):
            yield FileField(file, "log blank record", end, BLANK_SIZE)
            end += BLANK_SIZE
        yield from _unused(file, "log", end)


def _extension(file: Path) -> Iterator[FileField]:
    data, position = file.read_bytes(), 0
    while (size := int.from_bytes(data[position : position + 2], "big", signed=True)) > 0:
        begin = position
        for field in EXT_FIELDS:
            width = size - MIN_UNIT_SIZE if field.size is None else field.size
            if width:
                yield FileField(file, f"ext {field.name}", begin, width)
            begin += width
        position += size
    if size < 0:
        yield FileField(file, "ext end mark", position, len(END_MARK))
        position += len(END_MARK)
    yield from _unused(file, "ext", position)


def _index(file: Path) -> Iterator[FileField]:
    slots = int(str(SMALL["max_hash_slot_num"]))
    count = max(index_file.decode_header(file.read_bytes()).index_count, 1)
    yield from _repeated(file, "index header", index_file.HEADER_FIELDS, 0, 1)
    for slot in range(slots):
        yield FileField(file, "index slot", index_file.slot_position(slot), index_file.SLOT_SIZE)
    yield FileField(file, "index entry 0, which is never used", index_file.entry_position(slots, 0), 20)
    yield from _repeated(file, "index entry", index_file.ENTRY_FIELDS, index_file.entry_position(slots, 1), count - 1)
    yield from _unused(file, "index", index_file.entry_position(slots, count))


def _repeated(file: Path, kind: str, fields: Sequence[Field], position: int, count: int) -> Iterator[FileField]:
    for _ in range(count):
        for field in fields:
            assert field.size is not None
            yield FileField(file, f"{kind} {field.name}", position, field.size)
            position += field.size


def _unused(file: Path, kind: str, position: int) -> Iterator[FileField]:
    left = file.stat().st_size - position
    if left > 0:
        yield FileField(file, f"{kind}, unused bytes", position, min(left, _SHOWN_UNUSED))
