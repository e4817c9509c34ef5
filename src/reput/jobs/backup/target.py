"""Targets of backups: a folder, or a folder of an object storage. docs/formats/backup.md describes their objects.

An object is written once, atomically, and is on the disk when `write` or `copy` returns. No object is ever changed.
"""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from reput.errors import ConfigError, ReputError, StoreError, StoreFormatError, StoreLockedError
from reput.extras import require
from reput.files import FileLayer
from reput.formats.archive import ARCHIVE_FILE, decode_identity
from reput.formats.backup import BACKUPS, CONFIG, LOG, TARGET_FILE, TARGET_TEXT, ConfigFile
from reput.log.object_storage import is_url

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_READ_BYTES = 1 << 20
_LOCK = "lock"
#: Folder of an object storage with a mark for each backup and prune that runs.
_RUNNING = "running"
_TEMPORARY = ".tmp"


class BackupTarget(Protocol):
    """Storage of a backup's objects. Picklable. Every method raises StoreError."""

    #: Path or URL, as the user gives it.
    path: str

    def sizes(self, folder: str) -> dict[str, int]:
        """Names of the objects of a folder, with their sizes in bytes; empty if the folder is missing."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """Read an object block by block."""
        ...

    def write(self, name: str, data: ReadableBuffer) -> None:
        """Write an object."""
        ...

    def copy(self, name: str, source: str, position: int, size: int, *, is_final: bool, link: bool) -> None:
        """Write an object from a range of a file.

        `is_final`: no process writes to the file again, so its blocks may be shared. `link`: the object may be a hard
        link to the whole file.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove an object; it is gone from the disk at the return. One that is missing is no error."""
        ...


def keep_config(target: BackupTarget, config: Mapping[str, bytes]) -> list[ConfigFile]:
    """Write the JSON files, by name, that the target does not have; returns all."""
    sizes, kept = target.sizes(CONFIG), []
    for file_name, data in config.items():
        file = ConfigFile(file_name, len(data), hashlib.sha256(data).hexdigest())
        if sizes.get(file.sha256) != file.size:
            target.write(file.name, data)
        kept.append(file)
    return kept


class FolderTarget:
    """Folder of this machine.

    Args:
        path: the folder.
        files: the file layer.
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
            if self._files.exists(path):  # an object of a wrong size
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
                else:  # sharing blocks with a file that is written through a map could make that write need disk space
                    for done in range(0, size, _READ_BYTES):
                        copy.write(done, file.read(position + done, min(_READ_BYTES, size - done)))
                copy.sync()
            self._files.rename(temporary, path)
        except StoreError:
            if self._files.exists(temporary):
                self._files.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        """As `BackupTarget.remove`."""
        path = os.path.join(self.path, name)
        if self._files.exists(path):
            self._files.unlink(path)

    def sweep(self) -> None:
        """Remove temporary files of a killed backup. No other process may write here meanwhile."""
        for folder in (LOG, CONFIG, BACKUPS):
            path = os.path.join(self.path, folder)
            self._files.make_directories(path)
            for entry in self._files.list_directory(path):
                if entry.name.endswith(_TEMPORARY):
                    self._files.unlink(os.path.join(path, entry.name))

    def clear(self, *, is_own: bool) -> None:
        """Remove what makes an empty folder a target, and with `is_own` the folder; called under the lock.

        The file that tells a target goes last: after a kill in between the next backup finds a target, or nothing.
        """
        for folder in (LOG, CONFIG, BACKUPS):
            if self._files.exists(os.path.join(self.path, folder)):
                self._files.remove_tree(os.path.join(self.path, folder))
        for name in (_LOCK, TARGET_FILE):
            self.remove(name)
        if is_own and self._files.is_empty(self.path):
            self._files.remove_tree(self.path)


class ObjectTarget:
    """Folder of an object storage, by a URL of fsspec: `s3://bucket/folder`, `gs://...`, `memory://...`.

    An object is written by one call with all its bytes, which object storages do atomically.

    Args:
        url: the URL.
        files: the file layer, for copies of files.
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
        """As `BackupTarget.read`; one block for the whole object."""
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
        """As `BackupTarget.copy`; blocks are never shared."""
        with self._files.open(source) as file:
            self.write(name, file.read(position, size))

    def remove(self, name: str) -> None:
        """As `BackupTarget.remove`."""
        with self._errors(f"remove {name}"):
            storage, root = self._storage()
            try:
                storage.rm(f"{root}/{name}")
            except FileNotFoundError:  # another prune was faster
                return

    def _storage(self) -> tuple[Any, str]:
        """File system of fsspec, and the path in it."""
        from fsspec.core import url_to_fs

        storage, root = url_to_fs(self.path)
        return storage, root.rstrip("/")

    @contextmanager
    def _errors(self, deed: str) -> Iterator[None]:
        """Raise any error of a storage's library as StoreError."""
        try:
            yield
        except Exception as error:
            raise StoreError(f"{self.path}: cannot {deed}: {type(error).__name__}: {error}") from error


def find_target(path: str, files: FileLayer) -> FolderTarget | ObjectTarget:
    """Open an existing target to read it, or an archive, which has manifests of backups, too.

    Raises:
        StoreFormatError: `path` is no target of backups, and no archive.
        CorruptBackupError: it is an archive whose first file is damaged.
        ConfigError: `path` is a URL, and fsspec is not installed; or the URL of an archive.
    """
    target = _named(path, files)
    if is_archive(target):
        if not isinstance(target, FolderTarget):
            raise ConfigError(
                f"{path}: an archive in an object storage, and archives are folders so far; copy it to one"
            )
        decode_identity(b"".join(target.read(ARCHIVE_FILE)), f"{target.path}/{ARCHIVE_FILE}")
        return target
    if TARGET_FILE not in target.sizes(""):
        raise StoreFormatError(
            f"{path}: no target of backups, and no archive: it has no {TARGET_FILE}, and no {ARCHIVE_FILE}; check the "
            "path"
        )
    _check_format(target)
    return target


def is_archive(target: BackupTarget) -> bool:
    """Whether a target is an archive of log files: then its manifests name them, and not objects of backups."""
    return ARCHIVE_FILE in target.sizes("")


@contextmanager
def held_target(path: str, files: FileLayer, *, prunes: bool = False) -> Iterator[FolderTarget | ObjectTarget]:
    """Open a target to write a backup, or to prune it, and make it if it is new.

    A folder is locked against every other backup and prune. An object storage has no locks: there, marks keep a prune
    and backups apart, and two backups at the same time do each other no harm. After an error a new folder that has no
    object yet is removed, so a store that is refused leaves nothing; in an object storage another backup may need it.

    Raises:
        StoreFormatError: `path` has other files.
        StoreLockedError: another backup or a prune of this target runs.
        ConfigError: as `find_target`.
    """
    target = _named(path, files)
    is_new, is_own = TARGET_FILE not in target.sizes(""), not files.exists(target.path)
    if is_new:
        _check_free(target, files)
        target.write(TARGET_FILE, TARGET_TEXT)
    else:
        _check_format(target)
    with _marked(target, prunes=prunes) if isinstance(target, ObjectTarget) else _locked(target, path, files):
        try:
            yield target
        except ReputError:
            if is_new and isinstance(target, FolderTarget):
                with suppress(StoreError):  # the error before it tells more
                    if not any(target.sizes(folder) for folder in (LOG, CONFIG, BACKUPS)):
                        target.clear(is_own=is_own)
            raise


@contextmanager
def _locked(target: FolderTarget, path: str, files: FileLayer) -> Iterator[None]:
    """Hold the lock of a folder; what a killed backup was writing is removed."""
    try:
        lock = files.lock(os.path.join(target.path, _LOCK))
    except StoreLockedError:
        raise StoreLockedError(
            f"{path}: another backup is being taken to this folder, or a prune of it runs; wait until it ends"
        ) from None
    try:
        target.sweep()
        yield
    finally:
        lock.release()


@contextmanager
def _marked(target: ObjectTarget, *, prunes: bool) -> Iterator[None]:
    """Keep a prune and backups of an object storage apart: each writes its mark first, and then looks for the other's.

    So at least one of two that begin at the same time sees the other, and ends before it has changed anything.
    """
    name = f"{'prune' if prunes else 'backup'}-{uuid.uuid4().hex}"
    target.write(f"{_RUNNING}/{name}", f"{socket.gethostname()} {os.getpid()}\n".encode())
    try:
        other = "backup" if prunes else "prune"
        for found in target.sizes(_RUNNING):
            if found.startswith(other):
                raise StoreLockedError(
                    f"{target.path}: a {other} runs; wait until it ends. If it was killed, remove its mark "
                    f"{_RUNNING}/{found}, which has the host and the process"
                )
        yield
    finally:
        target.remove(f"{_RUNNING}/{name}")


def folder_of(path: str) -> str | None:
    """Path of the folder that a target is; None for a URL of an object storage. Raises ConfigError as `is_url`."""
    if not is_url(path, "target"):
        return os.path.expanduser(path)
    scheme, _, rest = path.partition("://")
    return rest if scheme in ("file", "local") else None


def _named(path: str, files: FileLayer) -> FolderTarget | ObjectTarget:
    folder = folder_of(path)
    if folder is not None:
        return FolderTarget(folder, files)
    require("fsspec", f"{path}: object storage")
    return ObjectTarget(path, files)


def _check_free(target: FolderTarget | ObjectTarget, files: FileLayer) -> None:
    """Raise StoreFormatError if the path of a new target has other files."""
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
