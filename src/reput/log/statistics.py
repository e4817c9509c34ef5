"""What a walk found of a log file, kept in a folder of the user's for later plans: one small JSON file a log file.

Nothing of it is needed, and nothing of it is believed that may be stale. A sidecar counts only if its own CRC fits, the
log file has the name and the size that it says, and the first and the last record that it speaks of still begin with
the very bytes: a log that was cut and has grown again holds another record there, put at another time.
"""

from __future__ import annotations

import json
import logging
import os
import zlib

import numpy as np

from reput.errors import StoreError
from reput.files import DISK, FileLayer
from reput.formats.own_json import decode_json
from reput.log.blocks import Walk
from reput.log.directory import LogFile, open_listed

#: Finer than splits: an hour of a year in a log of a gibibyte is 120 KB.
BLOCK_BYTES = 1 << 20
#: A record's header up to the length of its body; the CRC of the body and the store time are in it.
_HEAD_SIZE = 88
_VERSION = 1

logger = logging.getLogger("reput.log")


def read_statistics(folder: str, file: LogFile, files: FileLayer = DISK) -> Walk | None:
    """The kept walk of a file, up to where the file was written then; None where there is none that can be believed."""
    path = _path(folder, file, files)
    if path is None or not files.exists(path):
        return None
    try:
        outer = decode_json(files.read_bytes(path))
        text = outer["statistics"]
        if outer["crc32"] != zlib.crc32(text.encode()):
            raise ValueError("another CRC than its own")
        kept = decode_json(text)
        if (kept["version"], kept["file"], kept["size"]) != (_VERSION, os.path.basename(file.path), file.size):
            return None
        heads = [_head(file, file.start_offset, files), _head(file, kept["last_record"], files)]
        if heads != kept["heads"]:
            return None
        return Walk(file, np.array(kept["blocks"], np.int64).reshape(-1, 6), kept["last_record"], kept["goes_on"])
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s: not used, and made again: %s", path, error)
        return None


def write_statistics(folder: str, walk: Walk, files: FileLayer = DISK) -> None:
    """Keep a walk. One that met damage is not kept, so that the damage is told again; nor is an empty one."""
    path = _path(folder, walk.file, files)
    if path is None or walk.damages or walk.last_record < 0:
        return
    kept = {
        "version": _VERSION,
        "file": os.path.basename(walk.file.path),
        "size": walk.file.size,
        "heads": [_head(walk.file, walk.file.start_offset, files), _head(walk.file, walk.last_record, files)],
        "last_record": walk.last_record,
        "goes_on": walk.goes_on,
        "blocks": walk.blocks.tolist(),
    }
    text = json.dumps(kept)
    try:
        files.make_directories(folder)
        files.write_atomically(path, json.dumps({"crc32": zlib.crc32(text.encode()), "statistics": text}).encode())
    except StoreError as error:
        logger.warning("the statistics of %s are not kept: %s", walk.file.path, error)


def _path(folder: str, file: LogFile, files: FileLayer) -> str | None:
    """Named after the file and its first record, so that several stores can share a folder; None without a record."""
    head = _head(file, file.start_offset, files)
    if not any(bytes.fromhex(head)):
        return None
    return os.path.join(folder, f"{os.path.basename(file.path)}-{zlib.crc32(head.encode()):08x}.json")


def _head(file: LogFile, offset: int, files: FileLayer) -> str:
    with open_listed(files, file.path) as opened:
        return opened.read(offset - file.start_offset, _HEAD_SIZE).hex()
