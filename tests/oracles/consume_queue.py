"""The twins of `kernels.queues.consume_queue`, unit by unit (docs/formats/consume-queue.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reput.formats.consume_queue import Unit, encode_unit


@dataclass(frozen=True)
class Place:
    """What a record tells its queue."""

    queue: int
    queue_offset: int
    sys_flag: int
    unit: Unit


def group_units(places: Sequence[Place], next_offsets: Sequence[int], begin: int = 0) -> tuple[list[bytes], int]:
    """The bytes of each queue's units, and the first row that was not taken."""
    taken: list[list[Unit]] = [[] for _ in next_offsets]
    stop = len(places)
    for row in range(begin, len(places)):
        place = places[row]
        if place.sys_flag & 0xC in (0x4, 0xC):
            continue
        expected = next_offsets[place.queue] + len(taken[place.queue])
        if place.queue_offset > expected:
            stop = row
            break
        if place.queue_offset == expected:
            taken[place.queue].append(place.unit)
    return [b"".join(encode_unit(*unit) for unit in units) for units in taken], stop


@dataclass(frozen=True)
class Limits:
    """What bounds one pull: counts of messages, sizes in bytes."""

    max_count: int = 32
    max_size: int = 128 << 20
    memory_begin: int = 0
    memory_count: int = 32
    memory_size: int = 262_144
    disk_count: int = 8
    disk_size: int = 65_536


@dataclass
class Selection:
    """The answer: messages as (commit log offset, size), units examined, and the status where none was taken."""

    messages: list[tuple[int, int]] = field(default_factory=list)
    examined: int = 0
    status: str = "NO_MATCHED_MESSAGE"
    last: int = 0

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return sum(size for _, size in self.messages)


def is_batch_full(size: int, selection: Selection, limits: Limits, *, in_memory: bool) -> bool:
    """`DefaultMessageStore.isTheBatchFull` for units of one message."""
    total, count = selection.size, len(selection.messages)
    if total == 0 or count == 0:
        return False
    if count + 1 > limits.max_count or total + size > limits.max_size:
        return True
    if in_memory:
        return total + size > limits.memory_size or count > limits.memory_count - 1
    return total + size > limits.disk_size or count > limits.disk_count - 1


def select_units(
    units: Sequence[Unit], log_begin: int, log_end: int, file_size: int, tags: Sequence[int], limits: Limits
) -> Selection:
    """The units of one pull (`DefaultMessageStore.getMessage`); it stays in the log file of its first message.

    A unit without a record is passed over alone; RocketMQ passes over all units of its log file.
    """
    selection = Selection()
    for unit in units:
        offset, size, _ = unit
        if is_batch_full(size, selection, limits, in_memory=offset >= limits.memory_begin):
            break
        if selection.messages and selection.size >= limits.max_size:
            break
        if selection.messages and offset // file_size != selection.messages[0][0] // file_size:
            break
        selection.examined += 1
        selection.last = offset
        low_bits = (unit.tags_code & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
        if tags and low_bits not in tags and unit.tags_code > -(2**31) - 1:
            if not selection.messages:
                selection.status = "NO_MATCHED_MESSAGE"
            continue
        file_end = offset - offset % file_size + file_size
        if not (log_begin <= offset and size > 0 and offset + size <= min(log_end, file_end)):
            if not selection.messages:
                selection.status = "MESSAGE_WAS_REMOVING"
            continue
        selection.messages.append((offset, size))
        selection.status = "FOUND"
    return selection
