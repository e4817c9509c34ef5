"""Lines of `reput dump --what queue`: units of the consume queues, then units of the batch consume queues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from reput.cli.commands.dump.batch_queue import batch_unit_lines
from reput.formats.consume_queue import FILLER, UNIT_SIZE, Unit, decode_unit
from reput.formats.consume_queue_ext import is_ext_address
from reput.formats.paths import file_name_to_offset
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.log.directory import QueueFiles, StoreDirectory
from reput.log.queue_extensions import queue_extensions, read_ext_unit


def queue_lines(
    directory: StoreDirectory, begin: int, end: int, topic: str | None, queue_id: int | None, *, as_hex: bool
) -> Iterator[dict[str, Any]]:
    """Lines of units in use with queue offsets in [begin, end), fillers included; a faulty unit has its damage."""
    extensions = {(files.topic, files.queue_id): files for files in queue_extensions(directory.path, directory.files)}
    for queue in directory.queues():
        if topic in (None, queue.topic) and queue_id in (None, queue.queue_id):
            extension = extensions.get((queue.topic, queue.queue_id))
            yield from _unit_lines(directory, queue, extension, begin, end, as_hex)
    for queue in directory.batch_queues():
        if topic in (None, queue.topic) and queue_id in (None, queue.queue_id):
            yield from batch_unit_lines(directory, queue, begin, end, as_hex=as_hex)


def _unit_lines(
    directory: StoreDirectory, queue: QueueFiles, extension: QueueFiles | None, begin: int, end: int, as_hex: bool
) -> Iterator[dict[str, Any]]:
    previous = Unit(-1, 0, 0)
    first_unused: int | None = None
    for path in queue.paths:
        start = file_name_to_offset(os.path.basename(path))
        assert start is not None, "StoreDirectory gives checked names only"
        data = directory.files.read_bytes(path)
        for position in range(0, len(data) - len(data) % UNIT_SIZE, UNIT_SIZE):
            unit = decode_unit(data, position)
            queue_offset = (start + position) // UNIT_SIZE
            if unit.size <= 0:
                first_unused = queue_offset if first_unused is None else first_unused
                continue
            damage = _damage(unit, previous, first_unused)
            if unit != FILLER:
                previous, first_unused = unit, None
            if begin <= queue_offset < end:
                yield {
                    "topic": queue.topic,
                    "queue_id": queue.queue_id,
                    "queue_offset": queue_offset,
                    **unit._asdict(),
                    **({"filler": True} if unit == FILLER else {}),
                    **(_ext(directory, extension, unit) if is_ext_address(unit.tags_code) else {}),
                    **({"damage": damage, "path": path, "position": position} if damage else {}),
                    **({"hex": data[position : position + UNIT_SIZE].hex()} if as_hex else {}),
                }


def _ext(directory: StoreDirectory, extension: QueueFiles | None, unit: Unit) -> dict[str, Any]:
    """Field with the ext unit that a unit leads to; null if it is lost."""
    ext_unit = read_ext_unit(extension, unit.tags_code, directory.files) if extension is not None else None
    return {"ext": None if ext_unit is None else ext_unit._asdict() | {"bit_map": ext_unit.bit_map.hex()}}


def _damage(unit: Unit, previous: Unit, first_unused: int | None) -> str | None:
    """Text of a unit's fault, by the units before it; None without a fault."""
    if first_unused is not None:
        return f"a unit in use, but the one at queue offset {first_unused} before it is not"
    if unit == FILLER:
        return None
    if unit.size < MIN_RECORD_SIZE:
        return f"a record has {MIN_RECORD_SIZE} bytes or more, the unit says {unit.size}"
    if unit.commit_log_offset <= previous.commit_log_offset:
        return f"the unit before says commit log offset {previous.commit_log_offset}, expected a greater one"
    return None
