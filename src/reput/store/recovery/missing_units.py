"""What queues lack after a clean exit, which leaves nothing undispatched: a file that was cut or is lost shows by that.

A start for writing builds it again from the log. A reader changes nothing, so it says what it cannot show.
"""

from __future__ import annotations

import os

import numpy as np

from reput.errors import CorruptConsumeQueueError, CorruptRecordError
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, topic_folder_name
from reput.formats.record_layout import SysFlag
from reput.formats.shutdown import Shutdown
from reput.kernels.columns import RecordColumns
from reput.kernels.record_scan import RecordScanner, ScanLevel
from reput.log.directory import build_again
from reput.store.dispatch.redispatch import walk
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

#: One that is missing is enough.
_MAX_ROWS = 4096
_NO_MESSAGE = (1 << 63) - 1


def find_missing_units(
    root: str, log: CommitLog, queues: QueueTables, end: int, shutdown: Shutdown | None
) -> CorruptConsumeQueueError | None:
    """The first queue that is found to lack units, as an error that names its last file; None where none is.

    Args:
        root: The store's directory, which was closed cleanly.
        log: The log.
        queues: Loaded with all units of records before `end`.
        end: Commit log offset behind the last record.
        shutdown: What reput's own clean exit left. It tells of each queue how long it was. After another writer's exit
            the log tells: records behind the last one that any queue knows.
    """
    if shutdown is not None and shutdown.commit_log_end == end:
        for (topic, queue_id), max_offset in shutdown.max_offsets.items():
            queue = queues.find(topic, queue_id)
            found = queue.max_offset if queue is not None else 0
            if found < max_offset:
                return _lack(root, queues, topic, queue_id, f"{max_offset - found} more, up to {max_offset}")
        return None
    scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.QUEUES)
    try:
        for piece in walk(log, lambda: scanner, max(queues.max_physical_offset, log.min_offset), end):
            missing = _first_missing(piece.columns, queues)
            if missing is not None:
                topic, queue_id, offset = missing
                return _lack(root, queues, topic, queue_id, f"that of the record at commit log offset {offset}")
            piece.release()
    except CorruptRecordError:  # the last unit leads to no record: told by who reads it
        pass
    return None


def _first_missing(columns: RecordColumns, queues: QueueTables) -> tuple[str, int, int] | None:
    """(topic, queue id, commit log offset) of the first record that should have a unit, and has none."""
    names = [(topic_folder_name(topic), queue_id) for topic, queue_id in columns.queues()]
    found = [None if topic is None else queues.find(topic, queue_id) for topic, queue_id in names]
    next_offsets = [
        _NO_MESSAGE if topic is None else queue.max_offset if queue is not None else 0
        for (topic, _), queue in zip(names, found, strict=True)
    ]
    # Messages prepared or rolled back have none; nor have those whose queue offset an earlier one took.
    has_unit = (columns["sys_flag"] & SysFlag.TRANSACTION_PREPARED) == 0
    is_new = columns["queue_offset"] >= np.array(next_offsets, np.int64)[columns["queue"]]
    rows = np.flatnonzero(has_unit & is_new)
    if not rows.size:
        return None
    topic, queue_id = names[int(columns["queue"][rows[0]])]
    assert topic is not None, "no queue offset is that large"
    return topic, queue_id, int(columns["commit_log_offset"][rows[0]])


def _lack(root: str, queues: QueueTables, topic: str, queue_id: int, lost: str) -> CorruptConsumeQueueError:
    queue = queues.find(topic, queue_id)
    if queue is None or not queue.file_starts:
        path, position, state = root, 0, f"queue {topic}/{queue_id} has no file with units"
        folder = f"what is left of {CONSUME_QUEUE} and {BATCH_CONSUME_QUEUE}"
    else:
        start = max([start for start in queue.file_starts if start <= queue.end_position] or queue.file_starts[:1])
        path, position = queue.file_path(start), max(0, queue.end_position - start)
        is_full = f", where its last file of {queue.file_size} bytes does" if position == queue.file_size else ""
        state = f"the queue ends before queue offset {queue.max_offset}{is_full}"
        folder = os.path.dirname(os.path.dirname(queue.path))
    return CorruptConsumeQueueError(
        path,
        position,
        f"expected units of all messages, as the store was closed cleanly; {state}, and lacks {lost}; a file was cut, "
        f"or is lost; {build_again(folder)}",
    )
