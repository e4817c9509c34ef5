"""The JSON files of a store directory, read only: a damaged or empty one is read from its `.bak`, as RocketMQ does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.fastjson import decode_fastjson
from reput.formats.metadata import FILE_NAMES, decode_metadata
from reput.formats.paths import CONFIG

_T = TypeVar("_T")
BACKUP_SUFFIX = ".bak"


def metadata_path(root: str, kind: type) -> str:
    """Where the file of one of the classes of `reput.formats.metadata.FILE_NAMES` is in a store directory."""
    return os.path.join(root, CONFIG, FILE_NAMES[kind])


def read_metadata(root: str, kind: type[_T], files: FileLayer) -> _T | None:
    """What a store directory's file of this class says; None where there is neither the file nor its backup.

    Raises CorruptMetadataError where the file is damaged, and its backup is missing or damaged, too. RocketMQ starts
    with nothing then (`ConfigManager.loadBak`).
    """
    return _read_or_backup(metadata_path(root, kind), lambda data: decode_metadata(kind, data), files)


def read_config_file(path: str, files: FileLayer) -> Any:
    """The plain values of any of RocketMQ's JSON files, as `decode_fastjson` gives them; else as `read_metadata`."""
    return _read_or_backup(path, decode_fastjson, files)


def _read_or_backup(path: str, decode: Callable[[bytes], _T], files: FileLayer) -> _T | None:
    """`ConfigManager.load`."""
    damage = None
    for candidate in (path, path + BACKUP_SUFFIX):
        try:
            found = decode_file(candidate, decode, files)
        except CorruptMetadataError as error:
            damage = damage or error
        else:
            if found is not None:
                return found
    if damage is not None:
        raise damage
    return None


def decode_file(path: str, decode: Callable[[bytes], _T], files: FileLayer) -> _T | None:
    """What one file says; None where it is missing or empty. Raises CorruptMetadataError where it is damaged."""
    data = files.read_bytes(path) if files.exists(path) else b""
    if not data:
        return None
    try:
        return decode(data)
    except CorruptMetadataError as error:
        what = f"{error.reason}; correct it, or put back a copy of it"
        raise CorruptMetadataError(path, error.offset, what) from None
