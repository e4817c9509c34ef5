"""MessageStore: the parts of a store introduced to each other, and the public verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Self

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError, StoreError, StoreStateError
from reput.files import DISK, FileLayer
from reput.formats.message import Message, MessageExt
from reput.warm import load_kernels

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.formats.message_batch import MessageExtBatch
    from reput.formats.metadata import TopicConfig
    from reput.kernels.columns import RecordColumns
    from reput.kernels.consume_queue_ext import BitMaps
    from reput.store.get_result import GetMessageResult
    from reput.store.opening import Parts
    from reput.store.query import QueryMessageResult
    from reput.store.queue_tables import Queue
    from reput.store.recovery import Progress, RecoveryReport
    from reput.store.results import PutBatchResult, PutMessageResult, PutTableResult
    from reput.store.retention import RetentionReport
    from reput.store.runtime_info import RuntimeInfo
    from reput.store.warm_up import WarmedUp


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


class MessageStore:
    """A RocketMQ message store in a directory: one writer at a time, any number of readers.

    Made by `open`; a context manager that closes it. Every method may be called from any thread.

    Attributes:
        path: The directory.
        config: What it was opened with.
        recovery: What the start found and did.
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
    ) -> None:
        from reput.store.flush import FlushPolicy, FlushRealTimeService, GroupCommitService
        from reput.store.get import GetMessage
        from reput.store.housekeeping import FlushConsumeQueueService
        from reput.store.put import PutMessage
        from reput.store.put_batch import PutBatch
        from reput.store.query import QueryMessage
        from reput.store.reput import Dispatcher, ReputMessageService
        from reput.store.retention import CleanService
        from reput.store.statistics import StoreStatsService

        self.path = path
        self.config = config
        self.recovery: RecoveryReport = parts.report
        self._files = files
        self._parts = parts
        self._log = parts.log
        self._queues = parts.queues
        self._is_open = True
        self._closing = Lock()
        self._stats = StoreStatsService(parts.queues.counts)
        self._getting = GetMessage(parts.log, parts.queues, config, files, os.path.basename(path), self._stats)
        self._querying = QueryMessage(parts.log, parts.index)
        self._reput: ReputMessageService | None = None
        self._cleaning = CleanService(
            parts, config, files, path, lambda: self._reput.reput_from_offset if self._reput else parts.log.max_offset
        )
        if parts.lock is None:
            return
        self._flush: FlushPolicy = (
            GroupCommitService(parts.log, config)
            if config.flush_disk_type is FlushDiskType.SYNC_FLUSH
            else FlushRealTimeService(parts.log, config)
        )
        dispatchers: list[Dispatcher] = [parts.queues, *([parts.index] if parts.index is not None else []), self._stats]
        self._reput = ReputMessageService(parts.log, dispatchers, config, on_arrival)
        self._reput.reput_from_offset = parts.log.max_offset
        self._putting = PutMessage(parts.log, self._flush, config, self._reput.wake_if_idle, self._stats)
        self._putting_batches = PutBatch(
            self._putting, parts.log, self._flush, config, self._reput.wake_if_idle, parts.queues.types
        )
        self._housekeeping = FlushConsumeQueueService(path, parts, self._flush.sync, config, self._stats)
        for service in (self._flush, self._reput, self._housekeeping):
            service.start()
        if retention:
            self._cleaning.start()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        retention: bool = False,
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
            config: All configuration; RocketMQ's defaults but SYNC_FLUSH where it is left out.
            on_arrival: Called by the dispatch thread with the columns of newly dispatched records.
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
        from reput.store.opening import open_for_reading, open_for_writing

        base = config or MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        settings = MessageStoreConfig.from_mapping(options, base)
        root = os.path.abspath(os.path.expanduser(path))
        if read_only:
            parts = open_for_reading(root, settings, files, progress)
        else:
            parts = open_for_writing(root, settings, files, progress, bit_maps)
        return cls(root, settings, parts, files, on_arrival, retention=retention)

    # -- putting

    def _check_writable(self) -> None:
        if not self._is_open or self._reput is None:
            state = "was opened read-only" if self._is_open else "is closed"
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
        return self._putting.one(message, queue_id)

    def async_put_message(self, message: Message, queue_id: int = 0) -> Future[PutMessageResult]:
        """`put_message` that does not wait: the future is done when the message is safe. Errors as there."""
        self._check_writable()
        return self._putting.one_later(message, queue_id)

    def put_messages(self, messages: Sequence[Message], queue_id: int = 0) -> list[PutMessageResult]:
        """Append several messages, each as a put of its own, and wait once. All are checked before any is written."""
        self._check_writable()
        with self._stats.timing():
            return self._putting.several(messages, queue_id)

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
        with self._stats.timing():
            return self._putting_batches.put(batch, queue_id)

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

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics of `config/topics.json` by name; a store takes messages of others, too.

        Raises:
            CorruptMetadataError: The file and its backup are damaged (only read-only: else the store does not open).
        """
        from reput.store.config_files import TopicConfigManager

        self._check_open()
        return (self._parts.topics or TopicConfigManager(self._files, self.path)).table

    def update_topic(self, config: TopicConfig) -> None:
        """Make a topic or change it; it is on the disk when this returns, as RocketMQ reads it.

        Raises:
            ConfigError: RocketMQ would refuse it, or could not read it; or the type of its queues (`queue.type`) would
                change, and there are some. Nothing was changed.
            StoreFullError: No space; nothing was changed.
            StoreStateError: The store is closed or read-only.
        """
        from reput.store.config_files import check_topic

        self._check_writable()
        assert self._parts.topics is not None
        check_topic(config)
        self._queues.check_type(config)
        self._parts.topics.update(config)
        self._queues.set_type(config)

    # -- getting

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreStateError(f"{self.path}: the store is closed")

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int = 32,
        tags: str | None = None,
        group: str | None = None,
        max_total_size: int | None = None,
    ) -> GetMessageResult:
        """The messages of a queue from an offset on, as `DefaultMessageStore.getMessage` gives them.

        Args:
            topic: The topic.
            queue_id: The queue.
            offset: Queue offset of the first message wanted.
            max_msg_nums: Most messages; `maxTransferCountOnMessageInMemory` (32) and its fellows limit them too.
            tags: `a || b`; None and `*` take all. Hashes are compared first, then the text, as a client would.
            group: The consumer group, for statistics by group.
            max_total_size: Most bytes; one message always goes.
        """
        if not self._is_open:
            self._check_open()
        return self._getting.get(topic, queue_id, offset, max_msg_nums, tags, max_total_size)

    def queues(self) -> Iterator[Queue]:
        """All consume queues, by topic and queue id; each has topic, queue_id, min_offset and max_offset."""
        self._check_open()
        return iter(sorted(self._queues.queues(), key=lambda queue: (queue.topic, queue.queue_id)))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset whose message the log still has; 0 for an unknown queue."""
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message to be dispatched; 0 for an unknown queue."""
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """The queue offset for a store time (`getOffsetInQueueByTime`).

        "lower": of the first message at that time or later, the max offset where there is none. "upper": of the last
        message at that time or earlier, the min offset where there is none.
        """
        self._check_open()
        if boundary not in ("lower", "upper"):
            raise ConfigError(f"boundary {boundary!r}: expected 'lower' or 'upper'")
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else self._querying.offset_by_time(queue, timestamp_ms, upper=boundary == "upper")

    # -- querying

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> list[MessageExt]:
        """The newest `max_num` messages that carry a key (as KEYS or UNIQ_KEY), oldest first.

        `begin` and `end` bound the store time in ms, both included; the index knows it to the second, rounded down.
        """
        if not self._is_open:
            self._check_open()
        return self._querying.by_key(topic, key, max_num, begin, end)

    def query_messages(
        self, topic: str, keys: Sequence[str], max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> QueryMessageResult:
        """`query_message` for many keys in one call, many times faster: a mapping from each key to its messages."""
        self._check_open()
        return self._querying.by_keys(topic, keys, max_num, begin, end)

    def look_message_by_offset(self, commit_log_offset: int) -> MessageExt | None:
        """The message whose record starts at a commit log offset; None where none does."""
        self._check_open()
        return self._querying.by_offset(commit_log_offset)

    def view_message(self, message_id: str) -> MessageExt | None:
        """The message of an offset message id; None where it is not in this store."""
        self._check_open()
        return self._querying.by_message_id(message_id)

    def warm_up(self, log_bytes: int | None = None) -> WarmedUp:
        """Read the newest part of the log, and what queues and index know about it, into the page cache.

        Returns once it is there: to be called before traffic comes. The cache is the machine's, so another process can
        do it, with the store opened read-only.

        Args:
            log_bytes: How much of the log; None: what counts as in memory, `accessMessageInMemoryMaxRatio`.
        """
        from reput.store.warm_up import warm_up

        self._check_open()
        if log_bytes is None:
            log_bytes = self._files.physical_memory() * self.config.access_message_in_memory_max_ratio // 100
        return warm_up(self._parts, self._files, log_bytes)

    # -- the log as a whole

    @property
    def min_commit_log_offset(self) -> int:
        """The log's first offset."""
        return self._log.min_offset

    @property
    def max_commit_log_offset(self) -> int:
        """Behind the last record."""
        return self._log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Commit log offset up to which everything is known to be on the disk."""
        return self._log.flushed_offset

    def earliest_time(self) -> int:
        """Store time (ms) of the log's first message; -1 where there is none."""
        self._check_open()
        message = self._querying.by_offset(self._log.min_offset)
        return message.store_timestamp if message is not None else -1

    def latest_time(self) -> int:
        """Store time (ms) of the log's last message; -1 where none is known."""
        self._check_open()
        return self._log.last_store_timestamp or -1

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
            if not self._is_open:
                return
            self._is_open = False
            parts = self._parts
            try:
                if self._reput is not None:
                    self._shut_down(parts)
            finally:
                parts.close()

    def _shut_down(self, parts: Parts) -> None:
        from reput.store.opening import close_cleanly

        assert self._reput is not None
        closed = StoreStateError(f"{self.path}: the store is closed")
        self._log.refuse(closed)  # a put that passed its check before must not write once the lock is given back
        self._cleaning.shutdown()
        self._housekeeping.shutdown()
        self._flush.shutdown()
        self._reput.shutdown()
        failure = self._reput.failure if self._log.failure is closed else self._log.failure
        if failure is not None:
            raise failure
        end = self._log.max_offset
        if self._log.flushed_offset < end or self._reput.reput_from_offset < end:
            raise StoreError(
                f"{self.path}: synced to {self._log.flushed_offset} and dispatched to {self._reput.reput_from_offset} "
                f"of {end}; the exit is not marked as clean, and the next start recovers"
            )
        close_cleanly(self.path, parts, self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if not self._is_open else "read-only" if self._reput is None else "open"
        return f"MessageStore({self.path!r}, {state}, max_commit_log_offset={self._log.max_offset})"
