"""Queues whose messages retention has deleted: their files alone say which offset their next message gets.

So a rebuild in place keeps them, and a backup takes the last unit of each with it. They hold nothing else that counts:
all their units point before the log's begin.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from reput.errors import StoreFormatError
from reput.files import DISK, File, FileLayer
from reput.formats.backup import EmptiedQueue
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.consume_queue import FILLER, UNIT_SIZE, decode_unit, encode_unit
from reput.formats.java import INT64_MAX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, offset_to_file_name
from reput.log.directory import LogFile, StoreDirectory, numbered_files

#: Behind every record.
_EVERYTHING = INT64_MAX


class _Place(NamedTuple):
    """Commit log offset and size of a unit's message; size 0 where there is no unit."""

    offset: int
    size: int


def _place(data: bytes) -> _Place:
    unit = decode_unit(data)
    return _Place(unit.commit_log_offset, max(unit.size, 0))


def _place_of_batch(data: bytes) -> _Place:
    unit = decode_batch_unit(data)
    return _Place(unit.commit_log_offset, unit.size if unit.is_in_use else 0)


_KINDS: dict[str, tuple[int, Callable[[bytes], _Place]]] = {
    CONSUME_QUEUE: (UNIT_SIZE, _place),
    BATCH_CONSUME_QUEUE: (BATCH_UNIT_SIZE, _place_of_batch),
}


def keep_emptied_queues(directory: StoreDirectory, built: str, log_begin: int) -> list[str]:
    """Copy the files of such queues to what was built, synced.

    Args:
        directory: the store.
        built: the folder with the new queues; what is in there is left alone.
        log_begin: commit log offset at which the log begins.

    Returns:
        "topic/queue id" of each.
    """
    kept = []
    for path, files in _queues(directory):
        target = os.path.join(built, path)
        if not DISK.exists(target) and _emptied(path, files, log_begin, _EVERYTHING, DISK) is not None:
            _copy(files, target)
            kept.append(path.partition("/")[2])
    return kept


def find_emptied_queues(directory: StoreDirectory, log_begin: int, log_end: int) -> list[EmptiedQueue]:
    """The last unit of each such queue of a store that may be live, as of a log that ends at `log_end`.

    Args:
        directory: the store.
        log_begin, log_end: commit log offsets; units behind them do not count.
    """
    found = (_emptied(path, files, log_begin, log_end, directory.files) for path, files in _queues(directory))
    return [queue for queue in found if queue is not None]


def write_emptied_queue(queue: EmptiedQueue, store: str, files: FileLayer) -> None:
    """Make such a queue in a new store: one file, whose units before the last one are fillers."""
    unit_size, _ = _KINDS[queue.path.partition("/")[0]]
    begin = queue.position - queue.position % queue.file_size
    # A batch consume queue has no fillers; its units say themselves which messages they are.
    fillers = encode_unit(*FILLER) * ((queue.position - begin) // UNIT_SIZE) if unit_size == UNIT_SIZE else b""
    folder = os.path.join(store, queue.path)
    files.make_directories(folder)
    path = os.path.join(folder, offset_to_file_name(begin))
    with files.open(path, writable=True, create=True, size=queue.file_size) as file:
        file.write(0, fillers + queue.unit)
        file.sync()
    files.sync_directory(folder)


def _queues(directory: StoreDirectory) -> Iterator[tuple[str, list[LogFile]]]:
    """(path in the store, files) of each queue; what is no queue says nothing."""
    files = directory.files
    for kind in _KINDS:
        for topic in _folders(files, os.path.join(directory.path, kind)):
            for queue in _folders(files, os.path.join(directory.path, kind, topic)):
                if queue.isascii() and queue.isdigit():
                    path = f"{kind}/{topic}/{queue}"
                    try:
                        yield path, numbered_files(files, os.path.join(directory.path, path))
                    except StoreFormatError:
                        continue


def _folders(files: FileLayer, path: str) -> list[str]:
    """The names of the folders in a folder, which may be missing."""
    if not files.is_directory(path):
        return []
    return [entry.name for entry in files.list_directory(path) if entry.is_directory]


def _emptied(
    path: str, queue_files: Sequence[LogFile], log_begin: int, log_end: int, files: FileLayer
) -> EmptiedQueue | None:
    """A queue's last unit before `log_end` where its message lies before `log_begin`, as all others then do, too."""
    unit_size, place_of = _KINDS[path.partition("/")[0]]
    for queue_file in reversed(queue_files):
        with files.open(queue_file.path) as file:
            units = range(queue_file.size // unit_size)
            count = bisect_left(units, True, key=partial(_is_behind, file, unit_size, place_of, log_end))
            if count:
                position = (count - 1) * unit_size
                unit = file.read(position, unit_size)
                place = place_of(unit)
                if place.offset + place.size > log_begin:
                    return None
                return EmptiedQueue(path, queue_file.size, queue_file.start_offset + position, unit)
    return None


def _is_behind(file: File, unit_size: int, place_of: Callable[[bytes], _Place], log_end: int, number: int) -> bool:
    """Whether the unit of this number, in its file, is none, or one of a message behind the log's end."""
    place = place_of(file.read(number * unit_size, unit_size))
    return place.size == 0 or place.offset >= log_end


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
