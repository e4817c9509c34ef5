"""Attempts: tasks in other processes that write for a coordinator, and may outlive it.

    permit = begin_attempts(folder, files)
    with attempt(permit, files):       # in a task: the coordinator still waits for it
        ...                            # writes

    end_attempts(folder, files)        # in the coordinator, or in the next one: now nobody writes any more

A coordinator that is killed leaves tasks that run, and others that begin later. Each of them holds a lock of its own
while it writes, and begins only while its permit is there. So whoever removes the permits, and then waits for each
lock, knows that no task writes. Each batch has a permit of its own: a task of an earlier one has none any more.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from reput.errors import StoreLockedError, StoreStateError
from reput.files.layer import FileLayer

_PERMIT = ".permit"
_LOCKS = ".lock"
_RETRY_S = 0.05
#: A task writes the units of one batch, or a part of them.
_TIMEOUT_S = 60.0


def begin_attempts(folder: str, files: FileLayer) -> str:
    """Permit attempts; returns the permit's path in the folder. It needs no sync: a power cut ends all tasks."""
    files.add_directories(folder)
    permit = os.path.join(folder, f"{uuid.uuid4().hex}{_PERMIT}")
    files.open(permit, writable=True, create=True).close()
    return permit


@contextmanager
def attempt(permit: str, files: FileLayer) -> Iterator[None]:
    """Hold a lock while a task writes. Raises StoreStateError without the permit: nothing may be written."""
    ended = StoreStateError(f"{permit}: whoever gave this work does not wait for it any more, so nothing was written")
    if not files.exists(permit):
        raise ended
    lock = files.lock(os.path.join(os.path.dirname(permit), f"{uuid.uuid4().hex}{_LOCKS}"))
    try:
        if not files.exists(permit):  # removed before the lock was seen
            raise ended
        yield
    finally:
        lock.release()


def end_attempts(folder: str, files: FileLayer) -> None:
    """Remove all permits of a folder, wait for the attempts that still write, and remove the folder.

    Raises:
        StoreLockedError: An attempt has not ended for 60 s; the message names its process.
    """
    if not files.is_directory(folder):
        return
    for entry in files.list_directory(folder):
        if entry.name.endswith(_PERMIT):
            files.unlink(os.path.join(folder, entry.name))
    deadline = time.monotonic() + _TIMEOUT_S
    for entry in files.list_directory(folder):
        path = os.path.join(folder, entry.name)
        while entry.name.endswith(_LOCKS):
            try:
                files.lock(path).release()
                break
            except StoreLockedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
    files.remove_tree(folder)
