"""BatchedFiles: operations of the file layer on many files, or on many pages, in one call (`batched_io`)."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reput.files.mapping import Mapping
from reput.files.never_waiting import about_to_wait
from reput.files.os_errors import failure, sync_failure, write_failure

if TYPE_CHECKING:
    from numpy import int64, uint8
    from numpy.typing import NDArray


class BatchedFiles:
    """Many files in one call each, without the interpreter lock; errors as of `FileLayer`."""

    def write_runs(
        self, paths: Sequence[str], addresses: NDArray[int64], sizes: NDArray[int64], positions: NDArray[int64]
    ) -> None:
        """Many writes in one call, in order: `sizes[i]` bytes from address `addresses[i]` to `positions[i]` of file i.

        The files must exist. The arrays are int64[len(paths)], contiguous; the addresses are not checked. After an
        error the runs before the failed one are written.
        """
        from reput.files.batched_io import write_runs  # not at the top: Numba takes 0.3 s to import

        index, code = write_runs(_text(paths), addresses, sizes, positions)
        if code:
            error = OSError(code, os.strerror(code))
            raise write_failure(error, paths[index], f"write at {positions[index]}", int(sizes[index])) from error

    def read_runs(self, paths: Sequence[str], positions: NDArray[int64], sizes: NDArray[int64]) -> NDArray[uint8]:
        """Many reads in one call: uint8[sum of sizes], `sizes[i]` bytes from `positions[i]` of file i, concatenated.

        Bytes after the end of a file are zeros.
        """
        import numpy

        from reput.files.batched_io import read_runs

        data = numpy.zeros(int(sizes.sum()), numpy.uint8)
        index, code = read_runs(_text(paths), positions, sizes, data.ctypes.data)
        if code:
            error = OSError(code, os.strerror(code))
            raise failure(error, paths[index], f"read at {positions[index]}") from error
        return data

    def are_in_memory(self, runs: int, count: int) -> bool:
        """Whether all mapped bytes of some runs are in the page cache, so that reading them waits for no disk.

        Args:
            runs: Address of `count` runs, each two native int64, memory address and size; they must be mapped.
        """
        from reput.files import batched_io  # one name: two take a quarter of a microsecond more

        return bool(batched_io.are_in_memory(runs, count, mmap.PAGESIZE, batched_io.PAGES_ADDRESS))

    def read_in(self, path: str, mapping: Mapping, runs: int, count: int) -> None:
        """Read the pages of mapped bytes of a file from the disk into memory, without the interpreter lock.

        Runs as of `are_in_memory`. Raises StoreError if the disk cannot read them; a read through the map would end
        the process (SIGBUS).
        """
        from reput.files.batched_io import read_in

        address, code = read_in(runs, count, mmap.PAGESIZE)
        if code:
            code = errno.EIO if code == errno.EFAULT else code
            raise failure(OSError(code, os.strerror(code)), path, f"read at {address - mapping.address}")

    def sync_files(self, paths: Sequence[str]) -> None:
        """`File.sync` for many files in one call; after an error the files before the failed one are synced."""
        self._sync(paths, only_data=True)

    def sync_directories(self, paths: Sequence[str]) -> None:
        """`sync_directory` for many folders in one call."""
        self._sync(paths, only_data=False)

    def _sync(self, paths: Sequence[str], *, only_data: bool) -> None:
        about_to_wait(paths[0] if paths else "", "sync")
        import numpy

        from reput.files.batched_io import sync_paths

        result = numpy.zeros(2, numpy.int64)
        try:
            sync_paths(_text(paths), len(paths), only_data, result)
        finally:  # after a KeyboardInterrupt, too: see `File.sync`
            index, code = result.tolist()
            if code:
                error = OSError(code, os.strerror(code))
                if only_data:
                    raise sync_failure(error, paths[index]) from error
                raise failure(error, paths[index], "sync the folder") from error


def _text(paths: Sequence[str]) -> NDArray[uint8]:
    """The paths for the kernels, with a zero byte after each; uint8."""
    import numpy

    return numpy.frombuffer(bytearray(os.fsencode("\0".join(paths)) + b"\0"), numpy.uint8)
