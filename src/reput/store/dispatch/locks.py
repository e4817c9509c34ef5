"""Locks that serialise dispatch of two processes: the store's own, and an external one (`dispatch="external"`).

The marks in `config/reputDispatch.json` are there as long as another process dispatches. A store that is opened with
`dispatch="external"` writes them when its queues have all of its log; a store that is opened to dispatch by itself
removes them.

There are two locks. A dispatcher holds the dispatcher lock as long as it lives, so that there is only one dispatcher.
It holds the batch lock for each batch, so that a store can be opened while the dispatcher waits between two batches.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreLockedError, StoreStateError
from reput.files import FileLayer
from reput.files.attempts import end_attempts
from reput.files.lock import RecordLock
from reput.formats.paths import CONFIG, LOCK
from reput.formats.sink_commit import SINK_LOCK
from reput.log.dispatch_marks import (
    BATCH_LOCK,
    DISPATCHER_LOCK,
    FORMER_BATCH_LOCK,
    DispatchMark,
    attempts_path,
    marks_path,
    write_marks,
)
from reput.log.resume_points import ResumePoint
from reput.log.sink_commits import was_opened_since

if TYPE_CHECKING:
    from reput.store.parts import WriterParts

#: A batch is two gigabytes of log at the most (`reput.jobs.dispatch.plan`); its scan by tasks is before the lock.
_BATCH_TIMEOUT_S = 60.0
_RETRY_S = 0.01


def dispatcher_lock_path(root: str) -> str:
    """Path of the lock that a dispatcher of a store's own queues holds as long as it lives."""
    return os.path.join(root, CONFIG, DISPATCHER_LOCK)


def _batch_lock_path(root: str) -> str:
    return os.path.join(root, CONFIG, BATCH_LOCK)


def lock_dispatcher(root: str, files: FileLayer) -> RecordLock:
    """Become the only dispatcher of a store's own queues; the lock is the caller's to release.

    Raises:
        StoreLockedError: Another process is the dispatcher; the message names it.
        StoreStateError: The store dispatches by itself.
    """
    if not files.exists(_batch_lock_path(root)):  # a store that never was dispatched externally gets no lock file
        check_external_dispatch(root, files)
    lock = _lock(dispatcher_lock_path(root), f"dispatches the log of {root} already; stop it first", files)
    try:
        with batch_lock(root, files):  # waits for a store that is being opened: it has no marks meanwhile
            check_external_dispatch(root, files)
    except BaseException:
        lock.release()
        raise
    return lock


def check_external_dispatch(root: str, files: FileLayer) -> None:
    """Check that a store leaves dispatch to another process; raises StoreStateError if it dispatches by itself.

    RocketMQ writes the file `lock` when it starts, and dispatches from then on. The text of the file shows this, not
    its time: if RocketMQ starts between this check and the next mark, `lock` stays older than the mark.
    """
    path = marks_path(root)
    if not files.exists(path):
        raise StoreStateError(
            f'{root}: the store dispatches by itself; open it with dispatch="external" first, or give an output folder'
        )
    if was_opened_since(files, root):
        raise StoreStateError(
            f"{os.path.join(root, LOCK)}: RocketMQ has opened the store since {path} was written, and dispatches "
            'by itself; stop it, and open the store with dispatch="external" again'
        )


@contextmanager
def batch_lock(root: str, files: FileLayer) -> Iterator[None]:
    """Hold the batch lock, under which queues and index are written; waits for another process's batch.

    Raises:
        StoreLockedError: Another process has held the lock for 60 s; the message names it.
    """
    deadline = time.monotonic() + _BATCH_TIMEOUT_S
    what = f"has been writing the queues of {root} for {_BATCH_TIMEOUT_S:.0f} s; look at what it does"
    with ExitStack() as held:
        for path in (_batch_lock_path(root), os.path.join(root, CONFIG, FORMER_BATCH_LOCK)):
            while True:
                try:
                    held.callback(_lock(path, what, files).release)
                    break
                except StoreLockedError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_RETRY_S)
        yield


@contextmanager
def opening(root: str, files: FileLayer, *, external: bool) -> Iterator[None]:
    """Hold the locks while a store that is opened dispatches what its queues and index lack.

    Raises:
        StoreLockedError: The store is to dispatch by itself from now on, and another process dispatches.
    """
    path = marks_path(root)
    with ExitStack() as held:
        if not external and files.exists(path):
            what = f'dispatches the log of {root}; stop it, or open the store with dispatch="external"'
            held.callback(_lock(dispatcher_lock_path(root), what, files).release)
        if external or files.exists(path):
            files.make_directories(os.path.dirname(path))
            held.enter_context(batch_lock(root, files))
            end_attempts(attempts_path(root), files)  # a dispatcher that was killed may have left some
        yield


def take_back(root: str, files: FileLayer) -> None:
    """Remove the marks before a start changes queues or index: they may not be true any more."""
    if files.exists(marks_path(root)):
        files.unlink(marks_path(root))


def hand_over(root: str, files: FileLayer, parts: WriterParts, config: MessageStoreConfig) -> None:
    """Write the mark that queues and index have all of the log; another process dispatches from there on."""
    parts.queues.flush()
    if parts.index is not None:
        parts.index.flush()
    parts.lock.write(SINK_LOCK)  # before the marks; there is no intent, as the start has settled it
    mark = DispatchMark(ResumePoint(parts.log.max_offset), parts.index.mark if parts.index is not None else None)
    write_marks(root, [mark], config, files)


def _lock(path: str, what: str, files: FileLayer) -> RecordLock:
    try:
        return files.lock(path)
    except StoreLockedError as error:
        holder = str(error).removeprefix(f"{path}: ").partition(" has the store open")[0]
        raise StoreLockedError(f"{path}: {holder} {what}") from None
