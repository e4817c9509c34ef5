"""FileLayer: what reput does with folders and files by path, and where open files come from."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from reput.errors import StoreError
from reput.files.failure import failure, sync_failure, write_failure
from reput.files.file import File
from reput.files.lock import RecordLock, lock_text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from numpy import int64, uint8
    from numpy.typing import NDArray


#: The settings of a hundred thousand topics are 20 MB.
_MOST_BYTES = 256 << 20


class Entry(NamedTuple):
    """One file or folder of a folder. `size` counts holes, `allocated_bytes` is what it takes on the disk.

    `is_broken_link`: a symbolic link that leads nowhere, as to a disk that is not mounted; `is_special`: a device, a
    pipe or a socket, or a link to a file with nothing in it, which may be one of /proc: that can be opened, and fails
    at the first write.
    """

    name: str
    size: int
    is_directory: bool
    allocated_bytes: int
    is_broken_link: bool = False
    is_special: bool = False


class FileLayer:
    """The real disk; without state. Every method raises StoreError, or StoreFullError when the disk is full."""

    def open(self, path: str, *, writable: bool = False, create: bool = False, size: int | None = None) -> File:
        """Open a file; with `size`, make it that long by a hole if it is shorter. StoreError for what is no file.

        `create` makes a missing file (and needs `writable`). Its *name* survives a power cut only after
        `sync_directory` of its folder, which is left to the caller: one such sync serves many files.
        """
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        missing = create and not os.path.exists(path)
        try:
            file = File(path, os.open(path, flags | os.O_NONBLOCK, 0o644))  # else it would wait at a pipe
        except OSError as error:
            if missing:
                raise write_failure(error, path, "create", size or 0) from error
            raise failure(error, path, "open") from error
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise StoreError(f"{path}: cannot open: expected a file, found a folder, device or pipe; move it away")
        if size is not None:
            try:
                file.grow(size)
            except StoreError:
                file.close()
                if missing:
                    os.unlink(path)
                raise
        return file

    def read_bytes(self, path: str) -> bytes:
        """The content of a small file; StoreError for one of more than 256 MiB."""
        with self.open(path) as file:
            size = file.size
            if size > _MOST_BYTES:
                raise StoreError(f"{path}: expected at most {_MOST_BYTES} bytes, found {size}; restore it from a copy")
            return file.read(0, size)

    def write_atomically(self, path: str, data: ReadableBuffer) -> None:
        """Replace a file: after a crash at any moment it has the old content or the new one, both whole.

        The new content is written to `<path>.tmp`, synced, and renamed.
        """
        temporary = path + ".tmp"
        if os.path.exists(temporary):
            self.unlink(temporary)  # a crash left it here
        try:
            with self.open(temporary, writable=True, create=True) as file:
                file.write(0, data)
                file.sync()
            self.rename(temporary, path)
        except StoreError:
            if os.path.exists(temporary):
                self.unlink(temporary)
            raise

    def list_directory(self, path: str) -> list[Entry]:
        """What is in a folder, sorted by name; what vanishes meanwhile (another process cleans up) is left out."""
        entries = []
        try:
            with os.scandir(path) as found:
                for entry in found:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        if entry.is_symlink():
                            entries.append(Entry(entry.name, 0, False, 0, is_broken_link=True))
                        continue
                    is_file, is_folder = stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode)
                    size, allocated = status.st_size, status.st_blocks * 512
                    is_special = not is_folder and (not is_file or (size == 0 and entry.is_symlink()))
                    entries.append(Entry(entry.name, size, is_folder, allocated, is_special=is_special))
        except OSError as error:
            raise failure(error, path, "list") from error
        return sorted(entries)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        """The length of a file in bytes, holes included."""
        return self._status(path).st_size

    def modified_ms(self, path: str) -> int:
        """When a file was last written to, in ms since 1970; stores through a map count once they were synced."""
        return self._status(path).st_mtime_ns // 1_000_000

    def identity(self, path: str) -> tuple[int, int]:
        """(device, inode): the same for two paths of one file."""
        status = self._status(path)
        return status.st_dev, status.st_ino

    def disk_free(self, path: str) -> int:
        """Bytes that an ordinary user can still write to the disk that `path` is on."""
        try:
            status = os.statvfs(path)
        except OSError as error:
            raise failure(error, path, "look up the free space") from error
        return status.f_bavail * status.f_frsize

    def disk_used_percent(self, path: str) -> int:
        """How full the disk is that `path` is on, in percent of what an ordinary user can have of it, rounded up."""
        try:
            status = os.statvfs(path)
        except OSError as error:
            raise failure(error, path, "look up the used space") from error
        used = status.f_blocks - status.f_bfree
        return -(-100 * used // max(used + status.f_bavail, 1))

    def physical_memory(self) -> int:
        """Bytes of memory that the machine has: what the page cache can hold of a log at most."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def make_directories(self, path: str) -> None:
        """Make a folder and the missing ones above it, durably. One that exists already is left as it is.

        One after the other, so that a kill leaves at most one whose name is not synced: that of the last one there is.
        """
        missing = []
        current = os.path.abspath(path)
        while not os.path.isdir(current):
            missing.append(current)
            current = os.path.dirname(current)
        if missing:
            self.sync_name(current)
        for folder in reversed(missing):
            for above in self.add_directories(folder):
                self.sync_directory(above)

    def sync_name(self, path: str) -> None:
        """Make the name of a file or folder durable that an earlier process may have made, and have been killed then.

        Nothing, where the folder above cannot be read: then reput has not made it, for it would have failed to sync it.
        """
        above = os.path.dirname(os.path.abspath(path))
        if os.access(above, os.R_OK):
            self.sync_directory(above)

    def add_directories(self, path: str) -> list[str]:
        """`make_directories` without its syncs: returns the folders that have new names in them, the topmost first.

        They are for the caller to sync, since one sync serves many names.
        """
        missing = []
        current = os.path.abspath(path)
        while not os.path.isdir(current):
            missing.append(current)
            current = os.path.dirname(current)
        for folder in reversed(missing):
            try:
                os.mkdir(folder)
            except FileExistsError as error:
                if not os.path.isdir(folder):
                    raise failure(error, folder, "make a folder") from error
            except OSError as error:
                raise write_failure(error, folder, "make a folder", 0) from error
        return [os.path.dirname(folder) for folder in reversed(missing)]

    def sync_directory(self, path: str) -> None:
        """Make the names in a folder durable: what was created, renamed and unlinked there."""
        try:
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise failure(error, path, "sync the folder") from error

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name, durably; a file that had that name is replaced."""
        try:
            os.rename(source, target)
        except OSError as error:
            raise write_failure(error, source, f"rename to {target}", 0) from error
        for folder in dict.fromkeys((os.path.dirname(target), os.path.dirname(source))):
            self.sync_directory(folder)  # the new name first: a power cut in between must not leave none

    def rename_files(self, names: Sequence[tuple[str, str]]) -> None:
        """Give files other names, (source, target) each, all of them durably when this returns; with one sync a folder.

        After an error those before the failed one have their new names.
        """
        for source, target in names:
            try:
                os.rename(source, target)
            except OSError as error:
                raise write_failure(error, source, f"rename to {target}", 0) from error
        targets, sources = ({os.path.dirname(pair[side]) for pair in names} for side in (1, 0))
        # New names first: a power cut between two syncs may leave a file with both names, but not with neither.
        for folder in (*sorted(targets), *sorted(sources - targets)):
            self.sync_directory(folder)

    def link(self, source: str, target: str) -> None:
        """Give a file one more name (a hard link), durably."""
        try:
            os.link(source, target)
        except OSError as error:
            raise write_failure(error, target, f"link to {source}", 0) from error
        self.sync_directory(os.path.dirname(target))

    def unlink(self, path: str) -> None:
        """Remove a file, durably."""
        try:
            os.unlink(path)
        except OSError as error:
            raise failure(error, path, "remove") from error
        self.sync_directory(os.path.dirname(path))

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, durably; for folders that reput made itself."""
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise failure(error, path, "remove the folder") from error
        self.sync_directory(os.path.dirname(path))

    def make_executable(self, path: str) -> None:
        """Let everybody who may read a file run it."""
        try:
            os.chmod(path, self._status(path).st_mode | 0o111)
        except OSError as error:
            raise failure(error, path, "make executable") from error

    def make_link(self, target: str, path: str) -> None:
        """Make `path` a symbolic link to `target`. One that exists already is left as it is."""
        try:
            os.symlink(target, path)
        except FileExistsError:
            return
        except OSError as error:
            raise write_failure(error, path, "make a link", 0) from error

    def lock(self, path: str) -> RecordLock:
        """Take the store lock on this file, making it when it is missing.

        Raises StoreLockedError when somebody holds it.
        """
        return RecordLock(path)

    def lock_text(self, path: str) -> bytes:
        """What is in a lock file, at most 64 bytes; empty where there is none.

        To be read in no other way, for that would give back the lock that this process may have.
        """
        return lock_text(path)

    def write_runs(
        self, paths: Sequence[str], addresses: NDArray[int64], sizes: NDArray[int64], positions: NDArray[int64]
    ) -> None:
        """Many writes in one call, in order: `sizes[i]` bytes at address `addresses[i]` to `positions[i]` of a file.

        The files must exist. The arrays are int64[len(paths)], contiguous; nothing checks the addresses. After an error
        the runs before the failed one are written.
        """
        from reput.files.runs import write_runs  # not at the head: Numba takes 0.3 s to import

        text = _text(paths)
        index, code = write_runs(_address(text), addresses, sizes, positions)
        if code:
            error = OSError(code, os.strerror(code))
            raise write_failure(error, paths[index], f"write at {positions[index]}", int(sizes[index])) from error

    def read_runs(self, paths: Sequence[str], positions: NDArray[int64], sizes: NDArray[int64]) -> NDArray[uint8]:
        """Many reads in one call: uint8[sum of sizes], `sizes[i]` bytes from `positions[i]` of each file.

        Zeros stand for what lies behind a file's end.
        """
        import numpy

        from reput.files.runs import read_runs

        text = _text(paths)
        data = numpy.zeros(int(sizes.sum()), numpy.uint8)
        index, code = read_runs(_address(text), positions, sizes, data.ctypes.data)
        if code:
            error = OSError(code, os.strerror(code))
            raise failure(error, paths[index], f"read at {positions[index]}") from error
        return data

    def sync_files(self, paths: Sequence[str]) -> None:
        """`File.sync` for many files in one call; after an error those before the failed one are synced."""
        self._sync(paths, only_data=True)

    def sync_directories(self, paths: Sequence[str]) -> None:
        """`sync_directory` for many folders in one call."""
        self._sync(paths, only_data=False)

    def _sync(self, paths: Sequence[str], *, only_data: bool) -> None:
        import numpy

        from reput.files.runs import sync_paths

        text, result = _text(paths), numpy.zeros(2, numpy.int64)
        try:
            sync_paths(_address(text), len(paths), only_data, result)
        finally:  # behind a KeyboardInterrupt, too: see `File.sync`
            index, code = result.tolist()
            if code:
                error = OSError(code, os.strerror(code))
                if only_data:
                    raise sync_failure(error, paths[index]) from error
                raise failure(error, paths[index], "sync the folder") from error

    def _status(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise failure(error, path, "look up") from error


def _text(paths: Sequence[str]) -> NDArray[uint8]:
    """The paths with a zero byte behind each, for the kernels."""
    import numpy

    return numpy.frombuffer(os.fsencode("\0".join(paths)) + b"\0", numpy.uint8)


def _address(text: NDArray[uint8]) -> int:
    return int(text.ctypes.data)


DISK = FileLayer()
