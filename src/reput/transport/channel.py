"""Channel: the way to a client and back, as whoever answers its requests sees it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from reput.remoting.command import RemotingCommand


class Channel(Hashable, Protocol):
    """A connection of the remoting protocol, or a client of another protocol; its text goes into the log."""

    @property
    def protocol(self) -> str:
        """Name of the protocol, for metrics."""

    @property
    def is_proven(self) -> bool:
        """Whether it was proven that requests are of the users that they name, before they came."""

    @property
    def remote(self) -> str:
        """Address "host:port" of the peer."""

    @property
    def remote_host(self) -> tuple[str, int]:
        """Address and port of the peer; ("", 0) once it is gone."""

    @property
    def host(self) -> bytes:
        """Address of the peer in 8 or 20 bytes, as records have it."""

    @property
    def is_open(self) -> bool:
        """Whether there still is somebody to answer."""

    @property
    def is_choked(self) -> bool:
        """Whether the peer leaves too much unread, or can be told nothing."""

    def answer(self, answer: RemotingCommand | bytes) -> None:
        """Send an answer to a request, or the frames of several; nothing happens if the peer is gone."""

    def answered(self, command: RemotingCommand) -> None:
        """Hand an answer of the peer to the `call` that waits for it."""

    def send_one_way(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers."""

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The peer's answer to a request.

        Raises RemotingTimeoutError if none comes in time, and RemotingError if the peer is gone.
        """

    def abort(self) -> None:
        """Close it at once."""
