"""External dispatch: a process follows the log files that another process writes, and commits batch by batch.

It writes the same units and entries as `ReputMessageService`, by the same tables. But the log has another writer: it is
read as a reader reads it, and may be cut meanwhile. So each batch ends with a mark (`reput.log.dispatch_marks`): how
far queues and index are, and which record was the last. Whatever ends this process, the next one takes queues and index
back to a mark and goes on from there: each record counts once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, DataLossError
from reput.files import DISK, FileLayer
from reput.formats.java import INT64_MAX
from reput.formats.metadata import Topics
from reput.formats.paths import CONSUME_QUEUE, INDEX
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.placeholders import message_count
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory
from reput.log.dispatch_marks import DispatchMark, marks_path, read_marks, with_mark, write_marks
from reput.log.failed_sync import watched
from reput.log.file_window import WINDOW_BYTES
from reput.log.metadata import metadata_path
from reput.log.queue_end import QueueEnd
from reput.log.queue_types import QueueTypes, find_queue_types
from reput.log.resume_points import ResumePoint, TailLimit
from reput.log.scan import MAX_ROWS, OnDamage, first_rows, scan_split
from reput.log.sink_commits import SinkWatch
from reput.log.splits import Split, SplitStop
from reput.log.tail import LogTail, is_whole
from reput.store.dispatch.locks import batch_lock, check_external_dispatch
from reput.store.dispatch.prefetch import prefetched
from reput.store.index.index_service import IndexService
from reput.store.index.restore import restore_index
from reput.store.queues.tables import QueueTables

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps

#: Log bytes of a batch, at the most. A batch ends with syncs; one that a kill interrupts is done again.
BATCH_BYTES = 1 << 30
#: Each scan of records opens each of its queues, so scans are larger if queues are many.
_MANY_QUEUES = 1_000
_MAX_ROWS_OF_MANY, _WINDOW_OF_MANY = 131_072, 64 << 20
_NO_END = INT64_MAX

logger = logging.getLogger("reput.dispatch")


@dataclass(frozen=True, slots=True)
class DispatchedBatch:
    """Result of one dispatched batch.

    Attributes:
        store: Path of the store whose log it is.
        messages: Number of messages.
        log_bytes: Bytes of the log that the batch covers.
        end_offset: Commit log offset of the first record that is not dispatched.
        last_store_timestamp: Store time of the last record, ms since 1970.
        lag_ms: Time from the store time of the first record until the batch was on the disk.
        seconds: Time for reading, writing and syncing.
    """

    store: str
    messages: int
    log_bytes: int
    end_offset: int
    last_store_timestamp: int
    lag_ms: int
    seconds: float


class LogDispatch:
    """Dispatcher that keeps queues, extensions and index below `path` in step with a log.

    Only one process at a time may have one for a path: the callers hold a lock.

    Args:
        log: The store whose log is read.
        path: Directory of the queues: a folder of their own, or the store's own directory.
        config: File sizes, and what is written beside units.
        in_store: Whether `path` is the store's own directory. Then the store itself deletes expired files, and may be
            opened anew at any time, so each batch needs the batch lock (`reput.store.dispatch.locks`).
        files: The file layer.
        bit_maps: As for `MessageStore.open`.

    Attributes:
        point: Where the next batch begins.

    Raises:
        DataLossError: The log has none of the records that the marks name: it is not the log that was dispatched.
        StoreFormatError: Existing files have other sizes.
    """

    def __init__(
        self,
        log: StoreDirectory,
        path: str,
        config: MessageStoreConfig,
        *,
        in_store: bool = False,
        files: FileLayer = DISK,
        bit_maps: BitMaps | None = None,
    ) -> None:
        self._log = log
        self._tail = LogTail(log)
        self._path = path
        self._config = config
        self._in_store = in_store
        self._files = files
        self._bit_maps = bit_maps
        self._min_offset = -1
        self._judged_offset = -1
        #: Whether tasks have begun to write a batch that is not committed: what is open here does not know of it.
        self._is_half_written = False
        self._topics_identity: tuple[object, ...] = ()
        self._queues: QueueTables | None = None
        self._index: IndexService | None = None
        self._marks: list[DispatchMark] = []
        with self._batch_lock():
            self._recover()

    @property
    def point(self) -> ResumePoint:
        """Resume point of the next batch."""
        return self._marks[0].point

    @contextmanager
    def _batch_lock(self) -> Iterator[None]:
        """Hold the lock under which queues and index may be written."""
        if not self._in_store:
            yield
            return
        with batch_lock(self._path, self._files), watched(self._path, self._files):
            check_external_dispatch(self._path, self._files)
            yield

    def _recover(self) -> None:
        """Take queues and index back to the newest mark whose record the log still has."""
        marks = read_marks(self._path, self._files) or [DispatchMark(self._tail.earliest())]
        lost: DataLossError | None = None
        for number, mark in enumerate(marks):
            try:
                self._tail.check(mark.point)
            except DataLossError as error:
                lost = lost or error
                continue
            if lost is not None:
                logger.warning("%s. Dispatched again from offset %d", lost, mark.point.offset)
                self._write(marks[number:])  # before anything is cut: what comes after the newest mark does not count
            self._marks = marks[number:]
            self._load(mark)
            return
        raise DataLossError(
            f"{lost}. The log has none of the records at which {marks_path(self._path)} says that dispatch ended: give "
            "another output, or remove the queues, the index and that file to dispatch the log as it is"
        )

    def _load(self, mark: DispatchMark) -> None:
        """Open queues and index, and cut them after the mark."""
        self._close_files()
        config, offset = self._config, mark.point.offset
        self._topics_identity = ()
        self._files.make_directories(os.path.join(self._path, CONSUME_QUEUE))
        here = StoreDirectory(self._path, files=self._files)
        queues = QueueTables(
            self._files, self._path, config.mapped_file_size_consume_queue,
            config.mapper_file_size_batch_consume_queue, config, writable=True,
            types=find_queue_types(here), bit_maps=self._bit_maps,
        )  # fmt: skip
        listed, batch_listed = here.queues(), here.batch_queues()
        queues.check(listed, batch_listed)
        index = None
        if config.message_index_enable:
            slots, capacity = config.max_hash_slot_num, config.max_index_num
            index = IndexService(self._files, self._path, slots, capacity, writable=True)
            restore_index(self._files, self._path, mark.index, slots, capacity)
            index.check(here.index_files())
            index.load(here.index_files(), safe_timestamp=None)
        queues.load(listed, batch_listed, offset)
        queues.cut()
        queues.recover_extensions()
        self._is_half_written = False
        self._queues, self._index = queues, index

    def run_once(self, max_bytes: int = BATCH_BYTES) -> DispatchedBatch | None:
        """Dispatch and commit one batch; None if nothing is new.

        Raises:
            CorruptRecordError: Damage in the log.
            DataLossError: As from the constructor; a log that was only cut at its end is no error.
            StoreFullError: No space. The same call may succeed later.
        """
        started = time.perf_counter()
        offset = self.point.offset
        if not self._has_changed() and offset == self._judged_offset and not self._tail.is_written(offset):
            return None
        with self._batch_lock():
            return self._run_once(max_bytes, started)

    def _has_changed(self) -> bool:
        """Whether the log was cut, or the store was opened anew, since the last batch."""
        if not self._tail.has(self.point):
            return True
        return (
            self._queues is None
            or self._is_half_written
            or (self._in_store and read_marks(self._path, self._files)[:1] != self._marks[:1])
        )

    def _run_once(self, max_bytes: int, started: float) -> DispatchedBatch | None:
        if self._has_changed():
            self._recover()
        begin = self.point
        if begin.last is None:
            max_bytes = 1  # a first mark near the log's beginning tells this log from any other
        messages = first_timestamp = 0
        end = begin
        # Damage at an offset is looked for once: most logs end with zeros, and a search for records after them is slow.
        for on_damage in (OnDamage.END, OnDamage.RAISE) if begin.offset != self._judged_offset else (OnDamage.END,):
            for file, columns in self._scan(begin.offset, max_bytes, on_damage):
                self._dispatch(columns, file)
                first_timestamp = first_timestamp or int(columns["store_timestamp"][0])
                messages += message_count(columns)
                end = ResumePoint(columns.next_offset, self._tail.last_record(file, columns))
            if end is not begin:
                break
        else:
            self._judged_offset = begin.offset
            return None
        assert end.last is not None
        self._commit(end)
        return DispatchedBatch(
            self._log.path, messages, end.offset - begin.offset, end.offset, end.last.store_timestamp,
            int(time.time() * 1000) - first_timestamp, time.perf_counter() - started,
        )  # fmt: skip

    @contextmanager
    def locked_at(self, begin: ResumePoint, scanned: Sequence[ResumePoint]) -> Iterator[bool]:
        """Hold the batch lock; yields whether the next batch begins at a point, with the log and files as known.

        Args:
            begin: The point.
            scanned: Points in the batch, each with the record that was scanned before it. The log may have been cut
                since then, and have other records at the same offsets.
        """
        with self._batch_lock():
            is_known = not self._has_changed() and self.point == begin
            yield is_known and all(self._tail.has(point) for point in scanned)

    @property
    def queue_types(self) -> QueueTypes | None:
        """Queue types of topics, by the store and by the queues here; None if these are to be taken back to a mark."""
        if self._queues is None or self._is_half_written:
            return None
        self._learn_types()
        return self._queues.types

    def begin_writing(self) -> None:
        """Let tasks write the next batch, up to `commit_tasks`, in `locked_at`.

        What an error leaves of it is cut before the next batch.
        """
        self._is_half_written = True

    def queue_end(self, topic: str, queue_id: int) -> QueueEnd | None:
        """End of a consume queue, where tasks put its next units; None if there is no such queue yet."""
        assert self._queues is not None
        return self._queues.simple.queue_end(topic, queue_id)

    @property
    def index(self) -> IndexService | None:
        """The index, which takes the keys of a batch of tasks; None without one."""
        return self._index

    def commit_tasks(
        self,
        end: ResumePoint,
        messages: int,
        next_offsets: Mapping[tuple[str, int], int],
        index_files: Sequence[str],
        started: float,
    ) -> DispatchedBatch:
        """Commit a batch whose units tasks have written and synced, after `begin_writing`.

        Args:
            end: Point of the next record, with the batch's last record as it was scanned.
            messages: Number of messages.
            next_offsets: Of each queue that has more units, by topic and queue id: where the next units go.
            index_files: Paths of further index files, built and synced; they are moved into the index.
            started: When the batch was begun, by `time.perf_counter`.
        """
        begin, first = self.point, self._tail.advance(self.point, TailLimit(max_rows=1)).last
        assert first is not None, "no batch of tasks is the first one of a log"
        queues = self._queues
        assert end.last is not None
        assert queues is not None
        if self._index is not None:
            self._index.flush()
            folder = os.path.join(self._path, INDEX)
            self._files.make_directories(folder)
            named = [os.path.join(folder, os.path.basename(path)) for path in index_files]
            self._files.rename_files(list(zip(index_files, named, strict=True)))
            self._index.take_over(named)
        queues.simple.take_over(next_offsets, end.offset, end.last.store_timestamp)
        self._commit(end)
        self._is_half_written = False
        lag_ms = int(time.time() * 1000) - first.store_timestamp
        return DispatchedBatch(
            self._log.path, messages, end.offset - begin.offset, end.offset, end.last.store_timestamp, lag_ms,
            time.perf_counter() - started,
        )  # fmt: skip

    def _scan(self, begin: int, max_bytes: int, on_damage: OnDamage) -> Iterator[tuple[LogFile, RecordColumns]]:
        """Scan the records from an offset on that prove themselves, up to the log's end or after `max_bytes`."""
        queues = self._queues
        assert queues is not None
        many = queues.simple.count >= _MANY_QUEUES
        watch = SinkWatch(self._log.files, self._log.path)
        limit = _NO_END if watch.begin_offset is None else watch.begin_offset
        for file in self._log.log_files():
            low = max(begin, file.start_offset)
            if file.end_offset <= begin:
                continue
            if low >= limit:
                return
            if on_damage is OnDamage.END and not self._tail.is_written(low):
                return
            scan = scan_split(
                Split(file, low, min(file.end_offset, limit), is_record_start=True),
                level=ScanLevel.KEYS if self._config.message_index_enable else ScanLevel.PROPERTIES,
                delays_ms=self._config.delay_levels_ms,
                index_tags=self._config.dispatch_rules.indexes_tags,
                on_damage=on_damage,
                double_buffered=True,
                max_rows=_MAX_ROWS_OF_MANY if many else MAX_ROWS,
                window_bytes=_WINDOW_OF_MANY if many else WINDOW_BYTES,
                files=self._log.files,
            )
            for columns in prefetched(iter(scan)):
                committed = watch.committed(columns.next_offset)
                if committed is None:  # a sink's batch was cut off meanwhile: rows may be gone, the next run reads anew
                    return
                rows = int(np.searchsorted(columns["commit_log_offset"], committed))
                is_cut = rows < columns.rows
                if rows == columns.rows and not is_whole(columns):
                    rows, is_cut = rows - 1, True
                if rows:
                    yield file, first_rows(columns, rows)
                if is_cut or columns.next_offset >= begin + max_bytes:
                    return
            if scan.stop is not SplitStop.BLANK:
                return

    def _dispatch(self, columns: RecordColumns, file: LogFile) -> None:
        queues = self._queues
        assert queues is not None
        self._learn_types()
        undeclared = queues.types.undeclared(columns)
        if undeclared:
            raise CorruptRecordError(
                file.path, columns.base_offset, f"a batch of messages in one record, and nothing says that the topic "
                f"{min(undeclared)!r} has batch consume queues; declare it (queue.type=BatchCQ) in "
                f"{metadata_path(self._log.path, Topics)} of the store, then begin anew",
            )  # fmt: skip
        queues.dispatch(columns)
        if self._index is not None:
            self._index.dispatch(columns)

    def _learn_types(self) -> None:
        """Read which topics have batch consume queues, if the store's `topics.json` has changed."""
        assert self._queues is not None
        path = metadata_path(self._log.path, Topics)
        is_there = self._log.files.exists(path)
        files = self._log.files
        identity = (files.identity(path), files.modified_ms(path)) if is_there else (None,)
        if identity != self._topics_identity:
            types = find_queue_types(self._log)
            self._queues.types.batch |= types.batch
            self._queues.types.simple |= types.simple
            self._topics_identity = identity

    def _commit(self, end: ResumePoint) -> None:
        """Sync what was dispatched, then write the mark."""
        queues = self._queues
        assert queues is not None
        if self._index is not None:
            self._index.flush()
        queues.flush()
        index_mark = self._index.mark if self._index is not None else None
        self._write(with_mark(DispatchMark(end, index_mark), self._marks))
        if not self._in_store:
            self._delete_expired(queues)

    def _write(self, marks: list[DispatchMark]) -> None:
        if self._in_store:
            check_external_dispatch(self._path, self._files)
        write_marks(self._path, marks, self._config, self._files)
        self._marks = marks

    def _delete_expired(self, queues: QueueTables) -> None:
        """Delete files whose messages the log no longer has, as a store does."""
        min_offset = self._tail.earliest().offset
        if min_offset > self._min_offset:
            queues.delete_expired(min_offset, lambda: None)
            if self._index is not None:
                self._index.delete_expired(min_offset)
            self._min_offset = min_offset

    def close(self) -> None:
        """Close all files. What is not committed does not count."""
        self._close_files()

    def _close_files(self) -> None:
        if self._queues is not None:
            self._queues.close()
        if self._index is not None:
            self._index.close()
        self._queues = self._index = None
