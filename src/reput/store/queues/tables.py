"""All queues of a store: its consume queues, and the batch consume queues of some topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.files import FileLayer
from reput.formats.metadata import TopicConfig
from reput.kernels.records.columns import RecordColumns
from reput.log.directory import QueueFiles
from reput.log.queue_types import BATCH_CQ, QUEUE_TYPE, QueueTypes, is_batch_cq
from reput.log.rocksdb.queue_files import DatabaseFiles
from reput.store.log.queue_offsets import QueueOffsets
from reput.store.queues.batch_consume_queue import BatchConsumeQueue
from reput.store.queues.batch_consume_queue_store import BatchConsumeQueueStore, BatchEnd
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.consume_queue_store import ConsumeQueueStore
from reput.store.queues.topic_begins import TopicBegins

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps

#: A queue of either type. Readers use what both types have.
Queue: TypeAlias = ConsumeQueue | BatchConsumeQueue


class QueueTables:
    """The tables of both queue types as one table; a topic has queues of one type only.

    Args:
        files: The file layer.
        path: The store's directory.
        file_size: Bytes of a consume queue file.
        batch_file_size: Bytes of a batch consume queue file.
        config: What is written beside the queues: extensions, light queues.
        writable: Whether files may be made and changed.
        types: Which topics have batch consume queues.
        bit_maps: See `MessageStore.open`.
    """

    def __init__(
        self,
        files: FileLayer,
        path: str,
        file_size: int,
        batch_file_size: int,
        config: MessageStoreConfig,
        *,
        writable: bool,
        types: QueueTypes,
        bit_maps: BitMaps | None = None,
    ) -> None:
        self.types = types
        self.begins = TopicBegins()
        self._files = files
        self.simple = ConsumeQueueStore(
            files, path, file_size, config, writable=writable, bit_maps=bit_maps, batch_topics=types.batch,
            begins=self.begins,
        )  # fmt: skip
        self.counts = self.simple.counts
        self.batch = BatchConsumeQueueStore(files, path, batch_file_size, types.batch, self.counts, self.begins)

    def check(self, listed: list[QueueFiles], batch_listed: list[QueueFiles]) -> None:
        """See `ConsumeQueueStore.check`."""
        self.simple.check(listed)
        self.batch.check(batch_listed)

    def load(
        self,
        listed: list[QueueFiles],
        batch_listed: list[QueueFiles],
        end_offset: int,
        guesses: Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> None:
        """See `ConsumeQueueStore.load`."""
        self.simple.load(listed, end_offset, guesses)
        self.batch.load(batch_listed, end_offset)

    def follow(self, next_offsets: Mapping[tuple[str, int], int], end_offset: int, store_timestamp: int) -> None:
        """See `ConsumeQueueStore.follow`."""
        grown = {key: end for key, end in next_offsets.items() if self.max_offset(key) < end}
        of_batch = {key[0] for key in grown} & self.types.batch
        if of_batch:
            self.batch.follow([key for key in grown if key[0] in of_batch], end_offset)
        simple = {key: end for key, end in grown.items() if key[0] not in of_batch}
        self.simple.follow(simple, end_offset, store_timestamp)
        self._raise(self.begins.table.keys() & {topic for topic, _ in grown})

    def max_offset(self, key: tuple[str, int]) -> int:
        """The max offset of a (topic, queue id); 0 if there is no such queue."""
        queue = self.find(*key)
        return queue.max_offset if queue is not None else 0

    def raise_min_offsets(self, min_commit_log_offset: int) -> None:
        """See `ConsumeQueueStore.raise_min_offsets`."""
        self.simple.raise_min_offsets(min_commit_log_offset)
        self.batch.raise_min_offsets(min_commit_log_offset)

    def take_begins(self, table: Mapping[str, int]) -> None:
        """Let the queues of deleted topics begin where `Topics.begin_offset_table` says; no pass is under way.

        Units of records before a begin may be dispatched later: they are passed over, too.
        """
        self._raise(self.begins.take(table))

    def _raise(self, topics: Collection[str]) -> None:
        """Raise the min offsets of deleted topics to their begins."""
        self.simple.raise_min_offsets(0, topics)
        self.batch.raise_min_offsets(0, topics)

    def write_again(self) -> None:
        """Write again and sync what is read after the units that `load` has taken over, and all extensions."""
        for queue in (*self.simple.queues(), *self.batch.queues()):
            queue.write_again()

    def cut(self) -> None:
        """Zero the bytes after the last unit of each queue."""
        self.simple.cut()
        for queue in self.batch.queues():
            queue.cut()

    def recover_extensions(self) -> None:
        """See `ConsumeQueueStore.recover_extensions`."""
        self.simple.recover_extensions()

    def find(self, topic: str, queue_id: int) -> Queue | None:
        """The queue; None if no message was ever dispatched to it."""
        return self.simple.find(topic, queue_id) or self.batch.find(topic, queue_id)

    def lacks_files_of(self, topic: str) -> bool:
        """Whether units of a topic are in a database, and not in files, by which they could be followed."""
        return isinstance(self._files, DatabaseFiles) and self._files.lacks_files_of(topic)

    def begin_at(self, topic: str, queue_id: int, offset: int) -> None:
        """See `ConsumeQueueStore.begin_at`; a missing queue is made as the topic's type says."""
        (self.batch if topic in self.types.batch else self.simple).begin_at(topic, queue_id, offset)

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of a topic's queues that have, or had, messages, in order."""
        ids = self.simple.queue_ids(topic) | self.batch.queue_ids(topic)
        return sorted(queue_id for queue_id in ids if self.max_offset((topic, queue_id)))

    def queues(self) -> list[Queue]:
        """All queues that have, or had, messages, in no special order.

        A record without a unit, such as a prepared message, makes no queue (`CommitLogDispatcherBuildConsumeQueue`).
        """
        queues: list[Queue] = [*self.simple.queues(), *self.batch.queues()]
        return [queue for queue in queues if queue.max_offset]

    def dispatch(self, columns: RecordColumns) -> None:
        """See `ConsumeQueueStore.dispatch`."""
        self.batch.dispatch(columns)  # first, so that the timestamp of `ConsumeQueueStore.flush` is true of both tables
        self.simple.dispatch(columns)
        if columns.rows and columns["commit_log_offset"][0] < self.begins.end:  # they may be of a deleted topic
            self._raise(self.begins.table)

    def check_dispatch(
        self, columns: RecordColumns, ends: dict[tuple[bytes, int], int], batch_ends: dict[tuple[str, int], BatchEnd]
    ) -> bool:
        """See `ConsumeQueueStore.check_dispatch`."""
        return self.batch.check_dispatch(columns, batch_ends) & self.simple.check_dispatch(columns, ends)

    def verify(self, columns: RecordColumns) -> bool:
        """See `ConsumeQueueStore.verify`; False if any topic has batch consume queues."""
        return not (self.types.batch or self.types.undeclared(columns)) and self.simple.verify(columns)

    def changes_type(self, config: TopicConfig) -> bool:
        """Whether a configuration gives the topic's queues another type than they have."""
        return is_batch_cq(config) != (config.topic_name in self.types.batch)

    def prepare_change(self, config: TopicConfig, next_offsets: QueueOffsets) -> None:
        """Remove files of the topic's queues without messages, which have the wrong type after `set_type`.

        Nothing may be appended or dispatched until `set_type`. `next_offsets` counts messages that are not dispatched
        yet.

        Raises:
            ConfigError: The topic has messages.
        """
        topic = config.topic_name
        if next_offsets.has_messages(topic) or any(queue.topic == topic for queue in self.queues()):
            kind = BATCH_CQ if topic in self.types.batch else "SimpleCQ"
            raise ConfigError(
                f"topic {topic!r}: {QUEUE_TYPE} is {kind}, and its queues exist; the type of a topic is chosen before "
                "its first message, so give a new topic the other type"
            )
        self.simple.remove(topic)
        self.batch.remove(topic)

    def set_type(self, config: TopicConfig) -> None:
        """Give the topic's queues the type that its configuration says, from now on."""
        if is_batch_cq(config):
            self.types.batch.add(config.topic_name)
        else:
            self.types.batch.discard(config.topic_name)

    def turn_to_batch(self, topics: Set[str]) -> None:
        """Give topics batch consume queues, though no configuration says so; their consume queues are removed.

        All records must be dispatched again from the beginning of the log.
        """
        for topic in topics:
            self.simple.remove(topic)
        self.types.batch |= topics

    @property
    def max_physical_offset(self) -> int:
        """Commit log offset after the last dispatched record that has a unit; -1 if there is no such record."""
        return max(self.simple.max_physical_offset, *(queue.max_physical_offset for queue in self.batch.queues()), -1)

    @property
    def last_record_offset(self) -> int:
        """Commit log offset of the last dispatched record that has a unit; -1 if there is no such record."""
        last = [unit for queue in self.batch.queues() if (unit := queue.unit(queue.max_offset - 1)) is not None]
        return max(self.simple.last_record_offset, *(unit.commit_log_offset for unit in last), -1)

    def flush(self, least_pages: int = 0) -> int:
        """See `ConsumeQueueStore.flush`."""
        timestamp = self.simple.flush(least_pages)
        self.batch.flush(least_pages)
        return timestamp

    def delete_expired(self, min_commit_log_offset: int, pause: Callable[[], object]) -> dict[str, int]:
        """See `ConsumeQueueStore.delete_expired`."""
        deleted = self.simple.delete_expired(min_commit_log_offset, pause)
        return deleted | self.batch.delete_expired(min_commit_log_offset, pause)

    def close(self) -> None:
        """Close all files, and a database that has queues."""
        self.simple.close()
        self.batch.close()
        if isinstance(self._files, DatabaseFiles):
            self._files.close()
