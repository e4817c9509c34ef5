"""A file layer that fails where a test wants it to, dies where a test wants it to, and knows what a power cut leaves.

It works on real files, but its syncs do not wait for the disk: they remember what a disk would have from then on. One
that fails loses what it was to write, as Linux does: readers go on seeing it, and no later sync writes it, in the next
process of the same machine neither, unless it is written again.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from reput import MessageStore
from reput.errors import StoreError
from reput.files import DISK, File, FileLayer, RecordLock, about_to_wait
from reput.files.os_errors import failure, sync_failure, write_failure
from reput.files.rename_noreplace import give_name


class Crash(SystemExit):
    """The process ends here. (A SystemExit, so that threads that die of it do so in silence.)"""


class Operation(NamedTuple):
    """Something that a layer was asked to do, before it does it: `kind` is the method's name."""

    number: int
    kind: str
    path: str


#: Decides about an operation; whatever it raises, the operation is not done.
Judge = Callable[[Operation], None]


def no_objection(operation: Operation) -> None:
    """The judge of a healthy disk."""


def crash_at(number: int) -> Judge:
    """Die instead of the operation of this number, and of every one behind it."""

    def judge(operation: Operation) -> None:
        if operation.number >= number:
            raise Crash

    return judge


def fail_at(number: int, code: int) -> Judge:
    """Let the operation of this number fail once."""

    def judge(operation: Operation) -> None:
        if operation.number == number:
            raise OSError(code, os.strerror(code))

    return judge


#: Operations that need space on the disk.
TAKES_SPACE = {"create", "write", "allocate", "write_runs", "make_directories", "rename"}


#: Operations on the page cache.
_NEVER_WAITS = {"write", "write_runs"}

_SECTOR = 512
#: Who waits for a thread looks so often whether it has died, and so many times: a minute.
_LOOK_S, _MOST_LOOKS = 0.02, 3000


class _Lost(NamedTuple):
    """Content of a file when a sync of it failed, and the sectors that were written since (of maps: changed)."""

    content: bytes
    written: set[int]


class FaultyFiles(FileLayer):
    """A layer with a judge over every operation that changes something."""

    def __init__(self, judge: Judge = no_objection) -> None:
        self.judge = judge
        #: Whether the process has ended; threads that do nothing to files do not know.
        self.has_crashed = False
        self.operations: list[Operation] = []
        self._guard = threading.Lock()
        self._files: list[File] = []
        self._locks: list[RecordLock] = []
        self._synced_files: dict[int, bytes] = {}
        self._synced_names: dict[str, dict[str, int]] = {}
        self._gone = itertools.count(1)
        self._lost: dict[int, _Lost] = {}

    # -- what is judged

    def step(self, kind: str, path: str, size: int = 0) -> None:
        if kind not in _NEVER_WAITS:
            about_to_wait(path, kind)
        with self._guard:
            operation = Operation(len(self.operations), kind, path)
            self.operations.append(operation)
        try:
            self.judge(operation)
        except Crash:
            self.has_crashed = True
            raise
        except OSError as error:
            if kind in TAKES_SPACE:
                raise write_failure(error, path, kind, size) from error
            if kind == "sync":
                raise sync_failure(error, path) from error
            raise failure(error, path, kind) from error

    def open(
        self, path: str, *, writable: bool = False, create: bool = False, size: int | None = None, mode: int = 0o644
    ) -> File:
        is_new = create and not os.path.exists(path)
        if is_new:
            self.step("create", path, size or 0)
        opened = super().open(path, writable=writable, create=create, size=size, mode=mode)
        file = _FaultyFile(path, opened.fileno(), self)
        if is_new:  # its inode may be that of a removed file, which was synced
            self._synced_files.pop(os.fstat(file.fileno()).st_ino, None)
            self._lost.pop(os.fstat(file.fileno()).st_ino, None)
        self._files.append(file)
        return file

    def add_directories(self, path: str) -> list[str]:
        if not os.path.isdir(path):
            self.step("make_directories", path)
        return super().add_directories(path)

    def sync_directory(self, path: str) -> None:
        self.step("sync_directory", path)
        self.names_are_durable(path)

    def rename(self, source: str, target: str) -> None:
        self.step("rename", target)
        if os.path.isdir(source):
            self._names_go_along(os.path.abspath(source), os.path.abspath(target))
        self._inode_is_given_up(target)
        super().rename(source, target)

    def _names_go_along(self, source: str, target: str) -> None:
        """Keep durable files below a folder durable under its new name; a power cut may leave its old one."""
        below = {path: names for path, names in self._synced_names.items() if f"{path}/".startswith(f"{source}/")}
        for path in [path for path in self._synced_names if f"{path}/".startswith(f"{target}/")]:
            del self._synced_names[path]
        self._synced_names |= {target + path[len(source) :]: dict(names) for path, names in below.items()}

    def rename_files(self, names: Sequence[tuple[str, str]]) -> None:
        for source, target in names:
            self.step("rename", target)
            if not os.path.exists(target):
                os.link(source, target)
            self.step("unlink", source)  # a process may die while the file has both names
            give_name(source, target)
        targets, sources = ({os.path.dirname(pair[side]) for pair in names} for side in (1, 0))
        for folder in (*sorted(targets), *sorted(sources - targets)):
            self.sync_directory(folder)

    def link(self, source: str, target: str) -> None:
        self.step("link", target)
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self.step("unlink", path)
        self._inode_is_given_up(path)
        super().unlink(path)

    def _inode_is_given_up(self, path: str) -> None:
        """A file goes, whose name and bytes the disk may have still, and a new one may get its inode: call it else."""
        if not os.path.isfile(path) or os.stat(path).st_nlink > 1:
            return
        inode, gone = os.stat(path).st_ino, -next(self._gone)
        if inode in self._synced_files:
            self._synced_files[gone] = self._synced_files.pop(inode)
        for names in list(self._synced_names.values()):
            for name in _names(names, inode):
                names[name] = gone

    def lock(self, path: str) -> RecordLock:
        self.step("lock", path)
        lock = _FaultyLock(path, self)
        self._locks.append(lock)
        return lock

    def write_runs(self, paths, addresses, sizes, positions):  # type: ignore[no-untyped-def]
        self.step("write_runs", paths[0] if paths else "", int(sizes.sum()))
        super().write_runs(paths, addresses, sizes, positions)
        for path, size, position in zip(paths, sizes.tolist(), positions.tolist(), strict=True):
            self.was_written(os.stat(path).st_ino, position, size)

    def sync_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            with self.open(path) as file:
                file.sync()

    def sync_directories(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.sync_directory(path)

    # -- the end of a process

    def abandon(self) -> None:
        """End a process as the kernel does: descriptors and locks are gone. Every later operation dies."""
        self.judge = crash_at(0)
        for lock in self._locks:
            lock.release()
        for file in self._files:
            file.close()

    # -- the end of a machine

    def bytes_are_durable(self, file: File) -> None:
        inode = os.fstat(file.fileno()).st_ino
        now = Path(file.path).read_bytes() if os.path.exists(file.path) else b""
        lost = self._lost.get(inode)
        self._synced_files[inode] = now if lost is None else _changed(self._synced_files.get(inode, b""), lost, now)

    def sync_has_failed(self, file: File) -> None:
        """Count as clean what could not be written: until it is written to again, no later sync writes it."""
        if os.path.exists(file.path):
            self._lost[os.fstat(file.fileno()).st_ino] = _Lost(Path(file.path).read_bytes(), set())

    def was_written(self, inode: int, position: int, size: int) -> None:
        """A write, of the same bytes too, makes the sectors that it touches ones that the next sync writes."""
        if inode in self._lost and size:
            self._lost[inode].written.update(range(position // _SECTOR, (position + size - 1) // _SECTOR + 1))

    def text_is_durable(self, lock: RecordLock, text: bytes) -> None:
        self._synced_files[os.stat(lock.path).st_ino] = text

    def names_are_durable(self, path: str) -> None:
        entries = list(os.scandir(path or "."))
        self._synced_names[os.path.abspath(path)] = {entry.name: entry.inode() for entry in entries}
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):  # so it is one after a power cut, too, when it is gone by then
                self._synced_names.setdefault(os.path.abspath(entry.path), {})

    def goes_on_after(self, other: FaultyFiles) -> None:
        """Know what the disk has as another layer does, whose process was killed: the page cache lives on."""
        self._synced_files = dict(other._synced_files)
        self._gone = other._gone
        self._synced_names = {path: dict(names) for path, names in other._synced_names.items()}
        self._lost = {inode: _Lost(lost.content, set(lost.written)) for inode, lost in other._lost.items()}

    def all_is_durable(self, path: Path) -> None:
        """Take a folder as it is for what the disk has: that of a machine that has just been started."""
        self.names_are_durable(str(path))
        for child in path.iterdir():
            if child.is_dir():
                self.all_is_durable(child)
            else:
                self._synced_files[child.stat().st_ino] = child.read_bytes()

    def cut_power(
        self, path: Path, target: Path, chance: random.Random | None = None, written: dict[int, Path] | None = None
    ) -> None:
        """Write to `target` what is left of the directory `path`: what was synced, and of the rest what `chance` says.

        Without it nothing of the rest is left. With it each sector that was written since the last sync, of 512 bytes
        or of a page, is the new or the old one, whatever was written before or behind it; and each name that was made,
        given or removed since is so, or is as it was.
        A file with two names has both.

        Args:
            written: the files that are there, by their inodes.
        """
        target.mkdir()
        written = {} if written is None else written
        synced = self._synced_names.get(str(path), {})
        for name, inode in (synced if chance is None else _names_left(path, synced, chance)).items():
            child = path / name
            if str(child) in self._synced_names or child.is_dir():
                self.cut_power(child, target / name, chance, written)
            elif inode in written:
                (target / name).hardlink_to(written[inode])
            else:
                before = self._synced_files.get(inode, b"")
                now = None if chance is None else _content(path, inode)
                (target / name).write_bytes(before if now is None else _torn(before, now, chance))
                written[inode] = target / name


def _names_left(path: Path, synced: dict[str, int], chance: random.Random) -> dict[str, int]:
    """The names of a folder after a power cut: each change since the last sync has reached the disk, or has not.

    A rename is one change, and so is a file that replaces another one.
    """
    now = {entry.name: entry.inode() for entry in os.scandir(path)} if path.is_dir() else {}
    changed = {inode for inode in {*synced.values(), *now.values()} if _names(synced, inode) != _names(now, inode)}
    reached = {inode for inode in sorted(changed) if chance.random() < 0.5}
    left = {name: inode for name, inode in synced.items() if inode not in reached}
    for name, inode in now.items():
        if inode in reached:
            left[name] = inode
        elif name in synced:  # nothing has replaced the file of this name
            left[name] = synced[name]
    return left


def _names(folder: dict[str, int], inode: int) -> list[str]:
    return [name for name, found in folder.items() if found == inode]


def _content(path: Path, inode: int) -> bytes | None:
    """Content of a file now, if it is still there under any name."""
    for entry in os.scandir(path) if path.is_dir() else ():
        if entry.inode() == inode:
            return Path(entry.path).read_bytes()
    return None


def _changed(before: bytes, lost: _Lost, now: bytes) -> bytes:
    """The sectors of now that were written since they were lost, or are others, and the rest as before."""
    parts = []
    for begin in range(0, len(now), _SECTOR):
        place = slice(begin, min(begin + _SECTOR, len(now)))
        is_clean = begin // _SECTOR not in lost.written and now[place] == lost.content[place]
        chosen = before if is_clean else now
        parts.append(chosen[place].ljust(place.stop - begin, b"\0"))
    return b"".join(parts)


def _torn(before: bytes, now: bytes, chance: random.Random) -> bytes:
    """Some sectors of now, the others as before."""
    sector = chance.choice((512, 4096))
    share = chance.choice((0.1, 0.5, 0.9))
    size = chance.choice((len(before), len(now)))
    parts = []
    for begin in range(0, size, sector):
        end = min(begin + sector, size)
        chosen = now if chance.random() < share else before
        parts.append(chosen[begin:end].ljust(end - begin, b"\0"))
    return b"".join(parts)


class _FaultyFile(File):
    __slots__ = ("_layer",)

    def __init__(self, path: str, descriptor: int, layer: FaultyFiles) -> None:
        super().__init__(path, descriptor)
        self._layer = layer

    def write(self, position, data):  # type: ignore[no-untyped-def]
        self._layer.step("write", self.path, memoryview(data).nbytes)
        super().write(position, data)
        self._layer.was_written(os.fstat(self.fileno()).st_ino, position, memoryview(data).nbytes)

    def copy_from(self, source, source_position, size, position):  # type: ignore[no-untyped-def]
        self._layer.step("write", self.path, size)
        super().copy_from(source, source_position, size, position)
        self._layer.was_written(os.fstat(self.fileno()).st_ino, position, size)

    def allocate(self, position: int, size: int) -> None:
        self._layer.step("allocate", self.path, size)
        super().allocate(position, size)

    def sync(self) -> None:
        try:
            self._layer.step("sync", self.path)
        except StoreError:
            self._layer.sync_has_failed(self)
            raise
        self._layer.bytes_are_durable(self)


class _FaultyLock(RecordLock):
    __slots__ = ("_layer",)

    def __init__(self, path: str, layer: FaultyFiles) -> None:
        self._layer = layer
        super().__init__(path)

    def write(self, text: bytes) -> None:
        self._layer.step("write_lock", self.path, len(text))
        super().write(text)
        self._layer.text_is_durable(self, text)


def fail_next(kind: str, code: int = errno.EIO, *, part: str = "", times: int = 1, after: int = 0) -> Judge:
    """Let the next operations of a kind fail, on paths with `part` in them, but for the first `after` of these."""
    left, passed = [times], [after]

    def judge(operation: Operation) -> None:
        if left[0] and operation.kind == kind and part in operation.path:
            if passed[0]:
                passed[0] -= 1
                return
            left[0] -= 1
            raise OSError(code, os.strerror(code))

    return judge


def abandon(store: object, files: FaultyFiles) -> None:
    """End a store as a kill does: nothing more reaches the disk, its threads end, its locks are gone."""
    files.judge = crash_at(0)
    try:
        store.close()  # type: ignore[attr-defined]
    except (Crash, StoreError):
        pass
    finally:
        files.abandon()


def wait_dispatched(store: MessageStore, files: FaultyFiles) -> None:
    """Wait for queues and index; dies of the crash of which the thread that brings them in step has died."""
    for _ in range(_MOST_LOOKS):
        try:
            return store.wait_dispatched(_LOOK_S)
        except TimeoutError:
            if files.has_crashed:
                raise Crash from None
    raise TimeoutError("dispatch neither goes on nor fails")


def copy_store(path: Path, target: Path) -> Path:
    """A copy of a store directory as a kill would leave it now."""
    shutil.copytree(path, target)
    return target


@contextmanager
def disk_is(files: FileLayer) -> Iterator[None]:
    """Jobs go to the disk by themselves: meanwhile it is this one."""
    names = [name for name in dir(FileLayer) if not name.startswith("_")]
    with patch.dict(DISK.__dict__, {name: getattr(files, name) for name in names}):
        yield
