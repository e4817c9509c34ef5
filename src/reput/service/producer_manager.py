"""Producers that are connected (`ProducerManager`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic

from reput.service.client_channels import (
    CHANNEL_EXPIRED_TIMEOUT_MS,
    ChannelT,
    ClientChannelInfo,
    ClientChannels,
)

#: How many members of a group are tried before a busy one is taken.
_TRIES = 3


class ProducerManager(Generic[ChannelT]):
    """The producers that are connected, by group and by client id.

    Args:
        channel_expired_timeout_ms: A producer without a heartbeat for longer is gone.
    """

    def __init__(self, *, channel_expired_timeout_ms: int = CHANNEL_EXPIRED_TIMEOUT_MS) -> None:
        self._timeout_ms = channel_expired_timeout_ms
        self._channels: ClientChannels[ChannelT] = ClientChannels("producer")
        self._clients: dict[str, ChannelT] = {}
        self._turn = 0

    def groups(self) -> list[str]:
        """The groups that have members."""
        return self._channels.groups()

    def channels(self, group: str) -> Mapping[ChannelT, ClientChannelInfo[ChannelT]]:
        """The members of a group, in the order in which they came; it shows later changes."""
        return self._channels.of(group)

    def find_channel(self, client_id: str) -> ChannelT | None:
        """The connection of a client's last heartbeat, as a member of any group."""
        return self._clients.get(client_id)

    def register_producer(
        self, group: str, channel: ChannelT, *, client_id: str, language: str, version: int, now_ms: int
    ) -> bool:
        """Take a heartbeat; True if the connection is new in the group."""
        before = self._channels.of(group).get(channel)
        if before is not None and before.client_id != client_id:
            self._clients.pop(before.client_id, None)
        self._clients[client_id] = channel
        return self._channels.update(group, ClientChannelInfo(channel, client_id, language, version, now_ms))

    def unregister_producer(self, group: str, channel: ChannelT) -> bool:
        """Take a producer out of its group; False if it was not there."""
        info = self._channels.remove(group, channel)
        if info is None:
            return False
        if not self._channels.count_of(channel) and self._clients.get(info.client_id) == channel:
            del self._clients[info.client_id]
        return True

    def count_of(self, channel: ChannelT) -> int:
        """Number of groups that a connection is in."""
        return self._channels.count_of(channel)

    def channel_closed(self, channel: ChannelT) -> list[str]:
        """Take a closed connection out of all its groups (`doChannelCloseEvent`), and give these back."""
        return [group for group in self._channels.groups_of(channel) if self.unregister_producer(group, channel)]

    def scan_not_active_channel(self, now_ms: int) -> list[ChannelT]:
        """Take expired connections out of all their groups, and give back the connections, which are to be closed."""
        expired = self._channels.expired(now_ms, self._timeout_ms)
        for channel in expired:
            self.channel_closed(channel)
        return expired

    def available_channel(self, group: str, is_writable: Callable[[ChannelT], bool]) -> ChannelT | None:
        """The next member of a group in turn, for a check-back (`getAvailableChannel`); None without members.

        A busy member is passed over, unless three in a row are busy.
        """
        members = list(self._channels.of(group))
        if not members:
            return None
        self._turn += 1
        tried = [members[(self._turn + i) % len(members)] for i in range(_TRIES)]
        return next((channel for channel in tried if is_writable(channel)), tried[-1])
