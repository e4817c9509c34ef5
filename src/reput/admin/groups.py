"""Groups of consumers, as an operator sees them: members, lag, and resets of their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reput.admin.admin_client import AdminClient, gather, masters, unknown
from reput.client.topic_route import subscribe_queues
from reput.errors import MQBrokerError, MQClientError
from reput.remoting.codes import RequestCode, ResponseCode, version_name
from reput.remoting.queue_tables import QueueKey, decode_queue_table
from reput.service.topic_validator import SYSTEM_GROUPS, is_system_group, retry_topic_of

#: Targets of a reset beside a time.
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group: its members, and the messages that it has not consumed."""

    group: str
    members: int
    topics: int
    lag: int


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A group in one queue: its offset and the queue's next one, and when the last consumed message was stored (ms)."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    max_offset: int
    last_consumed: int

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet."""
        return self.max_offset - self.offset


@dataclass(frozen=True, slots=True)
class Member:
    """A client that is connected."""

    kind: str
    client_id: str
    address: str
    language: str
    version: str
    broker: str


@dataclass(frozen=True, slots=True)
class QueueReset:
    """What a reset does to a group in one queue; None where the group has no offset there."""

    broker: str
    queue_id: int
    before: int | None
    after: int


async def group_names(client: AdminClient, *, with_system: bool = False) -> list[str]:
    """The groups of all brokers, sorted; RocketMQ's own where they are asked for."""

    async def look(address: str) -> list[str]:
        body = await client.ask_json(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return list(body.get("subscriptionGroupTable", {}))

    found = {name for names in await gather(look, (await client.masters()).values()) for name in names}
    own = {name for name in found if name in SYSTEM_GROUPS or is_system_group(name)}
    return sorted(found if with_system else found - own)


async def groups(client: AdminClient, *, with_system: bool = False) -> list[GroupRow]:
    """All groups, with their lag."""
    addresses = list((await client.masters()).values())

    async def look(group: str) -> GroupRow:
        queues = [one for address in addresses for one in await _queues_at(client, address, group)]
        bodies = [await _connections_at(client, address, group) for address in addresses]
        members = {one["clientId"] for body in bodies if body for one in body.get("connectionSet", [])}
        topics = {one.topic for one in queues} - {retry_topic_of(group)}
        return GroupRow(group, len(members), len(topics), sum(one.lag for one in queues))

    return await gather(look, await group_names(client, with_system=with_system))


async def lag(client: AdminClient, group: str) -> list[QueueLag]:
    """How far a group is, queue by queue.

    Raises MQClientError where the group has offsets nowhere.
    """
    found = await gather(lambda address: _queues_at(client, address, group), (await client.masters()).values())
    rows = sorted((one for rows in found for one in rows), key=lambda one: (one.topic, one.broker, one.queue_id))
    if not rows:
        names = await group_names(client, with_system=True)
        if group in names:
            raise MQClientError(f"group {group!r} has no offsets: it has consumed nothing, or left before it committed")
        raise MQClientError(unknown("group", group, names))
    return rows


async def _queues_at(client: AdminClient, address: str, group: str) -> list[QueueLag]:
    answer = await client.ask(address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
    return [
        QueueLag(
            key.topic, key.broker_name, key.queue_id, one.get("consumerOffset", 0), one.get("brokerOffset", 0),
            one.get("lastTimestamp", 0),
        )
        for key, one in decode_queue_table(answer.body, "offsetTable").items()
    ]  # fmt: skip


async def _connections_at(client: AdminClient, address: str, group: str) -> dict[str, Any] | None:
    """The members of a group at one broker, and what they subscribe to; None where it has none there."""
    try:
        return await client.ask_json(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    except MQBrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise


async def connections(client: AdminClient, group: str) -> tuple[list[Member], dict[str, str]]:
    """The consumers and producers of a group, and the expression by topic to which the consumers subscribe.

    Raises MQClientError where nobody is connected.
    """
    members: list[Member] = []
    subscriptions: dict[str, str] = {}
    for broker, address in (await client.masters()).items():
        consumers = await _connections_at(client, address, group) or {}
        members += [_member("consumer", broker, one) for one in consumers.get("connectionSet", [])]
        for topic, one in consumers.get("subscriptionTable", {}).items():
            subscriptions[topic] = one.get("subString", "")
        try:
            asked = {"producerGroup": group}
            producers = await client.ask_json(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, asked)
        except MQBrokerError:  # SYSTEM_ERROR for a group without producers
            continue
        members += [_member("producer", broker, one) for one in producers.get("connectionSet", [])]
    if not members:
        names = await group_names(client, with_system=True)
        known = f"nobody of group {group!r} is connected" if group in names else unknown("group", group, names)
        raise MQClientError(known)
    return members, dict(sorted(subscriptions.items()))


def _member(kind: str, broker: str, one: dict[str, Any]) -> Member:
    version = version_name(int(one.get("version", 0)))
    return Member(kind, one.get("clientId", ""), one.get("clientAddr", ""), one.get("language", ""), version, broker)


async def reset_plan(client: AdminClient, group: str, topic: str, to: str | int) -> list[QueueReset]:
    """What a reset to EARLIEST, LATEST or a store time (ms) would do; nothing is changed.

    Raises MQClientError for a topic or a group that is not there.
    """
    route = await client.route(topic)
    names = await group_names(client, with_system=True)
    if group not in names:
        raise MQClientError(unknown("group", group, names))
    addresses = masters(route.broker_datas)

    async def plan(queue: QueueKey) -> QueueReset:
        address = addresses[queue.broker_name]
        before = await client.queues.committed(address, group, queue)
        if to == EARLIEST:
            after = await client.queues.min_offset(address, queue)
        elif to == LATEST:
            after = await client.queues.max_offset(address, queue)
        else:
            after = await client.queues.search_offset(address, queue, int(to))
        return QueueReset(queue.broker_name, queue.queue_id, before, after)

    return await gather(plan, [one for one in subscribe_queues(topic, route) if one.broker_name in addresses])


async def reset(client: AdminClient, group: str, topic: str, to: str | int, plan: list[QueueReset]) -> None:
    """Reset the offsets of a group in a topic.

    The brokers do it, also while members are connected. A broker before 5.0 does so only with members; without them
    the offsets of the plan are committed.
    """
    timestamp = {EARLIEST: 0, LATEST: -1}.get(str(to), to)
    fields = {"topic": topic, "group": group, "timestamp": timestamp, "isForce": True}
    for broker, address in masters((await client.route(topic)).broker_datas).items():
        try:
            await client.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        except MQBrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            for one in plan:
                if one.broker == broker:
                    await client.queues.commit(address, group, QueueKey(topic, broker, one.queue_id), one.after)
