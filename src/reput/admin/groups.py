"""Groups of consumers, as an operator sees them: members, lag, and resets of their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reput.admin.admin_client import AdminClient, Brokers, gather, masters_of, number, unknown
from reput.client.instance.topic_route import MASTER_ID, subscribe_queues
from reput.errors import AccessDeniedError, MQBrokerError, MQClientError
from reput.remoting.codes import RequestCode, ResponseCode, version_name
from reput.remoting.queue_tables import QueueKey, decode_queue_table
from reput.remoting.topic_validator import SYSTEM_GROUPS, is_system_group, retry_topic_of

#: Targets of a reset beside a time.
EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group: its members, and the messages that it has not consumed; None for what is not known."""

    group: str
    members: int | None
    topics: int | None
    lag: int | None


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
class GroupLag:
    """Lag of a group, and the store time of the last message that it has consumed (ms; 0: never).

    None for what is not known, as nobody answers for one of the brokers; the queues are the other brokers'.
    """

    lag: int | None
    last_consumed: int | None
    queues: list[QueueLag]


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
    """Change that a reset makes for a group in one queue; `before` is None if the group has no offset there."""

    broker: str
    queue_id: int
    before: int | None
    after: int


async def group_names(client: AdminClient, *, with_system: bool = False) -> list[str]:
    """The groups of all brokers, sorted; RocketMQ's own if they are asked for."""
    found = await _group_names(client, await client.brokers())
    own = {name for name in found if name in SYSTEM_GROUPS or is_system_group(name)}
    return sorted(found if with_system else found - own)


async def _group_names(client: AdminClient, brokers: Brokers) -> set[str]:
    async def look(_: str, address: str) -> list[str]:
        body = await client.ask_json(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return list(body.get("subscriptionGroupTable", {}))

    return {name for names in (await client.ask_each(brokers, look)).values() for name in names}


async def groups(client: AdminClient, *, with_system: bool = False) -> list[GroupRow]:
    """All groups, with their lag."""
    brokers = await client.brokers()
    names = await group_names(client, with_system=with_system)

    async def look(_: str, address: str) -> list[tuple[list[QueueLag], set[str]]]:
        async def look_at(group: str) -> tuple[list[QueueLag], set[str]]:
            body = await _connections_at(client, address, group) or {}
            members = {one["clientId"] for one in body.get("connectionSet", [])}
            return await _queues_at(client, address, group), members

        return await gather(look_at, names)

    found = await client.ask_each(brokers, look)
    return [_row(client, *one) for one in zip(names, *found.values(), strict=True)]


def _row(client: AdminClient, group: str, *at: tuple[list[QueueLag], set[str]]) -> GroupRow:
    """A group; `at`: its queues and its members at each broker."""
    queues = [one for rows, _ in at for one in rows]
    members = {one for _, of_broker in at for one in of_broker}
    topics = {one.topic for one in queues} - {retry_topic_of(group)}
    return GroupRow(
        group, client.whole(len(members)), client.whole(len(topics)), client.whole(sum(one.lag for one in queues))
    )


async def lag(client: AdminClient, group: str) -> GroupLag:
    """The lag of a group, queue by queue.

    Raises MQClientError if the group has offsets nowhere.
    """
    found = await client.ask_each(await client.brokers(), lambda _, address: _queues_at(client, address, group))
    rows = sorted(
        (one for rows in found.values() for one in rows), key=lambda one: (one.topic, one.broker, one.queue_id)
    )
    if not rows:
        known = f"group {group!r} has no offsets: it has consumed nothing, or left before it committed"
        raise await _nothing_of(client, group, known)
    last = max(one.last_consumed for one in rows)
    return GroupLag(client.whole(sum(one.lag for one in rows)), client.whole(last), rows)


async def _nothing_of(client: AdminClient, group: str, known: str) -> MQClientError:
    """The error of a group of which those brokers have nothing that answer; `known`: its text if they know it."""
    names = await group_names(client, with_system=True)
    text = known if group in names else unknown("group", group, names)
    return MQClientError("; ".join((text, *client.notes())))


async def _queues_at(client: AdminClient, address: str, group: str) -> list[QueueLag]:
    answer = await client.ask(address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
    return [
        QueueLag(
            key.topic, key.broker_name, key.queue_id, number(address, one, "consumerOffset"),
            number(address, one, "brokerOffset"), number(address, one, "lastTimestamp"),
        )
        for key, one in decode_queue_table(answer.body, "offsetTable").items()
    ]  # fmt: skip


async def _connections_at(client: AdminClient, address: str, group: str) -> dict[str, Any] | None:
    """The members of a group at one broker, and what they subscribe to; None if it has none there."""
    try:
        return await client.ask_json(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    except MQBrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise


async def connections(client: AdminClient, group: str) -> tuple[list[Member], dict[str, str]]:
    """The consumers and producers of a group, and the expression by topic to which the consumers subscribe.

    Raises MQClientError if nobody is connected.
    """
    members: list[Member] = []
    subscriptions: dict[str, str] = {}

    async def look(broker: str, address: str) -> None:
        consumers = await _connections_at(client, address, group) or {}
        producers = await _producers_at(client, address, group) or {}
        for kind, found in (("consumer", consumers), ("producer", producers)):
            members.extend(_member(kind, broker, address, one) for one in found.get("connectionSet", []))
        for topic, one in consumers.get("subscriptionTable", {}).items():
            subscriptions[topic] = one.get("subString", "")

    await client.ask_each(await client.brokers(), look)
    if not members:
        raise await _nothing_of(client, group, f"nobody of group {group!r} is connected")
    members.sort(key=lambda one: (one.broker, one.kind, one.client_id))
    return members, dict(sorted(subscriptions.items()))


async def _producers_at(client: AdminClient, address: str, group: str) -> dict[str, Any] | None:
    """The producers of a group at one broker; None if it has none there."""
    try:
        return await client.ask_json(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})
    except MQBrokerError as error:
        if error.code == ResponseCode.SYSTEM_ERROR and not isinstance(error, AccessDeniedError):
            return None
        raise


def _member(kind: str, broker: str, address: str, one: dict[str, Any]) -> Member:
    version = version_name(number(address, one, "version"))
    return Member(kind, one.get("clientId", ""), one.get("clientAddr", ""), one.get("language", ""), version, broker)


async def reset_plan(client: AdminClient, group: str, topic: str, to: str | int) -> list[QueueReset]:
    """The changes that a reset to EARLIEST, LATEST or a store time (ms) would make; nothing is changed.

    Raises MQClientError for a topic or a group that is not there, or if the master of one of the topic's brokers is
    away.
    """
    route = await client.route(topic)
    addresses = masters_of(topic, route)
    names = await _group_names(client, {name: {MASTER_ID: address} for name, address in addresses.items()})
    if group not in names:
        raise MQClientError(unknown("group", group, names))

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

    return await gather(plan, subscribe_queues(topic, route))


async def reset(client: AdminClient, group: str, topic: str, to: str | int, plan: list[QueueReset]) -> None:
    """Reset the offsets of a group in a topic.

    The brokers do it, also while members are connected. A broker before 5.0 does so only with members; without them
    the offsets of the plan are committed.
    """
    timestamp = {EARLIEST: 0, LATEST: -1}.get(str(to), to)
    fields = {"topic": topic, "group": group, "timestamp": timestamp, "isForce": True}

    async def change(broker: str, address: str) -> None:
        try:
            await client.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        except MQBrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            for one in plan:
                if one.broker == broker:
                    await client.queues.commit(address, group, QueueKey(topic, broker, one.queue_id), one.after)

    await client.change_each(masters_of(topic, await client.route(topic)), change)
