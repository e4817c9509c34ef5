"""ReaderServices: what every open store reads with, a writer's and a read-only one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reput.config.message_store import MessageStoreConfig
from reput.files import FileLayer
from reput.formats.metadata import Topics
from reput.log.foreign_parts import warn_of_unread_parts
from reput.log.metadata import read_metadata
from reput.progress import Progress
from reput.store.parts import Parts
from reput.store.preload import Preloaded, preload
from reput.store.reads.get import GetMessage
from reput.store.reads.pages import Pages
from reput.store.reads.proven_records import RecordFinder
from reput.store.reads.pulled_run import PulledRunFinder
from reput.store.reads.query import QueryMessage
from reput.store.recovery.read_only import open_for_reading
from reput.store.retention import CleanService
from reput.store.retention_plan import RetentionReport
from reput.store.runtime_info import RuntimeInfo
from reput.store.snapshot import take_runtime_info
from reput.store.statistics import StoreStatsService


@dataclass(slots=True)
class ReaderServices:
    """The files of an open store, and the verbs that read them.

    Attributes:
        parts: Log, queues and index.
        stats: Counts of puts and pulls since the store was opened.
        getting: Pulls.
        querying: Queries by key, offset and time.
        finder: Records by offsets that clients name.
        pulling: Plain pulls of a loop.
    """

    path: str
    config: MessageStoreConfig
    files: FileLayer
    parts: Parts
    stats: StoreStatsService
    getting: GetMessage
    querying: QueryMessage
    finder: RecordFinder
    pulling: PulledRunFinder

    @classmethod
    def open(cls, path: str, config: MessageStoreConfig, files: FileLayer, progress: Progress) -> Self:
        """Open a store read-only; errors as of `MessageStore.open`."""
        parts = open_for_reading(path, config, files, progress)
        warn_of_unread_parts(files, path)
        return cls.of(path, config, files, parts)

    @classmethod
    def of(cls, path: str, config: MessageStoreConfig, files: FileLayer, parts: Parts) -> Self:
        """The reader of parts that are open."""
        stats = StoreStatsService(parts.queues.counts)
        getting = GetMessage(parts.log, parts.queues, config, files, path, stats)
        querying = QueryMessage(parts.log, parts.index, files)
        finder = RecordFinder(parts.log, parts.queues, files)
        pulling = PulledRunFinder(parts.log, parts.queues, getting, Pages(files))
        return cls(path, config, files, parts, stats, getting, querying, finder, pulling)

    @property
    def topics(self) -> Topics:
        """The content of `config/topics.json` as the file is now; raises CorruptMetadataError."""
        return read_metadata(self.path, Topics, self.files) or Topics()

    def preload(self, log_bytes: int | None) -> Preloaded:
        """See `MessageReader.preload`."""
        if log_bytes is None:
            log_bytes = self.files.physical_memory() * self.config.access_message_in_memory_max_ratio // 100
        return preload(self.parts, self.files, log_bytes)

    def runtime_info(self) -> RuntimeInfo:
        """The snapshot of a read-only store."""
        return take_runtime_info(self.path, self.parts, self.files)

    def plan_deletion(self) -> RetentionReport:
        """The files that retention would delete, in a read-only store."""
        parts = self.parts
        return CleanService(parts, self.config, self.files, self.path, lambda: parts.log.max_offset).plan(manual=True)
