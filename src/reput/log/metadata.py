"""Settings of a store directory, read only; for a damaged or empty file its `.bak` is read, as in RocketMQ."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.epoch_file import EPOCH_FILE, Epoch, decode_epochs
from reput.formats.metadata import FILE_NAMES, decode_metadata
from reput.formats.paths import CONFIG
from reput.formats.shutdown import SHUTDOWN_FILE, Shutdown, decode_shutdown

_T = TypeVar("_T")
BACKUP_SUFFIX = ".bak"


def metadata_path(root: str, kind: type) -> str:
    """Path of the file of a class of `reput.formats.metadata.FILE_NAMES` in a store directory."""
    return os.path.join(root, CONFIG, FILE_NAMES[kind])


def read_metadata(root: str, kind: type[_T], files: FileLayer) -> _T | None:
    """Content of a store directory's file of this class; None if neither the file nor its backup exists.

    Raises CorruptMetadataError if the file is damaged, and its backup is missing or damaged, too. RocketMQ starts
    without the content then (`ConfigManager.loadBak`).
    """
    return read_metadata_file(metadata_path(root, kind), kind, files)


def read_metadata_file(path: str, kind: type[_T], files: FileLayer) -> _T | None:
    """`read_metadata` for a file of this class that may lie anywhere."""
    return read_or_backup(path, lambda data: decode_metadata(kind, data), files)


def read_epochs(root: str, files: FileLayer) -> tuple[Epoch, ...]:
    """Epochs of a store directory, oldest first; empty for a store that has never been in controller mode.

    Raises CorruptMetadataError if their file is damaged, and its backup is missing or damaged, too.
    """
    return read_or_backup(os.path.join(root, EPOCH_FILE), decode_epochs, files) or ()


def read_shutdown(root: str, files: FileLayer) -> Shutdown | None:
    """Record of the last clean exit of a store directory; None if nothing is there, or it is damaged.

    It is of the log as it is now only if no writer was killed since (`StoreDirectory.was_killed`).
    """
    path = os.path.join(root, CONFIG, SHUTDOWN_FILE)
    return decode_shutdown(files.read_spared(path)) if files.exists(path) else None


def read_or_backup(path: str, decode: Callable[[bytes], _T], files: FileLayer) -> _T | None:
    """Content of a file or of its backup, as in RocketMQ's `ConfigManager.load`; errors as of `read_metadata`."""
    damage = None
    for candidate in (path, path + BACKUP_SUFFIX):
        try:
            content = decode_file(candidate, decode, files)
        except CorruptMetadataError as error:
            damage = damage or error
        else:
            if content is not None:
                return content
    if damage is not None:
        raise damage
    return None


def decode_file(path: str, decode: Callable[[bytes], _T], files: FileLayer) -> _T | None:
    """Content of one file; None if it is missing or empty. Raises CorruptMetadataError if it is damaged."""
    data = files.read_bytes(path) if files.exists(path) else b""
    if not data:
        return None
    try:
        return decode(data)
    except CorruptMetadataError as error:
        what = f"{error.reason}; correct it, or put back a copy of it"
        raise CorruptMetadataError(path, error.offset, what) from None
