"""What a dispatch of records would come upon, found out without dispatching them: nothing is changed.

Dispatch refuses a record whose topic cannot name a folder, or whose queue offset no log can hold; and records behind
which others are missing send it back to the log's beginning. A start must know all that before it changes anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reput.errors import CorruptRecordError
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.kernels.columns import RecordColumns
from reput.kernels.record_scan import RecordScanner, ScanLevel
from reput.store.dispatch.redispatch import Progress, walk
from reput.store.log.commit_log import CommitLog
from reput.store.queues.batch_consume_queue_store import BatchEnd
from reput.store.queues.tables import QueueTables

_MAX_ROWS = 65_536


class DispatchCheck(NamedTuple):
    """What is to be dispatched.

    Attributes:
        begin: Commit log offset of the first record.
        batch_topics: Topics that its records prove to have batch consume queues, and nothing else says so.
    """

    begin: int
    batch_topics: frozenset[str] = frozenset()


def check_queue_offsets(columns: RecordColumns, rows: int, path: str) -> None:
    """Raises CorruptRecordError for a queue offset among the first rows that dispatch would refuse."""
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
    """Look at the records that are to be dispatched, from `begin` up to `end`.

    A queue offset that leaves a gap behind its queue's last unit says that units before are missing, in a queue
    whose folder vanished for one; then all is dispatched from the log's first record, and gaps are filled. So it is
    where an inner batch shows that its topic has batch consume queues (`QueueTables.turn_to_batch`).

    Raises:
        CorruptRecordError: What dispatch would refuse, or no record where one should start.
    """
    scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.PROPERTIES)
    ends: dict[tuple[bytes, int], int] = {}
    batch_ends: dict[tuple[str, int], BatchEnd] = {}
    batch_topics: set[str] = set()
    lacks_units = False
    ranges = [(begin, end), (log.min_offset, begin)]
    for first, last in ranges:
        for piece in walk(log, lambda: scanner, first, last):
            columns = piece.columns
            progress("looking at what is to be dispatched again", columns.base_offset - first, last - first)
            check_queue_offsets(columns, columns.rows, log.queue.path_of(columns.base_offset))
            follows = queues.check_dispatch(columns, ends, batch_ends)
            batch_topics |= queues.types.undeclared(columns)
            lacks_units = lacks_units or bool(batch_topics) or not follows
            piece.release()
        if not lacks_units:
            return DispatchCheck(begin)
    return DispatchCheck(log.min_offset, frozenset(batch_topics))
