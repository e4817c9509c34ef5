"""Following: a slave, as others ask it."""

from __future__ import annotations

from typing import Protocol

from reput.replication.follower import FollowState


class Following(Protocol):
    """State of a slave's copy (`reput.broker.slave.slave`)."""

    @property
    def has_master(self) -> bool:
        """Whether the connection to the master stands."""

    @property
    def master_address(self) -> str:
        """The HA address of the master; empty if no name server knows one."""

    @property
    def progress(self) -> FollowState | None:
        """State of the copy; None before the first master."""

    @property
    def copies_nothing(self) -> str | None:
        """Reason why it copies nothing, as one text; None while it copies."""
