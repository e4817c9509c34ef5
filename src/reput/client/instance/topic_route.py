"""Queues of a topic out of its route, and who serves them (`MQClientInstance`); pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from reput.remoting.codes import PermName
from reput.remoting.queue_tables import QueueKey

if TYPE_CHECKING:
    from reput.remoting.route_bodies import BrokerData, TopicRouteData

#: Id of a broker name's master.
MASTER_ID = 0
#: The topic whose route is that of topics which a send makes, and the most queues of such a topic.
DEFAULT_TOPIC_QUEUES = 4


def serving(addresses: Mapping[int, str], broker_id: int = MASTER_ID) -> str | None:
    """Address for a broker name's queues: of the broker with an id; else of the master, else of the slave of lowest id.

    All reads go there: pulls, and what an offset or a number is (`findBrokerAddressInSubscribe`). What changes
    something goes to the master alone. None if nobody is there: what would be read is then not known, and is not 0.

    Args:
        addresses: "host:port" by broker id, as a route or a cluster has them.
        broker_id: Of the broker that was suggested.
    """
    if broker_id in addresses:
        return addresses[broker_id]
    return addresses[min(addresses)] if addresses else None


def together(datas: Iterable[BrokerData]) -> dict[str, BrokerData]:
    """Brokers of several name servers, by name, with all addresses that any of them knows."""
    found: dict[str, BrokerData] = {}
    for one in datas:
        before = found.get(one.broker_name, one)
        found[one.broker_name] = replace(before, broker_addrs={**one.broker_addrs, **before.broker_addrs})
    return dict(sorted(found.items()))


def publish_queues(topic: str, route: TopicRouteData) -> tuple[QueueKey, ...]:
    """The queues that take messages (`topicRouteData2TopicPublishInfo`): writable, and their master is there."""
    masters = _masters(route)
    if route.order_topic_conf:
        return tuple(queue for queue in _ordered(topic, route.order_topic_conf) if queue.broker_name in masters)
    return tuple(
        QueueKey(topic, one.broker_name, queue_id)
        for one in sorted(route.queue_datas, key=lambda one: one.broker_name)
        if one.perm & PermName.WRITE and one.broker_name in masters
        for queue_id in range(one.write_queue_nums)
    )


def nothing_to_publish(topic: str, route: TopicRouteData | None) -> str:
    """Text about a topic without a queue that takes messages; `route`: None for a topic that is not there."""
    found = f"topic {topic!r} has no queue that takes messages: "
    if route is None:
        return (
            f"{found}make it with `reput admin create-topic {topic}`, or let a broker with autoCreateTopicEnable make "
            "it; and see that a broker runs and is registered"
        )
    named = {queue.broker_name for queue in _ordered(topic, route.order_topic_conf or "")}
    away = (named or {one.broker_name for one in route.queue_datas if one.perm & PermName.WRITE}) - _masters(route)
    if not away:
        return f"{found}nobody may write to it"
    return f"{found}{master_away(away)}"


def nothing_to_subscribe(topic: str) -> str:
    """Text about a topic without a queue that gives messages."""
    return f"topic {topic!r} has no queue that gives messages: nobody may read it"


def master_away(broker_names: Iterable[str]) -> str:
    """Text about brokers whose master is to change something, and is not there."""
    return (
        f"the master of {', '.join(sorted(broker_names))} is away, and a slave changes nothing: start it, or make a "
        "slave the master"
    )


def nobody_there(broker_names: Iterable[str]) -> str:
    """Text about brokers that a topic, or the cluster, has, and of which no master and no slave is registered."""
    names = sorted(broker_names)
    commands = " and ".join(f"`reput admin forget-broker {quote(name)}`" for name in names)
    return (
        f"no name server knows where {', '.join(names)} is: start it; if it is gone for ever, {commands} lets name "
        "servers forget it"
    )


def default_publish_queues(topic: str, route: TopicRouteData) -> tuple[QueueKey, ...]:
    """The queues that a topic will have which the first send makes, by the route of `AUTO_CREATE_TOPIC`."""
    return tuple(queue for queue in publish_queues(topic, route) if queue.queue_id < DEFAULT_TOPIC_QUEUES)


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[QueueKey, ...]:
    """The queues that give messages, in the order that all members of a group agree on."""
    if route.order_topic_conf:
        return tuple(sorted(_ordered(topic, route.order_topic_conf)))
    return tuple(
        sorted(
            QueueKey(topic, one.broker_name, queue_id)
            for one in route.queue_datas
            if one.perm & PermName.READ
            for queue_id in range(one.read_queue_nums)
        )
    )


def _masters(route: TopicRouteData) -> set[str]:
    return {one.broker_name for one in route.broker_datas if MASTER_ID in one.broker_addrs}


def _ordered(topic: str, conf: str) -> Iterator[QueueKey]:
    """Queues of an order topic: `broker-a:4;broker-b:4`; a part that is none is left out."""
    for part in conf.split(";"):
        broker_name, _, count = part.partition(":")
        if count.isascii() and count.isdigit():
            yield from (QueueKey(topic, broker_name, queue_id) for queue_id in range(int(count[:5])))
