"""Where the log ends for readers beside Spark's sinks: before a batch that a start may take back.

Batches come and go while a reader looks (docs/formats/sink-commit.md). One that is not committed stands under an
intent, and is cut off again where its writer fails or is killed. What lies before an intent, or is there while none
stands, no such cut touches any more. So a reader looks at the sinks before and after he looks at the log.
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
    """What the store in a directory says of its sinks; raises CorruptMetadataError for a damaged file."""
    path = os.path.join(root, CONFIG, SINKS_FILE)
    return decode_sinks(files.read_bytes(path), path) if files.exists(path) else Sinks()


def was_opened_since(files: FileLayer, root: str) -> bool:
    """Whether somebody who does not know of intents has opened the store since the last batch was begun.

    Then nothing of that batch is taken back: it was read by others, and records of theirs may lie behind it.
    """
    return files.lock_text(os.path.join(root, LOCK)) != SINK_LOCK


class SinkWatch:
    """The sinks of a store before and after somebody looks at its log; the first look is the making of this object.

    Raises CorruptMetadataError for a damaged file.
    """

    def __init__(self, files: FileLayer, root: str) -> None:
        self._files = files
        self._root = root
        self._before = self._look()

    @property
    def begin_offset(self) -> int | None:
        """Where the batch begins that was not committed at the last look; None where there was none."""
        return None if self._before.intent is None else self._before.intent.begin_offset

    def committed(self, end: int) -> int | None:
        """The end of a log that was found since the last look, but for what may be taken back; this is the next look.

        None where that cannot be told, for a batch came and went meanwhile: then look at the log once more.
        """
        before, self._before = self._before, self._look()
        begins = [sinks.intent.begin_offset for sinks in (before, self._before) if sinks.intent is not None]
        if begins:
            return min(end, *begins)
        return end if before.begun == self._before.begun else None

    def _look(self) -> Sinks:
        """The sinks now; with the intent only if a start may take its batch back."""
        while True:
            sinks = read_sinks(self._files, self._root)
            if sinks.intent is None or not was_opened_since(self._files, self._root):
                return sinks
            if read_sinks(self._files, self._root) == sinks:  # else the text was not read beside this intent
                return replace(sinks, intent=None)


def committed_end(directory: StoreDirectory, log_files: Sequence[LogFile]) -> int:
    """Where the records of a log end that no start takes back; looks at the last of these files that has any."""
    watch = SinkWatch(directory.files, directory.path)
    while True:
        end = watch.committed(_find_end(log_files, directory.files))
        if end is not None:
            return end


def _find_end(log_files: Sequence[LogFile], files: FileLayer) -> int:
    """Behind the records of the last file that has any: the one before it may be filling while the last is made."""
    for file in reversed(log_files):
        end = find_end(file, files)
        if end > file.start_offset:
            return end
    return 0
