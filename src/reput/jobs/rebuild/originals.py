"""Originals of what a repair changes, kept beside: `topics.json.broken`, `consumequeue.broken`, `commitlog.broken/`.

If such a name is taken by another original, the next name is `.broken.2`. The same content is not kept twice: a
repair that was killed and runs again leaves the same files as an undisturbed repair.

RocketMQ does not start with a file of an unknown name beside log files. So originals of a log folder go to another
folder beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import numpy as np

from reput.errors import StoreFormatError
from reput.files import File, FileLayer

_SUFFIX = ".broken"
_BLOCK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK_BYTES)


def free_name(files: FileLayer, path: str) -> str:
    """Free path to which the original of a file or folder can be renamed."""
    return next(name for name in _names(path + _SUFFIX) if not files.exists(name))


def keep_copy(files: FileLayer, path: str) -> str:
    """Copy a small file durably; returns the path of the copy."""
    data = files.read_bytes(path)
    for name in _names(path + _SUFFIX):
        if not files.exists(name):
            files.write_atomically(name, data)
            return name
        if files.read_bytes(name) == data:
            return name
    raise AssertionError("names do not end")


def move_aside(files: FileLayer, path: str) -> str:
    """Move a file of a log folder into the folder for its originals; returns the new path.

    A rename cannot leave a mount point: there the file is copied, and removed. Raises StoreFormatError for a folder.
    """
    folder, name = _beside(path)
    if files.identity(os.path.dirname(path))[0] != files.identity(os.path.dirname(folder))[0]:
        if files.is_directory(path):
            raise StoreFormatError(f"{path}: a folder on a disk of its own, which a repair cannot move; move it away")
        kept = keep_tail(files, path, 0)
        files.unlink(path)
        return kept
    files.make_directories(folder)
    target = next(taken for taken in _names(os.path.join(folder, name)) if not files.exists(taken))
    files.rename(path, target)
    return target


def keep_tail(files: FileLayer, path: str, position: int) -> str:
    """Copy a log file's bytes from a position on durably, to the same position of a file with a hole before it.

    Returns the path of the copy. An existing copy counts if each byte of the log file is that of the copy, or is zero
    by now.
    """
    folder, name = _beside(path)
    files.make_directories(folder)
    with files.open(path) as source:
        for target in _names(os.path.join(folder, name)):
            if not files.exists(target):
                _copy_tail(files, source, target, position)
                return target
            with files.open(target) as kept:
                if _explains(kept, source, position):
                    return target
    raise AssertionError("names do not end")


def _copy_tail(files: FileLayer, source: File, target: str, position: int) -> None:
    unfinished = target + ".tmp"
    if files.exists(unfinished):
        files.unlink(unfinished)
    with files.open(unfinished, writable=True, create=True, size=source.size) as copy:
        for begin, block in _blocks(source, position):
            copy.write(begin, block)
        copy.sync()
    files.rename(unfinished, target)


def _explains(kept: File, source: File, position: int) -> bool:
    """Whether each byte of `source` from the position on is that of `kept`, or zero."""
    if kept.size != source.size:
        return False
    for begin, block in _blocks(source, position):
        now, then = np.frombuffer(block, np.uint8), np.frombuffer(kept.read(begin, len(block)), np.uint8)
        if ((now != then) & (now != 0)).any():
            return False
    return True


def _blocks(file: File, position: int) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of each block that is not all zeros."""
    for begin in range(position, file.size, _BLOCK_BYTES):
        block = file.read(begin, _BLOCK_BYTES)
        if block != _ZEROS[: len(block)]:
            yield begin, block


def _beside(path: str) -> tuple[str, str]:
    """Folder for originals of a log folder, on the disk of the log, and the file's name."""
    folder, name = os.path.split(path)
    return os.path.realpath(folder) + _SUFFIX, name


def _names(first: str) -> Iterator[str]:
    yield first
    yield from (f"{first}.{number}" for number in count(2))
