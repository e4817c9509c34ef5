"""An object storage with the URLs `counted:///folder`, over folders of this machine; it counts its requests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from fsspec import register_implementation
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class _CountedObject(AbstractBufferedFile):  # type: ignore[misc]
    def _fetch_range(self, start: int, end: int) -> bytes:
        data = Path(self.path).read_bytes()[start:end]
        CountedStorage.ranges.append((os.path.basename(self.path), len(data)))
        return data


class CountedStorage(AbstractFileSystem):  # type: ignore[misc]
    """`ranges`: file name and size of each range that was read, in order."""

    protocol = "counted"
    root_marker = "/"
    ranges: ClassVar[list[tuple[str, int]]] = []

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        folder = Path(self._strip_protocol(path))
        if not folder.exists():
            raise FileNotFoundError(path)
        if folder.is_file():
            return [self._entry(folder)]
        return [self._entry(file) for file in folder.iterdir()]

    def _open(self, path: str, mode: str = "rb", block_size: int = 1, **options: Any) -> _CountedObject:
        return _CountedObject(self, path, mode, block_size, cache_type=options["cache_type"])

    def _entry(self, file: Path) -> dict[str, Any]:
        return {"name": str(file), "size": file.stat().st_size, "type": "directory" if file.is_dir() else "file"}


register_implementation("counted", CountedStorage)
