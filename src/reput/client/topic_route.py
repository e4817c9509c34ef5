"""Queues of a topic out of its route (`MQClientInstance.topicRouteData2TopicPublishInfo`); pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reput.remoting.codes import PermName
from reput.remoting.queue_tables import QueueKey

if TYPE_CHECKING:
    from reput.remoting.route_bodies import TopicRouteData

#: Id of a broker name's master.
MASTER_ID = 0
#: The topic whose route is that of topics which a send makes, and the most queues of such a topic.
DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES = "TBW102", 4


def publish_queues(topic: str, route: TopicRouteData) -> tuple[QueueKey, ...]:
    """The queues that take messages: writable, and their master is there."""
    masters = {one.broker_name for one in route.broker_datas if MASTER_ID in one.broker_addrs}
    if route.order_topic_conf:
        return tuple(queue for queue in _ordered(topic, route.order_topic_conf) if queue.broker_name in masters)
    return tuple(
        QueueKey(topic, one.broker_name, queue_id)
        for one in sorted(route.queue_datas, key=lambda one: one.broker_name)
        if one.perm & PermName.WRITE and one.broker_name in masters
        for queue_id in range(one.write_queue_nums)
    )


def default_publish_queues(topic: str, route: TopicRouteData) -> tuple[QueueKey, ...]:
    """The queues that a topic will have which the first send makes, by the route of `DEFAULT_TOPIC`."""
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


def _ordered(topic: str, conf: str) -> Iterator[QueueKey]:
    """Queues of an order topic: `broker-a:4;broker-b:4`; a part that is none is left out."""
    for part in conf.split(";"):
        broker_name, _, count = part.partition(":")
        if count.isascii() and count.isdigit():
            yield from (QueueKey(topic, broker_name, queue_id) for queue_id in range(int(count[:5])))
