"""MessageReader: the verbs of a `MessageStore` that read."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from reput.config.arguments import check_text, check_whole, refusal
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, StoreStateError
from reput.formats.consume_queue import Unit
from reput.formats.message_ext import MessageExt
from reput.log.directory import StoreDirectory
from reput.log.unknown_topics import warn_of_slip
from reput.store.reads.arguments import check_pull, check_query, check_tail, look_at_tags
from reput.store.results import QueueInfo

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from reput.store.group_offsets import GroupOffsets
    from reput.store.preload import Preloaded
    from reput.store.queues.tables import Queue
    from reput.store.reader_services import ReaderServices
    from reput.store.reads.get_result import GetMessageResult, GetRawResult
    from reput.store.reads.message_filter import MessageFilter
    from reput.store.reads.proven_records import ProvenRecords
    from reput.store.reads.pulled_run import PulledRun
    from reput.store.reads.query import QueryMessageResult
    from reput.store.recovery_report import RecoveryReport
    from reput.store.tail import ConsumeFrom, Tail
    from reput.store.tail_source import TailSource

logger = logging.getLogger("reput.store")


class MessageReader:
    """The verbs of a `MessageStore` that read: queues, messages, keys, and the log as a whole.

    Attributes:
        path: The directory.
        recovery: What the start of the store found and did.
    """

    def __init__(self, path: str, reader: ReaderServices) -> None:
        self.path = path
        self.recovery: RecoveryReport = reader.parts.report
        self._reader = reader
        self._log = reader.parts.log
        self._queues = reader.parts.queues
        self._stats = reader.stats
        self._getting = reader.getting
        self._querying = reader.querying
        self._finder = reader.finder
        self._pulling = reader.pulling
        self._is_open = True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the open store {self.path} belongs to this process: let the other one open it, with read_only=True while "
            "this one writes"
        )

    @property
    def config(self) -> MessageStoreConfig:
        """Configuration of the open store, with the sizes of its files."""
        return self._reader.config

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreStateError(f"{self.path}: the store is closed")

    # -- queues

    def queues(self) -> list[QueueInfo]:
        """All consume queues at this moment, by topic and queue id."""
        self._check_open()
        return sorted(
            QueueInfo(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)
            for queue in self._queues.queues()
        )

    def _find(self, topic: str, queue_id: int) -> Queue | None:
        """A queue; None if it is not there. Raises ConfigError if the names are of another type."""
        try:
            queue = self._queues.find(topic, queue_id)
        except TypeError:  # what has no hash
            queue = None
        if queue is None:
            check_pull(topic=topic, queue_id=queue_id)
        return queue

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset whose message the log still has; 0 for an unknown queue."""
        self._check_open()
        queue = self._find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message to be dispatched; 0 for an unknown queue."""
        self._check_open()
        queue = self._find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """The queue offset for a store time (`getOffsetInQueueByTime`).

        "lower": of the first message at that time or later, the max offset if there is none. "upper": of the last
        message at that time or earlier, the min offset if there is none.
        """
        self._check_open()
        if boundary not in ("lower", "upper"):
            raise ConfigError(f"boundary {boundary!r}: expected 'lower' or 'upper'")
        check_whole("timestamp_ms", timestamp_ms)
        queue = self._find(topic, queue_id)
        return 0 if queue is None else self._querying.offset_by_time(queue, timestamp_ms, upper=boundary == "upper")

    def message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time (ms) of the message at a queue offset; -1 if there is none (`getMessageStoreTimeStamp`)."""
        self._check_open()
        check_whole("offset", offset)
        queue = self._find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        return self._querying.store_timestamp(queue, offset)

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[Unit] | None:
        """The units of a queue from a queue offset on, `count` at most, with tags codes out of ext units.

        None if the queue is not there, or does not have the offset.
        """
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        return self._querying.units(queue, offset, count)

    # -- messages

    def tail(
        self,
        topic: str,
        *,
        group: str | None = None,
        offsets: str | os.PathLike[str] | None = None,
        queue_ids: Collection[int] | None = None,
        tags: str | None = None,
        consume_from: ConsumeFrom = "first",
        timeout: float | None = None,
    ) -> Tail:
        """The messages of a topic, and those that come, for a loop or in batches.

            for message in store.tail("orders", group="billing"): ...

        A store that is open read-only is looked at again as another process puts messages: ten times a second.

        Args:
            topic: The topic; it may come later. The log `reput.topics` says if another one has nearly this name.
            group: Go on at the offsets of this group, and keep them: in `config/consumerOffset.json` of the store that
                this process writes. RocketMQ's clients and tools know them by this name.
            offsets: A file in which the group's offsets are kept instead, of the same format. It must be given for a
                group if another process writes the store. One process may use a file.
            queue_ids: Only these queues; None: all, those that come later, too.
            tags: As of `get_message`.
            consume_from: First message in a queue of which the group has no offset: "first", "last" or a time.
            timeout: Seconds without a message after which a loop ends; None: never.

        Raises:
            ConfigError: An argument that is none, or `offsets` that cannot be used.
            CorruptMetadataError: The file with the offsets and its backup are damaged.
            StoreError: `offsets` cannot be written.
            StoreStateError: The store is closed; or a broker has it, whose clients are asked for messages.
        """
        from reput.store.group_offsets import GroupOffsets
        from reput.store.tail import Tail

        self._check_open()
        check_tail(topic, group, offsets, queue_ids, tags, timeout)
        if group is None:
            kept = None
        elif offsets is None:
            kept = self._group_offsets()
        else:
            kept = GroupOffsets(os.path.abspath(os.path.expanduser(offsets)), self._reader.files)
            kept.commit(group, topic, {})  # a file that cannot be written is to be told before the first message
        if not self._queues.queue_ids(topic):
            warn_of_slip(topic, StoreDirectory(self.path, files=self._reader.files))
        return Tail(
            self._tail_source(topic), topic, check_open=self._check_open, group=group, offsets=kept,
            queue_ids=queue_ids, tags=tags, consume_from=consume_from, timeout=timeout,
        )  # fmt: skip

    def _tail_source(self, topic: str) -> TailSource:
        from reput.store.tail_source import OtherStore

        return OtherStore(self._reader, topic)

    def _group_offsets(self) -> GroupOffsets:
        raise ConfigError(
            f"{self.path}: the store is open read-only, so its file of offsets is another process's: give `offsets`, a "
            "file for the offsets of this group"
        )

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int = 32,
        tags: str | None = None,
        *,
        max_total_size: int | None = None,
    ) -> GetMessageResult:
        """The messages of a queue from an offset on, as `DefaultMessageStore.getMessage` gives them.

        Args:
            topic: The topic.
            queue_id: The queue.
            offset: Queue offset of the first message wanted.
            max_msg_nums: Most messages; `maxTransferCountOnMessageInMemory` (32) and its fellows limit them too.
            tags: `a || b`; None and `*` take all. Hashes are compared first, then the text, as a client would.
            max_total_size: Most bytes; one message always goes.

        Raises ConfigError for an argument of another type.
        """
        if not self._is_open:
            self._check_open()
        if tags is not None:
            check_text("tags", tags)
            look_at_tags(tags)
        if max_total_size is not None:
            check_whole("max_total_size", max_total_size)
        if not (type(topic) is str and type(queue_id) is type(offset) is type(max_msg_nums) is int):
            check_pull(topic=topic, queue_id=queue_id, offset=offset, max_msg_nums=max_msg_nums)
        begin = monotonic()
        try:
            result = self._getting.get(topic, queue_id, offset, max_msg_nums, tags, max_total_size)
        except ArithmeticError:  # beyond 64 bits
            check_pull(topic=topic, queue_id=queue_id, offset=offset, max_msg_nums=max_msg_nums)
            raise
        elapsed = monotonic() - begin
        if elapsed > self._stats.get_entire_time_max_s:
            self._stats.get_took(elapsed)
        return result

    def get_raw(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int = 32,
        tags: str | None = None,
        message_filter: MessageFilter | None = None,
        *,
        may_wait: bool = True,
    ) -> GetRawResult | None:
        """`get_message` for a broker: a copy of the records' bytes; a disk that it waits for stops no other thread.

        Args:
            topic, queue_id, offset, max_msg_nums, tags: As of `get_message`.
            message_filter: In place of `tags`: chooses messages by their properties. A pull ends after the messages
                that it may look at, or 256 KiB of properties, with NO_MATCHED_MESSAGE if it wants none of them.
            may_wait: Read from the disk what is not in memory. False: return None instead; the call takes
                microseconds then. Messages of batch consume queues, with tags messages of queues with an extension, and
                what takes a filter long, count as not in memory.

        Raises:
            StoreError: The disk cannot read the messages.
        """
        self._check_open()
        begin = monotonic()
        result = self._getting.get_raw(topic, queue_id, offset, max_msg_nums, tags, message_filter, may_wait=may_wait)
        elapsed = monotonic() - begin
        if elapsed > self._stats.get_entire_time_max_s:
            self._stats.get_took(elapsed)
        return result

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> list[MessageExt]:
        """The newest `max_num` messages that carry a key (as KEYS or UNIQ_KEY), oldest first.

        `begin` and `end` bound the store time in ms, both included.

        Raises:
            ConfigError: An argument of another type.
        """
        if not self._is_open:
            self._check_open()
        if not (type(max_num) is type(begin) is int and end is None):
            check_query(topic, key, max_num, begin, end)
        try:
            return self._querying.by_key(topic, key, max_num, begin, end)
        except (ArithmeticError, AttributeError, MemoryError, TypeError, ValueError):
            check_query(topic, key, max_num, begin, end)
            raise

    def query_messages(
        self, topic: str, keys: Sequence[str], max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> QueryMessageResult:
        """`query_message` for many keys in one call, many times faster: a mapping from each key to its messages.

        Raises:
            ConfigError: One text instead of a list of keys, or an argument of another type.
        """
        self._check_open()
        if isinstance(keys, str | bytes):
            raise ConfigError(f"keys {keys!r}: expected a list of keys; query_message takes one")
        check_query(topic, "", max_num, begin, end)
        try:
            return self._querying.by_keys(topic, keys, max_num, begin, end)
        except (AttributeError, TypeError):
            if not isinstance(keys, Sequence):
                raise refusal("keys", keys, "a list of keys") from None
            for key in keys:
                check_text("key", key)
            raise

    def index_end(self) -> tuple[int, int]:
        """(store time in ms, commit log offset) of the last record in the index; (0, 0) if there is none."""
        self._check_open()
        index = self._reader.parts.index
        files = index.index_files if index is not None else []
        return (files[-1].end_timestamp, files[-1].end_offset) if files else (0, 0)

    def look_message_by_offset(self, commit_log_offset: int) -> MessageExt | None:
        """The message whose record starts at a commit log offset; None if none does."""
        self._check_open()
        check_whole("commit_log_offset", commit_log_offset)
        return self._querying.by_offset(commit_log_offset)

    def look_records(self, places: Sequence[tuple[int, int]], *, may_wait: bool = True) -> list[bytes | None] | None:
        """Copies of bytes of the log, for a broker; a disk that it waits for stops no other thread.

        Args:
            places: Commit log offset and size of each record, as the caller has them: the bytes are not checked.
            may_wait: As of `get_raw`; if False, None is returned instead.

        Returns:
            The bytes at each place; None for one that is not in one file of the log.

        Raises:
            StoreError: The disk cannot read them.
        """
        self._check_open()
        return self._querying.records(places, may_wait=may_wait)

    def find_records(self, offsets: npt.NDArray[np.int64]) -> ProvenRecords | None:
        """Records of format V1, with hosts of 8 bytes, for a broker's loop: they are in memory, nothing is waited for.

        Args:
            offsets: int64[n], n > 0: commit log offsets as others name them. A record is proven by its queue's unit.

        Returns:
            Those of the first offsets, as many as are found without the disk; None if the first one is not.
        """
        self._check_open()
        return self._finder.find(offsets)

    def find_pull(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, tags: str | None, most_size: int
    ) -> PulledRun | None:
        """As `get_raw` without a message filter, for a broker's loop: messages that are in memory, where they lie.

        None, and nothing is counted, if the pull is no plain one: without messages, of more than `most_size` bytes, of
        a batch consume queue or with ext units, with pages on the disk, or so far behind that a slave is to be asked.

        Raises:
            StoreError: The disk cannot read the queue.
        """
        self._check_open()
        return self._pulling.find(topic, queue_id, offset, max_msg_nums, tags, most_size)

    def view_message(self, message_id: str) -> MessageExt | None:
        """The message of an offset message id; None if it is not in this store."""
        self._check_open()
        check_text("message_id", message_id)
        return self._querying.by_message_id(message_id)

    def preload(self, log_bytes: int | None = None) -> Preloaded:
        """Read the last bytes of the log, and the units and index entries of these records, into the page cache.

        Call it before traffic comes; it returns when everything is read. The page cache belongs to the machine, so
        another process may preload, with the store opened read-only.

        Args:
            log_bytes: How many bytes of the log; None: the share of the memory that `accessMessageInMemoryMaxRatio`
                counts as in memory.
        """
        self._check_open()
        if log_bytes is not None:
            check_whole("log_bytes", log_bytes, 0)
        return self._reader.preload(log_bytes)

    # -- the log as a whole

    @property
    def min_commit_log_offset(self) -> int:
        """The log's first offset."""
        return self._log.min_offset

    @property
    def max_commit_log_offset(self) -> int:
        """Commit log offset after the last record."""
        return self._log.max_offset

    @property
    def confirm_offset(self) -> int:
        """Commit log offset up to which records may be served: with SYNC_FLUSH what is on the disk, else the end."""
        return self._log.confirm_offset

    def commit_log_data(self, offset: int, max_size: int) -> memoryview:
        """Bytes of the log as they lie, from an offset on; of one file, and at most up to `confirm_offset`.

        Empty if there are none (`DefaultMessageStore.getCommitLogData`). The bytes stay mapped while they are held.

        Raises:
            StoreError: The disk cannot read them.
        """
        self._check_open()
        check_whole("offset", offset)
        check_whole("max_size", max_size, 0)
        return self._log.window(offset, max_size)

    @property
    def flushed_offset(self) -> int:
        """Commit log offset up to which everything is known to be on the disk."""
        return self._log.flushed_offset

    def earliest_time(self) -> int:
        """Store time (ms) of the log's first message; -1 if there is none."""
        self._check_open()
        message = self._querying.by_offset(self._log.min_offset)
        return message.store_timestamp if message is not None else -1

    def latest_time(self) -> int:
        """Store time (ms) of the log's last message; -1 if none is known."""
        self._check_open()
        return self._log.last_store_timestamp or -1
