"""Dispatch check: what dispatch would refuse of some records, found out without a change.

Dispatch refuses a record whose topic cannot name a folder, or whose queue offset no log can hold. And if units are
missing before a record's unit, all records of the log must be dispatched again. A start must know all of this before it
changes anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reput.errors import CorruptRecordError
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.progress import Progress
from reput.store.dispatch.redispatch import walk
from reput.store.log.commit_log import CommitLog
from reput.store.queues.batch_consume_queue_store import BatchEnd
from reput.store.queues.tables import QueueTables

_MAX_ROWS = 65_536


class DispatchCheck(NamedTuple):
    """Result of a dispatch check.

    Attributes:
        begin: Commit log offset of the first record to dispatch.
        batch_topics: Topics whose records show that they have batch consume queues, though no configuration says so.
    """

    begin: int
    batch_topics: frozenset[str] = frozenset()


def check_queue_offsets(columns: RecordColumns, rows: int, path: str) -> None:
    """Check the queue offsets of the first rows; raises CorruptRecordError if dispatch would refuse one."""
    offsets, queue_offsets = columns["commit_log_offset"][:rows], columns["queue_offset"][:rows]
    wrong = np.flatnonzero(queue_offsets > offsets // MIN_ITEM_SIZE)
    if wrong.size:
        offset, queue_offset = int(offsets[wrong[0]]), int(queue_offsets[wrong[0]])
        raise CorruptRecordError(
            path,
            offset,
            f"the record says queue offset {queue_offset}, more than a log of this size can hold; nothing was changed; "
            "copy the store, see what `reput repair` can save, or restore the file from a replica or a backup",
        )


def check_dispatch(log: CommitLog, queues: QueueTables, begin: int, end: int, progress: Progress) -> DispatchCheck:
    """Check the records that are to be dispatched, from `begin` up to `end`.

    A queue offset that leaves a gap after its queue's last unit says that units before it are missing, for example
    because the queue's folder vanished. Then all records are dispatched from the log's first record on, and remaining
    gaps are filled. The same is done if an inner batch shows that its topic has batch consume queues
    (`QueueTables.turn_to_batch`).

    Raises:
        CorruptRecordError: Dispatch would refuse a record, or no record lies where one should start.
    """
    scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.PROPERTIES)
    ends: dict[tuple[bytes, int], int] = {}
    batch_ends: dict[tuple[str, int], BatchEnd] = {}
    batch_topics: set[str] = set()
    lacks_units = False
    ranges = [(begin, end), (log.min_offset, begin)]
    for first, last in ranges:
        for batch in walk(log, lambda: scanner, first, last):
            columns = batch.columns
            progress(columns.base_offset - first, last - first, "looking at what is to be dispatched again")
            check_queue_offsets(columns, columns.rows, log.queue.path_of(columns.base_offset))
            follows = queues.check_dispatch(columns, ends, batch_ends)
            batch_topics |= queues.types.undeclared(columns)
            lacks_units = lacks_units or bool(batch_topics) or not follows
            batch.release()
        if not lacks_units:
            return DispatchCheck(begin)
    return DispatchCheck(log.min_offset, frozenset(batch_topics))
