"""Cluster: what the planner asks name servers and brokers: topics, their queues, and offsets."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from reput.client.consuming.consumer_api import ConsumerAPI
from reput.client.instance.mq_client_api import MQClientAPI, refusal
from reput.client.instance.name_servers import WITH_LOST, NameServers
from reput.client.instance.peer_log import peers
from reput.client.instance.send_request import SendRequest
from reput.client.instance.send_result import SendResult
from reput.client.instance.topic_route import (
    MASTER_ID,
    default_publish_queues,
    master_away,
    nothing_to_publish,
    publish_queues,
    serving,
    subscribe_queues,
)
from reput.errors import MQClientError, RemotingError
from reput.events import Event
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.body import decode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import QueueKey
from reput.remoting.route_bodies import TopicList, TopicRouteData
from reput.remoting.topic_validator import (
    AUTO_CREATE_TOPIC,
    DLQ_TOPIC_PREFIX,
    REPLY_TOPIC_POSTFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from reput.spark.wire.options import WireAccess, WireReadOptions
from reput.transport.blocking_client import BlockingClient, BlockingConnection

logger = logging.getLogger("reput.spark")

_T = TypeVar("_T")

#: Routes are asked for again after so long: Spark asks for a stream's latest offset up to a thousand times a second.
_ROUTES_S = 1.0
_NO_TOPIC_OF_A_USER = RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX


class Cluster:
    """Name servers and brokers as one thread asks them. Every method raises errors as of `MQClientAPI`.

    Args:
        access: How they are asked.
        clock: Seconds, for the age of routes.
    """

    def __init__(self, access: WireAccess, clock: Callable[[], float] = time.monotonic) -> None:
        self._remoting = BlockingClient(access.tls)
        self._mq = MQClientAPI(self._remoting, access.credentials)
        self._name_servers = NameServers(access.namesrv, self._mq)
        self._api = ConsumerAPI(self._mq)
        self._clock = clock
        self._routes: dict[str, tuple[float, TopicRouteData | None]] = {}
        self._topics: tuple[float, tuple[str, ...]] | None = None
        self._slaves: set[str] = set()  # names of brokers whose slave answers

    def close(self) -> None:
        """Close the connections."""
        self._remoting.close()

    # -- topics and queues

    def topics(self, options: WireReadOptions) -> tuple[str, ...]:
        """The topics that are read: the option's, or all of users that match the pattern now."""
        if options.subscribe is not None:
            return options.subscribe
        return tuple(topic for topic in self._all_topics() if options.subscribes(topic))

    def _all_topics(self) -> tuple[str, ...]:
        """The names of all topics, without RocketMQ's own and retry topics."""
        if self._topics is None or self._clock() >= self._topics[0] + _ROUTES_S:
            clusters = self._topic_names(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)  # and brokers
            own = {*SYSTEM_TOPICS, *clusters, *(f"{one}_{REPLY_TOPIC_POSTFIX}" for one in clusters)}
            names = self._topic_names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            users = (name for name in names if not (name in own or name.startswith(_NO_TOPIC_OF_A_USER)))
            self._topics = self._clock(), tuple(sorted(users))
        return self._topics[1]

    def _topic_names(self, code: RequestCode) -> tuple[str, ...]:
        command = RemotingCommand(code, ext_fields=dict(WITH_LOST))
        address, answer = _ended(self._name_servers.call(command, _has_topics))
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(address, answer)
        return decode_body(TopicList, answer.body).topic_list

    def queues(self, topics: Iterable[str]) -> tuple[QueueKey, ...]:
        """The queues of topics that give messages, also of lost brokers; none of a topic that is not there."""
        found: list[QueueKey] = []
        for topic in topics:
            route = self._route(topic)
            found += () if route is None else subscribe_queues(topic, route)
        return tuple(found)

    def publish_queues(self, topic: str) -> tuple[QueueKey, ...]:
        """The queues of a topic that take messages; of one that nobody has now, those that the first send makes.

        Raises MQClientError if there is none.
        """
        route, default = self._route(topic), None
        queues: tuple[QueueKey, ...] = ()
        if route is not None and any(one.broker_addrs for one in route.broker_datas):
            queues = publish_queues(topic, route)
        elif (default := self._route(AUTO_CREATE_TOPIC)) is not None:
            queues = default_publish_queues(topic, default)
        if not queues:
            raise MQClientError(nothing_to_publish(topic, route))
        return queues

    def _route(self, topic: str) -> TopicRouteData | None:
        asked = self._routes.get(topic)
        if asked is None or self._clock() >= asked[0] + _ROUTES_S:
            try:
                route = _ended(self._name_servers.route(topic, with_lost=True))
            except MQClientError as error:
                if asked is None:
                    raise
                peers.failed("a route stays as it was", error, topic=topic)
                route = asked[1]
            asked = self._routes[topic] = self._clock(), route
        return asked[1]

    def address(self, queue: QueueKey) -> str:
        """Address for a queue (`topic_route.serving`); it is logged once if that is a slave, which may lag.

        Raises RemotingError for none.
        """
        addresses = self._addresses(queue)
        address = serving(addresses)
        if address is None:
            raise RemotingError(f"broker {queue.broker_name} of topic {queue.topic}: no name server knows where it is")
        if MASTER_ID in addresses:
            self._slaves.discard(queue.broker_name)
        elif queue.broker_name not in self._slaves:
            self._slaves.add(queue.broker_name)
            logger.warning(Event("a slave answers, as its master is away", broker=queue.broker_name, slave=address))
        return address

    def has_master(self, queue: QueueKey) -> bool:
        """Whether a queue's end is that of its master; a slave may lag."""
        return MASTER_ID in self._addresses(queue)

    def _addresses(self, queue: QueueKey) -> Mapping[int, str]:
        for topic in (queue.topic, AUTO_CREATE_TOPIC):  # the next send makes a topic at brokers that do not have it
            route = self._route(topic)
            for one in route.broker_datas if route is not None else ():
                if one.broker_name == queue.broker_name:
                    return one.broker_addrs
        return {}

    def forget_route(self, topic: str) -> None:
        """Ask for a route again at the next use; if no name server answers then, it stays."""
        if topic in self._routes:
            self._routes[topic] = -math.inf, self._routes[topic][1]

    # -- offsets

    def earliest(self, queue: QueueKey) -> int:
        """The offset of the first message that is there."""
        return _ended(self._api.min_offset(self.address(queue), queue))

    def latest(self, queue: QueueKey) -> int:
        """The offset of the next message."""
        return _ended(self._api.max_offset(self.address(queue), queue))

    def at(self, queue: QueueKey, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at a time or after it.

        RocketMQ before 5.0 may tell the message before it.
        """
        return _ended(self._api.search_offset(self.address(queue), queue, timestamp_ms))

    def commit(self, group: str, offsets: Mapping[QueueKey, int]) -> None:
        """Tell the brokers how far a group is. If a broker refuses, the log says so, and the others go on."""
        for queue, offset in offsets.items():
            try:
                _ended(self._api.commit(self.address(queue), group, queue, offset))
            except (RemotingError, MQClientError) as error:
                peers.failed("a group's progress was not kept", error, group=group, queue=queue)

    # -- what tasks use

    def open(self, address: str) -> BlockingConnection:
        """The connection to a broker."""
        return self._remoting.open(address)

    def drop(self, address: str) -> None:
        """Close the connection to a broker, after an error."""
        self._remoting.drop(address)

    def prepared(self, command: RemotingCommand) -> RemotingCommand:
        """A request as it is sent."""
        return self._mq.prepared(command)

    def send(self, group: str, queue: QueueKey, request: SendRequest, timeout_s: float) -> list[SendResult]:
        """Send messages to a queue's master; a result for each."""
        address = self._addresses(queue).get(MASTER_ID)
        if address is None:
            raise RemotingError(master_away([queue.broker_name]))
        return _ended(self._mq.send(address, group, queue, request, timeout_s))


def _has_topics(answer: RemotingCommand) -> bool:
    """Whether a name server knows any topic; one that was just started does not."""
    return answer.code == ResponseCode.SUCCESS and bool(decode_body(TopicList, answer.body).topic_list)


def _ended(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine over `BlockingClient`: it ends in one step, as nothing in it waits for a loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: _T = stop.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine over a BlockingClient waits for a loop")
