"""Statistics sidecars: the results of walks, kept in a folder of the user's for later plans; a JSON file a log file.

Sidecars are optional, and a stale one is never used. A sidecar counts only if its own CRC fits, the log file has the
name and size that it names, and the headers of the first and the last record are the same bytes as then: a log that was
cut and has grown again has another record there, with another store timestamp.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from functools import partial

import numpy as np

from reput.errors import StoreError
from reput.files import DISK, FileLayer
from reput.formats.own_json import decode_json
from reput.log.directory import LogFile, open_listed
from reput.log.plans.header_walk import Walk, joined, walk
from reput.log.scan import OnDamage

#: Finer than splits. A year of a log in one GiB: an hour is 120 KB.
ZONE_BYTES = 1 << 20
#: A record's header up to the length of its body, with the CRC of the body and the store timestamp.
_HEAD_SIZE = 88
_VERSION = 2

logger = logging.getLogger("reput.log")


def kept_walk(
    folder: str,
    file: LogFile,
    zone_bytes: int,
    *,
    end_offset: int | None = None,
    on_damage: OnDamage = OnDamage.RAISE,
    files: FileLayer = DISK,
) -> Walk:
    """The walk of a file as it was kept, and on from where it ended; what is new of it is kept.

    The other arguments and the errors are as of `walk`.
    """
    walk_on = partial(walk, file, zone_bytes, end_offset=end_offset, on_damage=on_damage, files=files)
    known = read_statistics(folder, file, files)
    if known is None:
        known = walk_on()
    elif known.goes_on:
        return known
    else:
        more = walk_on(begin=known.end)
        if not more.zones.size and not more.goes_on:
            return known
        known = joined((known, more))
    write_statistics(folder, known, files)
    return known


def read_statistics(folder: str, file: LogFile, files: FileLayer = DISK) -> Walk | None:
    """The kept walk of a file, up to where the file was written then; None without one that is valid."""
    path = _path(folder, file, files)
    if path is None or not files.exists(path):
        return None
    try:
        outer = decode_json(files.read_bytes(path))
        text = outer["statistics"]
        if outer["crc32"] != zlib.crc32(text.encode()):
            raise ValueError("its CRC differs from the CRC of its content")
        kept = decode_json(text)
        if (kept["version"], kept["file"], kept["size"]) != (_VERSION, os.path.basename(file.path), file.size):
            return None
        heads = [_head(file, file.start_offset, files), _head(file, kept["last_record"], files)]
        if heads != kept["heads"]:
            return None
        return Walk(file, np.array(kept["zones"], np.int64).reshape(-1, 6), kept["last_record"], kept["goes_on"])
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s: not used, and made again: %s", path, error)
        return None


def write_statistics(folder: str, walk: Walk, files: FileLayer = DISK) -> None:
    """Keep a walk. A walk with damage is not kept, so that damage is reported again; nor is a walk without records."""
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
        "zones": walk.zones.tolist(),
    }
    text = json.dumps(kept)
    try:
        files.make_directories(folder)
        files.write_atomically(path, json.dumps({"crc32": zlib.crc32(text.encode()), "statistics": text}).encode())
    except StoreError as error:
        logger.warning("the statistics of %s are not kept: %s", walk.file.path, error)


def _path(folder: str, file: LogFile, files: FileLayer) -> str | None:
    """Path by the file's name and first record, so that stores can share a folder; None if the file has no record."""
    head = _head(file, file.start_offset, files)
    if not any(bytes.fromhex(head)):
        return None
    return os.path.join(folder, f"{os.path.basename(file.path)}-{zlib.crc32(head.encode()):08x}.json")


def _head(file: LogFile, offset: int, files: FileLayer) -> str:
    with open_listed(files, file.path) as opened:
        return opened.read(offset - file.start_offset, _HEAD_SIZE).hex()
