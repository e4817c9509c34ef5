"""NeverWaiting: where an event loop works, and may not wait for the disk."""

from __future__ import annotations

from threading import local
from types import TracebackType

from reput.errors import WouldWaitError


class _OfThread(local):
    may_wait = True


_of_thread = _OfThread()


class NeverWaiting:
    """Context in which this thread does not wait for the disk.

    What makes, names, removes, allocates or syncs files raises WouldWaitError before it changes anything. Bytes are
    written to the page cache, and read, as ever.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _of_thread.may_wait
        _of_thread.may_wait = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _of_thread.may_wait = self._before


def may_wait() -> bool:
    """Whether this thread may wait for the disk now."""
    return _of_thread.may_wait


def about_to_wait(path: str, work: str) -> None:
    """Called before what may wait for the disk: `path` is what it is about, `work` a verb for the error.

    Raises:
        WouldWaitError: In `NeverWaiting`.
    """
    if not _of_thread.may_wait:
        raise WouldWaitError(f"{path}: cannot {work} in a thread that may not wait for the disk; do it in another one")
