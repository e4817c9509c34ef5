"""Retention: delete expired log files, and the queue and index files of their messages. It runs only if asked for.

The rules are from `DefaultMessageStore.CleanCommitLogService` and `ConsumeQueueStore.CleanConsumeQueueService`. The
plan is pure (`retention_plan`). Then files are removed durably, one after the other, oldest first, the log before
queues and index. So a kill between two steps leaves a shorter log, and queues that begin too early, which the next
start corrects. The bytes of a removed file stay as long as somebody reads them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from threading import Event, Lock

from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError, StoreFullError, StoreStateError, StoreSyncError
from reput.files import FileLayer
from reput.store.clean_exit import record_next_offsets
from reput.store.parts import Loaded, Parts
from reput.store.repeated_failure import RepeatedFailure
from reput.store.retention_plan import (
    Candidate,
    DeleteReason,
    DiskLevel,
    ExpiredFile,
    RetentionReport,
    disk_level,
    is_due,
    plan_deletion,
)
from reput.store.service_thread import ServiceThread

logger = logging.getLogger("reput.store")

#: A manual call deletes as many files as this many runs (`MAX_MANUAL_DELETE_FILE_TIMES`).
_MANUAL_RUNS = 20


class CleanService:
    """RocketMQ's `CleanCommitLogService` and `CleanConsumeQueueService` in one: deletes expired files.

    Args:
        parts: The store's parts.
        config: The store's configuration; may be changed later.
        files: The file layer, which tells how full the disk is.
        path: The store's directory.
        keep_from: Returns the commit log offset from which on all records stay: not dispatched or not flushed yet.

    Attributes:
        failure: The error of the thread's last run, after which it tries again; None while all is well.
    """

    def __init__(
        self,
        parts: Parts | Loaded,
        config: MessageStoreConfig,
        files: FileLayer,
        path: str,
        keep_from: Callable[[], int],
    ) -> None:
        self._parts = parts
        self.config = config
        self._files = files
        self._path = path
        self._keep_from = keep_from
        self._last_min_offset = -1
        self._emptied: set[str] = set()
        self._running = Lock()
        self._undeleted = RepeatedFailure(path, "expired files were not deleted", "expired files are deleted again")
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
            self._undeleted.tell(self.failure)

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
        """Used percent of the disk: of the log's emptiest disk, or of the queues' disk if that one is fuller."""
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
        max_files = self.config.delete_file_batch_max * (_MANUAL_RUNS if manual else 1)
        expired = plan_deletion(
            self._candidates() if due else (),
            keep_from=self._keep_from(),
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

    def make_space(self) -> list[ExpiredFile]:
        """Delete expired log files before a start changes anything, if the disk is so full that puts are refused.

        The start may need space. Files of queues and index follow in the first run. Errors as of `delete_expired`.
        """
        planned = self.plan(manual=False)
        if disk_level(planned.disk_used_percent, self.config) < DiskLevel.WARNING:
            return []
        deleted = self._delete_log_files(planned)
        if deleted:
            self._parts.queues.raise_min_offsets(self._parts.log.min_offset)
        return deleted

    def _delete(self, planned: RetentionReport) -> RetentionReport:
        deleted = self._delete_log_files(planned)
        queue_files, index_files = self._delete_derived(self._parts.log.min_offset)
        sizes = *(file.size for file in deleted), *queue_files.values(), *index_files.values()
        return planned._replace(
            commit_log_files=deleted,
            consume_queue_files=list(queue_files),
            index_files=list(index_files),
            bytes_freed=sum(sizes),
        )

    def _delete_log_files(self, planned: RetentionReport) -> list[ExpiredFile]:
        expired = planned.commit_log_files
        if expired:
            # The queues must be on the disk first: without these log files only they hold the next queue offsets.
            self._parts.queues.flush()
        deleted: list[ExpiredFile] = []
        try:
            for file in expired:
                if deleted and self._stop.wait(self.config.delete_commit_log_files_interval / 1000):
                    break
                self._parts.log.queue.delete_first_file()
                deleted.append(file)
        finally:
            self._tell(deleted, planned.disk_used_percent)
        return deleted

    def _tell(self, deleted: list[ExpiredFile], used_percent: int) -> None:
        """Log what is gone: a warning if a full disk took messages that `fileReservedTime` would have kept."""
        hours, begin = self.config.file_reserved_time, self._parts.log.min_offset
        young = [file.modified_ms for file in deleted if file.reason is DeleteReason.DISK]
        if young:
            last = datetime.fromtimestamp(max(young) / 1000, UTC).isoformat(timespec="seconds")
            logger.warning(
                "%s: the disk is %d %% full, so %d log files were deleted before fileReservedTime=%d hours: the "
                "messages before log offset %d are gone, the last of them stored until %s; free space, or give the "
                "store more",
                self._path, used_percent, len(young), hours, begin, last,
            )  # fmt: skip
        elif deleted:
            logger.info(
                "%s: %d log files older than fileReservedTime=%d hours were deleted; the log begins at offset %d",
                self._path, len(deleted), hours, begin,
            )  # fmt: skip

    def _delete_derived(self, min_offset: int) -> tuple[dict[str, int], dict[str, int]]:
        """Delete queue and index files after log files: when the log has become shorter, and once after each start."""
        if min_offset <= self._last_min_offset:
            return {}, {}
        interval_s = self.config.delete_consume_queue_files_interval / 1000
        queue_files = self._parts.queues.delete_expired(min_offset, lambda: self._stop.wait(interval_s))
        index_files = self._parts.index.delete_expired(min_offset) if self._parts.index is not None else {}
        self._last_min_offset = min_offset
        emptied = {queue.path for queue in self._parts.queues.queues() if queue.min_offset == queue.max_offset}
        if emptied - self._emptied:
            record_next_offsets(self._path, self._parts.queues, self._files)
        self._emptied = emptied
        return queue_files, index_files
