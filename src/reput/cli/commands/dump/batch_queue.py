"""Lines of `reput dump --what queue` for batch consume queues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit
from reput.formats.paths import file_name_to_offset
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.log.directory import QueueFiles, StoreDirectory


def batch_unit_lines(
    directory: StoreDirectory, queue: QueueFiles, begin: int, end: int, *, as_hex: bool
) -> Iterator[dict[str, Any]]:
    """Lines of units in use with queue offsets in [begin, end)."""
    previous: BatchUnit | None = None
    is_ended = False
    for path in queue.paths:
        assert file_name_to_offset(os.path.basename(path)) is not None, "StoreDirectory gives checked names only"
        data = directory.files.read_bytes(path)
        for position in range(0, len(data) - len(data) % BATCH_UNIT_SIZE, BATCH_UNIT_SIZE):
            unit = decode_batch_unit(data, position)
            if not unit.is_in_use:
                is_ended = True
                continue
            damage = _damage(unit, previous, is_ended=is_ended)
            previous = unit
            if begin < unit.next_offset and unit.base_offset < end:
                yield {
                    "topic": queue.topic,
                    "queue_id": queue.queue_id,
                    "queue_offset": unit.base_offset,
                    **{name: value for name, value in unit._asdict().items() if name != "base_offset"},
                    **({"damage": damage, "path": path, "position": position} if damage else {}),
                    **({"hex": data[position : position + BATCH_UNIT_SIZE].hex()} if as_hex else {}),
                }


def _damage(unit: BatchUnit, previous: BatchUnit | None, *, is_ended: bool) -> str | None:
    """Text of a unit's fault, by the units before it; None without a fault."""
    if is_ended:
        return "a unit in use, but one before it is not"
    if unit.size < MIN_RECORD_SIZE:
        return f"a record has {MIN_RECORD_SIZE} bytes or more, the unit says {unit.size}"
    if previous is not None and unit.commit_log_offset <= previous.commit_log_offset:
        return f"the unit before says commit log offset {previous.commit_log_offset}, expected a greater one"
    if previous is not None and unit.base_offset != previous.next_offset:
        return f"the units before end at queue offset {previous.next_offset}, the unit begins at {unit.base_offset}"
    return None
