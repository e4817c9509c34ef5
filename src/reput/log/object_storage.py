"""Stores on object storage, by the URLs of fsspec (`s3://bucket/store`), read only: files are read in ranges."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reput.config.arguments import check_path, refusal
from reput.errors import ConfigError, StoreError
from reput.extras import require
from reput.files import DISK, Entry, File, FileLayer, is_hidden

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import ReadableBuffer, WriteableBuffer
    from numpy.typing import NDArray

#: Bytes that one request reads beyond what was asked for: the next few records, and the begin of the next window.
_READ_AHEAD_BYTES = 64 << 10
_BLOCK_BYTES = 4 << 20
_LOCK_TEXT_BYTES = 64
#: A URL that has lost a slash, as `pathlib.Path` and `os.path.normpath` write it.
_LOST_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
#: "host:port", or several of them, as a client takes name servers.
_ADDRESS = re.compile(r"[\w.-]+:\d+(;[\w.-]+:\d+)*")


def is_url(path: str | os.PathLike[str], name: str = "path") -> bool:
    """Whether a path is a URL of a storage.

    Raises ConfigError for what is no path, by the argument's name, and for a URL without its second slash, or without
    a bucket: a folder `s3:` of the current one would be taken else.
    """
    check_path(name, path)
    text = os.fspath(path)
    if _LOST_SLASH.match(text) and not DISK.exists(os.path.abspath(text)):
        raise ConfigError(
            f"{text}: a URL has two slashes, {text.replace(':/', '://', 1)}; a folder of this name is ./{text}"
        )
    if text.endswith("://"):
        raise ConfigError(f"{text}: a URL names a bucket and a folder, as {text}bucket/folder")
    return "://" in text


def absolute(path: str | os.PathLike[str], name: str = "path") -> str:
    """Absolute path, or the URL as it is; `~` is the home folder, as in a shell. Raises ConfigError as `is_url`."""
    return os.fspath(path).rstrip("/") if is_url(path, name) else os.path.abspath(os.path.expanduser(path))


def check_on_disk(path: str | os.PathLike[str], name: str = "path") -> None:
    """Raises ConfigError for a URL, if a store is written, or read in another way than by ranges; and for an address.

    A path is an address if it reads as one and there is no such folder: a store of this name would be made else. And as
    `is_url`.
    """
    if is_url(path, name):
        raise ConfigError(
            f"{os.fspath(path)}: a store on object storage is only read, by read_log and log_dataset; copy it to a "
            "disk, or mount the storage"
        )
    if _ADDRESS.fullmatch(os.fspath(path)) and not DISK.exists(os.path.abspath(path)):
        raise ConfigError(
            f"{os.fspath(path)}: the address of a server, where the directory of a store is expected; servers are "
            f"asked by reput.client and `reput consume`; a directory of this name is ./{os.fspath(path)}"
        )


def check_is_no_url(path: str | os.PathLike[str], name: str = "path") -> None:
    """Raises ConfigError for a URL, if files of a disk are meant: it would be a folder `s3:` of the current one.

    And as `is_url`.
    """
    if is_url(path, name):
        raise ConfigError(
            f"{os.fspath(path)}: a URL, where a file or folder of a disk is expected: of URLs stores are read, and "
            "backups taken; give a path, or mount the storage"
        )


def check_file_layer(name: str, value: object) -> None:
    """Raises ConfigError for what is no file layer."""
    if not isinstance(value, FileLayer):
        raise refusal(name, value, "a file layer")


def files_of(path: str | os.PathLike[str], files: FileLayer = DISK) -> FileLayer:
    """File layer that reads a store: for a URL a layer of its own, else `files`.

    Raises ConfigError for a URL if fsspec is not installed.
    """
    if not is_url(path) or isinstance(files, ObjectStorage):
        return files
    require("fsspec", f"{os.fspath(path)}: object storage")
    return ObjectStorage()


class ObjectStorage(FileLayer):
    """Objects, if a path is a URL, which are only read; else the disk. Picklable.

    Raises StoreError for every error of a storage's library.
    """

    def open(
        self, path: str, *, writable: bool = False, create: bool = False, size: int | None = None, mode: int = 0o644
    ) -> File:
        """As `FileLayer.open`; an object is not opened for writing."""
        if not is_url(path):
            return super().open(path, writable=writable, create=create, size=size, mode=mode)
        if writable:
            raise StoreError(f"{path}: cannot be written: a store on object storage is only read; copy it to a disk")
        with _errors(path, "open"):
            storage, name = _storage(path)
            opened = storage.open(name, "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead")
            return _ObjectFile(path, opened, opened.size)

    def list_directory(self, path: str) -> list[Entry]:
        """As `FileLayer.list_directory`; an object takes as many bytes as it has."""
        if not is_url(path):
            return super().list_directory(path)
        with _errors(path, "list"):
            storage, name = _storage(path)
            storage.invalidate_cache()
            found = [(entry["name"].rstrip("/"), entry) for entry in storage.ls(name, detail=True)]
        return sorted(
            Entry(key.rpartition("/")[2], entry["size"] or 0, entry["type"] == "directory", entry["size"] or 0)
            for key, entry in found
            if key.strip("/") != name.strip("/")  # an object that stands for the folder
            and not (entry["type"] != "directory" and is_hidden(key.rpartition("/")[2]))
        )

    def list_names(self, path: str) -> list[str]:
        """As `FileLayer.list_names`."""
        return [entry.name for entry in self.list_directory(path)] if is_url(path) else super().list_names(path)

    def exists(self, path: str) -> bool:
        """As `FileLayer.exists`."""
        if not is_url(path):
            return super().exists(path)
        with _errors(path, "look up"):
            storage, name = _storage(path)
            return bool(storage.exists(name))

    def is_directory(self, path: str) -> bool:
        """As `FileLayer.is_directory`."""
        if not is_url(path):
            return super().is_directory(path)
        with _errors(path, "look up"):
            storage, name = _storage(path)
            return bool(storage.isdir(name))

    def lock_text(self, path: str) -> bytes:
        """As `FileLayer.lock_text`."""
        if not is_url(path):
            return super().lock_text(path)
        if not self.exists(path):
            return b""
        with self.open(path) as file:
            return file.read(0, _LOCK_TEXT_BYTES)


class _ObjectFile(File):
    """One object; each read is a request for a range. Threads may share it."""

    __slots__ = ("_lock", "_object", "_size")

    def __init__(self, path: str, opened: Any, size: int) -> None:
        super().__init__(path, -1)
        self._object, self._size = opened, size
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the object. Closing again does nothing."""
        self._object.close()

    @property
    def size(self) -> int:
        """Size of the object in bytes."""
        return self._size

    def read(self, position: int, size: int) -> bytes:
        """As `File.read`."""
        with self._lock, _errors(self.path, f"read at {position}"):
            self._object.seek(position)
            data: bytes = self._object.read(max(min(size, self._size - position), 0))
        return data

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        """As `File.read_into`."""
        view = memoryview(buffer).cast("B")
        data: ReadableBuffer = self.read(position, view.nbytes)
        count = memoryview(data).nbytes
        view[:count] = data
        return count

    def read_runs(self, positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
        """As `File.read_runs`, a request for each."""
        import numpy as np  # here: a client that decompresses a body imports this module

        data = np.zeros(int(sizes.sum()), np.uint8)
        start = 0
        for position, size in zip(positions.tolist(), sizes.tolist(), strict=True):
            self.read_into(position, data[start : start + size].data)
            start += size
        return data

    def _data_from(self, position: int, *, with_zeros: bool = False) -> Iterator[tuple[int, bytes]]:
        """As of `File`: but a storage has no holes, so zeros are read, too."""
        for start in range(position, self._size, _BLOCK_BYTES):
            block = self.read(start, _BLOCK_BYTES)
            if with_zeros or block.count(0) != len(block):
                yield start, block


def _storage(path: str) -> tuple[Any, str]:
    """File system of fsspec, and the name in it."""
    from fsspec.core import url_to_fs

    storage, name = url_to_fs(path)
    return storage, name


@contextmanager
def _errors(path: str, deed: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreError(f"{path}: cannot {deed}: {type(error).__name__}: {error}") from error
