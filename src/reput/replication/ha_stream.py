"""HAStream: the connection of a slave to its master's HA port, without a thought about what the bytes mean."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

from reput.errors import RemotingError
from reput.formats.replication import FRAME_HEADER, MAX_FRAME_SIZE, REPORT, SILENCE_S
from reput.transport.client import connect_error, host_and_port

_CONNECT_S = 5.0
_TO_DO = "expected the HA port of a broker there; start the broker with haListenPort, or correct the address"
#: Bytes of one read at the most: many frames of RocketMQ's 32 KiB.
_BUFFER_BYTES = MAX_FRAME_SIZE + (4 << 20)
#: With less a frame might take so long that the master counts as silent.
LEAST_BANDWIDTH = 64 << 10


class HAStream:
    """One TCP connection to a master. Raises RemotingError if there can be none.

    Args:
        address: The HA port, "host:port".
        bandwidth: Bytes that are read a second, at the most: what is not read waits at the master. None: no limit.
        waits_for_bytes: The master has more bytes, as it has said: heartbeats alone count as silence.
    """

    def __init__(self, address: str, bandwidth: int | None = None, *, waits_for_bytes: bool = False) -> None:
        self.address = address
        self._bandwidth, self._waits_for_bytes = bandwidth, waits_for_bytes
        self._read_at = 0.0
        host, port = host_and_port(address)
        try:
            with ExitStack() as undo:
                self._socket = undo.enter_context(socket.create_connection((host, port), _CONNECT_S))
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                undo.pop_all()
        except (OSError, OverflowError, ValueError) as error:
            raise connect_error(address, error, _CONNECT_S, _TO_DO) from None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._heard_at = time.monotonic()

    def report(self, offset: int) -> None:
        """Tell the master an offset: the first one asks for the bytes from there on, each later one acknowledges."""
        try:
            self._socket.settimeout(_CONNECT_S)
            self._socket.sendall(REPORT.pack(offset))
        except OSError as error:
            raise self._ended(error.strerror or str(error)) from None

    def frames(self, timeout_s: float) -> list[tuple[int, memoryview]]:
        """Offset and bytes of the whole frames that the next read completes; none if there are none in `timeout_s`.

        The bytes are valid until `release`. Raises RemotingError if the connection ends, the master is silent for
        20 s, or no master speaks.
        """
        frames = self._read(timeout_s)
        now = time.monotonic()
        if any(len(body) for _, body in frames) or (frames and not self._waits_for_bytes):
            self._heard_at = now
        elif now - self._heard_at > SILENCE_S:
            what = "bytes" if self._waits_for_bytes else "sign of life"
            raise RemotingError(f"{self.address}: no {what} from the master for {SILENCE_S:g} s")
        return frames

    def _read(self, timeout_s: float) -> list[tuple[int, memoryview]]:
        most = None
        if self._bandwidth is not None:
            delay_s, most = self._read_at - time.monotonic(), self._filled + self._bandwidth
            if delay_s > 0:
                time.sleep(min(delay_s, timeout_s))
                if delay_s > timeout_s:
                    return []
        try:
            self._socket.settimeout(timeout_s)
            size = self._socket.recv_into(self._view[self._filled : most])
        except TimeoutError:
            return []
        except OSError as error:
            raise self._ended(error.strerror or str(error)) from None
        if not size:
            raise self._ended("it was closed")
        self._filled += size
        if self._bandwidth is not None:
            self._read_at = time.monotonic() + size / self._bandwidth
        found, at = [], 0
        while self._filled - at >= FRAME_HEADER.size:
            offset, length = FRAME_HEADER.unpack_from(self._buffer, at)
            if not 0 <= length <= MAX_FRAME_SIZE - FRAME_HEADER.size or offset < 0:
                raise self._ended(f"a frame of {length} bytes at offset {offset}; is this the HA port of a broker?")
            end = at + FRAME_HEADER.size + length
            if end > self._filled:
                break
            found.append((offset, self._view[at + FRAME_HEADER.size : end]))
            at = end
        self._taken = at
        return found

    def release(self) -> None:
        """Give the bytes of the last `frames` back."""
        left = self._filled - self._taken
        self._buffer[:left] = self._view[self._taken : self._filled]
        self._filled, self._taken = left, 0

    _taken = 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _ended(self, reason: str) -> RemotingError:
        return RemotingError(f"{self.address}: the connection to the master's HA port ended: {reason}")
