"""SpillFile: bytes that a task of a rebuild writes aside, for later tasks to read at their position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.files import DISK, File

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class SpillFile:
    """A file that is made by the first write. It is removed with the job, so it is not synced.

    Attributes:
        position: Where the next bytes go.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.position = 0
        self._file: File | None = None

    def write(self, data: ReadableBuffer) -> int:
        """Add bytes; returns their position."""
        if self._file is None:
            self._file = DISK.open(self.path, writable=True, create=True)
        begin = self.position
        self._file.write(begin, data)
        self.position += memoryview(data).nbytes
        return begin

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()
