"""Marks of a dispatcher, `config/reputDispatch.json`: how far queues and index are (docs/formats/dispatch-marks.md).

The newest mark is the truth: queues, extensions and index have everything of the log before the mark, all of it is
synced, and what they have after the mark is ignored. Older marks are kept to go back to, where the log was cut before
the newest one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.index_file import IndexHeader
from reput.formats.java import INT32_MAX, INT64_MIN
from reput.formats.own_json import decode_with_crc, encode_with_crc, number
from reput.formats.paths import CONFIG, is_index_file_name
from reput.log.positions import LastRecord, LogPosition

DISPATCH_FILE = "reputDispatch.json"
#: Mark of a start that takes long; a later start goes on from it after a kill (`reput.store.recovery.marks`).
RECOVERY_FILE = "reputRecovery.json"
#: Lock held by the process that dispatches into a store's own folders.
DISPATCHER_LOCK = "reputDispatcher.lock"
#: Bytes. More than any record has before its body.
_MAX_HEADER_SIZE = 1 << 10
#: Of the older marks one is kept for each power of two of the distance to the newest, in units of so many bytes.
_NEAREST_BYTES = 1 << 20


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IndexMark:
    """The index file that takes the next key: its name and its header. Files with later names are ignored."""

    name: str
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class DispatchMark:
    """All records before `position` are dispatched; `index` is None if none of them has a key."""

    position: LogPosition
    index: IndexMark | None = None


#: Configuration that decides what is written; kept beside the marks, since a dispatch cannot go on with other settings.
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
    """Path of the marks of the queues below a directory."""
    return os.path.join(root, CONFIG, DISPATCH_FILE)


def read_marks(root: str, files: FileLayer) -> list[DispatchMark]:
    """The marks, newest first; empty where no dispatcher has written.

    Raises CorruptMetadataError where the file is not what a dispatcher writes.
    """
    return _read(root, files, lambda content: [decode_mark(entry) for entry in content["marks"]]) or []


def read_config(root: str, files: FileLayer) -> MessageStoreConfig | None:
    """Configuration of what was written below a directory: defaults except for `SETTINGS`.

    None where no dispatcher has written. Raises CorruptMetadataError as `read_marks`.
    """
    return _read(root, files, lambda content: MessageStoreConfig.from_mapping(content["settings"]))


def _read(root: str, files: FileLayer, decode: Callable[[Any], T]) -> T | None:
    path = marks_path(root)
    if not files.exists(path):
        return None
    try:
        return decode(decode_with_crc(files.read_bytes(path)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptMetadataError(
            path, 0, f"not what a dispatcher writes ({error!r}); remove the folder's queues and index, and this file"
        ) from None


def write_marks(root: str, marks: Sequence[DispatchMark], config: MessageStoreConfig, files: FileLayer) -> None:
    """Replace the file of the marks, durably."""
    content = {"settings": settings_of(config), "marks": [encode_mark(mark) for mark in marks]}
    path = marks_path(root)
    files.make_directories(os.path.dirname(path))
    files.write_atomically(path, encode_with_crc(content, indent=1) + b"\n")


def with_mark(newest: DispatchMark, marks: Sequence[DispatchMark]) -> list[DispatchMark]:
    """The newest mark and the older ones (newest first) that are worth keeping."""
    kept: list[DispatchMark] = []
    seen = set()
    for mark in reversed(marks):
        distance = ((newest.position.offset - mark.position.offset) // _NEAREST_BYTES).bit_length()
        if mark.position.last is not None and distance not in seen:  # a mark without a last record fits any log
            seen.add(distance)
            kept.append(mark)
    return [newest, *reversed(kept)]


def settings_of(config: MessageStoreConfig) -> dict[str, str]:
    """`SETTINGS` of a configuration, as texts."""
    return {name: str(value) for name in SETTINGS if (value := getattr(config, name)) is not None}


def encode_mark(mark: DispatchMark) -> dict[str, Any]:
    """A mark as values for JSON."""
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
    """The mark of which `encode_mark` made `entry`; raises KeyError, TypeError or ValueError for any other value.

    The index's name is one of a file in the index's folder: what a mark names is cut.
    """
    last, index = entry.get("last"), entry.get("index")
    return DispatchMark(
        LogPosition(number(entry["offset"]), None if last is None else _last_record(last)),
        None if index is None else _index_mark(index),
    )


def _last_record(last: dict[str, Any]) -> LastRecord:
    return LastRecord(
        number(last["offset"]),
        number(last["storeTimestamp"], INT64_MIN),
        number(last["headerSize"], 0, _MAX_HEADER_SIZE),
        number(last["headerCrc"], 0, 0xFFFFFFFF),
    )


def _index_mark(index: dict[str, Any]) -> IndexMark:
    name, (*longs, slots, count) = index["name"], index["header"]
    if not (isinstance(name, str) and is_index_file_name(name)):
        raise ValueError(f"expected the name of an index file, found {str(name)[:40]!r}")
    counts = (number(one, 0, INT32_MAX) for one in (slots, count))
    return IndexMark(name, IndexHeader(*(number(one, INT64_MIN) for one in longs), *counts))
