"""Where the log ends for readers while a sink's batch is in it only in part (docs/formats/sink-commit.md)."""

from __future__ import annotations

import os

from reput.files import FileLayer
from reput.formats.paths import CONFIG, LOCK
from reput.formats.sink_commit import SINKS_FILE, decode_sinks


def committed_end(files: FileLayer, root: str, end: int) -> int:
    """The end of a log that was found at `end`, or where a batch begins that is not committed there.

    To be asked after the end was found: a batch that was begun since lies behind it. A batch whose writer was killed
    counts as none too, until the next start settles it; unless somebody has opened the store since who does not know of
    intents: whoever opens a store writes its lock file.
    """
    path = os.path.join(root, CONFIG, SINKS_FILE)
    if not files.exists(path):
        return end
    sinks = decode_sinks(files.read_bytes(path), path)
    lock = os.path.join(root, LOCK)
    if sinks.intent is not None and files.modified_ms(lock) <= files.modified_ms(path):
        end = min(end, sinks.intent.begin_offset)
    for commit in sinks.commits.values():
        if commit.begin_offset < end < commit.end_offset:  # it was committed while the end was looked for
            end = commit.begin_offset
    return end
