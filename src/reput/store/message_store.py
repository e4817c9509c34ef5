"""MessageStore: the parts of an open store introduced to each other, its life, and the verbs that change it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Literal, Self
from weakref import WeakSet

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError, StoreError, StoreStateError
from reput.files import DISK, FileLayer
from reput.formats.message import Message, refuse_wrong_types
from reput.kernel_loader import load_kernels
from reput.store.message_reader import MessageReader

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.formats.message_batch import MessageExtBatch
    from reput.formats.metadata import TopicConfig
    from reput.kernels.columns import RecordColumns
    from reput.kernels.consume_queue_ext import BitMaps
    from reput.store.dispatch.redispatch import Progress
    from reput.store.parts import Parts
    from reput.store.results import PutBatchResult, PutMessageResult, PutTableResult
    from reput.store.retention import RetentionReport
    from reput.store.runtime_info import RuntimeInfo


#: What Python says of values of wrong types; MessageIllegalError, a ValueError too, is none of them.
_TYPE_ERRORS = (TypeError, AttributeError, struct.error)


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


class MessageStore(MessageReader):
    """A RocketMQ message store in a directory: one writer at a time, any number of readers.

    Made by `open`; a context manager that closes it. Every method may be called from any thread. What only reads is
    inherited.
    """

    def __init__(
        self,
        path: str,
        config: MessageStoreConfig,
        parts: Parts,
        files: FileLayer,
        on_arrival: Callable[[RecordColumns], None] | None,
        *,
        retention: bool,
        external: bool = False,
    ) -> None:
        from reput.store.dispatch.follower import DispatchFollower
        from reput.store.dispatch.reput import Dispatcher, ReputMessageService
        from reput.store.housekeeping import FlushConsumeQueueService
        from reput.store.log.flush import FlushPolicy, FlushRealTimeService
        from reput.store.log.group_commit import GroupCommitService
        from reput.store.put import PutMessage
        from reput.store.put_batch import PutBatch
        from reput.store.retention import CleanService

        super().__init__(path, config, parts, files)
        self._closing = Lock()
        self._is_closed = False
        self._refusal = StoreStateError(f"{path}: the store is closed")
        self._changing_topics = Lock()
        self._reput: ReputMessageService | None = None
        clean_service = partial(CleanService, parts, config, files, path)
        if parts.lock is None:
            self._cleaning = clean_service(lambda: parts.log.max_offset)
            return
        self._flush: FlushPolicy = (
            GroupCommitService(parts.log, config)
            if config.flush_disk_type is FlushDiskType.SYNC_FLUSH
            else FlushRealTimeService(parts.log, config)
        )
        dispatchers: list[Dispatcher] = [parts.queues, *([parts.index] if parts.index is not None else []), self._stats]
        self._external = external
        self._reput = reput = (
            DispatchFollower(path, parts, config, files)
            if external
            else ReputMessageService(parts.log, dispatchers, config, on_arrival)
        )
        reput.reput_from_offset = parts.log.max_offset
        self._cleaning = clean_service(lambda: reput.reput_from_offset)  # not of self: a closed store is freed at once
        self._putting = PutMessage(parts.log, self._flush, config, self._reput.wake_if_idle, self._stats)
        self._putting_batches = PutBatch(
            self._putting, parts.log, self._flush, config, self._reput.wake_if_idle, parts.queues.types
        )
        self._housekeeping = FlushConsumeQueueService(path, parts, self._flush.sync, config, self._stats)
        for service in (self._flush, self._reput, self._housekeeping):
            service.start()
        _writers.add(self)
        if retention:
            self._cleaning.start()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        retention: bool = False,
        dispatch: Literal["thread", "external", "spark"] = "thread",
        config: MessageStoreConfig | None = None,
        on_arrival: Callable[[RecordColumns], None] | None = None,
        bit_maps: BitMaps | None = None,
        progress: Progress = _silent,
        files: FileLayer = DISK,
        **options: object,
    ) -> Self:
        """Open a store, or make one where nothing is; recover it where its writer was killed.

        Args:
            path: The store's directory (`storePathRootDir`).
            read_only: Take no lock and change no byte: what queues and index of a live, killed or closed store show.
            retention: Delete commit log files that have expired, by hour, age and disk, and refuse puts on a full disk,
                as RocketMQ does; otherwise only `delete_expired` deletes.
            dispatch: Who keeps queues and index up to date: "thread", a thread of this store, or "external", another
                process that follows the log, `reput dispatch PATH`. Without such a process get and query see nothing
                new, and `dispatch_behind_bytes` grows. "spark" is the former name of "external", for one release.
            config: All configuration; RocketMQ's defaults but SYNC_FLUSH where it is left out.
            on_arrival: Called by the dispatch thread with the columns of newly dispatched records; one that names light
                queues has a further row for each of them, with that queue's name and offset. The columns are
                the listener's own and stay valid after the call; held, they keep the space of a deleted log file taken.
                Dispatch waits for the call. An error of the listener is logged (logger `reput.store`), of errors in
                successive calls the first, and dispatch goes on.
            bit_maps: With enableConsumeQueueExt: called with the columns of each scan that is dispatched, it gives the
                bit maps for its rows (a pyarrow BinaryArray; null for none), or None. RocketMQ's broker computes them
                from the consumers' SQL filters (`CommitLogDispatcherCalcBitMap`).
            progress: Called with (what, bytes done, bytes in all) while a recovery runs.
            files: The file layer.
            options: RocketMQ's keys in snake_case or camelCase, over `config`.

        Raises:
            ConfigError: An unknown key, with the nearest known one, or a wrong value.
            StoreLockedError: Another process, RocketMQ's own included, or this one has it open for writing.
            StoreFormatError: No store, a foreign file, files of another size than configured. Nothing was changed.
            CorruptRecordError: Damage that is no torn tail. Nothing was changed.
            StoreFullError: No space.
        """
        load_kernels()
        from reput.store.recovery.opening import open_for_writing
        from reput.store.recovery.read_only import open_for_reading

        base = config or MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        settings = MessageStoreConfig.from_mapping(options, base)
        root = os.path.abspath(os.path.expanduser(path))
        if dispatch not in ("thread", "external", "spark"):
            raise ConfigError(f"dispatch={dispatch!r}: expected 'thread' or 'external'")
        external = dispatch != "thread"
        if external and (on_arrival is not None or bit_maps is not None):
            raise ConfigError('dispatch="external": on_arrival and bit_maps belong to the process that dispatches')
        if read_only:
            parts = open_for_reading(root, settings, files, progress)
        else:
            parts = open_for_writing(root, settings, files, progress, bit_maps, external=external)
        try:
            return cls(root, settings, parts, files, on_arrival, retention=retention, external=external)
        except BaseException:  # no thread could be started, or Ctrl-C; those that were have nothing to do
            parts.close()
            raise

    # -- putting

    def _check_writable(self) -> None:
        if not self._is_open or self._reput is None:
            state = "was opened read-only" if self._is_open else "is closed, or open in the parent of this process"
            raise StoreStateError(f"{self.path}: the store {state}; open it with MessageStore.open(path) to put")

    def put_message(self, message: Message, queue_id: int = 0) -> PutMessageResult:
        """Append one message; returns once it is as safe as the flush mode promises.

        SYNC_FLUSH: on the disk, or FLUSH_DISK_TIMEOUT after `syncFlushTimeout`; a message with wait_store_msg_ok=False
        does not wait. ASYNC_FLUSH: in the page cache, safe from a crash of the process.

        Raises:
            MessageIllegalError: It breaks one of RocketMQ's limits; nothing was written.
            StoreBusyError: The disk does not keep up; nothing was written.
            StoreFullError: No space, or a disk that retention found too full; nothing was written, the store goes on.
            StorePoisonedError: A sync failed; nothing more is accepted.
            StoreStateError: The store is closed or read-only.
        """
        if not self._is_open or self._reput is None:
            self._check_writable()
        try:
            return self._putting.one(message, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types([message], queue_id)
            raise

    def async_put_message(self, message: Message, queue_id: int = 0) -> Future[PutMessageResult]:
        """`put_message` that does not wait: the future is done when the message is safe. Errors as there."""
        self._check_writable()
        try:
            return self._putting.one_later(message, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types([message], queue_id)
            raise

    def put_messages(self, messages: Sequence[Message], queue_id: int = 0) -> list[PutMessageResult]:
        """Append several messages, each as a put of its own, and wait once. All are checked before any is written."""
        self._check_writable()
        try:
            with self._stats.timing():
                return self._putting.several(messages, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types(messages, queue_id)
            raise

    def put_batch(self, batch: MessageExtBatch | Sequence[Message], queue_id: int = 0) -> PutBatchResult:
        """Append a producer's batch as one, all of it or nothing, with queue offsets one behind the other.

        A batch with a `unique_key`, to a topic whose queues are batch consume queues, becomes one record with all
        messages in it, an inner batch, which is there as a whole even after a power cut. Any other becomes a record a
        message, side by side in one log file; a cut before the answer may leave the first ones of them. So decides
        `SendMessageProcessor.sendBatchMessage`. A list of messages counts as `MessageExtBatch.of` it.

        Returns and waits as `put_message` does.

        Raises:
            MessageIllegalError: It breaks one of RocketMQ's limits, or mixes what a batch cannot; nothing was written.
            StoreFullError: No space; nothing was written, and the store goes on.
            StorePoisonedError: A sync failed; nothing more is accepted.
            StoreStateError: The store is closed or read-only.
        """
        self._check_writable()
        try:
            with self._stats.timing():
                return self._putting_batches.put(batch, queue_id)
        except _TYPE_ERRORS:
            from reput.formats.message_batch import MessageExtBatch

            refuse_wrong_types([batch] if isinstance(batch, MessageExtBatch) else batch, queue_id)
            raise

    def put_arrow(self, table: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> PutTableResult:
        """Append the rows of a table, each as a put of its own, and wait once; after a crash a prefix of them is there.

        Columns as `read_log` gives them; `topic` and `body` must be there, null elsewhere means absent, and columns
        that the store assigns are ignored. Every row of a table is checked before any is written. A reader is taken
        batch by batch, each checked as a table is, so it may be larger than the memory.

        Raises:
            MessageIllegalError: A wrong column or type, or a row that RocketMQ would refuse, by its number. Nothing of
                the table was written; of a reader the batches before are stored, and the message says how many rows.
        """
        import pyarrow as pa

        self._check_writable()
        tables: Iterator[pa.Table]
        match table:
            case pa.RecordBatchReader():  # its columns are checked even if it has no batch
                tables = chain([table.schema.empty_table()], (pa.Table.from_batches([batch]) for batch in table))
            case pa.RecordBatch():
                tables = iter([pa.Table.from_batches([table])])
            case pa.Table():
                tables = iter([table])
            case _:
                raise MessageIllegalError(
                    "put_arrow takes a pyarrow Table, RecordBatch or RecordBatchReader, not "
                    f"{type(table).__name__}; pa.Table.from_pandas and pa.table make one"
                )
        with self._stats.timing():
            return self._putting.tables(tables)

    # -- topics

    def update_topic(self, config: TopicConfig) -> None:
        """Make a topic or change it; it is on the disk when this returns, as RocketMQ reads it.

        Raises:
            ConfigError: RocketMQ would refuse it, or could not read it; or the type of its queues (`queue.type`) would
                change, and there are messages. Nothing was changed.
            StoreBusyError: The disk does not keep up; nothing was changed.
            StoreFullError: No space; nothing was changed.
            StoreStateError: The store is closed or read-only.
        """
        from reput.store.config_files import check_topic

        self._check_writable()
        assert self._parts.topics is not None
        assert self._reput is not None
        check_topic(config)
        with self._changing_topics, ExitStack() as held:
            if self._queues.changes_type(config):  # no message may be put, or dispatched, by the old type meanwhile
                held.enter_context(self._reput.between_passes)
                held.enter_context(self._log.paused())
                self._queues.prepare_change(config, self._log.queue_offsets)
            self._parts.topics.update(config)
            self._queues.set_type(config)

    # -- dispatch

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that queues and index do not have yet."""
        return self._reput.dispatch_behind_bytes if self._reput is not None else 0

    def runtime_info(self) -> RuntimeInfo:
        """Sizes, offsets, rates, latencies, topics, groups and index files at this moment (`getRuntimeInfo`).

        A read-only store shows what is on the disk since it was opened; what only the writer counts is None then.
        """
        from reput.store.snapshot import take_runtime_info

        self._check_open()
        if self._reput is None:
            return take_runtime_info(self.path, self._parts, self._files)
        return take_runtime_info(self.path, self._parts, self._files, self._stats, self._reput.reput_from_offset)

    def wait_dispatched(self, timeout: float = 10) -> None:
        """Return once queues and index have everything that was put before the call.

        Raises:
            TimeoutError: They have not after `timeout` seconds.
            ReputError: Dispatch cannot go on.
        """
        self._check_open()
        if self._reput is not None:
            end = self._log.max_offset
            if end:
                self._flush.wait(end)
            if not self._reput.wait(end, timeout):
                raise TimeoutError(
                    f"{self.path}: queues and index are {self.dispatch_behind_bytes} bytes behind after {timeout} s"
                    + (f": {self._reput.failure}" if self._reput.failure else "")
                )

    # -- retention

    def delete_expired(self, *, dry_run: bool = False) -> RetentionReport:
        """Delete the commit log files that have expired, and what is derived from them, at any hour of the day.

        A file expires `fileReservedTime` after it was last written to, on a disk that is too full earlier. The last one
        stays, and so does what is not dispatched and flushed yet.

        Args:
            dry_run: Only tell; this a read-only store can, too.

        Raises:
            StoreError: A file cannot be deleted; everything behind it is as it was.
        """
        if dry_run:
            self._check_open()
            return self._cleaning.plan(manual=True)
        self._check_writable()
        return self._cleaning.delete_expired(manual=True)

    # -- lifecycle

    def close(self) -> None:
        """Sync and dispatch everything, mark the exit as clean, release the lock. Closing again does nothing.

        Raises:
            ReputError: Something could not be made durable; the next start recovers.
        """
        with self._closing:
            if self._is_closed:
                return
            self._is_open = False
            if self._reput is not None:
                self._stop_threads()  # interrupted here they may still write, so the lock is kept: close again
            self._is_closed = True
            try:
                if self._reput is not None:
                    self._seal(self._parts)
            finally:
                self._parts.close()

    def _stop_threads(self) -> None:
        assert self._reput is not None
        self._log.refuse(self._refusal)  # a put that passed its check before must not write once the lock is given back
        self._cleaning.shutdown()
        self._housekeeping.shutdown()
        self._flush.shutdown()
        self._reput.shutdown()

    def _seal(self, parts: Parts) -> None:
        from reput.store.parts import close_cleanly

        assert self._reput is not None
        failure = self._reput.failure if self._log.failure is self._refusal else self._log.failure
        if failure is not None:
            raise failure
        end = self._log.max_offset
        is_dispatched = self._reput.reput_from_offset >= end
        if self._log.flushed_offset < end or not (is_dispatched or self._external):
            raise StoreError(
                f"{self.path}: synced to {self._log.flushed_offset} and dispatched to {self._reput.reput_from_offset} "
                f"of {end}; the exit is not marked as clean, and the next start recovers"
            )
        close_cleanly(self.path, parts, self._files, is_dispatched=is_dispatched)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if not self._is_open else "read-only" if self._reput is None else "open"
        return f"MessageStore({self.path!r}, {state}, max_commit_log_offset={self._log.max_offset})"


_writers: WeakSet[MessageStore] = WeakSet()


def _leave_to_parent() -> None:
    """In a child that was forked: its copy of a store would write over what the parent writes, and end its life."""
    for store in _writers:
        store._is_open, store._is_closed = False, True


os.register_at_fork(after_in_child=_leave_to_parent)
