"""End of the log for readers, without a sink's batch that a start may cut off again.

Batches are appended while a reader reads (docs/formats/sink-commit.md). A batch that is not committed has an intent,
and is cut off if its writer fails or is killed. Records before the begin of an intent, and records in the log while
there is no intent, are never cut off. A reader therefore reads the sinks' file before and after it reads the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from reput.files import FileLayer
from reput.formats.paths import CONFIG, LOCK
from reput.formats.sink_commit import SINK_LOCK, SINKS_FILE, Sinks, decode_sinks
from reput.log.directory import LogFile, StoreDirectory
from reput.log.scan import find_end


def read_sinks(files: FileLayer, root: str) -> Sinks:
    """The sinks' file of a store; raises CorruptMetadataError for a damaged file."""
    path = os.path.join(root, CONFIG, SINKS_FILE)
    return decode_sinks(files.read_bytes(path), path) if files.exists(path) else Sinks()


def was_opened_since(files: FileLayer, root: str) -> bool:
    """Whether another program, which does not know intents, has opened the store since the last batch was begun.

    Then the batch is not cut off: other programs have read it, and their records may follow it.
    """
    return files.lock_text(os.path.join(root, LOCK)) != SINK_LOCK


class SinkWatch:
    """The sinks' file before and after a read of the log; it is first read when this object is made.

    Raises CorruptMetadataError for a damaged file.
    """

    def __init__(self, files: FileLayer, root: str) -> None:
        self._files = files
        self._root = root
        self._before = self._look()

    @property
    def begin_offset(self) -> int | None:
        """Commit log offset of the batch that was not committed at the last read of the sinks' file, or None."""
        return None if self._before.intent is None else self._before.intent.begin_offset

    def committed(self, end: int) -> int | None:
        """Read the sinks' file again; returns `end`, or the begin of a batch before `end` that may be cut off.

        Args:
            end: the log's end that the caller found since the last read of the sinks' file.

        None if a batch was begun and ended in between: then the log must be read again.
        """
        before, self._before = self._before, self._look()
        begins = [sinks.intent.begin_offset for sinks in (before, self._before) if sinks.intent is not None]
        if begins:
            return min(end, *begins)
        return end if before.begun == self._before.begun else None

    def _look(self) -> Sinks:
        """The sinks' file now; its intent is kept only if a start may cut the batch off."""
        while True:
            sinks = read_sinks(self._files, self._root)
            if sinks.intent is None or not was_opened_since(self._files, self._root):
                return sinks
            if read_sinks(self._files, self._root) == sinks:  # else the lock's text may belong to another intent
                return replace(sinks, intent=None)


def committed_end(directory: StoreDirectory, log_files: Sequence[LogFile]) -> int:
    """Log offset after the last record that no start cuts off; only the last file with records is read."""
    watch = SinkWatch(directory.files, directory.path)
    while True:
        end = watch.committed(_find_end(log_files, directory.files))
        if end is not None:
            return end


def _find_end(log_files: Sequence[LogFile], files: FileLayer) -> int:
    """Log offset after the last record. The last file may be empty while the file before it is still being filled."""
    for file in reversed(log_files):
        end = find_end(file, files)
        if end > file.start_offset:
            return end
    return 0
