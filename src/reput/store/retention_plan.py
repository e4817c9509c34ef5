"""Plan of retention: which log files have expired, and how full the disk is. It is pure.

The rules are from `DefaultMessageStore.CleanCommitLogService`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig

_HOUR_MS = 3_600_000


class DiskLevel(IntEnum):
    """Level of the disk's use, by the steps of `isSpaceToDelete`."""

    FINE = 0
    #: Above `diskMaxUsedSpaceRatio`: expired files are deleted at any hour.
    RECLAIM = 1
    #: Above `diskSpaceCleanForciblyRatio`: the oldest files are deleted whatever their age.
    CLEAN_FORCIBLY = 2
    #: Above `diskSpaceWarningLevelRatio`: puts are refused, too, until the disk is no longer CLEAN_FORCIBLY.
    WARNING = 3


class DeleteReason(StrEnum):
    """Reason why a file is deleted."""

    EXPIRED = "older than fileReservedTime"
    DISK = "disk fuller than diskSpaceCleanForciblyRatio"


class Candidate(NamedTuple):
    """A log file that may be deleted: path, end in the log, size, and time of the last change (ms)."""

    path: str
    end_offset: int
    size: int
    modified_ms: int


class ExpiredFile(NamedTuple):
    """A log file to delete, and why."""

    path: str
    size: int
    modified_ms: int
    reason: DeleteReason


class RetentionReport(NamedTuple):
    """Result of a run: what it deleted, or what a dry run would delete.

    Attributes:
        disk_used_percent: How full the disk was.
        is_due: Whether there was a reason to delete: the hour, the disk, or a manual call.
        commit_log_files: Log files, oldest first.
        consume_queue_files, index_files: Paths of queue and index files; empty for a dry run.
        bytes_freed: Sum of these files' sizes. Holes count, and files that are still read are freed later.
    """

    disk_used_percent: int
    is_due: bool
    commit_log_files: list[ExpiredFile]
    consume_queue_files: list[str]
    index_files: list[str]
    bytes_freed: int


def disk_level(used_percent: int, config: MessageStoreConfig) -> DiskLevel:
    """The level that a disk has reached. The configured ratios are bounded as in RocketMQ."""
    ratios = (
        min(max(config.disk_space_warning_level_ratio, 35), 90),
        min(max(config.disk_space_clean_forcibly_ratio, 30), 85),
        min(max(config.disk_max_used_space_ratio, 10), 95),
    )
    steps = (DiskLevel.WARNING, DiskLevel.CLEAN_FORCIBLY, DiskLevel.RECLAIM)
    return next((level for ratio, level in zip(ratios, steps, strict=True) if used_percent > ratio), DiskLevel.FINE)


def is_due(level: DiskLevel, hour: int, config: MessageStoreConfig) -> bool:
    """Whether a run of the thread deletes files: in an hour (local, 0 to 23) of `deleteWhen`, or for lack of space."""
    return hour in config.delete_hours or level > DiskLevel.FINE


def plan_deletion(
    candidates: Iterable[Candidate],
    *,
    keep_from: int,
    level: DiskLevel,
    now_ms: int,
    max_files: int,
    config: MessageStoreConfig,
) -> list[ExpiredFile]:
    """Plan which files to delete (`MappedFileQueue.deleteExpiredFileByTime`): the first file to keep ends the list.

    Args:
        candidates: All files but the last, oldest first.
        keep_from: Commit log offset from which on all records stay: not dispatched, not flushed, or not confirmed yet.
        level: Level of the disk.
        now_ms: The time, in ms since 1970.
        max_files: Number of files, at the most.
        config: `fileReservedTime`, `cleanFileForciblyEnable`.
    """
    at_once = level >= DiskLevel.CLEAN_FORCIBLY and config.clean_file_forcibly_enable
    expired: list[ExpiredFile] = []
    for file in candidates:
        has_expired = file.modified_ms + config.file_reserved_time * _HOUR_MS <= now_ms
        if len(expired) == max_files or file.end_offset > keep_from or not (has_expired or at_once):
            break
        reason = DeleteReason.EXPIRED if has_expired else DeleteReason.DISK
        expired.append(ExpiredFile(file.path, file.size, file.modified_ms, reason))
    return expired
