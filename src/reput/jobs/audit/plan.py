"""Plan of an audit: the files and the end of the log, fixed at the start, and the target of its main tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from reput.files import DISK
from reput.formats.metadata import ConsumerOffsets
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import CONSUME_QUEUE_EXT
from reput.jobs.audit.batch_consume_queues import BatchQueueRuns
from reput.jobs.audit.consume_queues import UnitTarget
from reput.jobs.audit.consumer_offsets import read_offsets
from reput.jobs.audit.files import ListedQueue, ListedQueues, StoreListing, list_queues, list_store
from reput.jobs.audit.index_entries import KeyTarget
from reput.jobs.audit.scan_task import AuditTarget
from reput.jobs.log_bounds import bounded_splits, fixed_log_end
from reput.log.all_queues import database_queues
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import dispatched_end
from reput.log.metadata import read_shutdown
from reput.log.splits import Split

#: Limit of splits: the merge holds the results of all.
_MOST_SPLITS = 2048


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The files of a store, and the end of its log if the log may grow (`fixed_log_end`).

    Attributes:
        consumer_offsets: offsets of groups, read before the end of the log.
        was_killed: a writer has the store open, or was killed.
        dispatched_end: offset up to which another process has dispatched the log, read before the end of the log; None
            if the store dispatches by itself.
        clean_end: end of the log at the last clean exit; 0 if it is unknown.
        has_queues: whether consume queues in files are compared.
        database: consume queues in a RocksDB that is read; None without one.
        may_lack: whether units that files lack may be in a RocksDB.
        hides_index: whether keys may be indexed in a RocksDB, and not in index files.
    """

    listing: StoreListing
    consumer_offsets: ConsumerOffsets
    was_killed: bool
    dispatched_end: int | None
    clean_end: int
    has_queues: bool
    database: ListedQueues | None
    may_lack: bool
    hides_index: bool
    log_end: int | None

    def target(
        self, keys: KeyTarget | None, batches: tuple[BatchQueueRuns, ...], delays_ms: tuple[int, ...]
    ) -> AuditTarget:
        """Files that records are compared with."""
        listing = self.listing
        units = self._units(listing.queues) if self.has_queues else None
        database_units = None if self.database is None else self._units(self.database)
        if units is not None:
            # A store may have gone over from one kind of queues to the other, or have some queues in one of them alone.
            units = replace(units, may_lack=self.may_lack and database_units is None, instead=database_units)
            database_units = None if database_units is None else replace(database_units, may_lack=True)
        return AuditTarget(units, database_units, batches, listing.batch_topics, listing.simple_topics, keys, delays_ms)

    def _units(self, queues: ListedQueues) -> UnitTarget:
        extensions = self.listing.extensions
        has_light_queues = any(queue.topic.startswith(LMQ_PREFIX) for queue in queues.queues)
        return UnitTarget(
            queues.path, queues.file_size, self.listing.batch_topics, has_light_queues, extensions.path,
            0 if queues.in_databases else extensions.file_size, queues.file_layer(),
        )  # fmt: skip

    @property
    def may_be_written(self) -> bool:
        """Whether queues and index may be half written: by a writer, by one that was killed, or by another process."""
        return self.was_killed or self.dispatched_end is not None

    @property
    def may_get_extensions(self) -> bool:
        """Whether extensions may still be made: the store had none when it was listed."""
        return self.has_queues and not self.listing.extensions.file_size

    def with_extensions(self, target: AuditTarget) -> AuditTarget:
        """Target with this plan's extensions, from a target that was made before the plan had any."""
        assert target.units is not None
        return replace(target, units=replace(target.units, ext_file_size=self.listing.extensions.file_size))

    def groups(self, split_bytes: int) -> list[list[Split]]:
        """Groups of splits. The splits of a group must join: one group, or one a file if the log has gaps."""
        log_files = self.listing.log_files
        size = max(split_bytes, -(-sum(file.size for file in log_files) // _MOST_SPLITS))
        splits = bounded_splits(log_files, size, self.log_end)
        if self.listing.log_is_whole:
            return [splits]
        return [[split for split in splits if split.file == file] for file in log_files]


def list_extensions(path: str) -> ListedQueues:
    """Task: list the extensions of consume queues."""
    return list_queues(os.path.join(path, CONSUME_QUEUE_EXT), 1, [])


def list_database(directory: StoreDirectory) -> ListedQueues | None:
    """List the consume queues in a RocksDB; None without one, or without the package that reads it.

    Raises CorruptConsumeQueueError: the database is damaged.
    """
    found = database_queues(directory)
    if found is None:
        return None
    queues = tuple(ListedQueue(queue.topic, queue.queue_id, tuple(found.files.starts(queue))) for queue in found.queues)
    return ListedQueues(found.files.folder, found.files.bytes_of_a_file, queues, tuple(found.queues))


def make_plan(directory: StoreDirectory, _: str) -> AuditPlan:
    """Task: list a store."""
    consumer_offsets = read_offsets(directory.path)
    dispatched = dispatched_end(directory.path, DISK)
    listing = list_store(directory)
    log_end = fixed_log_end(directory, listing.log_files) if listing.log_is_whole else None
    parts = directory.foreign_parts()
    in_databases = any(part.has_queues for part in parts)
    has_queues = bool(listing.queues.queues) or not in_databases
    was_killed, shutdown = directory.was_killed, read_shutdown(directory.path, DISK)
    clean_end = 0 if was_killed or shutdown is None else shutdown.commit_log_end
    return AuditPlan(
        listing, consumer_offsets, was_killed, dispatched, clean_end, has_queues, list_database(directory),
        in_databases, any(part.hides_index for part in parts), log_end,
    )  # fmt: skip
