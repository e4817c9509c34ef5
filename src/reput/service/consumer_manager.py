"""Consumers that are connected, and their groups' subscriptions (`ConsumerManager`, `ConsumerGroupInfo`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic

from reput.formats.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from reput.remoting.subscription_data import SubscriptionData
from reput.service.client_channels import (
    CHANNEL_EXPIRED_TIMEOUT_MS,
    ChannelT,
    ClientChannelInfo,
    ClientChannels,
)


@dataclass(slots=True)
class ConsumerGroupInfo:
    """A group that has members: what the last heartbeat of any of them said, and one subscription for each topic."""

    group_name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    last_update_ms: int
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)

    def update_subscription(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take the subscriptions of one member; True if topics came or went.

        A topic's subscription is replaced by one of a greater version; topics that the member leaves out are removed.
        """
        table, listed, updated = self.subscription_table, set(), False
        for subscription in subscriptions:
            topic = subscription.topic
            before = table.get(topic)
            if before is None or subscription.sub_version > before.sub_version:
                table[topic] = subscription
            updated |= before is None
            listed.add(topic)
        for topic in [topic for topic in table if topic not in listed]:
            del table[topic]
            updated = True
        return updated


@dataclass(frozen=True, slots=True)
class ConsumerGroupChange(Generic[ChannelT]):
    """Change of a group; `notified` are the connections that get NOTIFY_CONSUMER_IDS_CHANGED."""

    group: str
    ids_changed: bool
    subscriptions_changed: bool
    notified: tuple[ChannelT, ...]


class ConsumerManager(Generic[ChannelT]):
    """The consumers that are connected, by group.

    Args:
        channel_expired_timeout_ms: A consumer without a heartbeat for longer is gone.
    """

    def __init__(self, *, channel_expired_timeout_ms: int = CHANNEL_EXPIRED_TIMEOUT_MS) -> None:
        self._timeout_ms = channel_expired_timeout_ms
        self._channels: ClientChannels[ChannelT] = ClientChannels("consumer")
        self._groups: dict[str, ConsumerGroupInfo] = {}

    def groups(self) -> list[str]:
        """The groups that have members."""
        return list(self._groups)

    def consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        """A group that has members; None for any other."""
        return self._groups.get(group)

    def channels(self, group: str) -> Mapping[ChannelT, ClientChannelInfo[ChannelT]]:
        """The members of a group, in the order in which they came; it shows later changes."""
        return self._channels.of(group)

    def client_ids(self, group: str) -> list[str]:
        """The client ids of a group's members, each once, in the order in which they came."""
        return list(dict.fromkeys(info.client_id for info in self._channels.of(group).values()))

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo[ChannelT] | None:
        """The newest connection of a member; None if there is no such member."""
        infos = reversed(list(self._channels.of(group).values()))
        return next((info for info in infos if info.client_id == client_id), None)

    def find_subscription_data(self, group: str, topic: str) -> SubscriptionData | None:
        """The subscription of a group to a topic; None if the group has no members, or other topics."""
        info = self._groups.get(group)
        return None if info is None else info.subscription_table.get(topic)

    def query_topic_consume_by_who(self, topic: str) -> set[str]:
        """The groups with members that subscribe to a topic."""
        return {group for group, info in self._groups.items() if topic in info.subscription_table}

    def register_consumer(
        self,
        group: str,
        channel: ChannelT,
        *,
        client_id: str,
        language: str,
        version: int,
        consume_type: ConsumeType,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
        subscriptions: Iterable[SubscriptionData] | None,
        now_ms: int,
        notify_consumer_ids_changed_enable: bool = True,
    ) -> ConsumerGroupChange[ChannelT]:
        """Take a heartbeat. subscriptions: None leaves the group's as they are (a heartbeat without them)."""
        info = self._groups.get(group)
        if info is None:
            info = ConsumerGroupInfo(group, consume_type, message_model, consume_from_where, now_ms)
            self._groups[group] = info
        info.consume_type = consume_type
        info.message_model = message_model
        info.consume_from_where = consume_from_where
        info.last_update_ms = now_ms
        client = ClientChannelInfo(channel, client_id, language, version, now_ms)
        ids_changed = self._channels.update(group, client)
        subscriptions_changed = subscriptions is not None and info.update_subscription(subscriptions)
        notifies = notify_consumer_ids_changed_enable and (ids_changed or subscriptions_changed)
        return self._change(info, ids_changed, subscriptions_changed, notifies=notifies)

    def unregister_consumer(
        self, group: str, channel: ChannelT, *, notify_consumer_ids_changed_enable: bool = True
    ) -> ConsumerGroupChange[ChannelT] | None:
        """Take a consumer out of its group; None if it was not there."""
        return self._remove(group, {channel}, notifies=notify_consumer_ids_changed_enable)

    def count_of(self, channel: ChannelT) -> int:
        """Number of groups that a connection is in."""
        return self._channels.count_of(channel)

    def channel_closed(self, channel: ChannelT) -> list[ConsumerGroupChange[ChannelT]]:
        """Take a closed connection out of all its groups (`doChannelCloseEvent`)."""
        return self._remove_everywhere([channel])

    def scan_not_active_channel(self, now_ms: int) -> tuple[list[ChannelT], list[ConsumerGroupChange[ChannelT]]]:
        """Take expired connections out of all their groups: (connections to close, what became of the groups)."""
        expired = self._channels.expired(now_ms, self._timeout_ms)
        return expired, self._remove_everywhere(expired)

    def _remove_everywhere(self, channels: list[ChannelT]) -> list[ConsumerGroupChange[ChannelT]]:
        members: dict[str, set[ChannelT]] = {}
        for channel in channels:
            for group in self._channels.groups_of(channel):
                members.setdefault(group, set()).add(channel)
        changes = (self._remove(group, gone, notifies=True) for group, gone in members.items())
        return [change for change in changes if change is not None]

    def _remove(
        self, group: str, channels: Iterable[ChannelT], *, notifies: bool
    ) -> ConsumerGroupChange[ChannelT] | None:
        removed = [channel for channel in channels if self._channels.remove(group, channel) is not None]
        if not removed:
            return None
        info = self._groups[group]
        if not self._channels.of(group):
            del self._groups[group]
        return self._change(info, True, False, notifies=notifies)

    def _change(
        self, info: ConsumerGroupInfo, ids_changed: bool, subscriptions_changed: bool, *, notifies: bool
    ) -> ConsumerGroupChange[ChannelT]:
        notifies = notifies and info.message_model is not MessageModel.BROADCASTING
        notified = tuple(self._channels.of(info.group_name)) if notifies else ()
        return ConsumerGroupChange(info.group_name, ids_changed, subscriptions_changed, notified)
