"""Marks of a dispatcher, `config/reputDispatch.json`: how far queues and index are (docs/formats/dispatch-marks.md).

The newest mark is the truth: queues, extensions and index have everything of the log before the mark, all of it is
synced, and what they have after the mark is ignored. Older marks are kept to go back to, if the log was cut before
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
from reput.formats.paths import CONFIG, LOCK, is_index_file_name
from reput.formats.sink_commit import SINK_LOCK
from reput.log.resume_points import LastRecord, ResumePoint

DISPATCH_FILE = "reputDispatch.json"
#: Mark of a start that takes long; a later start goes on from it after a kill (`reput.store.recovery.marks`).
RECOVERY_FILE = "reputRecovery.json"
#: Lock held by the process that dispatches into a store's own folders.
DISPATCHER_LOCK = "reputDispatcher.lock"
#: Lock held while queues or index are written (`reput.store.dispatch.locks`), and its name in 0.1. That one is
#: locked, too, for one release: a process of that version may dispatch.
BATCH_LOCK, FORMER_BATCH_LOCK = "reputDispatchBatch.lock", "reputDispatch.lock"
#: Folder in the folder `config` of a store for what a dispatcher removes again; an output has it in its job folder.
WORK_FOLDER = "reputDispatchWork"
#: Folder in it for the attempts of tasks (`reput.files.attempts`).
ATTEMPTS = "attempts"
#: Bytes. More than any record has before its body.
_MAX_HEADER_SIZE = 1 << 10
#: Of the older marks one is kept for each power of two of the distance to the newest, in units of this many bytes.
_NEAREST_BYTES = 1 << 20


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IndexMark:
    """The index file that takes the next key: its name and its header. Files with later names are ignored."""

    name: str
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class DispatchMark:
    """All records before `point` are dispatched; `index` is None if none of them has a key."""

    point: ResumePoint
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


def attempts_path(root: str) -> str:
    """Path of the attempts of tasks that write the queues of a store."""
    return os.path.join(root, CONFIG, WORK_FOLDER, ATTEMPTS)


def read_marks(root: str, files: FileLayer) -> list[DispatchMark]:
    """The marks, newest first; empty if no dispatcher has written.

    Raises CorruptMetadataError if the file is not what a dispatcher writes.
    """
    return _read(root, files, lambda content: [decode_mark(entry) for entry in content["marks"]]) or []


def dispatched_end(root: str, files: FileLayer) -> int | None:
    """Commit log offset up to which another process has dispatched a log; None if the store dispatches by itself.

    Records from there on need no unit and no index entry yet, however the store was closed. Marks do not count if
    RocketMQ has opened the store since, as its text in `lock` shows (an output has no `lock`). Nor do they if they are
    damaged: all records need their units then, and whoever dispatches, or asks for the marks, tells the damage.
    """
    try:
        marks = read_marks(root, files)
    except CorruptMetadataError:
        return None
    if not marks or files.lock_text(os.path.join(root, LOCK)) not in (b"", SINK_LOCK):
        return None
    return marks[0].point.offset


def read_config(root: str, files: FileLayer) -> MessageStoreConfig | None:
    """Configuration of what was written below a directory: defaults except for `SETTINGS`.

    None if no dispatcher has written. Raises CorruptMetadataError as `read_marks`.
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
        distance = ((newest.point.offset - mark.point.offset) // _NEAREST_BYTES).bit_length()
        if mark.point.last is not None and distance not in seen:  # a mark without a last record fits any log
            seen.add(distance)
            kept.append(mark)
    return [newest, *reversed(kept)]


def settings_of(config: MessageStoreConfig) -> dict[str, str]:
    """`SETTINGS` of a configuration, as texts."""
    return {name: str(value) for name in SETTINGS if (value := getattr(config, name)) is not None}


def encode_mark(mark: DispatchMark) -> dict[str, Any]:
    """A mark as values for JSON."""
    entry: dict[str, Any] = {"offset": mark.point.offset}
    if (last := mark.point.last) is not None:
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
        ResumePoint(number(entry["offset"]), None if last is None else _last_record(last)),
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
