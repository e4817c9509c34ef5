"""Folders of staged records: one for each job, swept when the job is dead.

A job cannot remove its folder when its driver is killed, and a commit does not know which files failed tasks have left.
So each folder names its owner, and each new job sweeps the folders of dead jobs. Jobs do not use each other's folders.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Collection

from reput.errors import ConfigError, StoreLockedError
from reput.files import FileLayer, RecordLock
from reput.files.owner import is_alive, owner_text
from reput.formats.sink_commit import Sinks

_OWNER = "owner"
_LOCK = "lock"
_MAX_NAME_BYTES = 255
#: Command of Spark's driver: a job ends when this process ends.
_DRIVER = "java"
#: A folder of another machine, whose processes cannot be checked, is swept after so long without a change.
_STRANGERS_MS = 7 * 24 * 3600 * 1000


def make_folder(files: FileLayer, staging: str, name: str) -> str:
    """Make the folder of a job, or take over an existing one; returns its path."""
    folder = os.path.join(staging, name)
    files.make_directories(folder)
    files.write_atomically(os.path.join(folder, _OWNER), owner_text(_DRIVER).encode())
    return folder


def name_in_store(name: str, store: str) -> str:
    """Name of a job's folder and files that no job with the same name of another store has: they may share folders."""
    digest = hashlib.blake2b(os.path.abspath(store).encode("utf-8", "surrogateescape"), digest_size=6)
    return f"{name}-{digest.hexdigest()}"


def staged_path(folder: str, name: str) -> str:
    """New path for a file of staged records: a broken batch may still need the files of an earlier try."""
    return os.path.join(folder, f"{name}-{uuid.uuid4().hex}")


def check_name(name: str) -> str:
    """Check the name of a job's folder; raises ConfigError if it is no name of a folder in the staging folder."""
    if "/" in name or "\0" in name or len(name.encode("utf-8", "surrogateescape")) > _MAX_NAME_BYTES:
        raise ConfigError(f"name: {name[:40]!r} is no name of a folder; give one without / of at most 200 characters")
    return name


def lock_folder(files: FileLayer, staging: str, name: str, what: str) -> tuple[str, RecordLock]:
    """Make and lock the folder of a job that only one process may run at a time; the lock is the caller's to release.

    Two processes would each put the batch that follows the last one. The store's own lock is held for one batch only.

    Raises StoreLockedError if another process runs the job; `what` is the job's kind, for the message.
    """
    folder = os.path.join(staging, name)
    files.make_directories(folder)
    try:
        lock = files.lock(os.path.join(folder, _LOCK))
    except StoreLockedError:
        raise StoreLockedError(
            f"{folder}: another process runs the same {what}; wait until it ends, or give another name"
        ) from None
    try:
        return make_folder(files, staging, name), lock
    except BaseException:
        lock.release()
        raise


def sweep(files: FileLayer, staging: str, sinks: Sinks) -> None:
    """Remove the folders of dead jobs. Folders that a broken batch needs stay."""
    for entry in files.list_directory(staging) if files.is_directory(staging) else ():
        folder = os.path.join(staging, entry.name)
        if entry.is_directory and not is_needed(folder, sinks) and _is_dead(files, folder):
            files.remove_tree(folder)


def is_needed(folder: str, sinks: Sinks) -> bool:
    """Whether a batch needs files of a folder: it is broken, or a start has to decide whether it is committed."""
    return any(path.startswith(f"{folder}/") for path in _needed(sinks))


def is_used(files: FileLayer, staging: str) -> bool:
    """Whether a running job has a folder here; a folder with a lock is in use while a process holds that."""
    for entry in files.list_directory(staging) if files.is_directory(staging) else ():
        folder = os.path.join(staging, entry.name)
        lock = os.path.join(folder, _LOCK)
        if not files.exists(lock):
            if not _is_dead(files, folder):
                return True
            continue
        try:
            files.lock(lock).release()
        except StoreLockedError:
            return True
    return False


def clear(files: FileLayer, folder: str, sinks: Sinks) -> None:
    """Remove the files in a sink's folder, while no task of the sink runs. Files that a broken batch needs stay."""
    needed = _needed(sinks)
    for entry in files.list_directory(folder) if files.is_directory(folder) else ():
        path = os.path.join(folder, entry.name)
        if entry.name not in (_OWNER, _LOCK) and path not in needed and files.exists(path):
            files.unlink(path)


def _needed(sinks: Sinks) -> Collection[str]:
    intents = [broken.intent for broken in sinks.broken.values()]
    return {part.path for intent in (*intents, sinks.intent) if intent is not None for part in intent.parts}


def _is_dead(files: FileLayer, folder: str) -> bool:
    owner = os.path.join(folder, _OWNER)
    alive = is_alive(files.read_bytes(owner).decode(errors="replace")) if files.exists(owner) else None
    if alive is not None:
        return not alive
    newest = max([files.modified_ms(os.path.join(folder, e.name)) for e in files.list_directory(folder)], default=0)
    return max(newest, files.modified_ms(folder)) < time.time() * 1000 - _STRANGERS_MS
