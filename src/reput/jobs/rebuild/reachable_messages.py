"""Messages that a store's queues reach, before a swap: rebuilt queues never reach fewer without being asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptConsumeQueueError
from reput.files import DISK, Entry
from reput.formats.consume_queue import FILLER
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, file_name_to_offset
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, UNIT_TYPE
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.directory import LogFile, StoreDirectory

#: Units whose record is looked at, of all queues: the first whole record is the answer.
_MOST_LOOKS = 10_000
#: Units of one read.
_READ_UNITS = 50_000


def check_reachable(directory: StoreDirectory, built: str, log_files: Sequence[LogFile]) -> None:
    """Compare the messages that consumers get from each queue of a store with the rebuilt queue's messages.

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
    for name, files in _queues(directory.path).items():
        new = np.sort(_units(rebuilt.get(name, ()))[0])
        offsets, sizes = _units(files)
        at = np.searchsorted(new, offsets)
        is_there = new[np.minimum(at, new.size - 1)] == offsets if new.size else np.zeros(offsets.size, np.bool_)
        missing = np.flatnonzero(~is_there & (offsets >= (log_files[0].start_offset if log_files else 0)))
        for row in missing[:looks].tolist():
            if _is_whole(int(offsets[row]), int(sizes[row]), log_files):
                raise _fewer(os.path.dirname(files[0].path), int(offsets[row]), missing.size)
        looks -= min(looks, missing.size)


class _QueueFile(NamedTuple):
    """A file of a queue, and the dtype of its units."""

    path: str
    kind: np.dtype[np.void]


def _queues(root: str) -> dict[tuple[str, str], list[_QueueFile]]:
    """Files of each queue, of both kinds, by (topic, queue id) as folders name them; what else is there is passed over.

    The kind of a topic's queues may have been wrong, so a queue has the files of both.
    """
    found: dict[tuple[str, str], list[_QueueFile]] = {}
    for kind, unit_type in ((CONSUME_QUEUE, UNIT_TYPE), (BATCH_CONSUME_QUEUE, BATCH_UNIT_TYPE)):
        for topic in _entries(os.path.join(root, kind)):
            for queue in _entries(os.path.join(root, kind, topic.name)) if topic.is_directory else ():
                folder = os.path.join(root, kind, topic.name, queue.name)
                entries = _entries(folder) if queue.is_directory else []
                names = [entry.name for entry in entries if not entry.is_directory]
                if names := [name for name in names if file_name_to_offset(name) is not None]:
                    files = [_QueueFile(os.path.join(folder, name), unit_type) for name in names]
                    found.setdefault((topic.name, queue.name), []).extend(files)
    return found


def _entries(folder: str) -> list[Entry]:
    """Folders and regular files of a folder."""
    entries = DISK.list_directory(folder) if DISK.is_directory(folder) else []
    return [entry for entry in entries if not (entry.is_broken_link or entry.is_special)]


def _units(files: Sequence[_QueueFile]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """int64[n] each, commit log offsets and sizes of the records to which a queue's units lead."""
    units = [units for file in files for units in _units_of_file(file)]
    none = np.empty(0, np.int64)
    offsets = np.concatenate([none, *(some["commit_log_offset"].astype(np.int64) for some in units)])
    return offsets, np.concatenate([none, *(some["size"].astype(np.int64) for some in units)])


def _units_of_file(queue_file: _QueueFile) -> Iterator[npt.NDArray[Any]]:
    unit_size = queue_file.kind.itemsize
    with DISK.open(queue_file.path) as file:
        position = 0
        while (found := file.find_data(position)) >= 0:  # most of a new file is a hole
            position = found - found % unit_size
            data = file.read(position, _READ_UNITS * unit_size)
            units = np.frombuffer(data, queue_file.kind, len(data) // unit_size)
            is_filler = (units["commit_log_offset"] == FILLER.commit_log_offset) & (units["size"] == FILLER.size)
            yield units[(units["size"] > 0) & ~is_filler]
            position += _READ_UNITS * unit_size


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
        f"leads to the whole record at commit log offset {offset}, and the rebuilt queue would not, as its queue "
        f"offset is wrong (so it is for up to {count} messages of the queue): nothing was swapped. Restore the "
        "log file from a copy, or rebuild with --allow-fewer (allow_fewer=True) and hide them",
    )
