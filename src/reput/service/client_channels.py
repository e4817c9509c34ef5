"""The connections of groups of clients, of producers or of consumers, and who is behind each (`ClientChannelInfo`)."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from reput.events import Event

logger = logging.getLogger("reput.service")

#: A connection; the broker's layers above know what it is. Its text goes into the log.
ChannelT = TypeVar("ChannelT", bound=Hashable)
#: A client that sent no heartbeat for longer is gone, in ms.
CHANNEL_EXPIRED_TIMEOUT_MS = 120_000


@dataclass(slots=True)
class ClientChannelInfo(Generic[ChannelT]):
    """A client of a group. language: RocketMQ's name (`JAVA`, `GO`); version: its number (`MQVersion`)."""

    channel: ChannelT
    client_id: str
    language: str
    version: int
    last_update_ms: int


class ClientChannels(Generic[ChannelT]):
    """Channels by group, and groups by channel; the log tells who joins a group, and who leaves it.

    Args:
        kind: For the log: what the clients are.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._infos: dict[str, dict[ChannelT, ClientChannelInfo[ChannelT]]] = {}
        self._groups: dict[ChannelT, dict[str, None]] = {}

    def groups(self) -> list[str]:
        """The groups that have channels."""
        return list(self._infos)

    def of(self, group: str) -> Mapping[ChannelT, ClientChannelInfo[ChannelT]]:
        """The channels of a group, in the order in which they came; it shows later changes."""
        return MappingProxyType(self._infos.get(group, {}))

    def update(self, group: str, info: ClientChannelInfo[ChannelT]) -> bool:
        """Take a heartbeat; True if the channel is new in the group. Another client id replaces that of before."""
        infos = self._infos.setdefault(group, {})
        before = infos.get(info.channel)
        if before is not None and before.client_id == info.client_id:
            before.last_update_ms = info.last_update_ms
        else:
            infos[info.channel] = info
        self._groups.setdefault(info.channel, {})[group] = None
        if before is None:
            self._log("joined", group, info)
        return before is None

    def remove(self, group: str, channel: ChannelT) -> ClientChannelInfo[ChannelT] | None:
        """Take a channel out of a group; None if it was not there."""
        infos = self._infos.get(group, {})
        info = infos.pop(channel, None)
        if info is None:
            return None
        if not infos:
            del self._infos[group]
        groups = self._groups[channel]
        del groups[group]
        if not groups:
            del self._groups[channel]
        self._log("left", group, info)
        return info

    def _log(self, what: str, group: str, info: ClientChannelInfo[ChannelT]) -> None:
        fields = {"id": info.client_id, "language": info.language, "version": info.version}
        logger.info(Event(f"{self._kind} {what}", group=group, client=info.channel, **fields))

    def count_of(self, channel: ChannelT) -> int:
        """Number of groups that a channel is in."""
        return len(self._groups.get(channel, ()))

    def groups_of(self, channel: ChannelT) -> list[str]:
        """The groups that a channel is in."""
        return list(self._groups.get(channel, ()))

    def expired(self, now_ms: int, timeout_ms: int) -> list[ChannelT]:
        """Channels from which a group has heard nothing for longer than the timeout."""
        infos: Iterable[ClientChannelInfo[ChannelT]] = (one for group in self._infos.values() for one in group.values())
        return list(dict.fromkeys(one.channel for one in infos if now_ms - one.last_update_ms > timeout_ms))
