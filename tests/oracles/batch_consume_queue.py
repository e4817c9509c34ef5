"""The twins of `kernels.queues.batch_consume_queue`, unit by unit (docs/formats/batch-consume-queue.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reput.formats.batch_consume_queue import BatchUnit, encode_batch_unit
from reput.formats.properties import decode_properties
from tests.oracles.consume_queue import Limits, Selection

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True)
class BatchPlace:
    """What a record tells its queue."""

    queue: int
    queue_offset: int
    sys_flag: int
    properties: bytes
    commit_log_offset: int
    size: int
    tags_code: int
    store_timestamp: int


def inner_batch(properties: bytes) -> tuple[int, int] | None:
    """INNER_BASE and INNER_NUM; None unless both are there, in plain digits, and small enough for a unit."""
    pairs = decode_properties(properties)
    base, number = pairs.get("INNER_BASE", ""), pairs.get("INNER_NUM", "")
    if not re.fullmatch("[0-9]+", base) or not re.fullmatch("[0-9]+", number):
        return None
    return (int(base), int(number)) if int(base) <= _MAX_INT64 and 0 < int(number) <= 0x7FFF else None


def batch_unit(place: BatchPlace) -> BatchUnit | None:
    """The unit of a record; None where it has none."""
    if place.sys_flag & 0xC in (0x4, 0xC):
        return None
    base, number = inner_batch(place.properties) or (place.queue_offset, 1)
    if base < 0 or base + number > _MAX_INT64:
        return None
    return BatchUnit(place.commit_log_offset, place.size, place.tags_code, place.store_timestamp, base, number)


def group_batch_units(places: Sequence[BatchPlace], last_offsets: Sequence[int]) -> list[bytes]:
    """The bytes of each queue's units."""
    taken: list[list[BatchUnit]] = [[] for _ in last_offsets]
    for place in places:
        unit = batch_unit(place)
        if unit is not None and place.commit_log_offset > last_offsets[place.queue]:
            taken[place.queue].append(unit)
    return [b"".join(encode_batch_unit(unit) for unit in units) for units in taken]


def find_batch_unit(units: Sequence[BatchUnit], queue_offset: int) -> int:
    """The last unit whose first message is not behind a queue offset, or 0; bases ascend."""
    return max((i for i, unit in enumerate(units) if unit.base_offset <= queue_offset), default=0)


def is_batch_full(size: int, selection: Selection, count: int, limits: Limits, *, in_memory: bool) -> bool:
    """`DefaultMessageStore.isTheBatchFull` but for `maxMsgNums`; `count` messages are in the records taken so far."""
    if not selection.messages:
        return False
    if selection.size + size > limits.max_size:
        return True
    if in_memory:
        return selection.size + size > limits.memory_size or count > limits.memory_count - 1
    return selection.size + size > limits.disk_size or count > limits.disk_count - 1


def select_batch_units(
    units: Sequence[BatchUnit],
    end_offset: int,
    log_begin: int,
    log_end: int,
    file_size: int,
    tags: Sequence[int],
    limits: Limits,
) -> Selection:
    """The units of one pull; `examined` is the queue offset behind the last one examined, -1 for none."""
    selection, count = Selection(examined=-1), 0
    for i, unit in enumerate(units):
        offset, size, number = unit.commit_log_offset, unit.size, unit.message_count
        if i and unit.base_offset >= end_offset:
            break
        # A damaged unit may count no messages, or less than none; the records are limited all the same.
        so_far = max(count, len(selection.messages))
        in_memory = offset >= limits.memory_begin
        if selection.messages and count + number > limits.max_count:
            break
        if is_batch_full(size, selection, so_far, limits, in_memory=in_memory):
            break
        if selection.messages and selection.size >= limits.max_size:
            break
        if selection.messages and offset // file_size != selection.messages[0][0] // file_size:
            break
        selection.examined, selection.last = unit.base_offset + max(number, 1), offset
        low_bits = (unit.tags_code & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
        if tags and low_bits not in tags:
            if not selection.messages:
                selection.status = "NO_MATCHED_MESSAGE"
            continue
        file_end = offset - offset % file_size + file_size
        if not (log_begin <= offset and size > 0 and offset + size <= min(log_end, file_end)):
            if not selection.messages:
                selection.status = "MESSAGE_WAS_REMOVING"
            continue
        selection.messages.append((offset, size))
        count += number
        selection.status = "FOUND"
    return selection
