"""Queues whose messages retention has deleted: their files alone say which offset their next message gets.

So a rebuild in place keeps them. They hold nothing else that counts: all their units point before the log's begin.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence

from reput.errors import StoreFormatError
from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from reput.log.directory import LogFile, StoreDirectory, numbered_files


def _end_of(data: bytes, position: int) -> int:
    """Commit log offset behind a unit's message; 0 where there is no unit."""
    unit = decode_unit(data, position)
    return unit.commit_log_offset + unit.size if unit.size > 0 else 0


def _end_of_batch(data: bytes, position: int) -> int:
    """The same in a batch consume queue."""
    unit = decode_batch_unit(data, position)
    return unit.commit_log_offset + unit.size if unit.is_in_use else 0


_KINDS: tuple[tuple[str, int, Callable[[bytes, int], int]], ...] = (
    (CONSUME_QUEUE, UNIT_SIZE, _end_of),
    (BATCH_CONSUME_QUEUE, BATCH_UNIT_SIZE, _end_of_batch),
)


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
    for folder, unit_size, end_of in _KINDS:
        for topic, queue_id in _queues(os.path.join(directory.path, folder)):
            target = os.path.join(built, folder, topic, queue_id)
            if not DISK.exists(target):
                try:
                    files = numbered_files(DISK, os.path.join(directory.path, folder, topic, queue_id))
                except StoreFormatError:  # what is no queue says nothing
                    continue
                if 0 < _last_end(files, unit_size, end_of) <= log_begin:
                    _copy(files, target)
                    kept.append(f"{topic}/{queue_id}")
    return kept


def _queues(path: str) -> list[tuple[str, str]]:
    """(topic, queue id) of each queue's folder in a folder, which may be missing."""
    if not DISK.is_directory(path):
        return []
    return [
        (topic.name, queue.name)
        for topic in DISK.list_directory(path)
        if topic.is_directory
        for queue in DISK.list_directory(os.path.join(path, topic.name))
        if queue.is_directory and queue.name.isascii() and queue.name.isdigit()
    ]


def _last_end(files: Sequence[LogFile], unit_size: int, end_of: Callable[[bytes, int], int]) -> int:
    """Commit log offset behind the message of the queue's last unit; 0 where it has none."""
    for file in reversed(files):
        data = DISK.read_bytes(file.path)
        count = bisect_left(range(len(data) // unit_size), True, key=lambda k: end_of(data, k * unit_size) == 0)
        if count:
            return end_of(data, (count - 1) * unit_size)
    return 0


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
