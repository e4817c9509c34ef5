"""RecordLock: the lock that keeps a second writer out of a store, RocketMQ's own included.

`DefaultMessageStore.start` takes `FileChannel.tryLock(0, 1, false)` on the file `lock`, on Linux a POSIX record lock of
the byte range [0, 1), and then writes the text `lock` and forces it. Here that is done in an empty file only: another
text says that RocketMQ has not opened the store since it was written (`reput.log.sink_commits`). A process loses such a
lock as soon as it closes *any* descriptor of the file. So all that opens the file is in here, and a second lock in the
same process is refused before its file is opened. A child that was forked has no lock of its parent's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading

from reput.errors import StoreLockedError
from reput.files.failure import failure, write_failure

_CONTENT = b"lock"
#: struct flock of 64-bit Linux: type, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi4x")

#: By the files' identities, the descriptors of the locks that this process holds.
_held: dict[tuple[int, int], int] = {}
_held_guard = threading.Lock()


class RecordLock:
    """A held lock, from its creation to `release`.

    Raises StoreLockedError when another process, or this one, holds it; StoreError when the file cannot be made.
    """

    __slots__ = ("_descriptor", "_identity", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        with _held_guard:
            if os.path.exists(path) and _identity(os.stat(path)) in _held:
                raise StoreLockedError(f"{path}: this process has the store open already; use that one or close it")
            try:
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise write_failure(error, path, "create the lock file", len(_CONTENT)) from error
            try:
                self._lock()
                self._identity = _identity(os.fstat(self._descriptor))
            except BaseException:
                os.close(self._descriptor)
                raise
            _held[self._identity] = self._descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, as RocketMQ leaves it. Releasing again does nothing."""
        with _held_guard:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                _held.pop(self._identity, None)
                os.close(descriptor)

    def write(self, text: bytes) -> None:
        """Replace the file's text by another one of its length, durably; nothing is written where it is there already.

        Raises StoreError where it cannot be written.
        """
        try:
            if os.pread(self._descriptor, len(text), 0) != text:
                os.pwrite(self._descriptor, text, 0)
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise write_failure(error, self.path, "write the lock file", len(text)) from error

    def _lock(self) -> None:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(
                    f"{self.path}: {_holder(self._descriptor)} has the store open; stop it, or wait until it closes "
                    "it: one at a time writes, while any number may read"
                ) from error
            raise failure(error, self.path, "lock") from error
        if not os.fstat(self._descriptor).st_size:
            self.write(_CONTENT)


def lock_text(path: str) -> bytes:
    """What is in a lock file, whoever holds the lock; empty where there is no file. Raises StoreError."""
    with _held_guard:
        try:
            descriptor = (
                os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                if (held := _held_descriptor(path)) is None
                else held
            )
            try:
                return os.pread(descriptor, 64, 0)
            finally:
                if held is None:
                    os.close(descriptor)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise failure(error, path, "read") from error


def _held_descriptor(path: str) -> int | None:
    return _held.get(_identity(os.stat(path)))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _forget_parents_locks() -> None:
    """In a child that was forked, perhaps while another thread had the guard."""
    global _held_guard
    _held_guard = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as the kernel tells (not across hosts and containers)."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return f"process {process}" if kind != fcntl.F_UNLCK and process > 0 else "another process"
