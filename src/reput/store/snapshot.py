"""Snapshot of a store: the values of a `RuntimeInfo`, from the parts of an open store and from its files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from reput.errors import CorruptConsumeQueueError, StoreError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.metadata import ConsumerOffsets, DelayOffsets, LmqConsumerOffsets, Topics, split_topic_group
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from reput.log.metadata import read_metadata
from reput.store.queues.tables import Queue
from reput.store.reads.query import QueryMessage
from reput.store.runtime_info import FolderUse, GroupInfo, IndexFileInfo, Rates, RuntimeInfo, TopicInfo
from reput.store.statistics import StoreStatsService, TopicCounts

if TYPE_CHECKING:
    from reput.files import FileLayer
    from reput.store.parts import Parts

_T = TypeVar("_T")


def take_runtime_info(
    path: str, parts: Parts, files: FileLayer, stats: StoreStatsService | None = None, reput_from_offset: int = 0
) -> RuntimeInfo:
    """Take the snapshot of an open store.

    Args:
        path: The store's directory.
        parts: The store's parts.
        files: The file layer.
        stats: The store's statistics; None for a reader, which has none.
        reput_from_offset: Commit log offset up to which the log is dispatched; a reader sees that in the queues.
    """
    log, query = parts.log, QueryMessage(parts.log, parts.index, files)
    findings = [str(parts.report.damage)] if parts.report.damage is not None else []
    counted: dict[str, Any] = dict.fromkeys(_COUNTED) if stats is None else _counted(stats)
    _read_or_tell(path, Topics, files, findings)
    flushed = None if stats is None else log.flushed_offset
    first = query.by_offset(log.min_offset)
    latest = log.last_store_timestamp
    log_folders = {*log.queue.folders, *(os.path.dirname(file.path) for file in log.queue.mapped_files)}
    folders = {name: os.path.join(path, name) for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX)}
    ratios = {folder: _disk_ratio(files, folder, path) for folder in log.queue.folders}
    return RuntimeInfo(
        **counted,
        commit_log_disk_ratio=min(ratios.values()),
        commit_log_disk_ratio_by_path=ratios,
        consume_queue_disk_ratio=_disk_ratio(files, folders[CONSUME_QUEUE], path),
        disk_free_bytes=files.disk_free(path),
        commit_log_min_offset=log.min_offset,
        commit_log_max_offset=log.max_offset,
        confirm_offset=log.confirm_offset,
        flushed_offset=flushed,
        remain_how_many_data_to_flush=None if flushed is None else max(0, log.max_offset - flushed),
        put_refusal=None if stats is None else str(log.refusal or ""),
        dispatch_behind_bytes=_lag_on_disk(parts) if stats is None else max(0, log.max_offset - reput_from_offset),
        earliest_message_time_stamp=first.store_timestamp if first is not None else None,
        latest_message_time_stamp=latest or None,
        schedule_message_offset=_schedule_offsets(path, parts, files, findings),
        commit_log=_sum([folder_use(files, folder) for folder in log_folders]),
        consume_queue=_sum([folder_use(files, folders[name]) for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)]),
        index=folder_use(files, folders[INDEX]),
        topics=_topics(parts, stats.topics if stats is not None else None),
        groups=tuple(_groups(path, parts, files, query, findings)),
        index_files=_index_files(parts),
        findings=tuple(findings),
    )


#: Values that only the writing process knows.
_COUNTED = (
    "boot_timestamp", "runtime", "put_message_entire_time_max", "put_message_times_total", "put_message_failed_times",
    "put_message_size_total", "put_message_average_size", "put_message_distribute_time", "put_latency99",
    "put_latency999", "get_message_entire_time_max", "put_tps", "put_bytes_per_second", "get_found_tps", "get_miss_tps",
    "get_total_tps", "get_transferred_tps",
)  # fmt: skip


def _counted(stats: StoreStatsService) -> dict[str, Any]:
    """The values of `StoreStatsService.getRuntimeInfo`."""
    totals, grown = stats.totals(), stats.per_second()

    def rates(*names: str) -> Rates:
        return {
            str(window): None if one is None else round(float(sum(getattr(one, name) for name in names)), 3)
            for window, one in grown.items()
        }

    messages, size = totals.put_messages, totals.put_bytes
    return {
        "boot_timestamp": stats.boot_timestamp,
        "runtime": _runtime(int(time.time() * 1000) - stats.boot_timestamp),
        "put_message_entire_time_max": stats.put_entire_time_max_ms,
        "put_message_times_total": messages,
        "put_message_failed_times": stats.put_failed_times,
        "put_message_size_total": size,
        "put_message_average_size": size / messages if messages else 0.0,
        "put_message_distribute_time": stats.put_distribution(),
        "put_latency99": round(stats.put_latency_ms(0.99), 2),
        "put_latency999": round(stats.put_latency_ms(0.999), 2),
        "get_message_entire_time_max": int(stats.get_entire_time_max_s * 1000),
        "put_tps": rates("put_messages"),
        "put_bytes_per_second": rates("put_bytes"),
        "get_found_tps": rates("get_times"),
        "get_miss_tps": rates("miss_times"),
        "get_total_tps": rates("get_times", "miss_times"),
        "get_transferred_tps": rates("got_messages"),
    }


def _runtime(elapsed_ms: int) -> str:
    """`StoreStatsService.getFormatRuntime`."""
    minutes, seconds = divmod(elapsed_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _disk_ratio(files: FileLayer, folder: str, root: str) -> float:
    """Used share of a folder's disk, 0 to 1, in hundredths, rounded up (`UtilAll.getDiskPartitionSpaceUsedPercent`).

    If the folder is missing, the root's disk counts.
    """
    return files.disk_used_percent(folder if files.exists(folder) else root) / 100


def _lag_on_disk(parts: Parts) -> int:
    """Bytes between the last record with a unit (after a clean exit: that is dispatched) and the end of the log."""
    if not parts.report.was_killed and not isinstance(parts.report.damage, CorruptConsumeQueueError):
        return parts.log.max_offset - parts.report.dispatched_from
    return max(0, parts.log.max_offset - max(parts.queues.max_physical_offset, parts.log.min_offset))


def folder_use(files: FileLayer, path: str) -> FolderUse:
    """Files below a folder, which may be missing."""
    if not files.is_directory(path):
        return FolderUse(0, 0, 0)
    entries = files.list_directory(path)
    inner = [folder_use(files, os.path.join(path, entry.name)) for entry in entries if entry.is_directory]
    return _sum([FolderUse(1, one.size, one.allocated_bytes) for one in entries if not one.is_directory] + inner)


def _sum(uses: Sequence[FolderUse]) -> FolderUse:
    return FolderUse(
        sum(one.files for one in uses), sum(one.bytes for one in uses), sum(one.allocated_bytes for one in uses)
    )


def _topics(parts: Parts, counts: dict[str, TopicCounts] | None) -> tuple[TopicInfo, ...]:
    by_topic: dict[str, list[int]] = {topic: [0, 0, 0] for topic in counts or ()}
    for queue in parts.queues.queues():
        sums = by_topic.setdefault(queue.topic, [0, 0, 0])
        sums[0] += 1
        sums[1] += queue.max_offset - queue.min_offset
        sums[2] += queue.max_offset
    topics = []
    for topic, sums in sorted(by_topic.items()):
        count = counts.get(topic) if counts is not None else None
        counted = {name: getattr(count or _NEVER, name) for name in _OF_TOPIC} if counts is not None else {}
        topics.append(TopicInfo(topic, *sums, **counted))
    return tuple(topics)


_NEVER = TopicCounts()
_OF_TOPIC = ("put_messages", "put_bytes", "get_times", "got_messages", "got_bytes")


def _committed(path: str, files: FileLayer, findings: list[str]) -> list[tuple[str, Mapping[int, int], int]]:
    """For each `topic@group`: the next offsets by queue id, and the next offset of all other queues.

    A group of light queues (`%LMQ%...`) has one offset for all queues (`LmqConsumerOffsetManager.queryOffset`).
    """
    ordinary = _read_or_tell(path, ConsumerOffsets, files, findings)
    light = _read_or_tell(path, LmqConsumerOffsets, files, findings)
    return [
        *((key, by_queue, 0) for key, by_queue in chain(ordinary.offset_table.items(), light.offset_table.items())),
        *((key, {}, offset) for key, offset in light.lmq_offset_table.items()),
    ]


def _groups(path: str, parts: Parts, files: FileLayer, query: QueryMessage, findings: list[str]) -> list[GroupInfo]:
    """Lag of each group of `consumerOffset.json` and `lmqConsumerOffset.json` after the queues, if these are read."""
    if parts.report.hides_queues:
        return []
    latest = parts.log.last_store_timestamp
    by_topic: dict[str, list[Queue]] = {}
    for queue in parts.queues.queues():
        by_topic.setdefault(queue.topic, []).append(queue)
    groups = []
    for key, by_queue, otherwise in _committed(path, files, findings):
        topic, group = split_topic_group(key)
        lag, lags_ms = 0, []
        for queue in by_topic.get(topic, ()):
            offset = max(0, by_queue.get(queue.queue_id, otherwise))
            if offset < queue.max_offset:
                lag += queue.max_offset - offset
                lags_ms.append(_lag_ms(query, queue, offset, latest))
        known_ms = [lag_ms for lag_ms in lags_ms if lag_ms is not None]
        groups.append(GroupInfo(group, topic, lag, max(known_ms, default=None if lag else 0)))
    return sorted(groups, key=lambda one: (one.group, one.topic))


def _lag_ms(query: QueryMessage, queue: Queue, offset: int, latest: int) -> int | None:
    """Time (ms) from a message of a queue to the store's last message; None if the log no longer has the message."""
    unit = queue.unit(max(offset, queue.min_offset))
    message = query.by_offset(unit.commit_log_offset) if unit is not None else None
    return max(0, latest - message.store_timestamp) if message is not None else None


def _schedule_offsets(path: str, parts: Parts, files: FileLayer, findings: list[str]) -> dict[int, str]:
    """Next offset and max offset of each delay level's queue (`ScheduleMessageService.buildRunningStats`)."""
    table = _read_or_tell(path, DelayOffsets, files, findings).offset_table
    if parts.report.hides_queues:
        return {}
    queues = {level: parts.queues.find(SCHEDULE_TOPIC, level - 1) for level in sorted(table)}
    return {level: f"{table[level]},{queue.max_offset if queue else 0}" for level, queue in queues.items()}


def _read_or_tell(path: str, kind: type[_T], files: FileLayer, findings: list[str]) -> _T:
    """Read a file below `config/`; an empty value, and a finding, if the file and its backup are damaged."""
    try:
        return read_metadata(path, kind, files) or kind()
    except StoreError as error:  # damaged, or not readable
        findings.append(str(error))
        return kind()


def _index_files(parts: Parts) -> tuple[IndexFileInfo, ...]:
    files = parts.index.index_files if parts.index is not None else []
    return tuple(
        IndexFileInfo(
            os.path.basename(file.path), file.begin_timestamp, file.end_timestamp, file.count - 1, file.capacity
        )
        for file in files
    )
