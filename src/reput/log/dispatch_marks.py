"""How far a dispatcher is: `config/reputDispatch.json` beside its queues (docs/formats/dispatch-marks.md).

The newest mark is the truth: queues, extensions and index have what the log has before it, all of it is on the disk,
and what lies behind it counts for nothing. The older ones are where to go back to when the log was cut in between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.index_file import IndexHeader
from reput.formats.paths import CONFIG
from reput.log.positions import LastRecord, LogPosition

DISPATCH_FILE = "reputDispatch.json"
#: Older marks are the rarer the further back they lie: one for each power of two of so many bytes.
_NEAREST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexMark:
    """The index file that takes the next key: its name and its header. Files of later names count for nothing."""

    name: str
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class DispatchMark:
    """Everything before `position` is dispatched; `index` is None where no record before it has a key."""

    position: LogPosition
    index: IndexMark | None = None


def marks_path(root: str) -> str:
    """Where the marks of queues below a directory are."""
    return os.path.join(root, CONFIG, DISPATCH_FILE)


def read_marks(root: str, files: FileLayer) -> list[DispatchMark]:
    """The marks, newest first; none where no dispatcher was there.

    Raises CorruptMetadataError where the file is not what a dispatcher writes.
    """
    path = marks_path(root)
    if not files.exists(path):
        return []
    try:
        return [_mark(entry) for entry in json.loads(files.read_bytes(path))["marks"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptMetadataError(
            path, 0, f"not what a dispatcher writes ({error!r}); remove the folder's queues and index, and this file"
        ) from None


def encode_marks(marks: Sequence[DispatchMark]) -> bytes:
    """The content of the file."""
    return (json.dumps({"marks": [_entry(mark) for mark in marks]}, indent=1) + "\n").encode()


def with_mark(newest: DispatchMark, marks: Sequence[DispatchMark]) -> list[DispatchMark]:
    """The newest mark, and of those before (newest first) so many as are worth keeping."""
    kept: list[DispatchMark] = []
    seen = set()
    for mark in reversed(marks):
        distance = ((newest.position.offset - mark.position.offset) // _NEAREST_BYTES).bit_length()
        if mark.position.last is not None and distance not in seen:  # else any log at all would fit
            seen.add(distance)
            kept.append(mark)
    return [newest, *reversed(kept)]


def _entry(mark: DispatchMark) -> dict[str, Any]:
    entry: dict[str, Any] = {"offset": mark.position.offset}
    if (last := mark.position.last) is not None:
        entry["last"] = {
            "offset": last.offset,
            "storeTimestamp": last.store_timestamp,
            "headerSize": last.header_size,
            "headerCrc": last.header_crc,
        }
    if mark.index is not None:
        entry["index"] = {"name": mark.index.name, "header": list(mark.index.header)}
    return entry


def _mark(entry: dict[str, Any]) -> DispatchMark:
    last, index = entry.get("last"), entry.get("index")
    return DispatchMark(
        LogPosition(
            int(entry["offset"]),
            None
            if last is None
            else LastRecord(last["offset"], last["storeTimestamp"], last["headerSize"], last["headerCrc"]),
        ),
        None if index is None else IndexMark(str(index["name"]), IndexHeader(*map(int, index["header"]))),
    )
