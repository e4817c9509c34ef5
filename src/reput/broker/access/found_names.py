"""FoundNames: the check of what a request turns out to be about, beside what its header says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reput.remoting.command import RemotingCommand
from reput.transport.channel import Channel


class AccessGate(Protocol):
    """Access control of requests (`reput.broker.access`)."""

    def require(self, connection: Channel, command: RemotingCommand, found: Mapping[str, str]) -> None:
        """Raise RemotingCommandError unless who asked may do this with what was found, by the header's fields."""


class FoundNames:
    """Names that a processor has found by an offset, checked as if the header had brought them.

    Args:
        gate: Knows who may do what; None if nobody asks.
    """

    def __init__(self, gate: AccessGate | None) -> None:
        self._gate = gate

    def require(self, connection: Channel, command: RemotingCommand, **found: str) -> None:
        """Let a request go on with what was found, by the header's fields: `topic="orders"`.

        Raises RemotingCommandError if who asked may not.
        """
        if self._gate is not None:
            self._gate.require(connection, command, found)
