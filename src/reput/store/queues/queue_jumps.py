"""Jumps in queue offsets, as dispatch meets them: it fills a gap if the records after it go on from there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.formats.java import INT64_MAX
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.kernels.records.columns import RecordColumns
from reput.log.queue_jumps import Jump, has_room, judge_jump, next_queue_offsets
from reput.store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger("reput.store")


class QueueJumps:
    """Fills gaps before units, or leaves records out whose queue offset their queue's next records contradict.

    A jump without a next record counts until one comes that contradicts it: then it is taken back.
    """

    def __init__(self) -> None:
        #: For a queue whose last unit is the first one after a gap: the queue's end before the gap, and the queue
        #: offsets of the records since then.
        self._jumps: dict[ConsumeQueue, tuple[int, npt.NDArray[np.int64]]] = {}
        #: Queues without a unit of a message that begin where something else than units says.
        self.begun: set[ConsumeQueue] = set()

    @property
    def are_open(self) -> bool:
        """Whether `take_back` has anything to judge."""
        return bool(self._jumps or self.begun)

    def open(self, queue: ConsumeQueue, expected: int) -> None:
        """Judge the last unit of a queue, which was loaded, by the queue's next records.

        Args:
            queue: The queue.
            expected: Its end before the gap; -1 if no record's unit comes before it.
        """
        self._jumps[queue] = expected, np.empty(0, np.int64)

    def is_open(self, queue: ConsumeQueue) -> bool:
        """Whether the queue offset of the queue's last unit is judged by the queue's next records."""
        return queue in self._jumps

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
            self._jumps[queue] = expected, following

    def take_back(self, columns: RecordColumns, queues: Sequence[ConsumeQueue]) -> None:
        """Judge jumps that had no next record by scanned records, and take wrong ones back.

        Args:
            columns: Records to be dispatched next.
            queues: The queues of the scan, by number.
        """
        for number, queue in enumerate(queues if self.begun else ()):
            if queue in self.begun and (first := next_queue_offsets(columns, number, 0)[:1]).size:
                self.begun.remove(queue)
                if first[0] < queue.max_offset:  # as of a slave whose groups are ahead of its log
                    queue.begin_at(int(first[0]))
        for number, queue in enumerate(queues if self._jumps else ()):
            if queue.max_offset == INT64_MAX or queue not in self._jumps:
                continue
            last, (expected, following) = queue.max_offset - 1, self._jumps.pop(queue)
            following = np.concatenate([following, next_queue_offsets(columns, number, 0)])
            jump = judge_jump(last, expected, following)
            if jump is Jump.WRONG:
                logger.warning(
                    "%s: a record says queue offset %d, and the records around it go on at %d: no consumer gets it",
                    queue.path, last, expected,
                )  # fmt: skip
                queue.take_back(max(expected, 0))
            if jump is Jump.UNKNOWN:
                self._jumps[queue] = expected, following[-2:]  # one that is lower, or one that repeats
