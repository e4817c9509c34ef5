"""The folders of staged records: one a job, swept when the job is dead.

A job cannot sweep behind itself when its driver is killed, and a commit does not know what failed tasks have left. So
each folder says whose it is, and every next job looks around. Jobs do not see each other's folders.
"""

from __future__ import annotations

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
#: The command of the process that a job lives and dies with: Spark's driver.
_DRIVER = "java"
#: A folder of a machine that cannot be asked is swept after so long without a change.
_STRANGERS_MS = 7 * 24 * 3600 * 1000


def make_folder(files: FileLayer, staging: str, name: str) -> str:
    """Make the folder of a job, or take it over; returns its path."""
    folder = os.path.join(staging, name)
    files.make_directories(folder)
    files.write_atomically(os.path.join(folder, _OWNER), owner_text(_DRIVER).encode())
    return folder


def staged_path(folder: str, name: str) -> str:
    """The path of a file of staged records that no other try has: a broken batch may need what an earlier one left."""
    return os.path.join(folder, f"{name}-{uuid.uuid4().hex}")


def check_name(name: str) -> str:
    """The name of a job's folder; raises ConfigError where a folder cannot have it, or it would lie elsewhere."""
    if "/" in name or "\0" in name or len(name.encode("utf-8", "surrogateescape")) > _MAX_NAME_BYTES:
        raise ConfigError(f"name: {name[:40]!r} is no name of a folder; give one without / of at most 200 characters")
    return name


def lock_folder(files: FileLayer, staging: str, name: str, what: str) -> tuple[str, RecordLock]:
    """As `make_folder`, for a job that only one process may run at a time; the lock is the caller's to release.

    Two at once would each put what follows on the same last batch. The store's own lock is held for one batch only.

    Raises StoreLockedError where another process runs `what`.
    """
    folder = os.path.join(staging, name)
    files.make_directories(folder)
    try:
        lock = files.lock(os.path.join(folder, _LOCK))
    except StoreLockedError:
        raise StoreLockedError(
            f"{folder}: the same {what} is under way; wait until it ends, or give another name"
        ) from None
    try:
        return make_folder(files, staging, name), lock
    except BaseException:
        lock.release()
        raise


def sweep(files: FileLayer, staging: str, sinks: Sinks) -> list[str]:
    """Remove the folders of dead jobs; returns their names. What a broken batch needs stays."""
    swept = []
    needed = _needed(sinks)
    for entry in files.list_directory(staging) if files.is_directory(staging) else ():
        folder = os.path.join(staging, entry.name)
        is_needed = any(path.startswith(f"{folder}/") for path in needed)
        if entry.is_directory and not is_needed and _is_dead(files, folder):
            files.remove_tree(folder)
            swept.append(entry.name)
    return swept


def clear(files: FileLayer, folder: str, sinks: Sinks) -> None:
    """Remove what a sink's folder holds: no task of the sink is running."""
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
