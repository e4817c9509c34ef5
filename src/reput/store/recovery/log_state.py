"""State beside the log that points into it: no start leaves it beyond the log's end.

The log may end before where it ended: `rejoin`, `repair` or a start has cut it, or a disk has lost its end. What points
beyond would pass over what the log gets there next. Whatever grows a log opens the store first, so one place is enough:
a start lowers all such state as soon as it knows the log's end. If a cut took what was done (a delivery), and not
what it was done for, it is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.access import ACCESS_FILE
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.kv_config import KV_CONFIG_FILE
from reput.formats.metadata import (
    FILE_NAMES,
    ConsumerFilters,
    ConsumerOffsets,
    ConsumerOrderInfos,
    DelayOffsets,
    LmqConsumerOffsets,
    MessageRequestModes,
    OrderInfo,
    SubscriptionGroups,
    TimerMetrics,
    Topics,
    TransactionMetrics,
    split_topic_group,
)
from reput.formats.paths import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    TIMER_CHECK,
    TIMER_LOG,
    TIMER_WHEEL,
)
from reput.formats.pop_messages import greatest_offset
from reput.formats.shutdown import SHUTDOWN_FILE
from reput.formats.sink_commit import SINKS_FILE, STAGING
from reput.formats.timer_checkpoint import FILE_SIZE, TimerCheckpoint, decode_timer_checkpoint, encode_timer_checkpoint
from reput.formats.timer_log import TIMER_TOPIC
from reput.log.dispatch_marks import DISPATCH_FILE, DISPATCHER_LOCK, RECOVERY_FILE
from reput.log.failed_sync import FAILED_SYNC_FILE
from reput.log.metadata import read_metadata
from reput.log.timer_units import units_from
from reput.store.config_files import persist_metadata
from reput.store.queues.tables import QueueTables

_T = TypeVar("_T")
_Offsets = TypeVar("_Offsets", ConsumerOffsets, LmqConsumerOffsets)


@dataclass(frozen=True, slots=True)
class LogExtent:
    """End of the log of a store directory, and of each of its queues.

    Attributes:
        root: The store directory.
        files: The file layer.
        queues: All records of the log have their units.
        offset: Commit log offset after the last record.
        timestamp: Its store time (ms). What was to be done later has not been done in this log.
        precision_ms: Length of a slot of the timer wheel.
    """

    root: str
    files: FileLayer
    queues: QueueTables
    offset: int
    timestamp: int
    precision_ms: int

    def of_queue(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message gets."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset


def lower_log_state(
    root: str, files: FileLayer, config: MessageStoreConfig, queues: QueueTables, end_offset: int, end_timestamp: int
) -> None:
    """Lower all state of a store directory that points beyond the end of its log, durably.

    A damaged file stays as it is: who reads it refuses it.

    Args:
        root: The store directory, before its log grows.
        files: The file layer.
        config: The store's keys.
        queues: All records of the log have their units.
        end_offset: Commit log offset after the last record.
        end_timestamp: Its store time (ms).

    Raises:
        StoreError: A file could not be replaced; the next start lowers it.
    """
    end = LogExtent(root, files, queues, end_offset, end_timestamp, config.timer_precision_ms)
    for lower in POINTERS.values():
        lower(end)


def _lower_file(kind: type[_T], lowered: Callable[[LogExtent, _T], _T], end: LogExtent) -> None:
    """Replace a JSON file, and its backup, which a later start may need."""
    try:
        content = read_metadata(end.root, kind, end.files)
    except CorruptMetadataError:
        return
    if content is not None and (lower := lowered(end, content)) != content:
        for _ in range(2):
            persist_metadata(end.root, lower, end.files)


def _offsets(end: LogExtent, content: _Offsets) -> _Offsets:
    """`next`: the offset of the message that a group gets next; of a revive queue, of the last check point done."""

    def lowered(key: str, queue_id: int, offset: int) -> int:
        topic, group = split_topic_group(key)
        return min(offset, greatest_offset(group, end.of_queue(topic, queue_id)))

    table = {
        key: {queue_id: lowered(key, queue_id, offset) for queue_id, offset in queues.items()}
        for key, queues in content.offset_table.items()
    }
    if isinstance(content, ConsumerOffsets):
        return replace(content, offset_table=table)
    light = {key: lowered(key, 0, offset) for key, offset in content.lmq_offset_table.items()}
    return replace(content, offset_table=table, lmq_offset_table=light)


def _delays(end: LogExtent, content: DelayOffsets) -> DelayOffsets:
    """`next`: the first message of a level that was not delivered; what was due after the log's end was not."""
    table: dict[int, int] = {}
    for level, offset in content.offset_table.items():
        queue = end.queues.find(SCHEDULE_TOPIC, level - 1)
        following = min(offset, end.of_queue(SCHEDULE_TOPIC, level - 1))
        while queue is not None and following > queue.min_offset:
            unit = queue.unit(following - 1)
            if unit is None or unit.tags_code <= end.timestamp:
                break
            following -= 1
        table[level] = following
    return replace(content, offset_table=table)


def _orders(end: LogExtent, content: ConsumerOrderInfos) -> ConsumerOrderInfos:
    """Messages that were popped in order: a queue is not blocked by those that are gone."""

    def is_there(key: str, queue_id: int, info: OrderInfo) -> bool:
        first, *others = info.o or (-1,)
        return first + max(others, default=0) < end.of_queue(split_topic_group(key)[0], queue_id)

    table = {
        key: {queue_id: info for queue_id, info in queues.items() if is_there(key, queue_id, info)}
        for key, queues in content.table.items()
    }
    return replace(content, table=table)


def _begins(end: LogExtent, content: Topics) -> Topics:
    """`begin`: where the messages of a deleted topic begin: what comes next is one of them."""
    table = {topic: min(begin, end.offset) for topic, begin in (content.begin_offset_table or {}).items()}
    return replace(content, begin_offset_table=table or None)


def _timers(end: LogExtent) -> None:
    """`next`: the message that gets a unit next; `done`: the slots before the read time, all in the log before it.

    If a unit leads beyond the log, all units go, as in a slave: each message that waits gets another one.
    """
    path = f"{end.root}/{TIMER_CHECK}"
    before = TimerCheckpoint()
    if end.files.exists(path):
        before = decode_timer_checkpoint(end.files.read_bytes(path)[:FILE_SIZE])
    queue_end, slot_ms = end.of_queue(TIMER_TOPIC, 0), end.timestamp // end.precision_ms * end.precision_ms
    after = before._replace(
        last_read_time_ms=min(before.last_read_time_ms, slot_ms),
        last_timer_queue_offset=min(before.last_timer_queue_offset, queue_end),
        master_timer_queue_offset=min(before.master_timer_queue_offset, queue_end),
    )
    is_beyond = after.last_timer_queue_offset < before.last_timer_queue_offset or any(
        bool((units["OFFSETPY"] + units["SIZEPY"] > end.offset).any())
        for units in units_from(end.root, before.last_timer_log_flush_pos, end.files)
    )
    if is_beyond:
        without_units(end.root, end.files, after, after.master_timer_queue_offset)
    elif after != before:
        _write_checkpoint(end.root, end.files, after)


def without_units(root: str, files: FileLayer, checkpoint: TimerCheckpoint, queue_end: int) -> None:
    """Remove timer log and wheel: a start as master gives each message a unit that the checkpoint does not count.

    Args:
        root: The store directory.
        files: The file layer.
        checkpoint: How far the timers were.
        queue_end: The messages before this queue offset were delivered, if their slot is before the read time.
    """
    checkpoint = checkpoint._replace(
        last_timer_log_flush_pos=0, last_timer_queue_offset=0, master_timer_queue_offset=queue_end
    )
    _write_checkpoint(root, files, checkpoint)  # before the units go: else a kill would leave messages without any
    for name in (TIMER_LOG, TIMER_WHEEL):
        path = f"{root}/{name}"
        if files.exists(path):
            remove = files.remove_tree if files.is_directory(path) else files.unlink
            remove(path)


def _write_checkpoint(root: str, files: FileLayer, checkpoint: TimerCheckpoint) -> None:
    files.make_directories(f"{root}/{CONFIG}")
    files.write_atomically(f"{root}/{TIMER_CHECK}", encode_timer_checkpoint(checkpoint).ljust(FILE_SIZE, b"\0"))


#: What points into the log, and what lowers it; the timers' files are judged together.
POINTERS: Mapping[str, Callable[[LogExtent], None]] = {
    f"{CONFIG}/{FILE_NAMES[ConsumerOffsets]}": partial(_lower_file, ConsumerOffsets, _offsets),
    f"{CONFIG}/{FILE_NAMES[LmqConsumerOffsets]}": partial(_lower_file, LmqConsumerOffsets, _offsets),
    f"{CONFIG}/{FILE_NAMES[DelayOffsets]}": partial(_lower_file, DelayOffsets, _delays),
    f"{CONFIG}/{FILE_NAMES[ConsumerOrderInfos]}": partial(_lower_file, ConsumerOrderInfos, _orders),
    f"{CONFIG}/{FILE_NAMES[Topics]}": partial(_lower_file, Topics, _begins),
    TIMER_CHECK: _timers,
}
#: The log, what every start compares with it before this, and what only holds while the log ends where it says.
JUDGED_BEFORE = frozenset(
    (
        COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT, TIMER_LOG, TIMER_WHEEL,
        STAGING,
        *(f"{CONFIG}/{name}" for name in (SHUTDOWN_FILE, DISPATCH_FILE, RECOVERY_FILE, SINKS_FILE)),
    )
)  # fmt: skip
#: Files that say nothing of a place in the log.
NO_POINTERS = frozenset(
    (
        ABORT, LOCK,
        *(
            f"{CONFIG}/{name}"
            for name in (ACCESS_FILE, KV_CONFIG_FILE, DISPATCHER_LOCK, FAILED_SYNC_FILE, "broker.properties")
        ),
        *(
            f"{CONFIG}/{FILE_NAMES[kind]}"
            for kind in (
                SubscriptionGroups, ConsumerFilters, MessageRequestModes, TimerMetrics, TransactionMetrics,
            )
        ),
    )
)  # fmt: skip
