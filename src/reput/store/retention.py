"""Retention: delete expired log files, and the queue and index files of their messages. It runs only where asked for.

The rules are those of `DefaultMessageStore.CleanCommitLogService` and `ConsumeQueueStore.CleanConsumeQueueService`. The
plan is pure. Then files are removed durably, one after the other, oldest first, the log before queues and index. So a
kill between two steps leaves a shorter log, and queues that begin too early, which the next start corrects. The bytes
of a removed file stay as long as somebody reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import IntEnum, StrEnum
from threading import Event, Lock
from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError, StoreFullError, StoreStateError, StoreSyncError
from reput.files import FileLayer
from reput.store.parts import Parts
from reput.store.service_thread import ServiceThread

#: A manual call deletes as many files as this many runs (`MAX_MANUAL_DELETE_FILE_TIMES`).
_MANUAL_RUNS = 20
_HOUR_MS = 3_600_000


class DiskLevel(IntEnum):
    """How full the disk is, by the steps of `isSpaceToDelete`."""

    FINE = 0
    #: Above `diskMaxUsedSpaceRatio`: expired files are deleted at any hour.
    RECLAIM = 1
    #: Above `diskSpaceCleanForciblyRatio`: the oldest files are deleted whatever their age.
    CLEAN_FORCIBLY = 2
    #: Above `diskSpaceWarningLevelRatio`: puts are refused, too, until the disk is no longer CLEAN_FORCIBLY.
    WARNING = 3


class DeleteReason(StrEnum):
    """Why a file is deleted."""

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


class CleanService:
    """RocketMQ's `CleanCommitLogService` and `CleanConsumeQueueService` in one: deletes expired files.

    Args:
        parts: The store's parts.
        config: The store's configuration; may be changed later.
        files: The file layer, which tells how full the disk is.
        path: The store's directory.
        reput_from_offset: Returns the commit log offset up to which the log is dispatched.

    Attributes:
        failure: The error of the thread's last run, after which it tries again; None while all is well.
    """

    def __init__(
        self,
        parts: Parts,
        config: MessageStoreConfig,
        files: FileLayer,
        path: str,
        reput_from_offset: Callable[[], int],
    ) -> None:
        self._parts = parts
        self.config = config
        self._files = files
        self._path = path
        self._reput_from_offset = reput_from_offset
        self._last_min_offset = -1
        self._running = Lock()
        self._stop = Event()
        self._thread: ServiceThread | None = None
        self.failure: ReputError | None = None

    def start(self) -> None:
        """Start the thread: a run every `cleanResourceInterval`."""
        self._thread = ServiceThread(self._run, "reput-retention")
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread if there is one; a run that is under way ends after its current file."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._running:
            return

    def _run(self) -> None:
        while not self._stop.wait(self.config.clean_resource_interval / 1000):
            try:
                self._judge_disk()
                self.delete_expired(manual=False)
                self.failure = None
            except StoreStateError:
                return
            except ReputError as error:  # tried again; if the disk fills up, the error of each put names this failure
                self.failure = error

    def _judge_disk(self) -> None:
        """Refuse puts on a full disk; accept them again when there is space."""
        used = self._disk_used_percent()
        level = disk_level(used, self.config)
        if level is DiskLevel.WARNING:
            failure = f" (the last run failed: {self.failure})" if self.failure else ""
            self._parts.log.refuse_while_full(
                StoreFullError(
                    f"{self._path}: the disk is {used} % full, and from diskSpaceWarningLevelRatio="
                    f"{self.config.disk_space_warning_level_ratio} on puts are refused; free some space: they are "
                    f"accepted again at diskSpaceCleanForciblyRatio={self.config.disk_space_clean_forcibly_ratio}"
                    f"{failure}"
                )
            )
        elif level < DiskLevel.CLEAN_FORCIBLY:
            self._parts.log.refuse_while_full(None)

    def _disk_used_percent(self) -> int:
        """How full the disk is, in percent: the log's emptiest disk, or the queues' disk where that one is fuller."""
        used = self._files.disk_used_percent
        log = [used(path) for path in self._parts.log.queue.folders if self._files.exists(path)]
        return max([min(log, default=0), *([used(self._path)] if self._files.exists(self._path) else [])])

    def _candidates(self) -> Iterable[Candidate]:
        for file in self._parts.log.queue.mapped_files[:-1]:
            yield Candidate(
                file.path, file.start_offset + file.size, file.size, self._files.modified_ms(file.path)
            )  # one file at a time: the plan seldom looks at more than one file

    def plan(self, *, manual: bool) -> RetentionReport:
        """Plan which log files `delete_expired` would delete now."""
        used = self._disk_used_percent()
        level = disk_level(used, self.config)
        due = manual or is_due(level, time.localtime().tm_hour, self.config)
        log = self._parts.log
        max_files = self.config.delete_file_batch_max * (_MANUAL_RUNS if manual else 1)
        expired = plan_deletion(
            self._candidates() if due else (),
            keep_from=min(self._reput_from_offset(), log.flushed_offset, log.confirm_offset),
            level=level,
            now_ms=int(time.time() * 1000),
            max_files=max_files,
            config=self.config,
        )
        return RetentionReport(used, due, expired, [], [], sum(file.size for file in expired))

    def delete_expired(self, *, manual: bool) -> RetentionReport:
        """Delete expired files by a plan.

        Args:
            manual: Whether a caller asked for it: then at any hour, and up to as many files as 20 runs delete.

        Raises:
            StoreStateError: The store is closed.
            StoreError: A file cannot be deleted. Files deleted before are gone, and all else is as it was.
            ReputError: The error that has stopped the puts before.
            StoreSyncError: A sync failed, which stops the puts.
        """
        with self._running:
            if self._stop.is_set():
                raise StoreStateError(f"{self._path}: the store is closed")
            log = self._parts.log
            if log.failure is not None:  # a sync may have failed; a later sync would succeed without the lost bytes
                raise log.failure
            try:
                return self._delete(self.plan(manual=manual))
            except StoreSyncError as error:
                log.failure = error
                raise

    def _delete(self, planned: RetentionReport) -> RetentionReport:
        log, deleted = self._parts.log, planned.commit_log_files
        if deleted:
            # The queues must be on the disk first: without these log files only they hold the next queue offsets.
            self._parts.queues.flush()
        for number in range(len(deleted)):
            if number and self._stop.wait(self.config.delete_commit_log_files_interval / 1000):
                deleted = deleted[:number]
                break
            log.queue.delete_first_file()
        queue_files, index_files = self._delete_derived(log.min_offset)
        sizes = *(file.size for file in deleted), *queue_files.values(), *index_files.values()
        return planned._replace(
            commit_log_files=deleted,
            consume_queue_files=list(queue_files),
            index_files=list(index_files),
            bytes_freed=sum(sizes),
        )

    def _delete_derived(self, min_offset: int) -> tuple[dict[str, int], dict[str, int]]:
        """Delete queue and index files after log files: when the log has become shorter, and once after each start."""
        if min_offset <= self._last_min_offset:
            return {}, {}
        interval_s = self.config.delete_consume_queue_files_interval / 1000
        queue_files = self._parts.queues.delete_expired(min_offset, lambda: self._stop.wait(interval_s))
        index_files = self._parts.index.delete_expired(min_offset) if self._parts.index is not None else {}
        self._last_min_offset = min_offset
        return queue_files, index_files
