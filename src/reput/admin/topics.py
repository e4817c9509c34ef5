"""Clusters and topics, as an operator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reput.admin.admin_client import AdminClient, gather, masters, unknown
from reput.errors import MQClientError
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.codes import RequestCode
from reput.remoting.queue_tables import decode_queue_table
from reput.service.topic_validator import DLQ_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

_PERMS = {0: "none", 1: "template", 2: "w", 4: "r", 6: "rw", 7: "rw, template"}


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker that runs: messages a second of the last ten seconds, and how full the log's disk is (0 to 1)."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_tps: float
    out_tps: float
    disk_ratio: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its queues and what clients may do, of all brokers together."""

    topic: str
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
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


async def brokers(client: AdminClient) -> list[Broker]:
    """All brokers of all clusters."""
    info = await client.cluster()
    asked = [
        (one.cluster, one.broker_name, broker_id, address)
        for one in sorted(info.broker_addr_table.values(), key=lambda one: (one.cluster, one.broker_name))
        for broker_id, address in sorted(one.broker_addrs.items())
    ]

    async def look(one: tuple[str, str, int, str]) -> Broker:
        table = (await client.ask_json(one[3], RequestCode.GET_BROKER_RUNTIME_INFO)).get("table", {})
        out = table.get("getTransferredTps") or table.get("getTransferedTps")  # the second one before 5.0
        ratio = table.get("commitLogDiskRatio")
        return Broker(*one, table.get("brokerVersionDesc", ""), _rate(table.get("putTps")), _rate(out), _rate(ratio))

    return await gather(look, asked)


def _rate(text: Any) -> float:
    """The first number of a text of some; 0 where there is none."""
    try:
        return float(str(text).split()[0])
    except (ValueError, IndexError):
        return 0.0


async def topics(client: AdminClient, *, with_system: bool = False) -> list[Topic]:
    """All topics; those of groups and of the system where they are asked for."""
    info = await client.cluster()
    clusters = info.cluster_addr_table
    own = {*clusters, *info.broker_addr_table, *(f"{one}_REPLY_TOPIC" for one in clusters)}

    async def look(one: tuple[str, str]) -> tuple[str, Mapping[str, Any]]:
        found = await client.ask_json(one[1], RequestCode.GET_ALL_TOPIC_CONFIG)
        return one[0], found.get("topicConfigTable", {})

    rows: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for broker, table in await gather(look, (await client.masters()).items()):
        for name, config in table.items():
            if with_system or not (name in own or is_system_topic(name)):
                rows.setdefault(name, []).append((broker, config))
    return [_topic(name, rows[name]) for name in sorted(rows)]


def _topic(name: str, rows: list[tuple[str, Mapping[str, Any]]]) -> Topic:
    configs = [config for _, config in rows]
    perm = configs[0].get("perm", 6)
    return Topic(
        name, tuple(sorted(broker for broker, _ in rows)), sum(one.get("readQueueNums", 0) for one in configs),
        sum(one.get("writeQueueNums", 0) for one in configs), _PERMS.get(perm, str(perm)),
        (configs[0].get("attributes") or {}).get("message.type", "unspecified").lower(),
        any(one.get("order", False) for one in configs),
    )  # fmt: skip


def is_system_topic(name: str) -> bool:
    """Whether a topic is of RocketMQ's own, or a group's for retries and dead letters."""
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))


async def topic_queues(client: AdminClient, topic: str) -> list[TopicQueue]:
    """The queues of a topic on all masters."""

    async def look(address: str) -> list[TopicQueue]:
        answer = await client.ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return [
            TopicQueue(
                key.broker_name, key.queue_id, one.get("minOffset", 0), one.get("maxOffset", 0),
                one.get("lastUpdateTimestamp", 0),
            )
            for key, one in decode_queue_table(answer.body, "offsetTable").items()
        ]  # fmt: skip

    found = await gather(look, masters((await client.route(topic)).broker_datas).values())
    return sorted((one for rows in found for one in rows), key=lambda one: (one.broker, one.queue_id))


async def groups_of_topic(client: AdminClient, topic: str) -> list[str]:
    """The groups that subscribe to a topic, or have offsets in it."""

    async def look(address: str) -> list[str]:
        answer = await client.ask_json(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        return [str(one) for one in answer.get("groupList", [])]

    found = await gather(look, masters((await client.route(topic)).broker_datas).values())
    return sorted({group for groups in found for group in groups})


async def create_topic(client: AdminClient, topic: str, queues: int, brokers: list[str] | None) -> list[str]:
    """Make a topic on these brokers, or on all; returns the names of the brokers. One that is there is changed.

    Raises MQClientError for a broker that is not there.
    """
    found = await client.masters()
    for name in brokers or ():
        if name not in found:
            raise MQClientError(f"there is no broker {name!r}; there are {', '.join(sorted(found))}")
    chosen = brokers or sorted(found)
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    for name in chosen:
        await client.ask(found[name], RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    return chosen


async def delete_topic(client: AdminClient, topic: str) -> list[str]:
    """Delete a topic on all brokers, then at all name servers; returns the names of the brokers."""
    names = await client.topic_names()
    if topic not in names:
        raise MQClientError(unknown("topic", topic, names))
    found = masters((await client.route(topic)).broker_datas)
    for address in found.values():
        await client.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    await client.forget_topic(topic)
    return sorted(found)
