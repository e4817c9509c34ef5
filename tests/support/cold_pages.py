"""A disk whose pages are in memory or not as a test says, and which does not finish a read before it may."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reput.files import FileLayer, Mapping
from reput.files.os_errors import failure


class ColdPages(FileLayer):
    """A layer whose pages are all in memory, until a test says otherwise.

    Attributes:
        reads: The file of each read from the disk.
        fails: Whether reads fail.
    """

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.fails = False
        self._are_cold = False
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._came = threading.Semaphore(0)

    def are_in_memory(self, runs: int, count: int) -> bool:
        return not self._are_cold and super().are_in_memory(runs, count)

    def read_in(self, path: str, mapping: Mapping, runs: int, count: int) -> None:
        self.reads.append(path)
        self._came.release()
        assert self._may_go_on.wait(60)
        if self.fails:
            raise failure(OSError(errno.EIO, os.strerror(errno.EIO)), path, "read at 0")
        super().read_in(path, mapping, runs, count)

    @contextmanager
    def cold(self) -> Iterator[None]:
        """Until the end of the block nothing is in memory."""
        self._are_cold = True
        try:
            yield
        finally:
            self._are_cold = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until the end of the block no read from the disk goes on."""
        self._may_go_on.clear()
        try:
            yield
        finally:
            self._may_go_on.set()

    def wait(self) -> None:
        """Return when one more read has come."""
        assert self._came.acquire(timeout=60)
