"""Mapping: a map of a whole file."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import NoReturn

from reput.files.os_errors import failure

#: Bytes of a page of memory.
PAGE_SIZE = mmap.PAGESIZE
_c = ctypes.CDLL(None, use_errno=True)
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_c.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_c.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_MAP_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10


def _map(at: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
    """C's `mmap`, from the file's begin; raises OSError."""
    address: int = _c.mmap(at, size, protection, flags, descriptor, 0)
    if address == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return address


class Mapping:
    """Map of a whole file. The bytes stay mapped as long as the Mapping or a view of it lives.

    Made with C's `mmap`: Python's map holds a descriptor as long as it lives, and a log of a terabyte has a thousand
    maps.

    A full disk kills the process (SIGBUS) that stores into a hole, and on tmpfs also the process that reads one: there
    a read takes a page, too. So a map to read shows zeros of its own for the holes of tmpfs, and a writable map may be
    touched only where space was allocated: `File.allocate` and `File.write` raise an error.

    Attributes:
        address: Address of the first byte, for kernels; valid as long as the Mapping is held.
        size: In bytes.
        fields: Address of the map's `MapFields`, for kernels; valid as long as the Mapping is held.
        asked: The marks, a byte for each part of `PART_SIZE`, not 0 if the part was asked for, and one more.
        marks: Address of the marks; valid as long as they are held.
        tells_memory: Whether `mincore` tells which pages are in memory: not of files that this user may not write.
        whole_until: Position of the first hole that shows zeros whatever is written there later: a file that grows is
            mapped again. `size` without such a hole, as on every disk but tmpfs.
        view: The bytes.
        recent: For who reads the map often: which bytes were in memory a moment ago (`store.reads.pulled_run`).
    """

    __slots__ = (
        "_fields",
        "_path",
        "address",
        "asked",
        "fields",
        "marks",
        "recent",
        "size",
        "tells_memory",
        "view",
        "whole_until",
    )

    def __init__(
        self,
        path: str,
        descriptor: int,
        size: int,
        *,
        writable: bool,
        tells_memory: bool,
        holes: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`holes` are (begin, end) of whole pages that show zeros of the map's own. Raises OSError."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _map(None, size, protection, mmap.MAP_SHARED, descriptor)
        array = (ctypes.c_ubyte * size).from_address(address)  # held by all views: the last view unmaps it
        weakref.finalize(array, _c.munmap, address, size).atexit = False
        for begin, end in holes:
            _map(address + begin, end - begin, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1)
        view = memoryview(array).cast("B")
        self.whole_until: int = holes[0][0] if holes else size
        self.address: int = address
        self.size = size
        self.view = view if writable else view.toreadonly()
        from reput.kernels.machine.mapped_pages import (  # not at the top: Numba takes 0.3 s to import
            PART_SHIFT,
            MapFields,
        )

        marks = (ctypes.c_ubyte * ((size >> PART_SHIFT) + 2))()
        self.tells_memory = tells_memory
        self.recent: dict[int, tuple[float, int]] = {}
        self._path, self.asked = path, memoryview(marks).cast("B")
        self.marks: int = ctypes.addressof(marks)
        self._fields = (ctypes.c_longlong * 4)(*MapFields(address, size, self.marks, PAGE_SIZE))
        self.fields: int = ctypes.addressof(self._fields)

    def ask(self, begin: int, end: int) -> None:
        """See to it that bytes can be read: before they are read through the map, which would end the process (SIGBUS).

        Each part of the map is asked for once.

        Raises:
            StoreError: The disk cannot read them: a bad sector, or another program has cut the file.
        """
        from reput.kernels.machine.mapped_pages import first_unreadable

        position = first_unreadable(self.fields, begin, end)
        if position >= 0:
            self.refuse(position)

    def forget(self) -> None:
        """Let each part be asked for again."""
        self.asked[:] = bytes(len(self.asked))

    def ask_now(self, begin: int, end: int) -> None:
        """As `ask`, whatever was asked for before."""
        from reput.kernels.machine.mapped_pages import first_unreadable_now

        position = first_unreadable_now(self.fields, begin, end)
        if position >= 0:
            self.refuse(position)

    def refuse(self, position: int) -> NoReturn:
        """Raise the StoreError of bytes that the disk cannot read, as a kernel has found."""
        raise failure(OSError(errno.EIO, os.strerror(errno.EIO)), self._path, f"read at {position}")

    def advise(self, advice: int, begin: int = 0, end: int | None = None) -> None:
        """Advise the system (`madvise`, one of `mmap.MADV_*`) on the pages of [begin, end): a hint, never an error."""
        begin -= begin % PAGE_SIZE
        end = self.size if end is None else end
        if end > begin:
            _c.madvise(self.address + begin, end - begin, advice)

    def release(self, begin: int = 0, end: int | None = None) -> None:
        """Release this process's memory of the whole pages in [begin, end); they stay in the page cache."""
        begin = -(-begin // PAGE_SIZE) * PAGE_SIZE
        end = self.size if end is None else end - end % PAGE_SIZE
        self.advise(mmap.MADV_DONTNEED, begin, end)
        if end > begin:
            from reput.kernels.machine.mapped_pages import PART_SHIFT

            first, last = begin >> PART_SHIFT, (end - 1 >> PART_SHIFT) + 1
            self.asked[first:last] = bytes(last - first)
