"""Messages that a store's queues reach, before a swap: rebuilt queues never reach fewer without being asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptConsumeQueueError
from reput.files import DISK, Entry
from reput.formats.consume_queue import FILLER
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, file_name_to_offset
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.directory import LogFile, StoreDirectory

#: Units whose record is looked at, of all queues: the first whole record is the answer.
_MOST_LOOKS = 10_000
#: Bytes of one read, a whole number of units.
_READ_BYTES = 50_000 * UNIT_TYPE.itemsize


def check_reachable(directory: StoreDirectory, built: str, log_files: Sequence[LogFile]) -> None:
    """Compare the messages that consumers get from each consume queue of a store with those of the rebuilt queue.

    Args:
        directory: the store.
        built: the folder with the rebuilt queues.
        log_files: of the log.

    Raises:
        CorruptConsumeQueueError: a queue of the store leads to a whole record, and the rebuilt one does not, as the
            record has a wrong queue offset: a rebuild would hide it.
    """
    looks = _MOST_LOOKS
    rebuilt = dict(_queues(built))
    for name, paths in _queues(directory.path):
        if DISK.exists(os.path.join(built, BATCH_CONSUME_QUEUE, name[0])):
            continue  # the topic's records have units of another kind now
        old = _units(paths)
        new = np.sort(_units(rebuilt.get(name, []))["commit_log_offset"].astype(np.int64))
        offsets = old["commit_log_offset"].astype(np.int64)
        at = np.searchsorted(new, offsets)
        is_there = new[np.minimum(at, new.size - 1)] == offsets if new.size else np.zeros(offsets.size, np.bool_)
        missing = np.flatnonzero(~is_there & (offsets >= (log_files[0].start_offset if log_files else 0)))
        for row in missing[:looks].tolist():
            if _is_whole(int(offsets[row]), int(old["size"][row]), log_files):
                raise _fewer(os.path.dirname(paths[0]), int(offsets[row]), missing.size)
        looks -= min(looks, missing.size)


def _queues(root: str) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """(topic, queue id) as folders name them, and files of each consume queue; what else is there is passed over."""
    for topic in _entries(os.path.join(root, CONSUME_QUEUE)):
        for queue in _entries(os.path.join(root, CONSUME_QUEUE, topic.name)) if topic.is_directory else ():
            folder = os.path.join(root, CONSUME_QUEUE, topic.name, queue.name)
            names = [entry.name for entry in _entries(folder) if not entry.is_directory] if queue.is_directory else []
            if paths := [os.path.join(folder, name) for name in names if file_name_to_offset(name) is not None]:
                yield (topic.name, queue.name), paths


def _entries(folder: str) -> list[Entry]:
    """Folders and regular files of a folder."""
    entries = DISK.list_directory(folder) if DISK.is_directory(folder) else []
    return [entry for entry in entries if not (entry.is_broken_link or entry.is_special)]


def _units(paths: Sequence[str]) -> npt.NDArray[Any]:
    """Units of a queue's files that are of messages."""
    return np.concatenate([np.empty(0, UNIT_TYPE), *(units for path in paths for units in _units_of_file(path))])


def _units_of_file(path: str) -> Iterator[npt.NDArray[Any]]:
    with DISK.open(path) as file:
        position = 0
        while (found := file.find_data(position)) >= 0:  # most of a new file is a hole
            position = found - found % UNIT_TYPE.itemsize
            data = file.read(position, _READ_BYTES)
            units = np.frombuffer(data, UNIT_TYPE, len(data) // UNIT_TYPE.itemsize)
            is_filler = (units["commit_log_offset"] == FILLER.commit_log_offset) & (units["size"] == FILLER.size)
            yield units[(units["size"] > 0) & ~is_filler]
            position += _READ_BYTES


def _is_whole(offset: int, size: int, log_files: Sequence[LogFile]) -> bool:
    """Whether a record of this size that proves itself lies at a commit log offset."""
    for file in log_files:
        if file.start_offset <= offset and offset + size <= file.end_offset:
            with DISK.open(file.path) as opened:
                data = np.frombuffer(opened.read(offset - file.start_offset, size), np.uint8)
            columns = RecordScanner(1, level=ScanLevel.HEADER).scan(data, offset, check_crc=True)
            return columns.first_fault() == 1 and columns.consumed == size
    return False


def _fewer(folder: str, offset: int, count: int) -> CorruptConsumeQueueError:
    return CorruptConsumeQueueError(
        folder,
        0,
        f"leads to the whole record at commit log offset {offset}, and a rebuilt {CONSUME_QUEUE} would not, as its "
        f"queue offset is wrong (so it is for up to {count} messages of the queue): nothing was swapped. Restore the "
        "log file from a copy, or rebuild with --allow-fewer (allow_fewer=True) and hide them",
    )
