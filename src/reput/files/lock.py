"""RecordLock: the store lock, which keeps a second writer, RocketMQ's included, out of a store.

`DefaultMessageStore.start` takes `FileChannel.tryLock(0, 1, false)` on the file `lock`, on Linux a POSIX record lock of
the byte range [0, 1), and then writes the text `lock` and syncs it. reput writes this text only into an empty file:
another text shows that RocketMQ has not opened the store since that text was written (`reput.log.sink_commits`).

A process loses a POSIX record lock as soon as it closes *any* descriptor of the file, as whoever copies the store does.
So reput's lock of this range is one of the open file description, which conflicts with POSIX locks and stays until its
descriptor is closed. Such a lock does not tell its process: a POSIX lock of the byte after it does, and guards nothing.
A forked child would share the lock, and closes its descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from contextlib import suppress

from reput.errors import StoreFullError, StoreLockedError
from reput.files.os_errors import failure, write_failure

_CONTENT = b"lock"
#: struct flock of 64-bit Linux: type, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi4x")
#: Bytes of the file: RocketMQ's lock, and the one that tells the process.
_LOCK, _TELLER = 0, 1

#: The locks that this process holds, by the identities of their files.
_held: dict[tuple[int, int], RecordLock] = {}
_held_guard = threading.Lock()


class RecordLock:
    """Store lock, held from its creation to `release`.

    Raises StoreLockedError if another process, or this one, holds it; StoreError if the file cannot be made.
    """

    __slots__ = ("_descriptor", "_identity", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        with _held_guard:
            if os.path.exists(path) and _identity(os.stat(path)) in _held:
                raise StoreLockedError(f"{path}: this process has the store open already; use that store or close it")
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
            _held[self._identity] = self

    def release(self) -> None:
        """Release the lock; the file stays, as in RocketMQ. Releasing again does nothing."""
        with _held_guard:
            if _held.get(self._identity) is self:  # not so in a forked child
                del _held[self._identity]
                os.close(self._descriptor)
                self._descriptor = -1

    def is_in_place(self) -> bool:
        """Whether the file at `path` is still the locked one, or none is: another file there may be locked, too."""
        try:
            return _identity(os.stat(self.path)) == self._identity
        except FileNotFoundError:
            return True
        except OSError as error:
            raise failure(error, self.path, "look up") from error

    def write(self, text: bytes) -> None:
        """Replace the file's text by `text` of the same length, durably; nothing is written if it is there already.

        Raises StoreError if it cannot be written.
        """
        try:
            if os.pread(self._descriptor, len(text), 0) != text:
                os.pwrite(self._descriptor, text, 0)
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise write_failure(error, self.path, "write the lock file", len(text)) from error

    def _lock(self) -> None:
        try:
            _set(self._descriptor, fcntl.F_OFD_SETLK, _LOCK)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(
                    f"{self.path}: {_holder(self._descriptor)} has the store open; stop it, or wait until it closes "
                    "it: only one process may write, while any number may read"
                ) from error
            raise failure(error, self.path, "lock") from error
        with suppress(OSError):  # it is for a message alone
            _set(self._descriptor, fcntl.F_SETLK, _TELLER)
        if not os.fstat(self._descriptor).st_size:
            with suppress(StoreFullError):  # an empty file is locked as well, and whoever frees the disk needs the lock
                self.write(_CONTENT)


def lock_text(path: str) -> bytes:
    """Text of a lock file, whether or not the lock is held; empty without the file. Raises StoreError."""
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
    held = _held.get(_identity(os.stat(path)))
    return None if held is None else held._descriptor


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _forget_parents_locks() -> None:
    """Reset the locks in a forked child; at the fork another thread may have held the guard."""
    global _held_guard
    _held_guard = threading.Lock()
    for lock in _held.values():
        os.close(lock._descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)


def _set(descriptor: int, command: int, byte: int) -> None:
    fcntl.fcntl(descriptor, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))


def _holder(descriptor: int) -> str:
    """Process that holds the lock, if the system knows it (not across hosts and containers)."""
    for byte in (_LOCK, _TELLER):
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK and process > 0:
            return f"process {process}"
    return "another process"
