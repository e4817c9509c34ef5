"""Window: reads of one log file into one reused buffer, and searches of it that read window by window."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reput.files import File
from reput.formats.hosts import HOST_GROWTH
from reput.formats.java import INT64_MIN
from reput.formats.record_layout import (
    BLANK_SIZE,
    BODY_LENGTH,
    MAGIC_CODE,
    PHYSICAL_OFFSET,
    SYS_FLAG,
    MagicCode,
    SysFlag,
)
from reput.kernels.records.record_search import find_proven, find_record
from reput.log.directory import LogFile

WINDOW_BYTES = 4 << 20
_SEARCH_BYTES = 16 << 20
_BLANK_MAGIC = int(MagicCode.BLANK)
_LENGTH_SIZES = {int(MagicCode.MESSAGE_V1): 1, int(MagicCode.MESSAGE_V2): 2}

Bytes = npt.NDArray[np.uint8]
#: Finds a position in bytes that begin at a commit log offset; -1 for none.
Search = Callable[[Bytes, int], int]


class Window:
    """Reader of one file into one reused buffer, or into two buffers in turn; offsets are commit log offsets."""

    def __init__(self, file: File, log_file: LogFile, window_bytes: int, buffers: int = 1) -> None:
        self.log_file = log_file
        self._file = file
        self._buffers = [np.empty(min(window_bytes, log_file.size), np.uint8) for _ in range(buffers)]
        self._read_last = self._free = 0

    @property
    def _buffer(self) -> Bytes:
        return self._buffers[self._free]

    def keep(self) -> None:
        """Keep the bytes of the last read: later reads go into the other buffer, if there is one."""
        self._free = (self._read_last + 1) % len(self._buffers)

    def left(self, offset: int) -> int:
        """Bytes from an offset to the file's end."""
        return self.log_file.end_offset - offset

    def read(self, offset: int, *, past_blank: bool = False) -> Bytes:
        """Bytes from `offset` on, valid until the next call: one window, or the whole record if it is longer.

        Of a blank record only the header is read, but for `past_blank`: a gigabyte of zeros may follow it.
        """
        self._read_last = self._free
        data = self._read(offset, self._buffer[:BLANK_SIZE])
        if not past_blank and is_blank(data, self.left(offset)):
            return data
        data = self._read(offset, self._buffer)
        if data.size < size_of(data) and self.holds_record(offset):
            data = self._read(offset, np.empty(size_of(data), np.uint8))
        return data

    def holds_record(self, offset: int) -> bool:
        """Whether a record's own offset and lengths prove it; only the bytes that tell them are read.

        A record that seems to be long may be a short one with a wrong size: to read a gigabyte for each would not end.
        """
        position = offset - self.log_file.start_offset
        head = self._file.read(position, BODY_LENGTH + 2 * HOST_GROWTH + 4)
        size = _number(head)
        length_size = _LENGTH_SIZES.get(_number(head, MAGIC_CODE), 0)
        growths = bool(_number(head, SYS_FLAG) & SysFlag.BORN_HOST_V6) + bool(
            _number(head, SYS_FLAG) & SysFlag.STORE_HOST_V6
        )
        body = BODY_LENGTH + growths * HOST_GROWTH + 4
        body_size = _number(head, body - 4)
        topic = body + body_size + length_size
        if _number(head, PHYSICAL_OFFSET, 8) != offset or not length_size or body_size < 0:
            return False
        if not topic + 2 <= size <= self.left(offset):
            return False
        topic_size = _number(self._file.read(position + topic - length_size, length_size), 0, length_size)
        properties = topic + topic_size + 2
        if topic_size < 0 or properties > size:
            return False
        return properties + _number(self._file.read(position + properties - 2, 2), 0, 2) == size

    def find(self, offset: int) -> int | None:
        """Offset of the first record at or after `offset` that its own offset and its neighbours prove; else None."""
        return self._search(offset, lambda data, at: find_record(data, at, left=self.left(at)))

    def find_proven(self, offset: int, not_before: int = INT64_MIN) -> int | None:
        """Offset of the first record at or after `offset` that proves itself, body CRC included; else None.

        Records whose store time is before `not_before` (ms) are passed over.
        """
        begin = self.log_file.start_offset
        return self._search(
            offset,
            lambda data, at: find_proven(data, at, left=self.left(at), file_begin=begin, not_before=not_before),
        )

    def _search(self, offset: int, search: Search) -> int | None:
        """Search from an offset on.

        Nearly always the record lies in the first window. Otherwise windows overlap so far that a record of 8 MiB is
        found, twice RocketMQ's default limit; a larger record may be missed.
        """
        buffer = self._buffer
        while offset < self.log_file.end_offset and self._file.has_data_from(offset - self.log_file.start_offset):
            data = self._read(offset, buffer)
            found = search(data, offset)
            if found >= 0:
                return offset + found
            if offset + data.size >= self.log_file.end_offset:
                break
            if buffer.size < _SEARCH_BYTES:
                buffer = np.empty(_SEARCH_BYTES, np.uint8)
            else:
                offset += _SEARCH_BYTES // 2
        return None

    def _read(self, offset: int, buffer: Bytes) -> Bytes:
        size = min(buffer.size, self.left(offset))
        return buffer[: self._file.read_into(offset - self.log_file.start_offset, buffer[:size].data)]


def size_of(data: Bytes) -> int:
    """TOTALSIZE of the record that the bytes begin with."""
    return _number(data[:4].tobytes())


def is_blank(data: Bytes, left: int) -> bool:
    """Whether `data` begins with a blank record: its size must be `left`, the bytes that are left of the file."""
    head = data[:BLANK_SIZE].tobytes()
    return len(head) == BLANK_SIZE and _number(head) == left and _number(head, MAGIC_CODE) == _BLANK_MAGIC


def _number(data: bytes, position: int = 0, size: int = 4) -> int:
    return int.from_bytes(data[position : position + size], "big", signed=True)
