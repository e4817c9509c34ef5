"""WriterServices: what a store has that is open for writing, from its start to its clean exit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Literal, Self

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import StoreError, StoreStateError
from reput.files import FileLayer
from reput.formats.metadata import ConsumerOffsets, TopicConfig
from reput.kernels.records.columns import RecordColumns
from reput.log.metadata import metadata_path
from reput.progress import Progress
from reput.store.clean_exit import close_cleanly
from reput.store.config_files import check_topic
from reput.store.dispatch.by_caller import DispatchByCaller
from reput.store.dispatch.follower import DispatchFollower
from reput.store.dispatch.reput import Dispatcher, ReputMessageService
from reput.store.dispatch.space import DispatchSpace
from reput.store.group_offsets import GroupOffsets
from reput.store.housekeeping import FlushConsumeQueueService
from reput.store.log.allocate import AllocateMappedFileService
from reput.store.log.flush import FlushPolicy, FlushRealTimeService
from reput.store.log.group_commit import GroupCommitService
from reput.store.parts import WriterParts
from reput.store.puts.put import PutMessage
from reput.store.puts.put_batch import PutBatch
from reput.store.puts.put_rows import PutRows
from reput.store.reader_services import ReaderServices
from reput.store.recovery.opening import open_for_writing
from reput.store.retention import CleanService
from reput.store.runtime_info import RuntimeInfo
from reput.store.snapshot import take_runtime_info

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps


#: Longest wait of a deletion of topics for the dispatch of their last messages.
_DISPATCH_WAIT_S = 10

#: Who dispatches: a thread of the store, another process, or whoever calls `LoopWriter.dispatch`.
DispatchMode = Literal["thread", "external", "caller"]


@dataclass(slots=True)
class WriterServices:
    """The services of a store that is open for writing.

    Attributes:
        parts: Log, queues, index, lock, checkpoint, abort marker and topics.
        reader: What it reads with.
        flush: Syncs the log; puts wait for it (thread `reput-flush`).
        reput: Dispatches records to queues and index (`reput-dispatch`).
        allocate: Makes the next log file (`reput-allocate`).
        housekeeping: Syncs queues and index, and moves the checkpoint (`reput-flush-queues`).
        cleaning: Deletes expired files (`reput-retention`, if it was asked for).
        putting: Puts of single messages, lists and tables.
        putting_batches: Puts of producers' batches.
        putting_rows: Puts of rows as a broker receives them.
        group_offsets: How far groups have read; a broker keeps them itself.
        external: Whether another process dispatches.
        may_size_log: Whether no size of log files was given: a log without a file may then take its master's.
    """

    parts: WriterParts
    reader: ReaderServices
    flush: FlushPolicy
    reput: ReputMessageService
    allocate: AllocateMappedFileService
    housekeeping: FlushConsumeQueueService
    cleaning: CleanService
    putting: PutMessage
    putting_batches: PutBatch
    putting_rows: PutRows
    group_offsets: GroupOffsets
    external: bool
    may_size_log: bool
    _changing_topics: Lock = field(default_factory=Lock)

    @classmethod
    def open(
        cls,
        path: str,
        config: MessageStoreConfig,
        files: FileLayer,
        progress: Progress,
        *,
        small: bool,
        retention: bool,
        dispatch: DispatchMode,
        on_arrival: Callable[[RecordColumns], None] | None,
        bit_maps: BitMaps | None,
    ) -> Self:
        """Lock and recover a store, and start its threads; errors as of `MessageStore.open`."""
        parts = open_for_writing(
            path, config, files, progress, bit_maps, external=dispatch == "external", small=small, retention=retention
        )
        try:
            may_size_log = not config.is_given("mapped_file_size_commit_log")
            writer = cls._of(path, parts.config, files, parts, on_arrival, dispatch, may_size_log=may_size_log)
            for service in (writer.flush, writer.reput, writer.allocate, writer.housekeeping):
                service.start()
            if retention:
                writer.cleaning.start()
        except BaseException:  # no thread could be started, or Ctrl-C; those that were started find nothing to do
            parts.log.failure = StoreStateError(f"{path}: the store could not be opened")
            parts.close()
            raise
        return writer

    @classmethod
    def _of(
        cls,
        path: str,
        config: MessageStoreConfig,
        files: FileLayer,
        parts: WriterParts,
        on_arrival: Callable[[RecordColumns], None] | None,
        dispatch: DispatchMode,
        *,
        may_size_log: bool,
    ) -> Self:
        log, reader = parts.log, ReaderServices.of(path, config, files, parts)
        flush: FlushPolicy = (
            GroupCommitService(log, config)
            if config.flush_disk_type is FlushDiskType.SYNC_FLUSH
            else FlushRealTimeService(log, config)
        )
        reput: ReputMessageService
        if dispatch == "external":
            reput = DispatchFollower(path, parts, config, files)
        elif dispatch == "caller":
            reput = DispatchByCaller(log, parts.queues, parts.index, reader.stats, config, on_arrival)
        else:
            index: list[Dispatcher] = [parts.index] if parts.index is not None else []
            reput = ReputMessageService(log, [parts.queues, *index, reader.stats], config, on_arrival)
        reput.reput_from_offset = log.max_offset
        space = DispatchSpace(path, files, parts, lambda: reput.reput_from_offset)
        log.queue.check_space = space.check
        space.warn()
        putting = PutMessage(log, flush, config, reput.wake_if_idle, reader.stats)
        return cls(
            parts,
            reader,
            flush,
            reput,
            AllocateMappedFileService(log, config, tells_refusal=dispatch == "caller"),
            FlushConsumeQueueService(path, parts, flush.sync, config, reader.stats),
            CleanService(
                parts,
                config,
                files,
                path,
                lambda: min(reput.reput_from_offset, log.flushed_offset, log.confirm_offset),
            ),
            putting,
            PutBatch(putting, log, flush, config, reput.wake_if_idle, parts.queues.types),
            PutRows(putting, log, flush, config, reput.wake_if_idle, reader.stats, parts.queues.types),
            GroupOffsets(metadata_path(path, ConsumerOffsets), files),
            dispatch == "external",
            may_size_log,
        )

    def update_topics(self, configs: Sequence[TopicConfig]) -> None:
        """See `MessageStore.update_topics`."""
        for config in configs:
            check_topic(config)
        log, queues = self.parts.log, self.parts.queues
        with self._changing_topics, ExitStack() as held:
            changing = [config for config in configs if queues.changes_type(config)]
            if changing:  # no message may be put, or dispatched, by the old type meanwhile
                held.enter_context(self.reput.between_passes)
                held.enter_context(log.paused())
            for config in changing:
                queues.prepare_change(config, log.queue_offsets)
            self.parts.topics.update(configs)
            for config in changing:
                queues.set_type(config)

    def delete_topics(self, topics: Collection[str]) -> None:
        """See `MessageStore.delete_topic_config`.

        Only a topic with a message gets a begin, and loses it once the log begins there: so the table has no more
        entries than there are topics with queues.
        """
        log = self.parts.log
        with self._changing_topics:
            end = log.max_offset  # first: a topic whose first message comes now needs no begin
            with_messages = {topic for topic, _ in list(log.queue_offsets.numbers)}
            begins = {topic: begin for topic, begin in self.parts.topics.begins.items() if begin > log.min_offset}
            self._delete_topics(topics, begins | dict.fromkeys(with_messages.intersection(topics), end))
        if type(self.reput) is ReputMessageService:  # a reader sees no unit of old messages that comes only now
            with suppress(TimeoutError):
                self.wait_dispatched(_DISPATCH_WAIT_S)

    def copy_deleted_topics(self, topics: Collection[str], begins: Mapping[str, int]) -> None:
        """Delete topics that a master has no more, and take over its begins (`Topics.begin_offset_table`)."""
        with self._changing_topics:
            if begins != self.parts.topics.begins or not self.parts.topics.topics.topic_config_table.keys().isdisjoint(
                topics
            ):
                self._delete_topics(topics, begins)

    def _delete_topics(self, topics: Collection[str], begins: Mapping[str, int]) -> None:
        self.parts.topics.delete(topics, begins)
        with self.reput.between_passes:  # so that no pass writes units that are not seen here
            self.parts.queues.take_begins(self.parts.topics.begins)

    def runtime_info(self) -> RuntimeInfo:
        """The snapshot of the store, with what only the writer counts."""
        reader = self.reader
        return take_runtime_info(reader.path, self.parts, reader.files, reader.stats, self.reput.reput_from_offset)

    def wait_dispatched(self, timeout: float) -> None:
        """See `MessageStore.wait_dispatched`."""
        reput, end = self.reput, self.parts.log.max_offset
        if end:
            self.flush.wait(end)
        if not reput.wait(end, timeout):
            raise TimeoutError(
                f"{self.reader.path}: queues and index are {reput.dispatch_behind_bytes} bytes behind after {timeout} s"
                + (f": {reput.failure}" if reput.failure else "")
            )

    def stop(self, refusal: StoreStateError) -> None:
        """Sync and dispatch everything, and end the threads; puts are refused from now on.

        A put that has passed its check may not write any more once the lock is given back.
        """
        self.parts.log.refuse(refusal)
        self.cleaning.shutdown()
        self.allocate.shutdown()
        self.housekeeping.shutdown()
        self.flush.shutdown()
        self.reput.shutdown()

    def end(self, refusal: StoreStateError) -> None:
        """Mark the exit as clean after `stop`, and release the lock whatever happens; errors as of `seal`."""
        try:
            self.seal(refusal)
        finally:
            self.parts.close()

    def seal(self, refusal: StoreStateError) -> None:
        """Mark the exit as clean after `stop`.

        Raises:
            ReputError: Something could not be made durable or dispatched; the next start recovers.
        """
        log, reput, reader = self.parts.log, self.reput, self.reader
        failure = reput.failure if log.failure is refusal else log.failure
        if failure is not None:
            raise failure
        end = log.max_offset
        is_dispatched = reput.reput_from_offset >= end
        if log.flushed_offset < end or not (is_dispatched or self.external):
            raise StoreError(
                f"{reader.path}: synced to {log.flushed_offset} and dispatched to {reput.reput_from_offset} of {end}; "
                "the exit is not marked as clean, and the next start recovers"
            )
        close_cleanly(reader.path, self.parts, reader.files, is_dispatched=is_dispatched)
