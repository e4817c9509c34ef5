"""File: an open file."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from reput.errors import StoreError
from reput.files.mapping import Mapping
from reput.files.never_waiting import about_to_wait
from reput.files.os_errors import failure, sync_failure, write_failure

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from numpy import int64, uint8
    from numpy.typing import NDArray

_BLOCK_SIZE = 1 << 20
_ZEROS = bytes(_BLOCK_SIZE)
#: Errors of `copy_file_range` that mean: it cannot copy between these two files.
_NO_COPY_RANGE = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}


_c = ctypes.CDLL(None, use_errno=True)
_c.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
_c.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
_STATFS_SIZE = 256
#: File systems on which a read of a hole through a map may take a page: tmpfs, and overlayfs, whose files may be there.
_TMPFS_MAGIC, _OVERLAYFS_MAGIC = 0x01021994, 0x794C7630


def is_own(status: os.stat_result) -> bool:
    """Whether what a status is of is this user's, and nobody else may write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


class File:
    """Open file with positioned reads and writes only; made by `FileLayer.open`. Threads may share it.

    Every method raises StoreError; a method that takes disk space raises StoreFullError if there is none.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; mappings stay valid. Closing again does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._descriptor

    @property
    def is_own(self) -> bool:
        """Whether the file is this user's, and nobody else may write it."""
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise failure(error, self.path, "look up its owner") from error
        return is_own(status)

    @property
    def size(self) -> int:
        """Length of the file in bytes, holes included."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise failure(error, self.path, "look up its size") from error

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` on; fewer only at the file's end."""
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size:
                return data
            blocks = [data]
            read = len(data)
            while data and read < size:
                data = os.pread(self._descriptor, size - read, position + read)
                blocks.append(data)
                read += len(data)
        except OSError as error:
            raise failure(error, self.path, f"read at {position}") from error
        return b"".join(blocks)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        """Fill `buffer` from `position` on; returns the bytes read, fewer than its size only at the file's end."""
        view = memoryview(buffer).cast("B")
        read = 0
        try:
            while read < view.nbytes:
                count = os.preadv(self._descriptor, [view[read:]], position + read)
                if count == 0:
                    break
                read += count
        except OSError as error:
            raise failure(error, self.path, f"read at {position}") from error
        return read

    def ask(self, position: int, size: int) -> None:
        """Ask the disk for bytes that will be read soon; does not wait, and cannot fail."""
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def read_runs(self, positions: NDArray[int64], sizes: NDArray[int64]) -> NDArray[uint8]:
        """Many reads in one call: uint8[sum of sizes], `sizes[i]` bytes from `positions[i]`, concatenated.

        Bytes after the end of the file are zeros. Both arrays are int64[n], contiguous.
        """
        import numpy

        from reput.files.batched_io import read_runs_of_file  # not at the top: Numba takes 0.3 s to import

        data = numpy.zeros(int(sizes.sum()), numpy.uint8)
        index, code = read_runs_of_file(self._descriptor, positions, sizes, data.ctypes.data)
        if code:
            error = OSError(code, os.strerror(code))
            raise failure(error, self.path, f"read at {positions[index]}") from error
        return data

    def write(self, position: int, data: ReadableBuffer) -> None:
        """Write all of `data` at `position` into the page cache; `sync` makes it durable."""
        view = memoryview(data).cast("B")
        try:
            written = os.pwrite(self._descriptor, view, position)
            while written < view.nbytes:
                written += os.pwrite(self._descriptor, view[written:], position + written)
        except OSError as error:
            raise write_failure(error, self.path, f"write at {position}", view.nbytes) from error

    def copy_from(self, source: File, source_position: int, size: int, position: int) -> None:
        """Write `size` bytes of another file at `position`; raises StoreError if the other file has fewer.

        If the file system supports it, the two files share blocks (reflink): only for bytes that are never written
        again.
        """
        done = 0
        while done < size:
            count = self._copied(source, source_position + done, size - done, position + done)
            if count == 0:
                data = source.read(source_position + done, min(_BLOCK_SIZE, size - done))
                if not data:
                    raise StoreError(f"{source.path}: {size} bytes expected from {source_position} on, it has {done}")
                self.write(position + done, data)
                count = len(data)
            done += count

    def _copied(self, source: File, source_position: int, size: int, position: int) -> int:
        """Number of bytes that the system has copied; 0 if it cannot copy."""
        try:
            return os.copy_file_range(source._descriptor, self._descriptor, size, source_position, position)
        except OSError as error:
            if error.errno in _NO_COPY_RANGE:
                return 0
            raise write_failure(error, self.path, f"copy from {source.path} to {position}", size) from error

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the file takes on the disk."""
        try:
            return os.fstat(self._descriptor).st_blocks * 512
        except OSError as error:
            raise failure(error, self.path, "look up its size") from error

    def allocate(self, position: int, size: int) -> None:
        """Reserve disk space for `size` bytes at `position`; they read as zeros, and the file grows if it must.

        All of it or nothing: ext4 keeps what it got before the disk was full, and nobody else would have a byte left.
        """
        about_to_wait(self.path, "allocate")
        former = self.size
        try:
            os.posix_fallocate(self._descriptor, position, size)
        except OSError as error:
            with contextlib.suppress(OSError, StoreError):  # the error to report is that of the allocation
                os.ftruncate(self._descriptor, former)
                for begin, end in self._holes(position, min(position + size, former)):
                    _c.fallocate(self._descriptor, _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE, begin, end - begin)
            raise write_failure(error, self.path, f"allocate at {position}", size) from error

    def allocate_holes(self, end: int) -> None:
        """Reserve disk space for the holes before `end` if a writable map needs it to be read: on tmpfs."""
        for begin, hole_end in self._holes(0, end) if self._may_be_on_tmpfs() else ():
            self.allocate(begin, hole_end - begin)

    def grow(self, size: int) -> None:
        """Extend the file to `size` bytes by a hole; a longer file stays as it is."""
        try:
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise write_failure(error, self.path, f"grow to {size} bytes", size) from error

    def zero_from(self, position: int) -> int:
        """Set all bytes from `position` to the end to zero; returns how many were not zero.

        Holes are not read, and blocks of zeros are not written.
        """
        changed = 0
        for start, block in self._data_from(position):
            self.write(start, _ZEROS[: len(block)])
            changed += len(block) - block.count(0)
        return changed

    def has_data_from(self, position: int) -> bool:
        """Whether any byte from `position` to the end is not zero."""
        return self.find_data(position) >= 0

    def find_data(self, position: int) -> int:
        """Position of the first block at or after `position` that is not all zeros; -1 without one."""
        return next((start for start, _ in self._data_from(position)), -1)

    def write_again(self, position: int = 0) -> None:
        """Write the bytes from `position` to the end again as they are read, zeros included, and sync them.

        After a failed sync, reads show what is in memory; the disk may not have it, and no later sync writes it. After
        this call the disk has what was read. Holes stay holes.
        """
        for start, block in self._data_from(position, with_zeros=True):
            self.write(start, block)
        self.sync()

    def _data_from(self, position: int, *, with_zeros: bool = False) -> Iterator[tuple[int, bytes]]:
        """(position, bytes) of each block of at most 1 MiB from `position` on, without holes and blocks of zeros."""
        while (begin := self._seek(position, os.SEEK_DATA)) >= 0:
            end = self._seek(begin, os.SEEK_HOLE)
            for start in range(begin, end, _BLOCK_SIZE):
                block = self.read(start, min(_BLOCK_SIZE, end - start))
                if with_zeros or block != _ZEROS[: len(block)]:
                    yield start, block
            position = end

    def _holes(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        """(begin, end) of each hole in [position, end), bytes that were reserved and never written among them."""
        while position < end:
            data = self._seek(position, os.SEEK_DATA)
            hole_end = min(data, end) if data >= 0 else end
            if hole_end > position:
                yield position, hole_end
            position = self._seek(hole_end, os.SEEK_HOLE) if hole_end < end else end

    def _may_be_on_tmpfs(self) -> bool:
        status = ctypes.create_string_buffer(_STATFS_SIZE)
        if _c.fstatfs(self._descriptor, status):
            return False
        magic = int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
        return magic in (_TMPFS_MAGIC, _OVERLAYFS_MAGIC)

    def _seek(self, position: int, whence: int) -> int:
        """Position of the next data or hole; -1 after the last one."""
        try:
            return os.lseek(self._descriptor, position, whence)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return -1
            raise failure(error, self.path, f"look for data from {position}") from error

    def sync(self) -> None:
        """Make everything written so far durable, also through maps (fdatasync, without the interpreter lock).

        Raises StoreSyncError: what is on the disk is unknown then, and another try may succeed without the lost bytes.
        A KeyboardInterrupt that arrived during the failed sync is replaced by this error.
        """
        about_to_wait(self.path, "sync")
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            try:
                reported = sync_failure(error, self.path)
            except BaseException:  # of a signal handler, which runs at the first call after the sync
                reported = sync_failure(error, self.path)
            raise reported from error

    def map(self, *, writable: bool = False, random: bool = False, expected: int = 0) -> Mapping:
        """Map the whole file as it is now; it may not be empty.

        `random`: no read-ahead, for files that are read at random positions. `expected`: bytes that it must have.
        """
        size = self.size
        if size == 0:
            raise StoreError(f"{self.path}: cannot map an empty file")
        if size < expected:
            raise StoreError(f"{self.path}: {size} bytes long, expected {expected}: it was cut; restore it from a copy")
        holes = list(self._holes(0, size)) if not writable and self._may_be_on_tmpfs() else []
        try:
            tells_memory = os.fstat(self._descriptor).st_uid == os.geteuid() or os.access(self.path, os.W_OK)
            mapping = Mapping(
                self.path, self._descriptor, size, writable=writable, tells_memory=tells_memory, holes=holes
            )
        except OSError as error:
            raise failure(error, self.path, f"map {size} bytes") from error
        if random:
            mapping.advise(mmap.MADV_RANDOM)
        return mapping
