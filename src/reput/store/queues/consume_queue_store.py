"""Table of all consume queues, and the dispatcher that writes their units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, StoreError
from reput.files import FileLayer
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.java import INT64_MAX
from reput.formats.paths import topic_folder_name
from reput.kernels.queues.consume_queue import group_units
from reput.kernels.queues.consume_queue_ext import bit_maps_of, encode_ext_units
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.queues.small_pass import QueueRuns
from reput.kernels.records.columns import RecordColumns
from reput.log.directory import QueueFiles
from reput.log.geometry.file_sizes import SIMPLE
from reput.log.queue_end import QueueEnd
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.extensions import ConsumeQueueExtensions
from reput.store.queues.queue_jumps import QueueJumps
from reput.store.queues.queue_table import QueueTable
from reput.store.queues.topic_begins import TopicBegins
from reput.store.queues.unit_locations import advance, locate_units, write_units
from reput.store.queues.unit_search import find_begins, find_ends, follow_units
from reput.store.statistics import TopicCounts

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps

#: Linux allows a process 65 530 maps (vm.max_map_count).
_MAX_MAPS = 8192


class _LeftOut:
    """In place of a queue that takes no units: `group_units` drops every row of it as a repeat."""

    max_offset = INT64_MAX
    max_physical_offset = -1


_LEFT_OUT = _LeftOut()


class ConsumeQueueStore(QueueTable[ConsumeQueue]):
    """RocketMQ's `ConsumeQueueStore`: finds, makes, writes and flushes queues.

    Attributes:
        built_timestamp: Store timestamp (ms) of the last record that was dispatched.
    """

    def __init__(
        self,
        files: FileLayer,
        root: str,
        file_size: int,
        config: MessageStoreConfig,
        *,
        writable: bool,
        bit_maps: BitMaps | None = None,
        batch_topics: Set[str] = frozenset(),
        begins: TopicBegins | None = None,
    ) -> None:
        super().__init__(files, root, SIMPLE, file_size, {}, begins)
        self._batch_topics = batch_topics
        self._by_bytes: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._maps = 0
        self._unsynced_folders: set[str] = set()
        self.built_timestamp = 0
        self._jumps = QueueJumps(files)
        self._extensions = ConsumeQueueExtensions(files, root, config, writable=writable, bit_maps=bit_maps)
        self._multi_dispatch = config.enable_multi_dispatch
        self._enable_lmq = config.enable_lmq
        self._any_topic = config.dispatch_rules.multi_dispatches_any_topic

    def check(self, listed: list[QueueFiles]) -> None:
        """See `QueueTable.check`."""
        super().check(listed)
        self._extensions.check()

    def load(
        self, listed: list[QueueFiles], end_offset: int, guesses: Mapping[tuple[str, int], int] = MappingProxyType({})
    ) -> None:
        """Take over listed queues, with the units of records that end at or before `end_offset`.

        A queue ends before the first unit that is unused, or whose record ends after `end_offset`; filler units count
        as written. Units are in log order, so this is a binary search.

        Args:
            listed: The queues' files.
            end_offset: Commit log offset.
            guesses: Max offset of each (topic, queue id) at the last clean exit; a right guess saves reads.
        """
        queues = [self._make(queue_files.topic, queue_files.queue_id) for queue_files in listed]
        starts = [[int(path.rpartition("/")[2]) for path in queue_files.paths] for queue_files in listed]
        begins = zip(queues, starts, strict=True)  # no guess: the first unit, as a kill leaves few that are trusted
        guess = [guesses.get((queue.topic, queue.queue_id), begin[0] // UNIT_SIZE) for queue, begin in begins]
        ends, physical, in_gap = find_ends(self._files, queues, starts, guess, end_offset)
        for queue, begin, end, physical_end in zip(queues, starts, ends.tolist(), physical.tolist(), strict=True):
            queue.start_with(begin, end, physical_end)
        self._jumps.load(queues[number] for number in np.flatnonzero(in_gap).tolist())

    def follow(self, next_offsets: Mapping[tuple[str, int], int], end_offset: int, store_timestamp: int) -> None:
        """Take over the units that another process has written for the log before an offset.

        Args:
            next_offsets: For each queue that may have grown, the queue offset that its next message gets.
            end_offset: Commit log offset.
            store_timestamp: Store time (ms) of the last record before `end_offset`.
        """
        queues = [self._found(*key) for key in next_offsets]
        follow_units(self._files, queues, np.array(list(next_offsets.values()), np.int64), end_offset)
        self.built_timestamp = store_timestamp

    def raise_min_offsets(self, min_commit_log_offset: int, topics: Iterable[str] | None = None) -> None:
        """Move each `min_offset` to the first unit whose record the log still has (`ConsumeQueue.correctMinOffset`).

        It is the first record since the topic was deleted, if it was. `topics`: of these alone.
        """
        queues = self.queues() if topics is None else self.queues_of(topics)
        least = np.array([self.begins.least(queue.topic, min_commit_log_offset) for queue in queues], np.int64)
        offsets = find_begins(self._files, queues, least)
        for queue, offset in zip(queues, offsets.tolist(), strict=True):
            self.begins.raise_min(queue, offset)

    def cut(self) -> None:
        """Zero the bytes after the last unit of each queue."""
        for queue in self._table.values():
            queue.cut()
            self._count_names_as_unsynced(queue)  # the process that made them may have been killed before its sync

    def recover_extensions(self) -> None:
        """Bring the extensions in step with the queues' units, before anything is dispatched."""
        if self._extensions.file_size is not None:
            for queue in self._table.values():
                queue.recover_ext()

    def queue_end(self, topic: str, queue_id: int) -> QueueEnd | None:
        """End of a queue, where another writer puts its next units; None if there is no such queue yet."""
        queue = self.find(topic, queue_id)
        if queue is None:
            return None
        last_file = queue.file_starts[-1] if queue.file_starts else -1
        ext_end = queue.ext.end_offset if queue.ext is not None else 0
        return QueueEnd(queue.max_offset, last_file, ext_end, is_judged=not self._jumps.is_open(queue))

    def take_over(self, next_offsets: Mapping[tuple[str, int], int], end_offset: int, store_timestamp: int) -> None:
        """Take over units and ext units that tasks have written, as `follow` does, and write after them.

        Raises:
            StoreError: Units are not there, as on a file system that shows them late.
        """
        self.follow(next_offsets, end_offset, store_timestamp)
        for (topic, queue_id), next_offset in next_offsets.items():
            queue = self._found(topic, queue_id)
            if queue.max_offset != next_offset:
                raise StoreError(
                    f"{queue.path}: tasks have written and synced units up to queue offset {next_offset}, and this "
                    f"process sees them up to {queue.max_offset}; all machines must see the same files"
                )
            if self._extensions.file_size is not None:
                queue.recover_ext()

    def begin_at(self, topic: str, queue_id: int, offset: int) -> None:
        """Let the next message of a queue without messages get a queue offset; a missing queue is made.

        The queue's first record counts for more: if it has a lower queue offset, the queue begins there.
        """
        queue = self._found(topic, queue_id)
        if queue.max_offset != offset:
            with self._flush_lock:
                queue.begin_at(offset)
        self._jumps.begin(queue)

    def remove(self, topic: str) -> None:
        """See `QueueTable.remove`; the topic's next record finds its queue anew."""
        self._by_bytes.clear()
        folder = f"{self.path}/{topic}/"
        self._unsynced_folders -= {path for path in self._unsynced_folders if f"{path}/".startswith(folder)}
        super().remove(topic)

    def _new(self, path: str, topic: str, queue_id: int, counts: TopicCounts) -> ConsumeQueue:
        queue = ConsumeQueue(
            self._files, path, topic, queue_id, self.file_size, on_new_name=self._unsynced_folders.add,
            on_map=self._mapped, on_dirty=self._unsynced.add, counts=counts,
        )  # fmt: skip
        self._extensions.attach(queue, self._unsynced_folders.add, self._mapped)
        return queue

    def _mapped(self) -> None:
        """Drop all maps once there are too many; they are back in 20 us each."""
        self._maps += 1
        if self._maps > _MAX_MAPS:
            self._maps = 0
            for queue in self.queues():
                queue.drop_mappings()

    def dispatch(self, columns: RecordColumns) -> None:
        """Append the units of scanned records; repeats are dropped, so dispatching again does no harm.

        A gap after a queue's last unit is filled with filler units, if the queue's next records say, too, that it is
        there (`reput.store.queues.queue_jumps`). Else one record has a wrong queue offset, and gets no unit.

        Args:
            columns: Scanned at `ScanLevel.PROPERTIES` or above; a wrong queue offset becomes -1.

        Raises:
            StoreFullError: No space. Nothing counts as dispatched; the same call may succeed later.
            CorruptRecordError: A queue offset is too large for a log of this size, or a topic cannot name a folder.
        """
        if not columns.rows:
            return
        ext_file_size, sources = self._extensions.file_size, None
        bit_maps = bit_maps_of(self._extensions.bit_maps, columns) if ext_file_size is not None else None
        if self._multi_dispatch:
            columns, sources = add_multi_dispatch_rows(columns, enable_lmq=self._enable_lmq, any_topic=self._any_topic)
        queues = self._queues_of(columns)
        if self._jumps.any_open(queues):
            with self._flush_lock:  # so that no file is removed that a flush is to sync
                self._jumps.take_back(columns, queues)
        self._drop_repeats_ahead(columns, queues)
        row = 0
        while row < columns.rows:
            next_offsets = np.array([queue.max_offset for queue in queues], np.int64)
            runs = group_units(columns, next_offsets, row, with_rows=ext_file_size is not None)
            ext = None
            if ext_file_size is not None:
                ext = encode_ext_units(runs, columns, sources, bit_maps, ext_file_size)
            write_units(self._files, runs, queues, next_offsets, self.file_size, ext)
            row = runs.stop_row
            if row < columns.rows:
                self._jumps.fill(queues[columns["queue"][row]], columns, row)
        self.built_timestamp = int(columns["store_timestamp"][-1])

    def _drop_repeats_ahead(self, columns: RecordColumns, queues: Sequence[ConsumeQueue]) -> None:
        """Set queue offsets to -1 that are ahead of a queue whose last unit is of a later record.

        Such a record was dispatched and got no unit, as its queue offset is wrong; its queue may have grown since then.
        """
        ends = np.array([queue.max_physical_offset for queue in queues], np.int64)
        if ends.max() > columns["commit_log_offset"][0]:
            numbers, next_offsets = columns["queue"], np.array([queue.max_offset for queue in queues], np.int64)
            is_repeat = columns["commit_log_offset"] < ends[numbers]
            columns["queue_offset"][is_repeat & (columns["queue_offset"] >= next_offsets[numbers])] = -1

    @property
    def writes_plain_units(self) -> bool:
        """Whether a record makes one unit, and nothing else: there are no ext units, and no further queues."""
        return self._extensions.file_size is None and not self._multi_dispatch

    def append(self, queues: Sequence[ConsumeQueue], runs: QueueRuns, store_timestamp: int) -> bool:
        """Append a run of units to each queue, if `writes_plain_units`; `dispatch` writes the same bytes.

        Args:
            queues: The queues of the runs.
            runs: The units.
            store_timestamp: Of the last record (ms).

        Returns:
            Whether it is done. If a run leaves a gap, repeats units, does not fit into the file that has the last unit,
            or judges its queue's last unit, nothing is changed: that is for `dispatch`.

        Raises:
            StoreFullError: No space. Nothing counts as dispatched.
        """
        if self._jumps.any_open(queues):
            return False
        paths = [
            queue.path_to_append(offset, count)
            for queue, offset, count in zip(queues, runs.offsets, runs.counts, strict=True)
        ]
        if not all(paths):
            return False
        self._files.write_runs(paths, runs.addresses, runs.sizes, runs.positions)
        for queue, count, end in zip(queues, runs.counts, runs.ends, strict=True):
            queue.append(count, end)
        self.built_timestamp = store_timestamp
        return True

    def check_dispatch(self, columns: RecordColumns, ends: dict[tuple[bytes, int], int]) -> bool:
        """Whether `dispatch` would find no gap before the units of scanned records; nothing is changed.

        Args:
            columns: As for `dispatch`; the records follow the last call's.
            ends: The max offset that each queue would have by now, by (topic in bytes, queue id); updated.

        Raises:
            CorruptRecordError: A topic cannot name a folder.
        """
        if self._multi_dispatch:
            columns, _ = add_multi_dispatch_rows(columns, enable_lmq=self._enable_lmq, any_topic=self._any_topic)
        keys = columns.queues()
        for key, row in zip(keys, columns.queue_rows.tolist(), strict=True):
            if key not in ends:
                name = self._folder_name(key[0], columns, row)
                queue = self._table.get((name, key[1])) if name not in self._batch_topics else _LEFT_OUT
                ends[key] = queue.max_offset if queue is not None else 0
        next_offsets = np.array([ends[key] for key in keys], np.int64)
        runs = group_units(columns, next_offsets)
        ends.update(zip(keys, (next_offsets + runs.counts).tolist(), strict=True))
        return bool(runs.stop_row == columns.rows)

    def _queues_of(self, columns: RecordColumns) -> list[ConsumeQueue]:
        """The queues of a scan, by number; new ones are made."""
        keys = columns.queues()
        try:
            return [self._by_bytes[key] for key in keys]
        except KeyError:
            return [self._queue_of(*key, columns, int(row)) for key, row in zip(keys, columns.queue_rows, strict=True)]

    def _queue_of(self, topic: bytes, queue_id: int, columns: RecordColumns, row: int) -> ConsumeQueue:
        queue = self._by_bytes.get((topic, queue_id))
        if queue is None:
            name = self._folder_name(topic, columns, row)
            queue = self._table.get((name, queue_id))
            if name in self._batch_topics:  # `BatchConsumeQueueStore` has it
                queue = cast(ConsumeQueue, _LEFT_OUT)
            elif queue is None:
                queue = self._make(name, queue_id)
                if self._extensions.file_size is not None:
                    queue.recover_ext()  # removes ext units of an earlier queue of this name
            self._by_bytes[topic, queue_id] = queue
        return queue

    def _folder_name(self, topic: bytes, columns: RecordColumns, row: int) -> str:
        name = topic_folder_name(topic)
        if name is None:
            shown = topic[:80].decode("utf-8", "replace")
            offset = int(columns["commit_log_offset"][row])
            raise CorruptRecordError(
                self.path, offset, f"the topic {shown!r} cannot name a folder; look at it with `reput dump`"
            )
        return name

    def verify(self, columns: RecordColumns) -> bool:
        """Whether all units that `dispatch` would write for scanned records are there; then they count as dispatched.

        Nothing is written, but the units count as unsynced. False if units have ext units: these are not compared; and
        if records judge a queue's last unit.
        """
        if self._extensions.file_size is not None:
            return False
        if not columns.rows:
            return True
        if self._multi_dispatch:
            columns, _ = add_multi_dispatch_rows(columns, enable_lmq=self._enable_lmq, any_topic=self._any_topic)
        queues = self._queues_of(columns)
        if self._jumps.any_open(queues):
            return False
        next_offsets = np.array([queue.max_offset for queue in queues], np.int64)
        runs = group_units(columns, next_offsets)
        located = locate_units(runs, queues, next_offsets, self.file_size)
        pairs = list(zip(located.owners, located.files, strict=True))
        if runs.stop_row < columns.rows or not all(start in queue.file_starts for queue, start in pairs):
            return False
        paths = [queue.file_path(start) for queue, start in pairs]
        units = runs.units[: int(runs.counts.sum()) * UNIT_SIZE]
        if not np.array_equal(self._files.read_runs(paths, located.positions, located.sizes), units):
            return False
        advance(runs, queues, next_offsets, located)
        for queue in {id(queue): queue for queue in located.owners}.values():
            self._count_names_as_unsynced(queue)
        self.built_timestamp = int(columns["store_timestamp"][-1])
        return True

    def _count_names_as_unsynced(self, queue: ConsumeQueue) -> None:
        if queue.file_starts:  # a queue with prepared messages only has no folder
            self._unsynced_folders |= {queue.path, queue.path.rpartition("/")[0], self.path}

    @property
    def max_physical_offset(self) -> int:
        """Commit log offset after the last dispatched record that has a unit; -1 if there is no such record."""
        return max((queue.max_physical_offset for queue in self._table.values()), default=-1)

    @property
    def last_record_offset(self) -> int:
        """Commit log offset of the last dispatched record that has a unit; -1 if there is no such record."""
        last = max(self._table.values(), key=lambda queue: queue.max_physical_offset, default=None)
        unit = last.unit(last.max_offset - 1) if last is not None else None
        return unit.commit_log_offset if unit is not None else -1

    def flush(self, least_pages: int = 0) -> int:
        """Sync the queues with at least `least_pages` unsynced pages; with 0 all queues, and the names of new files.

        Returns:
            The store timestamp (ms) up to which every unit is on the disk, if `least_pages` is 0.
        """
        with self._flush_lock:
            timestamp = self.built_timestamp
            taken = self._unsynced.take(lately=least_pages > 0)
            chosen = [queue for queue in taken if queue.dirty and queue.unsynced_pages >= least_pages]
            if len(chosen) < len(taken):
                self._unsynced.give_back([queue for queue in taken if queue.unsynced_pages < least_pages])
            written = [queue.max_offset for queue in chosen]
            dirty = [sorted(queue.dirty) for queue in chosen]
            folders = [] if least_pages else sorted(self._unsynced_folders)
            for queue, starts in zip(chosen, dirty, strict=True):
                queue.dirty.difference_update(starts)
            self._unsynced_folders.difference_update(folders)
            try:
                for queue in chosen:
                    if queue.ext is not None:
                        queue.ext.flush()  # before the units that point into it
                paths = [q.file_path(start) for q, starts in zip(chosen, dirty, strict=True) for start in starts]
                self._files.sync_files(paths)
                self._files.sync_directories(folders)
            except BaseException:
                for queue, starts in zip(chosen, dirty, strict=True):
                    queue.dirty.update(starts)
                self._unsynced.give_back(chosen)
                self._unsynced_folders.update(folders)
                raise
            for queue, offset in zip(chosen, written, strict=True):
                queue.synced_offset = offset
            return timestamp

    def delete_expired(self, min_commit_log_offset: int, pause: Callable[[], object]) -> dict[str, int]:
        """Delete the files whose messages the log no longer has, queue by queue, each with its ext units.

        First the min offsets of all queues are raised. `pause` is called after each queue that lost a file. Queues of a
        deleted topic keep their files until the log begins after its begin: the log has the records of their units.

        Returns:
            Path and size of each deleted file.
        """
        self.raise_min_offsets(min_commit_log_offset)
        deleted: dict[str, int] = {}
        for queue in self.queues():
            if self.begins.table.get(queue.topic, 0) > min_commit_log_offset:
                continue
            with self._flush_lock:  # so that no file is removed that a flush is to sync
                files = queue.delete_expired()
                unit = queue.unit(queue.min_offset) if queue.ext is not None else None
                if queue.ext is not None and unit is not None:
                    files |= queue.ext.truncate_by_min_address(unit.tags_code)
            if files:
                deleted |= files
                pause()
        return deleted
