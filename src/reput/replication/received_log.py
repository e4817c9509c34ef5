"""ReceivedLog: a master's log as it comes, compared if the store has it, and appended if it is new."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.errors import RemotingError, ReplicationError
from reput.store.replica_writer import ReplicaWriter

#: Log bytes that are kept until they are whole records.
_ROOM_BYTES = 16 << 20


class ReceivedLog:
    """Bytes of a master's log in their order, over one connection after the other; for one thread.

    Args:
        writer: Appends what is new.
        path: The store's, which errors name.
        address: The master's, which errors name.

    Attributes:
        following: Commit log offset of the next byte that must come; 0 if the first frame says it.
    """

    def __init__(self, writer: ReplicaWriter, path: str, address: str) -> None:
        self._writer, self._path, self._address = writer, path, address
        self.following = 0
        self._known = b""
        self._first: int | None = None
        self._room = np.empty(_ROOM_BYTES, np.uint8)
        self._kept = 0

    @property
    def is_compared(self) -> bool:
        """Whether all has come that the store had when the connection began."""
        return not self._known

    def begin(self, offset: int | None, known: bytes, *, first: int | None = None) -> int:
        """A connection begins; what the last one left of a record that is not whole is forgotten.

        Args:
            offset: Where the bytes begin that shall come. None, for a master that does not say where its log begins:
                where its first frame says.
            first: Where the first frame must begin, if that says where the log begins; None for anywhere.
            known: The bytes that must come first, as the store has them.

        Returns:
            The offset to report to the master, which sends what follows. A report of 0 asks for its newest file, so it
            is only for a master that does not say where its log begins. A log that begins at 0 is asked for from 1 on:
            the first byte of a record is 0, as records are shorter than 16 MiB.
        """
        self._known, self._kept, self._first = known, 0, first
        if offset == 0:
            self._keep(np.zeros(1, np.uint8))
            offset = 1
        self.following = offset or 0
        return self.following

    def take(self, offset: int, body: memoryview) -> None:
        """Take a frame: compare what the store has, and keep what is new until `append`.

        Raises:
            RemotingError: The log of a new master has grown by files meanwhile; nothing of it is kept.
            ReplicationError: It does not follow, or the store has other bytes there; nothing of it is kept.
            StoreStateError: The log, which is empty, cannot begin there.
        """
        if not self.following:
            if self._first not in (None, offset):
                raise RemotingError(
                    f"{self._address} had an empty log, and now goes on at {offset}, expected {self._first}: it is "
                    "asked again"
                )
            self._writer.begin_at(offset)
            self.following = offset
        if offset != self.following:
            raise ReplicationError(
                f"{self._path}: {self._address} goes on at {offset}, expected {self.following}; nothing of it "
                "was appended"
            )
        self.following += len(body)
        if known := self._known:
            size = min(len(known), len(body))
            if known[:size] != body[:size]:
                raise ReplicationError(
                    f"{self._path}: the bytes from {offset} on differ from the bytes of {self._address}: it is another "
                    "log, or was cut and written again; nothing was changed; compare both with `reput diff`"
                )
            self._known, body = known[size:], body[size:]
        if len(body):
            self._keep(np.frombuffer(body, np.uint8))

    def append(self) -> None:
        """Append what is whole; what is not stays for the next frame. Raises as `ReplicaWriter.append`."""
        taken = self._writer.append(self._room[: self._kept])
        self._room[: self._kept - taken] = self._room[taken : self._kept].copy()
        self._kept -= taken

    def _keep(self, data: npt.NDArray[np.uint8]) -> None:
        end = self._kept + data.size
        if end > self._room.size:
            self._room = np.concatenate([self._room, np.empty(max(self._room.size, data.size), np.uint8)])
        self._room[self._kept : end] = data
        self._kept = end
