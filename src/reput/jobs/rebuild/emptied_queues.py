"""Emptied queues: retention has deleted all their messages, and only their files say the next queue offset.

So a rebuild in place keeps their files, and a backup stores the last unit of each. Nothing else in them counts: all
their units lead to before the log's begin.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from reput.errors import StoreFormatError
from reput.files import DISK, File, FileLayer
from reput.formats.backup import EmptiedQueue
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit, encode_batch_unit, place_holder
from reput.formats.consume_queue import FILLER, UNIT_SIZE, decode_unit, encode_unit
from reput.formats.java import INT64_MAX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, offset_to_file_name, queue_folder_id
from reput.log.directory import LogFile, StoreDirectory, numbered_files
from reput.log.next_offsets import recorded_next_offsets
from reput.log.queue_types import QueueTypes

#: A commit log offset after every record.
_EVERYTHING = INT64_MAX
#: Offset and size of a record that lies before the begin of every log with emptied queues.
_BEFORE_ALL = (0, 1)


class _Location(NamedTuple):
    """Commit log offset and size of a unit's record; size 0 if there is no unit."""

    offset: int
    size: int


def _location(data: bytes) -> _Location:
    unit = decode_unit(data)
    return _Location(unit.commit_log_offset, max(unit.size, 0))


def _location_of_batch(data: bytes) -> _Location:
    unit = decode_batch_unit(data)
    return _Location(unit.commit_log_offset, unit.size if unit.is_in_use else 0)


_KINDS: dict[str, tuple[int, Callable[[bytes], _Location]]] = {
    CONSUME_QUEUE: (UNIT_SIZE, _location),
    BATCH_CONSUME_QUEUE: (BATCH_UNIT_SIZE, _location_of_batch),
}


def keep_emptied_queues(
    directory: StoreDirectory, built: str, log_begin: int, file_sizes: Mapping[str, int], types: QueueTypes
) -> list[str]:
    """Copy the files of emptied queues to the new queues, and sync them.

    A queue whose files do not tell its next offset any more gets a new file, by what is recorded
    (`reput.log.next_offsets`).

    Args:
        directory: the store.
        built: the folder with the new queues; queues that are there already are left as they are.
        log_begin: commit log offset at which the log begins.
        file_sizes: bytes of a file of the new queues, by the folder of their kind.
        types: of the new queues.

    Returns:
        "topic/queue id" of each kept queue.
    """
    kept = []
    recorded = {
        f"{BATCH_CONSUME_QUEUE if topic in types.batch else CONSUME_QUEUE}/{topic}/{queue_id}": offset
        for (topic, queue_id), offset in recorded_next_offsets(directory.path, DISK, log_begin).items()
    }
    for path, files in _queues(directory):
        target = os.path.join(built, path)
        if DISK.exists(target) or (last := _emptied(path, files, log_begin, _EVERYTHING, DISK)) is None:
            continue
        if recorded.get(path, 0) <= _next_offset(last):
            _copy(files, target)
            kept.append(path.partition("/")[2])
    for path, offset in recorded.items():
        if not DISK.exists(os.path.join(built, path)):
            write_emptied_queue(_lost_queue(path, file_sizes, offset), built, DISK)
            kept.append(path.partition("/")[2])
    return kept


def find_emptied_queues(directory: StoreDirectory, log_begin: int, log_end: int) -> list[EmptiedQueue]:
    """Find the emptied queues of a store that may be live, each with its last unit.

    A queue whose messages came again only after `log_end` has a unit in place of that, which leads to before all.

    Args:
        directory: the store.
        log_begin, log_end: commit log offsets of the log; units after `log_end` do not count.
    """
    found = []
    for path, queue_files in _queues(directory):
        last = _last_unit(path, queue_files, log_end, directory.files)
        if last is None and queue_files:
            found.append(_begun_after(path, queue_files[0], log_end, directory.files))
        elif last is not None and _is_before(last, log_begin):
            found.append(last)
    return [queue for queue in found if queue is not None]


def write_emptied_queue(queue: EmptiedQueue, store: str, files: FileLayer) -> None:
    """Make an emptied queue in a new store: one file, with fillers before its last unit."""
    unit_size, _ = _KINDS[queue.path.partition("/")[0]]
    begin = queue.position - queue.position % queue.file_size
    # A batch consume queue needs no fillers: its units hold their queue offsets.
    fillers = encode_unit(*FILLER) * ((queue.position - begin) // UNIT_SIZE) if unit_size == UNIT_SIZE else b""
    folder = os.path.join(store, queue.path)
    files.make_directories(folder)
    path = os.path.join(folder, offset_to_file_name(begin))
    with files.open(path, writable=True, create=True, size=queue.file_size) as file:
        file.write(0, fillers + queue.unit)
        file.sync()
    files.sync_directory(folder)


def queues_without_a_record_before(directory: StoreDirectory, end: int) -> Iterator[EmptiedQueue]:
    """Find the queues of a rebuilt store whose records all lie at `end` or later, and that began before these.

    A cut of the log at `end` makes emptied queues of them; the last unit of each leads to before every record.
    """
    for path, queue_files in _queues(directory):
        queue = _begun_after(path, queue_files[0], end, directory.files)
        if queue is not None:
            yield queue


def _begun_after(path: str, first: LogFile, end: int, files: FileLayer) -> EmptiedQueue | None:
    """Emptied queue, by its first file, of a queue whose records all lie at `end` or later, and that began before."""
    unit_size, location_of = _KINDS[path.partition("/")[0]]
    with files.open(first.path) as file:
        units = range(first.size // unit_size)
        count = bisect_left(units, True, key=partial(_is_after_end, file, unit_size, location_of, end))
        before, after = file.read(0, count * unit_size), file.read(count * unit_size, unit_size)
    if unit_size == UNIT_SIZE:
        position = first.start_offset + (count - 1) * UNIT_SIZE
        if before == encode_unit(*FILLER) * count and position >= 0:
            return EmptiedQueue(path, first.size, position, encode_unit(*_BEFORE_ALL, 0))
    elif not count and (base_offset := decode_batch_unit(after).base_offset) > 0:
        return EmptiedQueue(path, first.size, first.start_offset, encode_batch_unit(place_holder(base_offset)))
    return None


def queue_ends(directory: StoreDirectory) -> dict[tuple[str, int], int]:
    """Offset of the next message of each queue, by topic and queue id."""
    ends = {}
    for path, queue_files in _queues(directory):
        _, topic, queue_id = path.split("/")
        last = _last_unit(path, queue_files, _EVERYTHING, directory.files)
        if last is not None:
            ends[topic, int(queue_id)] = _next_offset(last)
    return ends


def _next_offset(queue: EmptiedQueue) -> int:
    """Queue offset of the next message, by the last unit."""
    is_batch = len(queue.unit) == BATCH_UNIT_SIZE
    return decode_batch_unit(queue.unit).next_offset if is_batch else queue.position // UNIT_SIZE + 1


def _lost_queue(path: str, file_sizes: Mapping[str, int], next_offset: int) -> EmptiedQueue:
    """A queue whose files are lost, and whose next queue offset is recorded."""
    kind = path.partition("/")[0]
    if kind == BATCH_CONSUME_QUEUE:
        return EmptiedQueue(path, file_sizes[kind], 0, encode_batch_unit(place_holder(next_offset)))
    return EmptiedQueue(path, file_sizes[kind], (next_offset - 1) * UNIT_SIZE, encode_unit(*_BEFORE_ALL, 0))


def _queues(directory: StoreDirectory) -> Iterator[tuple[str, list[LogFile]]]:
    """(path in the store, files) of each queue. Folders that are no queues are left out."""
    files = directory.files
    for kind in _KINDS:
        for topic in _folders(files, os.path.join(directory.path, kind)):
            for queue in _folders(files, os.path.join(directory.path, kind, topic)):
                if queue_folder_id(queue) is not None:
                    path = f"{kind}/{topic}/{queue}"
                    try:
                        yield path, numbered_files(files, os.path.join(directory.path, path))
                    except StoreFormatError:
                        continue


def _folders(files: FileLayer, path: str) -> list[str]:
    """Names of the subfolders of a folder; none if the folder is missing."""
    if not files.is_directory(path):
        return []
    return [entry.name for entry in files.list_directory(path) if entry.is_directory]


def _emptied(
    path: str, queue_files: Sequence[LogFile], log_begin: int, log_end: int, files: FileLayer
) -> EmptiedQueue | None:
    """Emptied queue with its last unit before `log_end`; None unless that unit's record lies before `log_begin`.

    Then the records of all other units lie before `log_begin`, too.
    """
    last = _last_unit(path, queue_files, log_end, files)
    return last if last is not None and _is_before(last, log_begin) else None


def _is_before(last: EmptiedQueue, log_begin: int) -> bool:
    """Whether the record of a queue's last unit lies before an offset of the log."""
    location = _KINDS[last.path.partition("/")[0]][1](last.unit)
    return location.offset + location.size <= log_begin


def _last_unit(path: str, queue_files: Sequence[LogFile], log_end: int, files: FileLayer) -> EmptiedQueue | None:
    """The last unit of a queue before `log_end`."""
    unit_size, location_of = _KINDS[path.partition("/")[0]]
    for queue_file in reversed(queue_files):
        with files.open(queue_file.path) as file:
            units = range(queue_file.size // unit_size)
            count = bisect_left(units, True, key=partial(_is_after_end, file, unit_size, location_of, log_end))
            if count:
                position = (count - 1) * unit_size
                unit = file.read(position, unit_size)
                return EmptiedQueue(path, queue_file.size, queue_file.start_offset + position, unit)
    return None


def _is_after_end(
    file: File, unit_size: int, location_of: Callable[[bytes], _Location], log_end: int, number: int
) -> bool:
    """Whether unit `number` of a file is no unit, or a unit of a record after the log's end."""
    location = location_of(file.read(number * unit_size, unit_size))
    return location.size == 0 or location.offset >= log_end


def _copy(files: Sequence[LogFile], target: str) -> None:
    unfinished = f"{target}.unfinished"
    if DISK.exists(unfinished):
        DISK.remove_tree(unfinished)
    DISK.make_directories(unfinished)
    for source in files:
        path = os.path.join(unfinished, os.path.basename(source.path))
        with DISK.open(path, writable=True, create=True, size=source.size) as file:
            file.write(0, DISK.read_bytes(source.path).rstrip(b"\0"))
            file.sync()
    DISK.sync_directory(unfinished)
    DISK.rename(unfinished, target)
