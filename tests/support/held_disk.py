"""A disk that does not finish a sync of the log before it may, or fails it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.faulty_files import Operation


class HeldDisk:
    """Judge of a `FaultyFiles`, over the syncs of the commit log."""

    def __init__(self) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._came = threading.Event()
        self._fails = False

    def judge(self, operation: Operation) -> None:
        if operation.kind != "sync" or "/commitlog/" not in operation.path:
            return
        self._came.set()
        assert self._may_go_on.wait(60), f"nobody let the sync of {operation.path} go on"
        if self._fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until the end of the block no sync goes on."""
        self._came.clear()
        self._may_go_on.clear()
        try:
            yield
        finally:
            self._may_go_on.set()

    def wait(self) -> None:
        """Return when a sync is held."""
        assert self._came.wait(60)

    def fail(self) -> None:
        """From now on each sync fails."""
        self._fails = True
