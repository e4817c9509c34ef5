"""FrameBuffer: what a connection has received, as whole frames (sans-IO)."""

from __future__ import annotations

from collections.abc import Iterator

from reput.formats.remoting import FRAME_HEAD
from reput.remoting.command import frame_size

_FIRST_SIZE = 64 << 10
#: So much room is there for a read at least, while a large frame comes in.
_LEAST_ROOM = 16 << 10
#: A read brings so much at the most: pages that nobody has used yet take the loop longer than the bytes in them.
_MOST_ROOM = 1 << 20


class FrameBuffer:
    """Bytes of one connection: a socket writes them into `room()`, and `frames()` takes whole frames out.

    The memory grows with the bytes that wait, up to twice their number, and never by what a length word promises.
    """

    def __init__(self) -> None:
        self._data = bytearray(_FIRST_SIZE)
        self._begin = self._end = 0
        self._addressed: bytearray | None = None
        self._address = 0

    def __len__(self) -> int:
        """Bytes that were received and are not taken."""
        return self._end - self._begin

    @property
    def capacity(self) -> int:
        """Bytes of memory."""
        return len(self._data)

    @property
    def held_bytes(self) -> int:
        """Bytes of memory beyond those that each connection has."""
        return len(self._data) - _FIRST_SIZE

    def room(self) -> memoryview:
        """Memory for the next read; `received` says how much of it was used."""
        if len(self._data) - self._end < _LEAST_ROOM:
            self._move()
        return memoryview(self._data)[self._end : self._end + _MOST_ROOM]

    def received(self, size: int) -> None:
        """Note that a read has put `size` bytes into `room()`."""
        self._end += size

    def window(self) -> tuple[int, int]:
        """(address of the first byte that was not taken, address after the last one); good until the next read."""
        if self._data is not self._addressed:
            import ctypes  # here: a client does without it

            self._addressed = self._data
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._data))
        return self._address + self._begin, self._address + self._end

    def begins_with(self, position: int, *texts: bytes) -> bool:
        """Whether one of these texts comes `position` bytes after the first byte that was not taken."""
        return self._data.startswith(texts, self._begin + position, self._end)

    def taken(self, size: int) -> None:
        """Note that `size` bytes, whole frames, were taken from the `window`."""
        self._begin += size
        self._tidy()

    def frames(self) -> Iterator[memoryview]:
        """The whole frames, each valid until the next one is asked for.

        Raises RemotingDecodeError at bytes that begin no frame: nothing after them can be found.
        """
        while (frame := self.frame()) is not None:
            yield frame
        self._tidy()

    def frame(self) -> memoryview | None:
        """The next whole frame, valid until the next call; None if there is none. Raises as `frames`."""
        if len(self) < FRAME_HEAD.size:
            return None
        view = memoryview(self._data)[self._begin : self._end]
        size = frame_size(view)
        if size > len(view):
            return None
        self._begin += size
        return view[:size]

    def put_back(self, size: int) -> None:
        """Let the last frame, of `size` bytes, be the next one again; before anything else is done."""
        self._begin -= size

    def _tidy(self) -> None:
        if self._begin == self._end:
            self._begin = self._end = 0
        if len(self._data) > _FIRST_SIZE + 2 * len(self):  # a large frame has passed
            self._move()

    def _move(self) -> None:
        """Put what waits into memory of the size for it."""
        size = len(self)
        data = bytearray(size + max(_FIRST_SIZE, size))  # zeros take no memory before they are written over
        memoryview(data)[:size] = memoryview(self._data)[self._begin : self._end]
        self._data = data
        self._begin, self._end = 0, size
