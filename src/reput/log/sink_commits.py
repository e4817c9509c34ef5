"""Where the log ends for readers while a sink's batch is in it only in part (docs/formats/sink-commit.md)."""

from __future__ import annotations

import os

from reput.files import FileLayer
from reput.formats.paths import CONFIG, LOCK
from reput.formats.sink_commit import SINKS_FILE, Sinks, decode_sinks


def committed_end(files: FileLayer, root: str, end: int) -> int:
    """The end of a log that was found at `end`, or where a batch begins that is not committed there.

    To be asked after the end was found: a batch that was begun since lies behind it. A batch whose writer was killed
    counts as none too, until the next start settles it; unless somebody has opened the store since who does not know of
    intents: RocketMQ writes the lock file whenever it opens a store, reput only where there is none.
    """
    sinks = _sinks(files, root)
    end = _before_intent(files, root, sinks, end)
    for commit in sinks.commits.values():
        if commit.begin_offset < end < commit.end_offset:  # it was committed while the end was looked for
            end = commit.begin_offset
    return end


def begun_end(files: FileLayer, root: str, end: int) -> int:
    """`committed_end` for who takes a log piece by piece: he may stop in the middle of a batch that is committed."""
    return _before_intent(files, root, _sinks(files, root), end)


def _sinks(files: FileLayer, root: str) -> Sinks:
    path = os.path.join(root, CONFIG, SINKS_FILE)
    return decode_sinks(files.read_bytes(path), path) if files.exists(path) else Sinks()


def _before_intent(files: FileLayer, root: str, sinks: Sinks, end: int) -> int:
    if sinks.intent is None:
        return end
    said, lock = files.modified_ms(os.path.join(root, CONFIG, SINKS_FILE)), os.path.join(root, LOCK)
    was_opened = files.exists(lock) and files.modified_ms(lock) > said
    return end if was_opened else min(end, sinks.intent.begin_offset)
