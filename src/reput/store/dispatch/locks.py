"""Locks that serialise dispatch of two processes: of a store that another process dispatches (`dispatch="external"`).

`config/reputDispatch.json` is there as long as that is so: a store that is opened makes it when its queues are in step
with its log, and a store that is opened to dispatch by itself removes it. Two locks: a dispatcher holds one as long as
it lives, so that there is one, and the other for each batch, so that a store can be opened while a dispatcher waits.
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
from reput.files.lock import RecordLock
from reput.formats.paths import CONFIG, LOCK
from reput.formats.sink_commit import SINK_LOCK
from reput.log.dispatch_marks import DISPATCHER_LOCK, DispatchMark, marks_path, write_marks
from reput.log.positions import LogPosition
from reput.log.sink_commits import was_opened_since

if TYPE_CHECKING:
    from reput.store.parts import WriterParts

_BATCH_LOCK = "reputDispatchBatch.lock"
#: Its name in 0.1, which is locked, too, for one release: a process of that version may dispatch.
_FORMER_BATCH_LOCK = "reputDispatch.lock"
#: A batch is a gigabyte of log at the most.
_BATCH_TIMEOUT_S = 60.0
_RETRY_S = 0.01


def dispatcher_lock_path(root: str) -> str:
    """The lock that a dispatcher of a store's own queues holds as long as it lives."""
    return os.path.join(root, CONFIG, DISPATCHER_LOCK)


def _batch_lock_path(root: str) -> str:
    return os.path.join(root, CONFIG, _BATCH_LOCK)


def lock_dispatcher(root: str, files: FileLayer) -> RecordLock:
    """Be the dispatcher of a store's own queues.

    Raises:
        StoreLockedError: Another one is, and which process that is.
        StoreStateError: The store dispatches by itself.
    """
    if not files.exists(_batch_lock_path(root)):  # it never was otherwise, and no lock file is left there
        check_external_dispatch(root, files)
    lock = _lock(dispatcher_lock_path(root), f"dispatches the log of {root} already; stop it first", files)
    try:
        with batch_lock(root, files):  # a store that is being opened has no marks for a while
            check_external_dispatch(root, files)
    except BaseException:
        lock.release()
        raise
    return lock


def check_external_dispatch(root: str, files: FileLayer) -> None:
    """Raises StoreStateError where a store dispatches by itself, or RocketMQ does, which writes `lock` as it starts.

    The text tells, not its time: a start between a look and the next mark would be the older one for ever.
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
    """Hold the lock of a batch, in which queues and index are written; waits for another process's batch.

    Raises:
        StoreLockedError: Another process has held it for 60 s, and which one that is.
    """
    deadline = time.monotonic() + _BATCH_TIMEOUT_S
    what = f"writes the queues of {root} since {_BATCH_TIMEOUT_S:.0f} s; look what it does"
    with ExitStack() as held:
        for path in (_batch_lock_path(root), os.path.join(root, CONFIG, _FORMER_BATCH_LOCK)):
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
    """The time in which a store that is opened brings queues and index in step with its log by itself.

    Raises:
        StoreLockedError: It is to dispatch by itself from now on, and another process does.
    """
    path = marks_path(root)
    with ExitStack() as held:
        if not external and files.exists(path):
            what = f'dispatches the log of {root}; stop it, or open the store with dispatch="external"'
            held.callback(_lock(dispatcher_lock_path(root), what, files).release)
        if external or files.exists(path):
            files.make_directories(os.path.dirname(path))
            held.enter_context(batch_lock(root, files))
        yield


def take_back(root: str, files: FileLayer) -> None:
    """Before a start changes queues or index: what the marks say of them need not be so any more."""
    if files.exists(marks_path(root)):
        files.unlink(marks_path(root))


def hand_over(root: str, files: FileLayer, parts: WriterParts, config: MessageStoreConfig) -> None:
    """Say that queues and index have all of the log, and that another process goes on from there."""
    parts.queues.flush()
    if parts.index is not None:
        parts.index.flush()
    parts.lock.write(SINK_LOCK)  # before the marks; no intent stands, for the start has settled it
    mark = DispatchMark(LogPosition(parts.log.max_offset), parts.index.mark if parts.index is not None else None)
    write_marks(root, [mark], config, files)


def _lock(path: str, what: str, files: FileLayer) -> RecordLock:
    try:
        return files.lock(path)
    except StoreLockedError as error:
        holder = str(error).removeprefix(f"{path}: ").partition(" has the store open")[0]
        raise StoreLockedError(f"{path}: {holder} {what}") from None
