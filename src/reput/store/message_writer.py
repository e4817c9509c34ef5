"""MessageWriter: the verbs of a `MessageStore` that write."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reput.config.arguments import an_object_of, check_flag, check_texts
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError, StoreStateError
from reput.extras import require
from reput.formats.message import Message, refuse_wrong_types
from reput.formats.message_batch import MessageExtBatch
from reput.formats.metadata import TopicConfig
from reput.store.message_reader import MessageReader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from reput.formats.metadata import Topics
    from reput.store.loop_writer import LoopWriter
    from reput.store.puts.put_future import PutFuture
    from reput.store.reader_services import ReaderServices
    from reput.store.replica_writer import ReplicaWriter
    from reput.store.results import PutBatchResult, PutMessageResult, PutTableResult
    from reput.store.retention_plan import RetentionReport
    from reput.store.writer_services import WriterServices

#: What Python says of values of wrong types; MessageIllegalError, a ValueError too, is none of them.
_TYPE_ERRORS = (TypeError, AttributeError, struct.error)


def _check_topics(name: str, configs: Any) -> None:
    """Raises ConfigError for what are no topics."""
    an_object_of(Collection)(name, configs)
    for one in configs:
        if not isinstance(one, TopicConfig):
            raise ConfigError(f"{name}: a topic must be a TopicConfig, not {type(one).__name__}")


class MessageWriter(MessageReader):
    """The verbs of a `MessageStore` that write: messages, topics, deletions, and what others write with.

    A method that would change a store raises StoreStateError if it is closed, or was opened read-only.
    """

    def __init__(self, path: str, reader: ReaderServices, writer: WriterServices | None) -> None:
        super().__init__(path, reader)
        self._writer = writer

    # -- putting

    def _writable(self) -> WriterServices:
        """The writer; raises StoreStateError if the store is closed or read-only."""
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
            refuse_wrong_types([message])
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
            refuse_wrong_types([message])
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
            refuse_wrong_types(messages)
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
            refuse_wrong_types([batch] if isinstance(batch, MessageExtBatch) else batch)
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
            ConfigError: Arrow is not installed.
        """
        require("pyarrow", "put_arrow")
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
        _check_topics("config", [config])
        self.update_topics([config])

    def update_topics(self, configs: Sequence[TopicConfig]) -> None:
        """Make topics or change them, all of them or none, in one write; raises as `update_topic`."""
        _check_topics("configs", configs)
        self._writable().update_topics(configs)

    def delete_topic_config(self, topics: Collection[str]) -> None:
        """Take topics out of `config/topics.json`, and their messages out of their queues, in one write.

        A topic of the same name has only messages that come later; their queue offsets follow the last ones. The log,
        and what reads it, keeps the messages until it expires. What is unknown and has no messages changes nothing.

        Raises:
            StoreFullError: No space; nothing was changed.
            StoreStateError: The store is closed or read-only.
        """
        check_texts("topics", topics)
        self._writable().delete_topics(topics)

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

    # -- retention

    def delete_expired(self, *, dry_run: bool = False) -> RetentionReport:
        """Delete the commit log files that have expired, and what is derived from them, at any hour of the day.

        A file expires `fileReservedTime` after it was last written to, on a disk that is too full earlier. The last one
        stays, and so does what is not dispatched and flushed yet.

        Args:
            dry_run: Only report; a read-only store can do this, too.

        Raises:
            StoreError: A file cannot be deleted; later files are as they were.
        """
        check_flag("dry_run", dry_run)
        if not dry_run:
            return self._writable().cleaning.delete_expired(manual=True)
        self._check_open()
        return self._reader.plan_deletion() if self._writer is None else self._writer.cleaning.plan(manual=True)

    def change_retention(self, config: MessageStoreConfig) -> None:
        """Delete by the keys of another configuration from the next run on; its other keys change nothing."""
        self._writable().cleaning.config = config

    # -- what a follower and an event loop write with

    def replica_writer(self, on_unknown_topic: Callable[[], None] | None = None) -> ReplicaWriter:
        """The writer of a master's bytes to this log; a store that follows takes no puts of its own.

        Args:
            on_unknown_topic: Called before an inner batch of a topic without settings (`update_topics`): without them
                its records are dispatched as single messages.

        Raises:
            StoreStateError: The store is closed or read-only.
        """
        from reput.store.replica_writer import ReplicaWriter

        return ReplicaWriter(self._writable(), on_unknown_topic)

    def loop_writer(self) -> LoopWriter:
        """The writer for an event loop; for a store that was opened with `dispatch="caller"`.

        Raises:
            StoreStateError: The store is closed, read-only, or somebody else dispatches.
        """
        from reput.store.dispatch.by_caller import DispatchByCaller
        from reput.store.loop_writer import LoopWriter

        reput = self._writable().reput
        if not isinstance(reput, DispatchByCaller):
            raise StoreStateError(f'{self.path}: not opened with dispatch="caller", so somebody else dispatches')
        return LoopWriter(self._writable, reput)
