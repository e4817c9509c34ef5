"""Where backups lie: a folder, or a place in an object storage. What is in there is docs/formats/backup.md's to say.

An object is written once, whole or not at all, and on the disk when `write` or `copy` returns. None is ever changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from reput.errors import ConfigError, StoreError, StoreFormatError, StoreLockedError
from reput.files import FileLayer
from reput.formats.backup import BACKUPS, CONFIG, LOG, TARGET_FILE, TARGET_TEXT

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_READ_BYTES = 1 << 20
_LOCK = "lock"
_TEMPORARY = ".tmp"


class BackupTarget(Protocol):
    """What a backup asks of the place it goes to; it can be pickled. Every method raises StoreError."""

    #: As the user names it.
    path: str

    def sizes(self, folder: str) -> dict[str, int]:
        """The objects of a folder, each with its size in bytes; nothing where there is no such folder."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """An object's bytes, piece by piece."""
        ...

    def write(self, name: str, data: ReadableBuffer) -> None:
        """Make an object."""
        ...

    def copy(self, name: str, source: str, position: int, size: int, *, is_final: bool, link: bool) -> None:
        """Make an object of a part of a file.

        `is_final`: nobody writes to that file again, so its blocks may be shared; `link`: so may the whole file.
        """
        ...


class FolderTarget:
    """A folder of this machine.

    Args:
        path: The folder.
        files: The file layer.
    """

    def __init__(self, path: str, files: FileLayer) -> None:
        self.path = os.path.abspath(path)
        self._files = files

    def sizes(self, folder: str) -> dict[str, int]:
        """As `BackupTarget.sizes`."""
        path = os.path.join(self.path, folder)
        if not self._files.is_directory(path):
            return {}
        return {
            entry.name: entry.size
            for entry in self._files.list_directory(path)
            if not entry.is_directory and not entry.name.endswith(_TEMPORARY)
        }

    def read(self, name: str) -> Iterator[bytes]:
        """As `BackupTarget.read`."""
        with self._files.open(os.path.join(self.path, name)) as file:
            position = 0
            while data := file.read(position, _READ_BYTES):
                yield data
                position += len(data)

    def write(self, name: str, data: ReadableBuffer) -> None:
        """As `BackupTarget.write`."""
        path = os.path.join(self.path, name)
        self._files.make_directories(os.path.dirname(path))
        self._files.write_atomically(path, data)

    def copy(self, name: str, source: str, position: int, size: int, *, is_final: bool, link: bool) -> None:
        """As `BackupTarget.copy`."""
        path = os.path.join(self.path, name)
        if link:
            if self._files.exists(path):  # and is of another size than it must be
                self._files.unlink(path)
            try:
                self._files.link(source, path)
            except StoreError as error:
                raise type(error)(f"{error}; without --link (link=False) it is copied") from error
            return
        temporary = path + _TEMPORARY
        try:
            with self._files.open(source) as file, self._files.open(temporary, writable=True, create=True) as copy:
                if is_final:
                    copy.copy_from(file, position, size, 0)
                else:  # blocks that are shared with a file that is written through a map could ask for space there
                    for done in range(0, size, _READ_BYTES):
                        copy.write(done, file.read(position + done, min(_READ_BYTES, size - done)))
                copy.sync()
            self._files.rename(temporary, path)
        except StoreError:
            if self._files.exists(temporary):
                self._files.unlink(temporary)
            raise

    def sweep(self) -> None:
        """Remove what a kill has left half written; nobody else may write here meanwhile."""
        for folder in (LOG, CONFIG, BACKUPS):
            path = os.path.join(self.path, folder)
            self._files.make_directories(path)
            for entry in self._files.list_directory(path):
                if entry.name.endswith(_TEMPORARY):
                    self._files.unlink(os.path.join(path, entry.name))


class ObjectTarget:
    """A place in an object storage, by an URL of fsspec's: `s3://bucket/folder`, `gs://...`, `memory://...`.

    An object is written by one call with all its bytes, which object storages do whole or not at all.

    Args:
        url: The place.
        files: The file layer, for what is copied from files.
    """

    def __init__(self, url: str, files: FileLayer) -> None:
        self.path = url.rstrip("/")
        self._files = files

    def sizes(self, folder: str) -> dict[str, int]:
        """As `BackupTarget.sizes`."""
        with self._errors(f"list {folder or 'it'}"):
            storage, root = self._storage()
            storage.invalidate_cache()
            path = f"{root}/{folder}".rstrip("/")
            try:
                entries = storage.ls(path, detail=True)
            except FileNotFoundError:
                return {}
            return {entry["name"].rpartition("/")[2]: entry["size"] for entry in entries if entry["type"] == "file"}

    def read(self, name: str) -> Iterator[bytes]:
        """As `BackupTarget.read`; an object at once."""
        with self._errors(f"read {name}"):
            storage, root = self._storage()
            data: bytes = storage.cat_file(f"{root}/{name}")
        yield data

    def write(self, name: str, data: ReadableBuffer) -> None:
        """As `BackupTarget.write`."""
        with self._errors(f"write {name}"):
            storage, root = self._storage()
            storage.pipe_file(f"{root}/{name}", bytes(data))

    def copy(self, name: str, source: str, position: int, size: int, *, is_final: bool, link: bool) -> None:
        """As `BackupTarget.copy`; nothing is shared."""
        with self._files.open(source) as file:
            self.write(name, file.read(position, size))

    def _storage(self) -> tuple[Any, str]:
        """The file system of fsspec, and the place in it."""
        from fsspec.core import url_to_fs

        storage, root = url_to_fs(self.path)
        return storage, root.rstrip("/")

    @contextmanager
    def _errors(self, deed: str) -> Iterator[None]:
        """What any storage's library raises, as one of ours."""
        try:
            yield
        except Exception as error:
            raise StoreError(f"{self.path}: cannot {deed}: {type(error).__name__}: {error}") from error


def find_target(path: str, files: FileLayer) -> FolderTarget | ObjectTarget:
    """The target of this name, to be read.

    Raises:
        StoreFormatError: It is no target of backups.
        ConfigError: An URL, and fsspec is not installed.
    """
    target = _named(path, files)
    if TARGET_FILE not in target.sizes(""):
        raise StoreFormatError(f"{path}: no target of backups: it has no {TARGET_FILE}; check the path for a slip")
    _check_format(target)
    return target


@contextmanager
def held_target(path: str, files: FileLayer) -> Iterator[FolderTarget | ObjectTarget]:
    """The target of this name, made where it is none yet; while it is held, no other backup goes to the same folder.

    In an object storage two may go to one place at once: they do each other no harm.

    Raises:
        StoreFormatError: Something else lies there.
        StoreLockedError: Another backup goes there now.
        ConfigError: As `find_target`.
    """
    target = _named(path, files)
    if TARGET_FILE in target.sizes(""):
        _check_format(target)
    else:
        _check_free(target, files)
        target.write(TARGET_FILE, TARGET_TEXT)
    if isinstance(target, ObjectTarget):
        yield target
        return
    try:
        lock = files.lock(os.path.join(target.path, _LOCK))
    except StoreLockedError:
        raise StoreLockedError(f"{path}: another backup goes there now; wait until it ends") from None
    try:
        target.sweep()
        yield target
    finally:
        lock.release()


def folder_of(path: str) -> str | None:
    """The folder of this machine that a target of this name is; None for a place in an object storage."""
    scheme, separator, rest = path.partition("://")
    if separator and scheme not in ("file", "local"):
        return None
    return rest if separator else path


def _named(path: str, files: FileLayer) -> FolderTarget | ObjectTarget:
    folder = folder_of(path)
    if folder is not None:
        return FolderTarget(folder, files)
    try:
        import fsspec  # noqa: F401
    except ImportError:
        raise ConfigError(f"{path}: object storage needs fsspec: pip install 'reput[backup]'") from None
    return ObjectTarget(path, files)


def _check_free(target: FolderTarget | ObjectTarget, files: FileLayer) -> None:
    """Raises StoreFormatError where the place of a new target is taken."""
    names = list(target.sizes(""))
    if isinstance(target, FolderTarget) and files.exists(target.path):
        if not files.is_directory(target.path):
            raise StoreFormatError(f"{target.path}: a file, and backups need a folder; give another name")
        names = [entry.name for entry in files.list_directory(target.path)]
    foreign = [name for name in names if name != TARGET_FILE + _TEMPORARY]
    if foreign:
        raise StoreFormatError(
            f"{target.path}: not empty (there is {foreign[0]}), and no target of backups; give an empty folder or a "
            "new name"
        )


def _check_format(target: BackupTarget) -> None:
    text = b"".join(target.read(TARGET_FILE))
    if text != TARGET_TEXT:
        raise StoreFormatError(
            f"{target.path}/{TARGET_FILE}: expected {TARGET_TEXT!r}, found {text[:80]!r}: it is damaged, or a later "
            "reput wrote these backups; put that text there, or use that one"
        )
