"""Topics, as an operator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from reput.admin.admin_client import AdminClient, Brokers, brokers_of, masters, masters_of, number
from reput.client.instance.topic_route import MASTER_ID, nothing_to_publish, publish_queues
from reput.errors import MQClientError
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.metadata import TopicFilterType
from reput.remoting.codes import RequestCode
from reput.remoting.queue_tables import decode_queue_table
from reput.remoting.topic_validator import (
    AUTO_CREATE_TOPIC,
    DLQ_TOPIC_PREFIX,
    REPLY_TOPIC_POSTFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

_PERMS = {0: "none", 1: "template", 2: "w", 4: "r", 6: "rw", 7: "rw, template"}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its queues of all brokers together (None: not known), and what clients may do."""

    topic: str
    brokers: tuple[str, ...]
    read_queues: int | None
    write_queues: int | None
    perm: str
    message_type: str
    order: bool


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """One queue: its first and its next offset, and when its last message was stored (ms; 0: never)."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_stored: int

    @property
    def messages(self) -> int:
        """Messages that are there."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic: its queues, their messages, and the groups that subscribe to it or have offsets in it.

    None for what is not known, as nobody answers for one of its brokers; the queues are the other brokers'.
    """

    queues: list[TopicQueue]
    messages: int | None
    groups: list[str] | None


async def topics(client: AdminClient, *, with_system: bool = False) -> list[Topic]:
    """All topics; with `with_system` also topics of groups and of the system."""
    info = await client.cluster()
    clusters = info.cluster_addr_table
    own = {*clusters, *info.broker_addr_table, *(f"{one}_{REPLY_TOPIC_POSTFIX}" for one in clusters)}

    async def look(_: str, address: str) -> dict[str, _TopicOfBroker]:
        table = (await client.ask_json(address, RequestCode.GET_ALL_TOPIC_CONFIG)).get("topicConfigTable", {})
        return {
            name: _TopicOfBroker.of(address, config)
            for name, config in table.items()
            if with_system or not (name in own or is_system_topic(name))
        }

    rows: dict[str, dict[str, _TopicOfBroker]] = {}
    for broker, table in (await client.ask_each(await client.brokers(), look)).items():
        for name, one in table.items():
            rows.setdefault(name, {})[broker] = one
    return [_topic(client, name, of) for name, of in sorted(rows.items())]


def _topic(client: AdminClient, name: str, of: Mapping[str, _TopicOfBroker]) -> Topic:
    first, *_ = of.values()
    return Topic(
        name, tuple(of), client.whole(sum(one.read_queues for one in of.values())),
        client.whole(sum(one.write_queues for one in of.values())), first.perm, first.message_type,
        any(one.order for one in of.values()),
    )  # fmt: skip


class _TopicOfBroker(NamedTuple):
    """A topic as one broker has it; the fields are as in `Topic`."""

    read_queues: int
    write_queues: int
    perm: str
    message_type: str
    order: bool

    @classmethod
    def of(cls, address: str, config: Mapping[str, Any]) -> Self:
        """Raises RemotingError if an answer lacks a number."""
        perm = number(address, config, "perm")
        return cls(
            number(address, config, "readQueueNums"), number(address, config, "writeQueueNums"),
            _PERMS.get(perm, str(perm)), (config.get("attributes") or {}).get("message.type", "unspecified").lower(),
            bool(config.get("order")),
        )  # fmt: skip


def is_system_topic(name: str) -> bool:
    """Whether a topic is of RocketMQ's own, or a group's for retries and dead letters."""
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))


async def topic_queues(client: AdminClient, topic: str, brokers: Brokers) -> list[TopicQueue]:
    """The queues of a topic, as the brokers tell that serve them (`AdminClient.ask_each`)."""

    async def look(_: str, address: str) -> list[TopicQueue]:
        answer = await client.ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return [
            TopicQueue(
                key.broker_name, key.queue_id, number(address, one, "minOffset"), number(address, one, "maxOffset"),
                number(address, one, "lastUpdateTimestamp"),
            )
            for key, one in decode_queue_table(answer.body, "offsetTable").items()
        ]  # fmt: skip

    found = await client.ask_each(brokers, look)
    return sorted((one for rows in found.values() for one in rows), key=lambda one: (one.broker, one.queue_id))


async def topic_state(client: AdminClient, topic: str) -> TopicState:
    """The state of a topic: its settings, brokers and queues.

    Raises MQClientError if there is no such topic.
    """
    return await _state_of(client, topic, brokers_of(topic, await client.route(topic)))


async def _state_of(client: AdminClient, topic: str, brokers: Brokers) -> TopicState:
    async def look(_: str, address: str) -> list[str]:
        answer = await client.ask_json(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        return [str(one) for one in answer.get("groupList", [])]

    queues = await topic_queues(client, topic, brokers)
    groups = {group for found in (await client.ask_each(brokers, look)).values() for group in found}
    return TopicState(queues, client.whole(sum(one.messages for one in queues)), client.whole(sorted(groups)))


async def check_topic(client: AdminClient, topic: str) -> None:
    """Raises MQClientError if there is no such topic, or nobody takes its messages now.

    A send would make a topic that is not there, or is on a lost broker alone.
    """
    route = await client.name_servers.route(topic)
    if route is None:
        raise MQClientError(f"{await client.no_topic(topic)}; `reput admin create-topic {topic}` makes it")
    if not publish_queues(topic, route):
        raise MQClientError(nothing_to_publish(topic, route))


async def create_topic(client: AdminClient, topic: str, queues: int, brokers: list[str] | None) -> dict[str, int]:
    """Make a topic on these brokers, or on all; returns how many queues can be read, by broker.

    A topic that is there gets the number of queues to send to, and keeps all else: what clients may do, its order. It
    keeps the queues to read, too, if these are more: nobody would get the messages of the others any more.

    Raises MQClientError for a broker that is not there, or whose master is away.
    """
    found = await client.brokers()
    for name in brokers or ():
        if name not in found:
            raise MQClientError(f"there is no broker {name!r}; there are {', '.join(sorted(found))}")
    asked = {name: found[name] for name in brokers or sorted(found)}
    try:
        chosen = masters(asked)
    except MQClientError as error:
        there = [name for name, addresses in asked.items() if MASTER_ID in addresses]
        others = f"; or make it on the others alone: `--brokers {','.join(there)}`" if there else ""
        raise MQClientError(f"{error}{others}") from error
    readable: dict[str, int] = {}

    async def make(name: str, address: str) -> None:
        table = (await client.ask_json(address, RequestCode.GET_ALL_TOPIC_CONFIG)).get("topicConfigTable", {})
        there: Mapping[str, Any] = table.get(topic, {})
        readable[name] = max(queues, number(address, there, "readQueueNums") if there else 0)
        fields = {
            "topic": topic, "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": readable[name], "writeQueueNums": queues, "perm": there.get("perm", 6),
            "topicFilterType": there.get("topicFilterType", TopicFilterType.SINGLE_TAG.value),
            "topicSysFlag": there.get("topicSysFlag", 0), "order": there.get("order", False),
        }  # fmt: skip
        await client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    await client.change_each(chosen, make)
    return {name: readable[name] for name in chosen}


async def deletable(client: AdminClient, topic: str) -> TopicState:
    """The state of a topic that a deletion would remove; nothing is changed.

    Raises MQClientError if there is no such topic, or the master of one of its brokers is away or does not answer:
    it would bring the topic back.
    """
    found = masters_of(topic, await client.route(topic))
    state = await _state_of(client, topic, {name: {MASTER_ID: address} for name, address in found.items()})
    if client.silent:
        reasons = (f"the master of {name} does not answer: {reason}" for name, reason in client.silent.items())
        raise MQClientError(f"nothing was changed: {'; '.join(reasons)}")
    return state


async def delete_topic(client: AdminClient, topic: str) -> list[str]:
    """Delete a topic on all brokers, then at all name servers; returns the names of the brokers.

    Raises MQClientError if there is no such topic, or the master of one of its brokers is away.
    """
    found = masters_of(topic, await client.route(topic))
    await client.change_each(
        found, lambda _, address: client.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    )
    await client.name_servers.forget_topic(topic)
    return sorted(found)
