"""How far a dispatcher is: `config/reputDispatch.json` beside its queues (docs/formats/dispatch-marks.md).

The newest mark is the truth: queues, extensions and index have what the log has before it, all of it is on the disk,
and what lies behind it counts for nothing. The older ones are where to go back to when the log was cut in between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.index_file import IndexHeader
from reput.formats.own_json import decode_json
from reput.formats.paths import CONFIG
from reput.log.positions import LastRecord, LogPosition

DISPATCH_FILE = "reputDispatch.json"
#: The one mark of a start that was killed (`reput.store.recovery.marks`).
RECOVERY_FILE = "reputRecovery.json"
#: Held by the process that dispatches into a store's own folders.
DISPATCHER_LOCK = "reputDispatcher.lock"
#: Older marks are the rarer the further back they lie: one for each power of two of so many bytes.
_NEAREST_BYTES = 1 << 20


T = TypeVar("T")


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


#: The configuration that decides what is written: kept beside the marks, for files of two kinds do not go on.
SETTINGS = (
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "message_index_enable",
    "max_hash_slot_num",
    "max_index_num",
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "enable_multi_dispatch",
    "enable_lmq",
    "message_delay_level",
    "dispatch_rules",
)


def marks_path(root: str) -> str:
    """Where the marks of queues below a directory are."""
    return os.path.join(root, CONFIG, DISPATCH_FILE)


def read_marks(root: str, files: FileLayer) -> list[DispatchMark]:
    """The marks, newest first; none where no dispatcher was there.

    Raises CorruptMetadataError where the file is not what a dispatcher writes.
    """
    return _read(root, files, lambda content: [decode_mark(entry) for entry in content["marks"]]) or []


def read_config(root: str, files: FileLayer) -> MessageStoreConfig | None:
    """What is written below a directory: RocketMQ's defaults but for `SETTINGS`; None where no dispatcher was there.

    Raises CorruptMetadataError as `read_marks`.
    """
    return _read(root, files, lambda content: MessageStoreConfig.from_mapping(content["settings"]))


def _read(root: str, files: FileLayer, decode: Callable[[Any], T]) -> T | None:
    path = marks_path(root)
    if not files.exists(path):
        return None
    try:
        return decode(decode_json(files.read_bytes(path)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptMetadataError(
            path, 0, f"not what a dispatcher writes ({error!r}); remove the folder's queues and index, and this file"
        ) from None


def write_marks(root: str, marks: Sequence[DispatchMark], config: MessageStoreConfig, files: FileLayer) -> None:
    """Replace the file, durably."""
    content = {"settings": settings_of(config), "marks": [encode_mark(mark) for mark in marks]}
    path = marks_path(root)
    files.make_directories(os.path.dirname(path))
    files.write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


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


def settings_of(config: MessageStoreConfig) -> dict[str, str]:
    """`SETTINGS` as texts."""
    return {name: str(value) for name in SETTINGS if (value := getattr(config, name)) is not None}


def encode_mark(mark: DispatchMark) -> dict[str, Any]:
    """A mark as plain values, for JSON."""
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


def decode_mark(entry: dict[str, Any]) -> DispatchMark:
    """What `encode_mark` gave; raises KeyError, TypeError or ValueError for anything else."""
    last, index = entry.get("last"), entry.get("index")
    return DispatchMark(
        LogPosition(
            int(entry["offset"]),
            None
            if last is None
            else LastRecord(*(int(last[name]) for name in ("offset", "storeTimestamp", "headerSize", "headerCrc"))),
        ),
        None if index is None else IndexMark(str(index["name"]), IndexHeader(*map(int, index["header"]))),
    )
