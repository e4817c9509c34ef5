"""A disk that counts the bytes that are read of each file."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reput.files import File, FileLayer

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class CountedReads(FileLayer):
    """The real disk; `bytes_of` are the bytes read so far, by the path of the file."""

    def __init__(self) -> None:
        self.bytes_of: Counter[str] = Counter()

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        file = super().open(path, **options)
        return _CountedFile(path, file.fileno(), self.bytes_of)

    def log_bytes(self) -> int:
        """Bytes of the log that were read since the last call."""
        count = sum(
            size for path, size in self.bytes_of.items() if os.path.basename(os.path.dirname(path)) == "commitlog"
        )
        self.bytes_of.clear()
        return count


class _CountedFile(File):
    __slots__ = ("_bytes_of",)

    def __init__(self, path: str, descriptor: int, bytes_of: Counter[str]) -> None:
        super().__init__(path, descriptor)
        self._bytes_of = bytes_of

    def read(self, position: int, size: int) -> bytes:
        data = super().read(position, size)
        self._bytes_of[self.path] += len(data)
        return data

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        count = super().read_into(position, buffer)
        self._bytes_of[self.path] += count
        return count

    def read_runs(self, positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
        data = super().read_runs(positions, sizes)
        self._bytes_of[self.path] += data.size
        return data
