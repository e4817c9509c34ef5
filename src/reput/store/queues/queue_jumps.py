"""Jumps in queue offsets, as dispatch meets them: it fills a gap if the records after it go on from there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import FileLayer
from reput.formats.java import INT64_MAX
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.kernels.records.columns import RecordColumns
from reput.log.queue_jumps import Jump, has_room, judge_jump, next_queue_offsets
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.unit_search import gap_begin

logger = logging.getLogger("reput.store")


class QueueJumps:
    """Fills gaps before units, or leaves records out whose queue offset their queue's next records contradict.

    A jump without a next record counts until one comes that contradicts it: then it is taken back. So it is for a jump
    that an earlier process met: its units show it.
    """

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        #: For a queue whose last unit is the first one after a gap: the unit's queue offset, the queue's end before the
        #: gap, and the queue offsets of the records since then.
        self._jumps: dict[ConsumeQueue, tuple[int, int, npt.NDArray[np.int64]]] = {}
        #: Queues without a unit of a message that begin where something else than units says.
        self._begun: set[ConsumeQueue] = set()
        #: Loaded queues that end with a gap, or with one unit after a gap. Where it begins is looked for when the
        #: queue's next record comes: most have none, and a gap may be long.
        self._loaded: set[ConsumeQueue] = set()

    def load(self, queues: Iterable[ConsumeQueue]) -> None:
        """Judge the ends of loaded queues that end with a filler, or with one unit after fillers."""
        self._loaded.update(queues)

    def begin(self, queue: ConsumeQueue) -> None:
        """Let the first record of a queue without a unit of a message say where the queue begins, if that is lower."""
        self._loaded.discard(queue)
        self._begun.add(queue)

    def is_open(self, queue: ConsumeQueue) -> bool:
        """Whether the queue's next records judge the queue's end."""
        return queue in self._jumps or queue in self._loaded or queue in self._begun

    def any_open(self, queues: Iterable[ConsumeQueue]) -> bool:
        """Whether the next records of any of these queues judge its end."""
        return bool(self._jumps or self._loaded or self._begun) and any(map(self.is_open, queues))

    def fill(self, queue: ConsumeQueue, columns: RecordColumns, row: int) -> None:
        """Fill the gap before a record's unit, or set the record's queue offset to -1: then it gets no unit.

        Raises:
            CorruptRecordError: The queue offset is too large for a log of this size.
        """
        number, expected = int(columns["queue"][row]), queue.max_offset if queue.file_starts else -1
        queue_offset, offset = int(columns["queue_offset"][row]), int(columns["commit_log_offset"][row])
        following = next_queue_offsets(columns, number, row + 1)
        jump = judge_jump(queue_offset, expected, following)
        if queue_offset > offset // MIN_ITEM_SIZE and jump is not Jump.WRONG:
            raise CorruptRecordError(
                queue.path,
                offset,
                f"the record says queue offset {queue_offset}, more than a log of this size can hold; "
                "run `reput dump` around it and rebuild the log without it",
            )
        if jump is Jump.UNKNOWN and not has_room(queue_offset, expected, queue.max_physical_offset, offset):
            jump = Jump.WRONG
        if jump is Jump.WRONG:
            logger.warning(
                "%s: the record at commit log offset %d says queue offset %d, and the records around it go on at %d: "
                "it gets no unit, and no consumer gets it",
                queue.path, offset, queue_offset, expected,
            )  # fmt: skip
            columns["queue_offset"][row] = -1
            return
        queue.fill_to(queue_offset)
        if jump is Jump.UNKNOWN:
            self._jumps[queue] = queue_offset, expected, following

    def take_back(self, columns: RecordColumns, queues: Sequence[ConsumeQueue]) -> None:
        """Judge jumps that had no next record by scanned records, and take wrong ones back.

        Args:
            columns: Records to be dispatched next.
            queues: The queues of the scan, by number.
        """
        for number, queue in enumerate(queues if self._loaded else ()):
            if queue in self._loaded and _new_queue_offsets(columns, number, queue).size:
                expected = gap_begin(self._files, queue)
                if queue.max_physical_offset >= 0:
                    self._jumps[queue] = queue.max_offset - 1, expected, np.empty(0, np.int64)
                elif expected >= 0:  # a kill came between a gap and its record's unit: the record fills it again
                    queue.take_back(expected)
                self._loaded.remove(queue)
        for number, queue in enumerate(queues if self._begun else ()):
            if queue in self._begun and (first := next_queue_offsets(columns, number, 0)[:1]).size:
                if first[0] < queue.max_offset:  # as of a slave whose groups are ahead of its log
                    queue.begin_at(int(first[0]))
                self._begun.remove(queue)
        for number, queue in enumerate(queues if self._jumps else ()):
            if queue.max_offset == INT64_MAX or queue not in self._jumps:
                continue
            last, expected, before = self._jumps[queue]
            if queue.max_offset <= last:  # a failure came between the gap and its record's unit
                if expected >= 0:  # else the queue begins with this gap, and the unit comes next
                    queue.take_back(expected)
                    del self._jumps[queue]
                continue
            following = np.concatenate([before, _new_queue_offsets(columns, number, queue)])
            jump = judge_jump(last, expected, following)
            if jump is Jump.WRONG:
                logger.warning(
                    "%s: a record says queue offset %d, and the records around it go on at %d: no consumer gets it",
                    queue.path, last, expected,
                )  # fmt: skip
                queue.take_back(max(expected, 0))
            if jump is Jump.UNKNOWN:
                self._jumps[queue] = last, expected, following[-2:]  # one that is lower, or one that repeats
            else:
                del self._jumps[queue]


def _new_queue_offsets(columns: RecordColumns, number: int, queue: ConsumeQueue) -> npt.NDArray[np.int64]:
    """Next queue offsets of a queue's records after its last unit's record: a repeat of earlier ones says nothing."""
    is_new = (columns["queue"] == number) & (columns["commit_log_offset"] >= queue.max_physical_offset)
    rows = np.flatnonzero(is_new)
    return next_queue_offsets(columns, number, int(rows[0])) if rows.size else np.empty(0, np.int64)
