"""One of RocketMQ's JSON files, kept in memory and written now and then (`ConfigManager`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar, Generic, TypeVar

from reput.files import FileLayer
from reput.formats.metadata import DataVersion
from reput.store.config_files import next_version, persist_metadata, read_to_persist

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[_T]):
    """Content of a file at one moment, and the number of changes before that moment."""

    changes: int
    content: _T


class ConfigManager(ABC, Generic[_T]):
    """A file of RocketMQ's, so that the loop never waits for the disk.

    The loop changes the content in memory and takes a snapshot; any thread persists it. A snapshot that could not be
    persisted leaves the manager changed, so the next one has its content, too. An older snapshot never replaces a newer
    one.

    Args:
        kind: One of the classes of `reput.formats.metadata.FILE_NAMES`.
        root: The store directory, open for writing by this process.
        files: The file layer.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.

    Attributes:
        follows_log: The content counts messages of the log, so the log is synced before it is persisted. Else a power
            cut could leave an offset after the end of its queue, and messages that get these offsets later were passed
            over.
    """

    follows_log: ClassVar[bool] = False

    def __init__(self, kind: type[_T], root: str, files: FileLayer) -> None:
        self._root = root
        self._files = files
        self._loaded = read_to_persist(root, kind, files) or kind()
        self._changes = 0
        self._persisted = 0
        self._persisting = Lock()
        self._counted = 0
        #: Number of changes and time of the last one (RocketMQ's `dataVersion`); some files have none.
        self.data_version: DataVersion = getattr(self._loaded, "data_version", DataVersion())

    @abstractmethod
    def content(self) -> _T:
        """The content as of now, as a copy that later changes leave alone."""

    def _next_version(self, now_ms: int) -> None:
        self.data_version = next_version(self.data_version, now_ms)
        self._changes += 1

    def _count(self, step: int, now_ms: int) -> None:
        """Note a change of an offset: `step` of them make one version, as there are many."""
        self._changes += 1
        self._counted += 1
        if self._counted % step == 0:
            self._next_version(now_ms)

    def snapshot(self) -> Snapshot[_T] | None:
        """Content that `persist` is to write; None if the file has every change. For the loop."""
        return Snapshot(self._changes, self.content()) if self._changes != self._persisted else None

    def persist(self, snapshot: Snapshot[_T]) -> None:
        """Replace the file durably, unless it has a newer content already. Any thread; waits for the disk.

        Raises:
            StoreError: The file could not be replaced; it or its backup is whole, and the manager stays changed.
        """
        with self._persisting:
            if snapshot.changes > self._persisted:
                persist_metadata(self._root, snapshot.content, self._files)
                self._persisted = snapshot.changes
