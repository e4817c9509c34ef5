"""The table of all consume queues, and the dispatcher that feeds them."""

from __future__ import annotations

from collections.abc import Callable, Set
from threading import Lock
from typing import TYPE_CHECKING, cast

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, StoreFormatError
from reput.files import FileLayer
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.formats.paths import CONSUME_QUEUE, topic_folder_name
from reput.kernels.columns import RecordColumns
from reput.kernels.consume_queue import UnitRuns, group_units
from reput.kernels.consume_queue_ext import ExtRuns, bit_maps_of, encode_ext_units
from reput.kernels.multi_dispatch import add_multi_dispatch_rows
from reput.log.directory import QueueFiles
from reput.store.consume_queue import ConsumeQueue, Run
from reput.store.consume_queue_ext import ConsumeQueueExtensions
from reput.store.statistics import TopicCounts

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps

#: Descriptors kept open for writing, and as many for maps.
_MAX_OPEN_FILES = 256
#: Queues whose files are opened before the limit is looked at: most shells allow a process 1024 descriptors.
_QUEUES_AT_ONCE = 128


class _LeftOut:
    """Stands for a queue that takes no units: to `group_units` every row of it is a repeat."""

    max_offset = (1 << 63) - 1


_LEFT_OUT = _LeftOut()


class ConsumeQueueStore:
    """RocketMQ's `ConsumeQueueStore`: finds, makes, feeds and flushes queues.

    Attributes:
        built_timestamp: Store timestamp (ms) of the last record that was dispatched.
        counts: What happened to each topic since the store was opened.
    """

    def __init__(
        self,
        files: FileLayer,
        path: str,
        file_size: int,
        config: MessageStoreConfig,
        *,
        writable: bool,
        bit_maps: BitMaps | None = None,
        batch_topics: Set[str] = frozenset(),
    ) -> None:
        self._batch_topics = batch_topics
        self._files = files
        self._writable = writable
        self._path = f"{path}/{CONSUME_QUEUE}"
        self._file_size = file_size
        self._table: dict[tuple[str, int], ConsumeQueue] = {}
        self._by_bytes: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._open_files = 0
        self._maps = 0
        self._flush_lock = Lock()
        self.built_timestamp = 0
        self.counts: dict[str, TopicCounts] = {}
        self._extensions = ConsumeQueueExtensions(files, path, config, writable=writable, bit_maps=bit_maps)
        self._multi_dispatch = config.enable_multi_dispatch
        self._enable_lmq = config.enable_lmq
        self._any_topic = config.dispatch_rules.multi_dispatches_any_topic

    def check(self, found: list[QueueFiles]) -> None:
        """Look at the files of a directory without changing anything.

        Raises:
            StoreFormatError: Files of another size than the configured one.
        """
        for queue_files in found:
            if queue_files.file_size != self._file_size:
                raise StoreFormatError(
                    f"{queue_files.paths[0]}: {queue_files.file_size} bytes, but mappedFileSizeConsumeQueue is "
                    f"{self._file_size}; give mappedFileSizeConsumeQueue={queue_files.file_size} if it was "
                    "written with it"
                )
        self._extensions.check()

    def load(self, found: list[QueueFiles], end_offset: int) -> None:
        """Take over the queues of a directory, up to the units of records that end at or before `end_offset`."""
        for queue_files in found:
            queue = self._make(queue_files.topic, queue_files.queue_id)
            queue.load([int(path.rpartition("/")[2]) for path in queue_files.paths], end_offset)
            self._limit_open_files()

    def raise_min_offsets(self, min_commit_log_offset: int) -> None:
        """See `ConsumeQueue.raise_min_offset`."""
        for queue in self._table.values():
            queue.raise_min_offset(min_commit_log_offset)
            self._limit_open_files()

    def cut(self) -> None:
        """Wipe out what lies behind the last unit of each queue."""
        for queue in self._table.values():
            queue.cut()
            self._limit_open_files()

    def recover_extensions(self) -> None:
        """Bring what is written beside the queues in step with their units, before anything is dispatched."""
        if self._extensions.file_size is not None:
            for queue in self._table.values():
                queue.recover_ext()
                self._limit_open_files()

    def remove(self, topic: str) -> None:
        """Forget a topic's queues and remove their files; the next record of it is looked at anew."""
        for key in [key for key in self._table if key[0] == topic]:
            self._table.pop(key).close()
        self._by_bytes.clear()
        if self._files.exists(f"{self._path}/{topic}"):
            self._files.remove_tree(f"{self._path}/{topic}")

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None where no message was ever dispatched to it."""
        return self._table.get((topic, queue_id))

    def queues(self) -> list[ConsumeQueue]:
        """All queues, in no special order."""
        return list(self._table.values())

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        path = f"{self._path}/{topic}/{queue_id}"
        queue = ConsumeQueue(
            self._files, path, topic, queue_id, self._file_size,
            writable=self._writable, on_open=self._opened, on_map=self._mapped,
            counts=self.counts.setdefault(topic, TopicCounts()),
        )  # fmt: skip
        self._extensions.attach(queue, self._opened, self._mapped)
        self._table[topic, queue_id] = queue
        return queue

    def _opened(self) -> None:
        self._open_files += 1

    def _mapped(self) -> None:
        """Drop all maps once there are too many: each holds a descriptor, and they are back in 20 us each."""
        self._maps += 1
        if self._maps > _MAX_OPEN_FILES:
            self._maps = 0
            for queue in self.queues():
                queue.drop_mappings()

    def _limit_open_files(self) -> None:
        """Close the descriptors of all queues once there are too many; those in use are open again in 5 us each."""
        if self._open_files > _MAX_OPEN_FILES:
            for queue in self._table.values():
                queue.close_files()
            self._open_files = 0

    def dispatch(self, columns: RecordColumns, *, fill_gaps: bool = True) -> bool:
        """Append the units of scanned records; repeats are dropped, so dispatching again does no harm.

        Args:
            columns: Scanned at `ScanLevel.PROPERTIES` or above.
            fill_gaps: Fill a gap behind a queue's last unit with filler units; otherwise stop there and return False.

        Raises:
            StoreFullError: No space. Nothing counts as dispatched; the same call may succeed later.
            CorruptRecordError: A queue offset that no log of this size can hold.
        """
        if not columns.rows:
            return True
        ext_file_size, sources = self._extensions.file_size, None
        bit_maps = bit_maps_of(self._extensions.bit_maps, columns) if ext_file_size is not None else None
        if self._multi_dispatch:
            columns, sources = add_multi_dispatch_rows(columns, enable_lmq=self._enable_lmq, any_topic=self._any_topic)
        queues = [
            self._queue_of(topic, queue_id, columns, int(row))
            for (topic, queue_id), row in zip(columns.queues(), columns.queue_rows, strict=True)
        ]
        row = 0
        while row < columns.rows:
            next_offsets = np.array([queue.max_offset for queue in queues], np.int64)
            runs = group_units(columns, next_offsets, row, with_rows=ext_file_size is not None)
            ext = None
            if ext_file_size is not None:
                ext = encode_ext_units(runs, columns, sources, bit_maps, ext_file_size)
            self._write(runs, queues, ext)
            row = runs.stop_row
            if row < columns.rows:
                if not fill_gaps:
                    return False
                queue = queues[columns["queue"][row]]
                self._fill_gap(queue, int(columns["queue_offset"][row]), int(columns["commit_log_offset"][row]))
        self.built_timestamp = int(columns["store_timestamp"][-1])
        return True

    def _queue_of(self, topic: bytes, queue_id: int, columns: RecordColumns, row: int) -> ConsumeQueue:
        queue = self._by_bytes.get((topic, queue_id))
        if queue is None:
            name = topic_folder_name(topic)
            if name is None:
                shown = topic[:80].decode("utf-8", "replace")
                offset = int(columns["commit_log_offset"][row])
                raise CorruptRecordError(
                    self._path, offset, f"the topic {shown!r} cannot name a folder; look at it with `reput dump`"
                )
            queue = self._table.get((name, queue_id))
            if name in self._batch_topics:  # `BatchConsumeQueueStore` has it
                queue = cast(ConsumeQueue, _LEFT_OUT)
            elif queue is None:
                queue = self._make(name, queue_id)
                queue.recover_ext()  # what is left of an earlier queue of this name goes
            self._by_bytes[topic, queue_id] = queue
        return queue

    def _fill_gap(self, queue: ConsumeQueue, queue_offset: int, commit_log_offset: int) -> None:
        # Every message before this one took at least so much of the log, in a record or in one with others.
        if queue_offset > commit_log_offset // MIN_ITEM_SIZE:
            raise CorruptRecordError(
                queue.path,
                commit_log_offset,
                f"the record says queue offset {queue_offset}, more than a log of this size can hold; "
                "run `reput dump` around it and rebuild the log without it",
            )
        queue.fill_to(queue_offset)

    def _write(self, runs: UnitRuns, queues: list[ConsumeQueue], ext: ExtRuns | None) -> None:
        written = np.flatnonzero(runs.counts).tolist()
        for first in range(0, len(written), _QUEUES_AT_ONCE):
            self._write_some(runs, queues, ext, written[first : first + _QUEUES_AT_ONCE])
            self._limit_open_files()

    def _write_some(self, runs: UnitRuns, queues: list[ConsumeQueue], ext: ExtRuns | None, written: list[int]) -> None:
        base = runs.units.ctypes.data
        pieces: list[Run] = []
        for k in written:
            units, count = base + int(runs.starts[k]), int(runs.counts[k])
            queue_ext = queues[k].ext if ext is not None else None
            if ext is not None and queue_ext is not None:  # before the units that point to them
                pieces += queue_ext.run(ext.sizes_of(runs, k), ext.data.ctypes.data + int(ext.starts[k]), units)
            pieces += queues[k].run(units, count)
        files, addresses, sizes, positions = zip(*pieces, strict=True)
        self._files.write_runs(
            np.array([file.fileno() for file in files], np.int64),
            np.array(addresses, np.int64),
            np.array(sizes, np.int64),
            np.array(positions, np.int64),
            lambda index: files[index].path,
        )
        view = runs.units.data
        for k in written:
            end = int(runs.starts[k]) + int(runs.counts[k]) * UNIT_SIZE
            last = decode_unit(view, end - UNIT_SIZE)
            queues[k].advance(int(runs.counts[k]), last.commit_log_offset + last.size)
            queue_ext = queues[k].ext if ext is not None else None
            if queue_ext is not None:
                queue_ext.advance()

    @property
    def max_physical_offset(self) -> int:
        """End of the last dispatched record that has a unit; -1 when there is none."""
        return max((queue.max_physical_offset for queue in self._table.values()), default=-1)

    @property
    def last_record_offset(self) -> int:
        """Commit log offset of the last dispatched record that has a unit; -1 when there is none."""
        last = max(self._table.values(), key=lambda queue: queue.max_physical_offset, default=None)
        unit = last.unit(last.max_offset - 1) if last is not None else None
        return unit.commit_log_offset if unit is not None else -1

    def flush(self, least_pages: int = 0) -> int:
        """Sync the queues with at least so many unsynced pages.

        Returns:
            The store timestamp (ms) up to which every unit is on the disk, if `least_pages` is 0.
        """
        with self._flush_lock:
            timestamp = self.built_timestamp
            for queue in list(self._table.values()):
                if queue.dirty and queue.unsynced_pages >= least_pages:
                    queue.flush()
            return timestamp

    def delete_expired(self, min_commit_log_offset: int, pause: Callable[[], object]) -> dict[str, int]:
        """Delete the files whose messages the log no longer has, one queue with its ext units after the other.

        First all queues learn where they begin now. `pause` is called after each one that lost a file.

        Returns:
            Path and size of each deleted file.
        """
        for queue in self.queues():
            queue.correct_min_offset(min_commit_log_offset)
        deleted: dict[str, int] = {}
        for queue in self.queues():
            with self._flush_lock:  # no file that is to be synced is removed meanwhile
                files = queue.delete_expired()
                unit = queue.unit(queue.min_offset) if queue.ext is not None else None
                if queue.ext is not None and unit is not None:
                    files |= queue.ext.truncate_by_min_address(unit.tags_code)
            if files:
                deleted |= files
                pause()
        return deleted

    def close(self) -> None:
        """Close all files."""
        for queue in self._table.values():
            queue.close()
