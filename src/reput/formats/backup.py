"""Names in a backup's target, and the manifest of one backup (docs/formats/backup.md); texts in, texts out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reput.errors import CorruptBackupError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.java import INT32_MAX, INT64_MIN
from reput.formats.own_json import decode_with_sha256, encode_with_sha256, number
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, is_checked_name, queue_folder_id

#: Marks a folder, or a location in an object storage, as a target of backups; written before everything else.
TARGET_FILE = "target.json"
TARGET_TEXT = b'{"format": "reput backup 1"}\n'
#: Folders of a target: manifests, bytes of the log, JSON files.
BACKUPS, LOG, CONFIG = "backups", "log", "config"

_SUFFIX = ".json"
_NAME = re.compile(r"\d{8}T\d{9}Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNIT_SIZES = {CONSUME_QUEUE: UNIT_SIZE, BATCH_CONSUME_QUEUE: BATCH_UNIT_SIZE}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGEST_DIGITS = 16
_MANIFEST = "backup"


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes of one log file: commit log offsets [begin, end), and their SHA-256 in hex."""

    begin: int
    end: int
    sha256: str

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.begin

    @property
    def name(self) -> str:
        """Name of the object with these bytes; it depends on the bytes, which change at an offset when a log is cut."""
        return f"{LOG}/{self.begin:020d}-{self.end:020d}-{self.sha256[:_DIGEST_DIGITS]}"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A JSON file below `config/`: its name there, its size in bytes, and its SHA-256 in hex."""

    file_name: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Name of the object with the file's bytes."""
        return f"{CONFIG}/{self.sha256}"


@dataclass(frozen=True, slots=True)
class EmptiedQueue:
    """A queue without a message in the log: only its last unit knows the offset of the next message.

    Attributes:
        path: Path of the queue in the store: `consumequeue/<topic>/<queue id>`, or below `batchconsumequeue`.
        file_size: Size of the queue's files in bytes.
        position: Position of the unit in the queue, in bytes over all files.
        unit: The unit's bytes.
    """

    path: str
    file_size: int
    position: int
    unit: bytes


@dataclass(frozen=True, slots=True)
class LastBackedUp:
    """The last record of a backup, with the fields of `reput.log.resume_points.LastRecord`."""

    offset: int
    store_timestamp: int
    header_size: int
    header_crc: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Manifest of one backup.

    Attributes:
        name: Name of the backup: its time, UTC.
        created_timestamp: The same time in ms since 1970.
        store: Path of the store directory.
        begin_offset, end_offset: Range of the commit log.
        last: The record before `end_offset`; None without a record.
        log_file_size: Size of a log file in bytes; 0 if the log had no file.
        log: The bytes of the log, in order, without a gap.
        config: The JSON files.
        queues: The queues without a message in the log.
        sizes: Configuration keys that a rebuild of queues and index needs, in snake_case.
        left_out: Names in the store directory that no backup contains.
    """

    name: str
    created_timestamp: int
    store: str
    begin_offset: int
    end_offset: int
    last: LastBackedUp | None
    log_file_size: int
    log: tuple[LogRange, ...]
    config: tuple[ConfigFile, ...] = ()
    queues: tuple[EmptiedQueue, ...] = ()
    sizes: Mapping[str, int | bool] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def manifest_name(backup: str) -> str:
    """Name of the manifest's object for a backup of this name; the backup exists if its manifest does."""
    return f"{BACKUPS}/{backup}{_SUFFIX}"


def backup_name(file_name: str) -> str | None:
    """Name of the backup whose manifest has this name in the folder `backups`; None for any other file."""
    name = file_name.removesuffix(_SUFFIX)
    return name if name != file_name and _NAME.fullmatch(name) else None


def name_of_time(timestamp_ms: int) -> str:
    """Name of a backup made at a time (ms since 1970): UTC, year month day T hour minute second millisecond Z."""
    time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return f"{time:%Y%m%dT%H%M%S}{time.microsecond // 1000:03d}Z"


def time_of_name(backup: str) -> int:
    """Time in a backup's name, ms since 1970; inverse of `name_of_time`."""
    return round((datetime.strptime(backup, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC) - _EPOCH).total_seconds() * 1000)


def encode_manifest(manifest: Manifest) -> bytes:
    """Bytes of a manifest, with its checksum."""
    content = {
        "name": manifest.name,
        "createdTimestamp": manifest.created_timestamp,
        "store": manifest.store,
        "beginOffset": manifest.begin_offset,
        "endOffset": manifest.end_offset,
        "last": None if manifest.last is None else last_to_list(manifest.last),
        "logFileSize": manifest.log_file_size,
        "log": [[part.begin, part.end, part.sha256] for part in manifest.log],
        "config": [[file.file_name, file.size, file.sha256] for file in manifest.config],
        "queues": [[queue.path, queue.file_size, queue.position, queue.unit.hex()] for queue in manifest.queues],
        "sizes": dict(manifest.sizes),
        "leftOut": list(manifest.left_out),
    }
    return encode_with_sha256(_MANIFEST, content)


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Inverse of `encode_manifest`.

    Raises:
        CorruptBackupError: The bytes are no manifest, or a damaged one.
    """
    try:
        return _manifest(decode_with_sha256(data, _MANIFEST))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptBackupError(
            path, getattr(error, "pos", 0), f"not the manifest that a backup has written ({error}); take another backup"
        ) from None


def _manifest(content: dict[str, Any]) -> Manifest:
    """The manifest; ValueError for a member that no backup writes: whoever can write to the target can write one."""
    begin, last = number(content["beginOffset"]), content["last"]
    end = number(content["endOffset"], begin)
    file_size = number(content["logFileSize"], 1 if end else 0, INT32_MAX)
    log = tuple(
        LogRange(number(first), number(after), sha256_of_text(digest)) for first, after, digest in content["log"]
    )
    _check_log(log, begin, end, file_size)
    return Manifest(
        _text_of(content["name"], _NAME),
        number(content["createdTimestamp"]),
        _text_of(content["store"]),
        begin,
        end,
        None if last is None else last_from_list(*last),
        file_size,
        log,
        tuple(
            ConfigFile(_file_name(name), number(size), sha256_of_text(digest))
            for name, size, digest in content["config"]
        ),
        tuple(_queue(*queue) for queue in content["queues"]),
        {name: size if isinstance(size, bool) else number(size) for name, size in content["sizes"].items()},
        tuple(_text_of(name) for name in content["leftOut"]),
    )


def _check_log(log: Sequence[LogRange], begin: int, end: int, file_size: int) -> None:
    """The ranges follow one another from `begin` to `end`, each within one file; `begin` is that of a file."""
    expected = begin
    for part in log:
        if part.begin != expected or part.end <= part.begin or part.begin // file_size != (part.end - 1) // file_size:
            raise ValueError(f"bytes {part.begin} to {part.end} do not follow {expected} within one log file")
        expected = part.end
    if expected != end or (begin and begin % file_size):
        raise ValueError(f"bytes {begin} to {expected} are no log up to {end} in files of {file_size}")


def last_from_list(offset: object, store_timestamp: object, header_size: object, header_crc: object) -> LastBackedUp:
    """Inverse of `last_to_list`; ValueError for values out of range."""
    return LastBackedUp(
        number(offset),
        number(store_timestamp, INT64_MIN),
        number(header_size, 0, INT32_MAX),
        number(header_crc, 0, 0xFFFFFFFF),
    )


def _queue(path: str, file_size: object, position: object, unit: str) -> EmptiedQueue:
    folder, topic, queue_id = path.split("/")
    if folder not in _UNIT_SIZES or not is_checked_name(topic) or queue_folder_id(queue_id) is None:
        raise ValueError(f"no queue has the path {path!r}")
    size, data = _UNIT_SIZES[folder], bytes.fromhex(unit)
    queue = EmptiedQueue(path, number(file_size, size, INT32_MAX), number(position), data)
    if queue.file_size % size or queue.position % size or len(data) != size:
        raise ValueError(f"{path}: expected units of {size} bytes, found other sizes")
    return queue


def _file_name(value: object) -> str:
    name = _text_of(value)
    if not is_checked_name(name):
        raise ValueError(f"no file has the name {name[:40]!r}")
    return name


def sha256_of_text(value: object) -> str:
    """The value, if it is a SHA-256 in hex; ValueError for any other."""
    return _text_of(value, _SHA256)


def _text_of(value: object, pattern: re.Pattern[str] | None = None) -> str:
    if not isinstance(value, str) or (pattern is not None and not pattern.fullmatch(value)):
        raise ValueError(f"expected a text, found {str(value)[:40]!r}")
    return value


def last_to_list(last: LastBackedUp) -> list[int]:
    """The record as JSON has it."""
    return [last.offset, last.store_timestamp, last.header_size, last.header_crc]
