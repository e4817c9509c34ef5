"""Table of all batch consume queues, and the dispatcher that writes their units."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

import numpy as np

from reput.files import FileLayer
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.paths import topic_folder_name
from reput.kernels.queues.batch_consume_queue import NO_BATCH_QUEUE, group_batch_units
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE
from reput.kernels.records.columns import RecordColumns
from reput.log.batch_jumps import judge_units
from reput.log.directory import QueueFiles, numbered_files
from reput.log.geometry.file_sizes import BATCH
from reput.store.queues.batch_consume_queue import BatchConsumeQueue
from reput.store.queues.queue_table import QueueTable
from reput.store.queues.topic_begins import TopicBegins
from reput.store.statistics import TopicCounts

logger = logging.getLogger("reput.store")


class BatchEnd(NamedTuple):
    """End of a queue: the commit log offset after its last record, and the queue offset after its last message."""

    physical_offset: int
    queue_offset: int


class BatchConsumeQueueStore(QueueTable[BatchConsumeQueue]):
    """The queues of the topics in `batch_topics`; `ConsumeQueueStore` keeps the queues of all other topics.

    Args:
        files, root, file_size, counts, begins: See `QueueTable`.
        batch_topics: Topics with batch consume queues; the set may grow.
    """

    def __init__(
        self,
        files: FileLayer,
        root: str,
        file_size: int,
        batch_topics: Set[str],
        counts: dict[str, TopicCounts],
        begins: TopicBegins | None = None,
    ) -> None:
        super().__init__(files, root, BATCH, file_size, counts, begins)
        self._batch_topics = batch_topics

    def load(self, listed: list[QueueFiles], end_offset: int) -> None:
        """Take over listed queues, with the units of records that end at or before `end_offset`."""
        for queue_files in listed:
            starts = [int(path.rpartition("/")[2]) for path in queue_files.paths]
            self._make(queue_files.topic, queue_files.queue_id).load(starts, end_offset)

    def follow(self, keys: Iterable[tuple[str, int]], end_offset: int) -> None:
        """Load some queues again, to which another process may have written."""
        for topic, queue_id in keys:
            starts = [file.start_offset for file in numbered_files(self._files, f"{self.path}/{topic}/{queue_id}")]
            if starts:
                self._make(topic, queue_id).load(starts, end_offset)

    def begin_at(self, topic: str, queue_id: int, offset: int) -> None:
        """As `ConsumeQueueStore.begin_at`."""
        self._found(topic, queue_id).begin_at(offset)

    def _new(self, path: str, topic: str, queue_id: int, counts: TopicCounts) -> BatchConsumeQueue:
        return BatchConsumeQueue(self._files, path, topic, queue_id, self.file_size, counts, self._unsynced.add)

    def dispatch(self, columns: RecordColumns) -> None:
        """Append the units of scanned records; repeats are dropped, so dispatching again does no harm.

        A gap after a queue's last message is left as it is, if the queue's next records say, too, that it is there
        (`judge_units`). Else one record has a wrong queue offset, and gets no unit.

        Args:
            columns: Scanned at `ScanLevel.PROPERTIES` or above.

        Raises:
            StoreFullError: No space. Nothing counts as dispatched; the same call may succeed later.
        """
        if not columns.rows or not self._batch_topics:
            return
        queues = [None if key is None else self._found(*key) for key in self._keys_of(columns)]
        if any(queues):
            ends = [queue.max_physical_offset - 1 if queue else NO_BATCH_QUEUE for queue in queues]
            runs = group_batch_units(columns, np.array(ends, np.int64))
            view = runs.units.data
            for k in np.flatnonzero(runs.counts).tolist():
                queue, begin = queues[k], int(runs.starts[k])
                assert queue is not None
                self._append(queue, view[begin : begin + int(runs.counts[k]) * BATCH_UNIT_SIZE])

    def _append(self, queue: BatchConsumeQueue, view: memoryview) -> None:
        """Append the units of a queue's next records that count."""
        units = np.frombuffer(view, BATCH_UNIT_TYPE)
        if queue.is_place_held:
            first = units["base_offset"][judge_units(units, None).counts][:1].tolist()
            if first and first[0] < queue.max_offset:  # as of a slave whose groups are ahead of its log
                queue.begin_at(first[0])
        last = queue.last
        judged = judge_units(units, last, queue.jump)
        if judged.takes_back and last is not None:
            logger.warning(
                "%s: a record says queue offset %d, and the records around it go on elsewhere: no consumer gets it",
                queue.path, last.base_offset,
            )  # fmt: skip
            queue.take_back(None if queue.jump is None else queue.jump.before)
        for unit in units[judged.wrong]:
            logger.warning(
                "%s: the record at commit log offset %d says queue offset %d, and the records around it go on "
                "elsewhere: it gets no unit, and no consumer gets it",
                queue.path, unit["commit_log_offset"], unit["base_offset"],
            )  # fmt: skip
        if judged.counts.any():
            queue.append(view if judged.counts.all() else memoryview(units[judged.counts].tobytes()))
        queue.jump = judged.jump

    def _keys_of(self, columns: RecordColumns) -> list[tuple[str, int] | None]:
        """(topic, queue id) of the queues of a scan, by number; None for queues of other topics."""
        names = [(topic_folder_name(topic), queue_id) for topic, queue_id in columns.queues()]
        return [
            (topic, queue_id) if topic is not None and topic in self._batch_topics else None
            for topic, queue_id in names
        ]

    def check_dispatch(self, columns: RecordColumns, ends: dict[tuple[str, int], BatchEnd]) -> bool:
        """As `ConsumeQueueStore.check_dispatch`."""
        keys = self._keys_of(columns)
        if not any(keys):
            return True
        for key in keys:
            if key is not None and key not in ends:
                queue = self._table.get(key)
                ends[key] = BatchEnd(queue.max_physical_offset, queue.max_offset) if queue else BatchEnd(-1, 0)
        physical = [NO_BATCH_QUEUE if key is None else ends[key].physical_offset - 1 for key in keys]
        runs = group_batch_units(columns, np.array(physical, np.int64))
        has_gap = False
        for k in np.flatnonzero(runs.counts).tolist():
            key, begin = keys[k], int(runs.starts[k])
            assert key is not None
            first = decode_batch_unit(runs.units.data, begin)
            last = decode_batch_unit(runs.units.data, begin + (int(runs.counts[k]) - 1) * BATCH_UNIT_SIZE)
            has_gap |= first.base_offset > ends[key].queue_offset  # the first unit is enough: a scan skips no record
            ends[key] = BatchEnd(last.commit_log_offset + last.size, last.next_offset)
        return not has_gap

    def raise_min_offsets(self, min_commit_log_offset: int, topics: Iterable[str] | None = None) -> None:
        """See `ConsumeQueueStore.raise_min_offsets`."""
        for queue in self.queues() if topics is None else self.queues_of(topics):
            least = self.begins.least(queue.topic, min_commit_log_offset)
            self.begins.raise_min(queue, queue.first_offset(least))

    def flush(self, least_pages: int = 0) -> None:
        """Sync the queues with at least `least_pages` unsynced pages."""
        with self._flush_lock:
            left = self._unsynced.take(lately=least_pages > 0)
            try:
                left = [queue for queue in left if not queue.flush(least_pages)]
            finally:
                self._unsynced.give_back(left)

    def delete_expired(self, min_commit_log_offset: int, pause: Callable[[], object]) -> dict[str, int]:
        """Delete the files whose messages the log no longer has, as `ConsumeQueueStore.delete_expired`."""
        deleted: dict[str, int] = {}
        self.raise_min_offsets(min_commit_log_offset)
        for queue in self.queues():
            with self._flush_lock:
                paths = queue.delete_expired(min_commit_log_offset)
            if paths:
                deleted |= dict.fromkeys(paths, self.file_size)
                pause()
        return deleted
