"""FileLayer: operations on folders and files by path; it opens all files."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from reput.errors import StoreError
from reput.files.batched_files import BatchedFiles
from reput.files.file import File, is_own
from reput.files.lock import RecordLock, lock_text
from reput.files.never_waiting import about_to_wait
from reput.files.os_errors import failure, write_failure
from reput.files.rename_noreplace import give_name

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: Limit of `read_bytes`: the settings of a hundred thousand topics are 20 MB.
_MOST_BYTES = 256 << 20
_MEMORY = "/proc/meminfo"
#: Limit and use of the memory of the container that this process is in, of cgroups 2 and 1; "max" for no limit.
_MEMORY_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def is_hidden(name: str) -> bool:
    """Whether a file of this name is none of reput's or RocketMQ's files: it begins with a dot, and is passed over.

    A network file system names a deleted file so that is still open (`.nfsXXXX`), editors name their copies so.
    """
    return name.startswith(".")


class Entry(NamedTuple):
    """One file or folder in a folder. `size` includes holes, `allocated_bytes` is its disk space.

    `is_broken_link`: a symbolic link without a target, for example on a disk that is not mounted. `is_special`: a
    device, a pipe or a socket, or a link to an empty file: such a file may be one of /proc, which can be opened and
    fails at the first write.
    """

    name: str
    size: int
    is_directory: bool
    allocated_bytes: int
    is_broken_link: bool = False
    is_special: bool = False


class FileLayer(BatchedFiles):
    """The real disk; without state. Every method raises StoreError, or StoreFullError if the disk is full.

    In `NeverWaiting` what changes names or syncs raises WouldWaitError.
    """

    def __repr__(self) -> str:  # signatures show it
        return f"{type(self).__name__}()"

    def open(
        self, path: str, *, writable: bool = False, create: bool = False, size: int | None = None, mode: int = 0o644
    ) -> File:
        """Open a file; with `size`, extend a shorter file to that length by a hole.

        `create` makes a missing file (and needs `writable`), with `mode` less the process's umask. Its *name* survives
        a power cut only after `sync_directory` of its folder, which is left to the caller: one such sync serves many
        files. Raises StoreError for a folder, a device or a pipe.
        """
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        missing = create and not os.path.exists(path)
        if missing:
            about_to_wait(path, "make the file")
        try:
            file = File(path, os.open(path, flags | os.O_NONBLOCK, mode))  # without O_NONBLOCK a pipe would block
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
        """Content of a small file; StoreError for a file of more than 256 MiB."""
        with self.open(path) as file:
            size = file.size
            if size > _MOST_BYTES:
                raise StoreError(f"{path}: expected at most {_MOST_BYTES} bytes, found {size}; restore it from a copy")
            return file.read(0, size)

    def read_spared(self, path: str) -> bytes:
        """Content of a file that only spares work; empty, so that it does not count, if `read_bytes` refuses it."""
        with self.open(path) as file:
            return file.read(0, file.size) if file.size <= _MOST_BYTES else b""

    def write_atomically(self, path: str, data: ReadableBuffer, *, is_private: bool = False) -> None:
        """Replace a file: after a crash at any moment it has either the old or the new content, complete.

        The new content is written to `<path>.tmp`, synced, and renamed; the mode stays as it is. `is_private`: for its
        owner's eyes alone.
        """
        temporary = path + ".tmp"
        if os.path.exists(temporary):
            self.unlink(temporary)  # a crash left it here
        try:
            kept = 0o600 if is_private else stat.S_IMODE(self._status(path).st_mode) if os.path.exists(path) else None
            # Private until it has its mode: whoever has opened it before reads what is written then.
            first = 0o644 if kept is None else 0o600
            with self.open(temporary, writable=True, create=True, mode=first) as file:
                if kept is not None:
                    os.chmod(temporary, kept)
                file.write(0, data)
                file.sync()
            self.rename(temporary, path)
        except StoreError:
            if os.path.exists(temporary):
                self.unlink(temporary)
            raise

    def list_directory(self, path: str) -> list[Entry]:
        """Entries of a folder, sorted by name; a file that another process deletes meanwhile is left out.

        So is what `is_hidden` names.
        """
        entries = []
        try:
            with os.scandir(path) as found:
                for entry in found:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        if entry.is_symlink() and not is_hidden(entry.name):
                            entries.append(Entry(entry.name, 0, False, 0, is_broken_link=True))
                        continue
                    is_file, is_folder = stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode)
                    if not is_folder and is_hidden(entry.name):
                        continue
                    size, allocated = status.st_size, status.st_blocks * 512
                    is_special = not is_folder and (not is_file or (size == 0 and entry.is_symlink()))
                    entries.append(Entry(entry.name, size, is_folder, allocated, is_special=is_special))
        except OSError as error:
            raise failure(error, path, "list") from error
        return sorted(entries)

    def list_names(self, path: str) -> list[str]:
        """Names in a folder, sorted, of files and folders; none is looked at, so a hundred thousand take 30 ms."""
        try:
            return sorted(name for name in os.listdir(path) if not is_hidden(name))
        except OSError as error:
            raise failure(error, path, "list") from error

    def is_empty(self, path: str) -> bool:
        """Whether this is a folder with nothing in it, no hidden file either: another may get its name."""
        try:
            with os.scandir(path) as found:
                return next(found, None) is None
        except NotADirectoryError:
            return False
        except OSError as error:
            raise failure(error, path, "list") from error

    def exists(self, path: str) -> bool:
        """Whether a file or folder of this name exists."""
        return os.path.exists(path)

    def may_write(self, folder: str) -> bool:
        """Whether this user may make files in a folder."""
        return os.access(folder, os.W_OK | os.X_OK)

    def is_directory(self, path: str) -> bool:
        """Whether a folder of this name exists."""
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        """Length of a file in bytes, holes included."""
        return self._status(path).st_size

    def modified_ms(self, path: str) -> int:
        """Time of a file's last write, ms since 1970; stores through a map count once they were synced."""
        return self._status(path).st_mtime_ns // 1_000_000

    def identity(self, path: str) -> tuple[int, int]:
        """(device, inode): equal for two paths of one file."""
        status = self._status(path)
        return status.st_dev, status.st_ino

    def disk_free(self, path: str) -> int:
        """Free bytes, for an ordinary user, of the disk that `path` is on.

        A file system that tells no size, as a tmpfs without a limit, has room for everything.
        """
        try:
            status = os.statvfs(path)
        except OSError as error:
            raise failure(error, path, "look up the free space") from error
        return status.f_bavail * status.f_frsize if status.f_blocks else sys.maxsize

    def disk_used_percent(self, path: str) -> int:
        """Used share of the disk that `path` is on, in percent of what an ordinary user can use, rounded up."""
        try:
            status = os.statvfs(path)
        except OSError as error:
            raise failure(error, path, "look up the used space") from error
        used = status.f_blocks - status.f_bfree
        return -(-100 * used // max(used + status.f_bavail, 1))

    def physical_memory(self) -> int:
        """Bytes of memory of the machine: the page cache can hold at most so much of a log."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self) -> int:
        """Bytes of memory that processes may take now, by the machine and by the limit of their container.

        0 if the system does not tell.
        """
        try:
            with open(_MEMORY) as file:
                (text,) = (line.split()[1] for line in file if line.startswith("MemAvailable:"))
            available = int(text) << 10
            for limit, use in filter(lambda pair: os.path.exists(pair[0]), _MEMORY_LIMITS):
                with open(limit) as limit_file, open(use) as use_file:
                    if (most := limit_file.read().strip()) != "max":
                        available = min(available, int(most) - int(use_file.read()))
        except (OSError, ValueError):
            return 0
        return max(available, 0)

    def make_directories(self, path: str) -> None:
        """Make a folder and its missing parents, durably. A folder that exists is left as it is.

        Each folder is synced before the next is made: a kill leaves at most one folder with a name that is not synced,
        the last one that exists.
        """
        missing = _missing_folders(path)
        if missing:
            self.sync_name(os.path.dirname(missing[0]))
        for folder in missing:
            for above in self.add_directories(folder):
                self.sync_directory(above)

    def sync_name(self, path: str) -> None:
        """Make the name of a file or folder durable that an earlier process may have made before it was killed.

        Does nothing if the parent folder cannot be read: then reput has not made the name, since it could not have
        synced it.
        """
        above = os.path.dirname(os.path.abspath(path))
        if os.access(above, os.R_OK):
            self.sync_directory(above)

    def add_directories(self, path: str) -> list[str]:
        """`make_directories` without its syncs: returns the folders that have new names in them, the topmost first.

        The caller must sync them, since one sync serves many names.
        """
        missing = _missing_folders(path)
        for folder in missing:
            try:
                os.mkdir(folder)
            except FileExistsError as error:
                if not os.path.isdir(folder):
                    raise failure(error, folder, "make a folder") from error
            except OSError as error:
                raise write_failure(error, folder, "make a folder", 0) from error
        return [os.path.dirname(folder) for folder in missing]

    def is_own(self, path: str) -> bool:
        """Whether a file or folder is this user's, and nobody else may write it."""
        try:
            status = os.stat(path)
        except OSError as error:
            raise failure(error, path, "look up its owner") from error
        return is_own(status)

    def keep_others_out(self, path: str) -> None:
        """Let nobody but its owner write a file or folder, whatever the umask is."""
        try:
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~0o022)
        except OSError as error:
            raise write_failure(error, path, "change its mode", 0) from error

    def sync_directory(self, path: str) -> None:
        """Make the names in a folder durable: created, renamed and unlinked files and folders."""
        about_to_wait(path, "sync the folder")
        try:
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise failure(error, path, "sync the folder") from error

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder, durably; a file at `target` is replaced."""
        about_to_wait(source, "rename")
        try:
            os.rename(source, target)
        except OSError as error:
            raise write_failure(error, source, f"rename to {target}", 0) from error
        for folder in dict.fromkeys((os.path.dirname(target), os.path.dirname(source))):
            self.sync_directory(folder)  # the new name first: after a power cut in between one name must be left

    def rename_files(self, names: Sequence[tuple[str, str]]) -> None:
        """Rename files, (source, target) each; all renames are durable at the return, with one sync a folder.

        No file is replaced: StoreError if another one has the name. After an error the files before the failed one
        have their new names.
        """
        about_to_wait(names[0][0] if names else "", "rename")
        for source, target in names:
            give_name(source, target)
        targets, sources = ({os.path.dirname(pair[side]) for pair in names} for side in (1, 0))
        # New names first: a power cut between two syncs may leave a file with both names, but never with neither.
        self.sync_directories([*sorted(targets), *sorted(sources - targets)])

    def link(self, source: str, target: str) -> None:
        """Add another name to a file (a hard link), durably."""
        about_to_wait(target, "link")
        try:
            os.link(source, target)
        except OSError as error:
            raise write_failure(error, target, f"link to {source}", 0) from error
        self.sync_directory(os.path.dirname(target))

    def unlink(self, path: str) -> None:
        """Remove a file, durably."""
        about_to_wait(path, "remove")
        try:
            os.unlink(path)
        except OSError as error:
            raise failure(error, path, "remove") from error
        self.sync_directory(os.path.dirname(path))

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content, durably; only for folders that reput has made."""
        about_to_wait(path, "remove the folder")
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise failure(error, path, "remove the folder") from error
        self.sync_directory(os.path.dirname(path))

    def make_temporary_directory(self) -> str:
        """Make an empty folder that only this user can read, where the system has temporary files; returns its path."""
        import tempfile  # not at the head: few processes need it

        try:
            return tempfile.mkdtemp(prefix="reput-")
        except OSError as error:
            raise write_failure(error, tempfile.gettempdir(), "make a temporary folder", 0) from error

    def make_memory_file(self, path: str, data: ReadableBuffer) -> File:
        """Make a file in memory that no folder has, with some bytes; errors about it name `path`."""
        try:
            file = File(path, os.memfd_create("reput", os.MFD_CLOEXEC))
        except OSError as error:
            raise write_failure(error, path, "make a file in memory", memoryview(data).nbytes) from error
        try:
            file.write(0, data)
        except StoreError:
            file.close()
            raise
        return file

    def make_executable(self, path: str) -> None:
        """Let every user who can read a file run it."""
        try:
            os.chmod(path, self._status(path).st_mode | 0o111)
        except OSError as error:
            raise failure(error, path, "make executable") from error

    def make_link(self, target: str, path: str) -> None:
        """Make `path` a symbolic link to `target`. A file or link that exists is left as it is."""
        try:
            os.symlink(target, path)
        except FileExistsError:
            return
        except OSError as error:
            raise write_failure(error, path, "make a link", 0) from error

    def lock(self, path: str) -> RecordLock:
        """Take the store lock on this file; a missing file is made. A cache of kernels has such a lock, too.

        Raises StoreLockedError if another store holds the lock.
        """
        return RecordLock(path)

    def lock_text(self, path: str) -> bytes:
        """Text of a lock file, at most 64 bytes; empty without the file.

        A lock file must be read only this way: closing any other descriptor of it would release this process's lock.
        """
        return lock_text(path)

    def _status(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise failure(error, path, "look up") from error


def _missing_folders(path: str) -> list[str]:
    """A folder and its parents as far as they do not exist, the topmost first; they are about to be made."""
    missing: list[str] = []
    current = os.path.abspath(path)
    while not os.path.isdir(current):
        missing.append(current)
        current = os.path.dirname(current)
    if missing:
        about_to_wait(path, "make the folder")
    return missing[::-1]


DISK = FileLayer()
