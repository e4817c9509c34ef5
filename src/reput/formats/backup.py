"""Names in a backup's target, and the manifest of one backup (docs/formats/backup.md); texts in, texts out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reput.errors import CorruptBackupError
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE

#: Marks a folder, or a location in an object storage, as a target of backups; written before everything else.
TARGET_FILE = "target.json"
TARGET_TEXT = b'{"format": "reput backup 1"}\n'
#: Folders of a target: manifests, bytes of the log, JSON files.
BACKUPS, LOG, CONFIG = "backups", "log", "config"

_SUFFIX = ".json"
_NAME = re.compile(r"\d{8}T\d{9}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGEST_DIGITS = 16
_MANIFEST = "backup"
_CHECKSUM = "sha256"


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
    """The last record of a backup, with the fields of `reput.log.positions.LastRecord`."""

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
        log_file_size: Size of a log file in bytes; 0 where the log had no file.
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
        "last": None if manifest.last is None else _last_to_list(manifest.last),
        "logFileSize": manifest.log_file_size,
        "log": [[part.begin, part.end, part.sha256] for part in manifest.log],
        "config": [[file.file_name, file.size, file.sha256] for file in manifest.config],
        "queues": [[queue.path, queue.file_size, queue.position, queue.unit.hex()] for queue in manifest.queues],
        "sizes": dict(manifest.sizes),
        "leftOut": list(manifest.left_out),
    }
    members = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    return f'{{\n "{_CHECKSUM}": "{_digest(_text(content))}",\n "{_MANIFEST}": {{\n{members}\n }}\n}}\n'.encode()


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Inverse of `encode_manifest`.

    Raises:
        CorruptBackupError: The bytes are no manifest, or a damaged one.
    """
    try:
        content = json.loads(data)
        found, expected = _digest(_text(content[_MANIFEST])), content[_CHECKSUM]
        if found != expected:
            raise ValueError(f"its SHA-256 is {found}, expected {expected}")
        return _manifest(content[_MANIFEST])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptBackupError(
            path, getattr(error, "pos", 0), f"not the manifest that a backup has written ({error}); take another backup"
        ) from None


def _manifest(content: dict[str, Any]) -> Manifest:
    last = content["last"]
    return Manifest(
        content["name"],
        content["createdTimestamp"],
        content["store"],
        content["beginOffset"],
        content["endOffset"],
        None if last is None else LastBackedUp(*last),
        content["logFileSize"],
        tuple(LogRange(*log_range) for log_range in content["log"]),
        tuple(ConfigFile(*file) for file in content["config"]),
        tuple(_queue(*queue) for queue in content["queues"]),
        content["sizes"],
        tuple(content["leftOut"]),
    )


def _queue(path: str, file_size: int, position: int, unit: str) -> EmptiedQueue:
    folder, topic, queue_id = path.split("/")
    if folder not in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) or topic in ("", ".", "..") or not queue_id.isdigit():
        raise ValueError(f"no queue has the path {path!r}")
    return EmptiedQueue(path, file_size, position, bytes.fromhex(unit))


def _last_to_list(last: LastBackedUp) -> list[int]:
    return [last.offset, last.store_timestamp, last.header_size, last.header_crc]


def _text(content: object) -> str:
    """Text that the checksum covers, independent of the file's layout."""
    return json.dumps(content, sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
