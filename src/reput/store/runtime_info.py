"""Snapshot of a store's state, under the names of RocketMQ's `getRuntimeInfo`.

For a store that this process has open all values are known. A reader of the directory sees what is on the disk: sizes,
offsets, times and the lag of groups. Values that only the writing process counts are None then, not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

Rates = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class FolderUse:
    """Files below a folder: `bytes` is their size with holes, `allocated_bytes` what they take on the disk."""

    files: int
    bytes: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic that has queues, or had a put.

    `messages` counts the messages that the queues show; `max_offset` also counts messages that are gone. The other
    counts (`put_messages` to `got_bytes`) begin when the store is opened, and are None for a reader.
    """

    topic: str
    queues: int
    messages: int
    max_offset: int
    put_messages: int | None = None
    put_bytes: int | None = None
    get_times: int | None = None
    got_messages: int | None = None
    got_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """Lag of a consumer group in a topic: messages, and ms from the first of these messages to the store's last one.

    As `ConsumeStats.computeTotalDiff`: a queue that the group has never read counts from 0.
    """

    group: str
    topic: str
    fall_behind_messages: int
    fall_behind_ms: int | None


@dataclass(frozen=True, slots=True)
class IndexFileInfo:
    """One index file: store times (ms) of the first and the last record with an entry; `used` of `capacity` entries."""

    name: str
    begin_timestamp: int
    end_timestamp: int
    used: int
    capacity: int


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """A snapshot of a store; a value that this process does not know is None.

    Names are RocketMQ's in snake_case, if it has a name. Times are in ms since 1970 UTC, latencies in ms. Rates are
    per second, by the seconds over which they are taken. `docs/design/monitoring.md` explains each value.
    """

    boot_timestamp: int | None
    runtime: str | None
    put_message_entire_time_max: int | None
    put_message_times_total: int | None
    put_message_failed_times: int | None
    put_message_size_total: int | None
    put_message_average_size: float | None
    put_message_distribute_time: dict[str, int] | None
    put_latency99: float | None
    put_latency999: float | None
    get_message_entire_time_max: int | None
    put_tps: Rates | None
    put_bytes_per_second: Rates | None
    get_found_tps: Rates | None
    get_miss_tps: Rates | None
    get_total_tps: Rates | None
    get_transferred_tps: Rates | None
    commit_log_disk_ratio: float
    commit_log_disk_ratio_by_path: dict[str, float]
    consume_queue_disk_ratio: float
    disk_free_bytes: int
    commit_log_min_offset: int
    commit_log_max_offset: int
    confirm_offset: int
    flushed_offset: int | None
    remain_how_many_data_to_flush: int | None
    put_refusal: str | None
    dispatch_behind_bytes: int
    earliest_message_time_stamp: int | None
    latest_message_time_stamp: int | None
    schedule_message_offset: dict[int, str]
    commit_log: FolderUse
    consume_queue: FolderUse
    index: FolderUse
    topics: tuple[TopicInfo, ...]
    groups: tuple[GroupInfo, ...]
    index_files: tuple[IndexFileInfo, ...]
    findings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All values under RocketMQ's names, ready for JSON.

        Two values become a name for each key: `commitLogDiskRatio_<path>`, and `scheduleMessageOffset_<level>`, which
        is "next offset,max offset" as RocketMQ writes it.
        """
        plain: dict[str, Any] = _to_dict(self)
        paths, levels = plain.pop("commitLogDiskRatioByPath"), plain.pop("scheduleMessageOffset")
        plain |= {f"commitLogDiskRatio_{path}": ratio for path, ratio in paths.items()}
        return plain | {f"scheduleMessageOffset_{level}": offsets for level, offsets in levels.items()}


def _to_dict(value: Any) -> Any:
    if is_dataclass(value):
        plain = {}
        for one in fields(value):
            head, *rest = one.name.split("_")
            plain[head + "".join(map(str.capitalize, rest))] = _to_dict(getattr(value, one.name))
        return plain
    return [_to_dict(one) for one in value] if isinstance(value, tuple) else value
