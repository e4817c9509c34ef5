"""Search for units that queues lack after a clean exit.

A clean exit leaves no record undispatched, but for those that another process is still to dispatch. So a missing unit
of an earlier record shows that a queue file was cut or is lost. A writer's start builds the units again from the log.
A reader changes nothing, so it says what it cannot show.
"""

from __future__ import annotations

import logging
import os

import numpy as np

from reput.counts import counted
from reput.errors import CorruptConsumeQueueError, CorruptRecordError
from reput.formats.java import INT64_MAX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, topic_folder_name
from reput.formats.record_layout import SysFlag
from reput.formats.shutdown import Shutdown
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.directory import build_again
from reput.store.dispatch.redispatch import walk
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

logger = logging.getLogger("reput.store")

#: Records of a batch; the search ends at the first missing unit.
_MAX_ROWS = 4096
_NO_MESSAGE = INT64_MAX


def find_missing_units(
    root: str, log: CommitLog, queues: QueueTables, end: int, shutdown: Shutdown | None
) -> CorruptConsumeQueueError | None:
    """Find a queue that lacks units; returns an error that names the queue's last file, or None.

    Args:
        root: The store's directory, which was closed cleanly.
        log: The log.
        queues: Loaded with all units of records before `end`.
        end: Commit log offset after the last record whose unit must be there.
        shutdown: What reput's own clean exit left: the max offset of each queue. After another writer's exit the log is
            scanned instead, from the last record with a unit on.
    """
    if shutdown is not None and shutdown.commit_log_end == end:
        for (topic, queue_id), max_offset in shutdown.max_offsets.items():
            queue = queues.find(topic, queue_id)
            end_offset = queue.max_offset if queue is not None else 0
            if end_offset < max_offset:
                lost = f"{counted(max_offset - end_offset, 'unit')}, up to queue offset {max_offset}"
                return _lack(root, queues, topic, queue_id, lost)
        return None
    scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.QUEUES)
    try:
        for batch in walk(log, lambda: scanner, max(queues.max_physical_offset, log.min_offset), end):
            missing = _first_missing(batch.columns, queues)
            if missing is not None:
                topic, queue_id, offset = missing
                return _lack(root, queues, topic, queue_id, f"the unit of the record at commit log offset {offset}")
            batch.release()
    except CorruptRecordError:  # the last unit leads to no record: a reader of that unit is told
        pass
    return None


def warn_of_lost_begins(log: CommitLog, queues: QueueTables) -> None:
    """Warn of queues without their first file, if the log has all its messages: retention cuts the log first.

    Consumers pass over such messages without an error, and so does a start, as RocketMQ's.
    """
    if log.min_offset:  # of queues that begin later nothing is known
        return
    lost = [queue for queue in queues.queues() if queue.file_starts and queue.file_starts[0]]
    if lost:
        queue = min(lost, key=lambda queue: queue.path)
        logger.warning(
            "%s: the queue begins at queue offset %d, and the log still begins at 0: files of %s are lost, and no "
            "consumer gets their messages; %s",
            queue.path, queue.min_offset, counted(len(lost), "queue"),
            build_again(os.path.dirname(os.path.dirname(queue.path))),
        )  # fmt: skip


def _first_missing(columns: RecordColumns, queues: QueueTables) -> tuple[str, int, int] | None:
    """(topic, queue id, commit log offset) of the first record whose unit is missing; None if no unit is."""
    names = [(topic_folder_name(topic), queue_id) for topic, queue_id in columns.queues()]
    of_names = [None if topic is None else queues.find(topic, queue_id) for topic, queue_id in names]
    next_offsets = [
        _NO_MESSAGE if topic is None else queue.max_offset if queue is not None else 0
        for (topic, _), queue in zip(names, of_names, strict=True)
    ]
    # Prepared and rolled back messages have no unit. Nor has a record whose queue offset an earlier record took.
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
