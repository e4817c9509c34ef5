"""MessageStore: the face of an open store, over its `Reader` and its `Writer`."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack
from weakref import WeakSet

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError, StoreStateError
from reput.files import DISK, FileLayer
from reput.formats.message import Message, refuse_wrong_types
from reput.formats.message_batch import MessageExtBatch
from reput.kernel_loader import load_kernels
from reput.log.object_storage import check_on_disk
from reput.log.store_host import encode_store_host
from reput.progress import Progress, silent
from reput.store.forgotten import close_forgotten, wait_for_forgotten
from reput.store.message_reader import MessageReader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from reput.config.message_store_options import MessageStoreOptions
    from reput.formats.metadata import TopicConfig, Topics
    from reput.kernels.columns import RecordColumns
    from reput.kernels.consume_queue_ext import BitMaps
    from reput.store.group_offsets import GroupOffsets
    from reput.store.loop_writer import LoopWriter
    from reput.store.put_future import PutFuture
    from reput.store.reader import Reader
    from reput.store.replica_writer import ReplicaWriter
    from reput.store.results import PutBatchResult, PutMessageResult, PutTableResult
    from reput.store.retention import RetentionReport
    from reput.store.runtime_info import RuntimeInfo
    from reput.store.statistics import TopicCounts
    from reput.store.tail_source import TailSource
    from reput.store.writer import DispatchMode, Writer

#: What Python says of values of wrong types; MessageIllegalError, a ValueError too, is none of them.
_TYPE_ERRORS = (TypeError, AttributeError, struct.error)


class MessageStore(MessageReader):
    """A RocketMQ message store in a directory: one writer at a time, any number of readers.

    Made by `open`; a context manager that closes it. Every method may be called from any thread. The verbs that only
    read are inherited from `MessageReader`.
    """

    def __init__(self, path: str, config: MessageStoreConfig, reader: Reader, writer: Writer | None) -> None:
        super().__init__(path, config, reader)
        self._writer = writer
        self._closing = Lock()
        self._is_closed = False
        self._refusal = StoreStateError(f"{path}: the store is closed")
        if writer is not None:
            _writers.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        small: bool = False,
        retention: bool = False,
        dispatch: Literal["thread", "external", "caller", "spark"] = "thread",
        config: MessageStoreConfig | None = None,
        on_arrival: Callable[[RecordColumns], None] | None = None,
        bit_maps: BitMaps | None = None,
        progress: Progress = silent,
        files: FileLayer = DISK,
        **options: Unpack[MessageStoreOptions],
    ) -> Self:
        """Open a store, or make one where nothing is; recover it where its writer was killed.

        Args:
            path: The store's directory (`storePathRootDir`).
            read_only: Take no lock and change no byte: what queues and index of a live, killed or closed store show.
            small: Make a new store with files so small that it takes 1 MB; a message has 500 KB at most. By RocketMQ's
                sizes it takes 60 MB, and looks like 1.5 GB. A store that has files keeps their sizes.
            retention: Delete commit log files that have expired, by hour, age and disk, and refuse puts on a full disk,
                as RocketMQ does; otherwise only `delete_expired` deletes.
            dispatch: Who keeps queues and index up to date: "thread", a thread of this store, or "external", another
                process that follows the log, `reput dispatch PATH`. Without such a process get and query see nothing
                new, and `dispatch_behind_bytes` grows. "caller": an event loop that wants no other thread beside it,
                with `loop_writer`. "spark" is the former name of "external", for one release.
            config: All configuration; RocketMQ's defaults but SYNC_FLUSH where it is left out. Sizes of files that are
                left out are those of the files that are there.
            on_arrival: Called by the dispatch thread with the columns of newly dispatched records; one that names light
                queues has a further row for each of them, with that queue's name and offset. The columns are
                the listener's own and stay valid after the call; held, they keep the space of a deleted log file taken.
                Dispatch waits for the call. An error of the listener is logged (logger `reput.store`), of errors in
                successive calls the first, and dispatch goes on.
            bit_maps: With enableConsumeQueueExt: called with the columns of each scan that is dispatched, it gives the
                bit maps for its rows (a pyarrow BinaryArray; null for none), or None. RocketMQ's broker computes them
                from the consumers' SQL filters (`CommitLogDispatcherCalcBitMap`).
            progress: Called with (bytes done, bytes in all, what is done) while a recovery runs.
            files: The file layer.
            options: RocketMQ's keys in snake_case or camelCase, over `config`; `MessageStoreOptions` has their types.

        Raises:
            ConfigError: An unknown key, with the nearest known one, or a wrong value; `brokerIP1` has no address.
            StoreLockedError: Another process, RocketMQ's own included, or this one has it open for writing.
            StoreFormatError: No store, a foreign file, files of another size than given. Nothing was changed.
            CorruptRecordError: Damage that is no torn tail. Nothing was changed.
            CorruptConsumeQueueError: The only queue file, which would tell the size, was cut. Nothing was changed.
            StoreFullError: No space.
        """
        base = config or MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        settings = MessageStoreConfig.from_mapping(options, base)
        encode_store_host(settings)
        check_on_disk(path)
        root = os.path.abspath(os.path.expanduser(path))
        if dispatch not in ("thread", "external", "caller", "spark"):
            raise ConfigError(f"dispatch={dispatch!r}: expected 'thread', 'external' or 'caller'")
        mode: DispatchMode = "external" if dispatch == "spark" else dispatch
        if mode == "external" and (on_arrival is not None or bit_maps is not None):
            raise ConfigError('dispatch="external": on_arrival and bit_maps belong to the process that dispatches')
        from reput.store.reader import Reader  # late, as it imports Numba
        from reput.store.writer import Writer

        if read_only:
            return cls(root, settings, Reader.open(root, settings, files, progress), None)
        load_kernels()
        wait_for_forgotten(root)
        writer = Writer.open(
            root, settings, files, progress,
            small=small, retention=retention, dispatch=mode, on_arrival=on_arrival, bit_maps=bit_maps,
        )  # fmt: skip
        return cls(root, writer.reader.config, writer.reader, writer)

    # -- putting

    def _writable(self) -> Writer:
        """The writer; raises StoreStateError where the store is closed or read-only."""
        writer = self._writer
        if not self._is_open or writer is None:
            state = "was opened read-only" if self._is_open else "is closed, or open in the parent of this process"
            raise StoreStateError(f"{self.path}: the store {state}; open it with MessageStore.open(path) to put")
        return writer

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
        writer = self._writer
        if writer is None or not self._is_open:
            writer = self._writable()
        try:
            return writer.putting.put_message(message, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types([message], queue_id)
            raise

    def async_put_message(self, message: Message, queue_id: int = 0) -> PutFuture:
        """Append one message without waiting; the future is done when the message is as safe as `put_message` makes it.

        `await` the future, give it to `asyncio.gather`, or ask for its `result()` in a thread (docs/asyncio.md).

        Errors as of `put_message`: of the append at once, of the sync by the future.
        """
        writer = self._writable()
        try:
            return writer.putting.async_put_message(message, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types([message], queue_id)
            raise

    def put_messages(
        self, messages: Sequence[Message], queue_id: int | Sequence[int] | npt.NDArray[np.integer[Any]] = 0
    ) -> list[PutMessageResult]:
        """Append messages, each as a put of its own, and wait once. All are checked before the first is written.

        Args:
            messages: Of any topics, in any order.
            queue_id: One for all messages, or a sequence or an array with one for each.

        Returns:
            A result for each message, as of `put_message`.

        Raises:
            MessageIllegalError: RocketMQ would refuse a message or a queue id; the error names the message by its
                number. Nothing was written.
            StoreFullError, StoreBusyError, StoreStateError: As of `put_message`, but the first messages may be stored:
                the error's text and `stored_messages` say how many. They are as safe as the flush mode promises.
            StorePoisonedError: A sync failed; nothing more is accepted, and nobody knows what is stored.
        """
        writer = self._writable()
        try:
            with self._stats.timing():
                return writer.putting.put_messages(messages, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types(messages, 0)  # the queue ids were checked before
            raise

    def put_batch(self, batch: MessageExtBatch | Sequence[Message], queue_id: int = 0) -> PutBatchResult:
        """Append a producer's batch, all of it or nothing, with consecutive queue offsets.

        A batch with a `unique_key`, to a topic with batch consume queues, becomes an inner batch: one record with all
        messages, which a power cut leaves whole or not at all. Any other batch becomes a record for each message, side
        by side in one log file; a power cut before the answer may leave the first records.
        `SendMessageProcessor.sendBatchMessage` decides the same way. A list of messages counts as `MessageExtBatch.of`
        that list.

        Returns and waits as `put_message` does.

        Raises:
            MessageIllegalError: It breaks one of RocketMQ's limits, or mixes what a batch cannot; nothing was written.
            StoreFullError: No space; nothing was written, and the store goes on.
            StorePoisonedError: A sync failed; nothing more is accepted.
            StoreStateError: The store is closed or read-only.
        """
        writer = self._writable()
        try:
            with self._stats.timing():
                return writer.putting_batches.put_batch(batch, queue_id)
        except _TYPE_ERRORS:
            refuse_wrong_types([batch] if isinstance(batch, MessageExtBatch) else batch, queue_id)
            raise

    def put_arrow(self, table: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> PutTableResult:
        """Append the rows of a table, each as a put of its own, and wait once. After a crash the first rows are there.

        Columns as `read_log` gives them. `topic` and `body` are required; null in another column means absent; columns
        that the store assigns are ignored. Every row of a table is checked before the first is written. A reader is
        taken batch by batch, each checked as a table is, so it may be larger than the memory.

        Raises:
            MessageIllegalError: A wrong column or type, or a row that RocketMQ would refuse, by its number. Nothing of
                the table was written; of a reader the batches before are stored: the error's text and
                `stored_messages` say how many rows.
            StoreFullError, StoreBusyError, StoreStateError, StorePoisonedError: As of `put_messages`.
        """
        import pyarrow as pa

        writer = self._writable()
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
            return writer.putting.put_arrow(tables)

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
        self.update_topics([config])

    def update_topics(self, configs: Sequence[TopicConfig]) -> None:
        """Make topics or change them, all of them or none, in one write; raises as `update_topic`."""
        self._writable().update_topics(configs)

    def delete_topic_config(self, topics: Collection[str]) -> None:
        """Take topics out of `config/topics.json`, in one write; unknown ones change nothing.

        Their messages and queues stay (`TopicConfigManager.deleteTopicConfig`).

        Raises:
            StoreFullError: No space; nothing was changed.
            StoreStateError: The store is closed or read-only.
        """
        self._writable().parts.topics.delete(topics)

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics of `config/topics.json` by name; a store takes messages of others, too.

        Raises:
            CorruptMetadataError: The file and its backup are damaged (only read-only: else the store does not open).
        """
        return MappingProxyType(dict(self.topic_metadata.topic_config_table))

    @property
    def topic_metadata(self) -> Topics:
        """The content of `config/topics.json`: topics and data version of one moment; raises as `topics`."""
        self._check_open()
        return self._reader.topics if self._writer is None else self._writer.parts.topics.topics

    def replica_writer(self, on_unknown_topic: Callable[[], None] | None = None) -> ReplicaWriter:
        """What appends the bytes of a master's log to this one; a store that follows takes no puts of its own.

        Args:
            on_unknown_topic: Called before an inner batch of a topic without settings (`update_topics`): without them
                its records are dispatched as single messages.

        Raises:
            StoreStateError: The store is closed or read-only.
        """
        from reput.store.replica_writer import ReplicaWriter

        return ReplicaWriter(self._writable(), on_unknown_topic)

    # -- dispatch

    def loop_writer(self) -> LoopWriter:
        """What an event loop writes and dispatches with; for a store that was opened with `dispatch="caller"`.

        Raises:
            StoreStateError: The store is closed, read-only, or somebody else dispatches.
        """
        from reput.store.dispatch.by_caller import DispatchByCaller
        from reput.store.loop_writer import LoopWriter

        reput = self._writable().reput
        if not isinstance(reput, DispatchByCaller):
            raise StoreStateError(f'{self.path}: not opened with dispatch="caller", so somebody else dispatches')
        return LoopWriter(self._writable, reput)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that queues and index do not have yet."""
        return self._writer.reput.dispatch_behind_bytes if self._writer is not None else 0

    @property
    def topic_counts(self) -> Mapping[str, TopicCounts]:
        """What was put and pulled by topic since the store was opened; the table grows, and its values change."""
        return self._stats.topics

    def runtime_info(self) -> RuntimeInfo:
        """Sizes, offsets, rates, latencies, topics, groups and index files at this moment (`getRuntimeInfo`).

        A read-only store shows what is on the disk since it was opened; what only the writer counts is None then.
        """
        self._check_open()
        return (self._writer or self._reader).runtime_info()

    def wait_dispatched(self, timeout: float = 10) -> None:
        """Return once queues and index have everything that was put before the call.

        Raises:
            TimeoutError: They have not after `timeout` seconds.
            ReputError: Dispatch cannot go on.
        """
        self._check_open()
        if self._writer is not None:
            self._writer.wait_dispatched(timeout)

    def _tail_source(self) -> TailSource:
        if self._writer is None:
            return super()._tail_source()
        from reput.store.dispatch.by_caller import DispatchByCaller
        from reput.store.tail_source import OwnStore

        if isinstance(self._writer.reput, DispatchByCaller):
            raise StoreStateError(f"{self.path}: a broker has this store; ask it for messages, as with reput.client")
        return OwnStore(self._writer)

    def _group_offsets(self) -> GroupOffsets:
        return super()._group_offsets() if self._writer is None else self._writer.group_offsets

    # -- retention

    def delete_expired(self, *, dry_run: bool = False) -> RetentionReport:
        """Delete the commit log files that have expired, and what is derived from them, at any hour of the day.

        A file expires `fileReservedTime` after it was last written to, on a disk that is too full earlier. The last one
        stays, and so does what is not dispatched and flushed yet.

        Args:
            dry_run: Only tell; this a read-only store can, too.

        Raises:
            StoreError: A file cannot be deleted; later files are as they were.
        """
        if not dry_run:
            return self._writable().cleaning.delete_expired(manual=True)
        self._check_open()
        return self._reader.plan_deletion() if self._writer is None else self._writer.cleaning.plan(manual=True)

    def change_retention(self, config: MessageStoreConfig) -> None:
        """Delete by the keys of another configuration from the next run on; its other keys change nothing."""
        self._writable().cleaning.config = config

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
            writer = self._writer
            if writer is None:
                self._is_closed = True
                self._reader.parts.close()
                return
            writer.stop(self._refusal)  # interrupted here threads may still write, so the lock is kept: close again
            self._is_closed = True
            writer.end(self._refusal)

    def __del__(self) -> None:
        """Close a store that nobody can close any more, with a ResourceWarning, as Python does with files."""
        writer = getattr(self, "_writer", None)
        if writer is not None and not self._is_closed and not sys.is_finalizing():
            close_forgotten(self, writer, self._refusal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if not self._is_open else "read-only" if self._writer is None else "open"
        return f"MessageStore({self.path!r}, {state}, max_commit_log_offset={self._log.max_offset})"


_writers: WeakSet[MessageStore] = WeakSet()


def _leave_to_parent() -> None:
    """In a child that was forked: its copy of a store would write over what the parent writes, and end its life."""
    for store in _writers:
        store._is_open, store._is_closed = False, True


os.register_at_fork(after_in_child=_leave_to_parent)
