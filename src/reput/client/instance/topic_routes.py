"""TopicRoutes: where queues and brokers are, as the name servers said last."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from reput.client.instance.peer_log import peers
from reput.client.instance.topic_route import (
    MASTER_ID,
    default_publish_queues,
    nothing_to_publish,
    publish_queues,
    serving,
    subscribe_queues,
)
from reput.errors import MQClientError, ReputError
from reput.events import Event
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from reput.remoting.route_bodies import TopicRouteData

logger = logging.getLogger("reput.client")

#: A route that a failed send asks for again is as old as this at least.
_RENEW_AFTER_S = 1.0


class TopicRoutes:
    """Routes of the topics that are in use, kept until they are refreshed.

    Args:
        ask: Asks the name servers for a topic's route, `NameServers.route`.
        changed: Called after routes have changed.
    """

    def __init__(self, ask: Callable[[str], Awaitable[TopicRouteData | None]], changed: Callable[[], None]) -> None:
        self._ask = ask
        self._changed = changed
        self._routes: dict[str, TopicRouteData] = {}  # the newest last: it knows best where brokers are
        self._publish: dict[str, tuple[QueueKey, ...]] = {}
        self._asked_at: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._without_queues: set[str] = set()  # consumed topics of which a line was logged

    async def publish_queues(self, topic: str) -> tuple[QueueKey, ...]:
        """The queues to send to, one at least.

        Raises MQClientError if the topic has none, or no name server answers.
        """
        found = self._publish.get(topic)
        if not found:
            await self._fetch(topic)
            found = self._publish.get(topic)
        if not found:
            raise MQClientError(nothing_to_publish(topic, self._routes.get(topic)))
        return found

    async def subscribe_queues(self, topic: str) -> tuple[QueueKey, ...]:
        """The queues to consume, sorted; none for a topic that is not there, of which one line is logged.

        Raises MQClientError if no name server answers.
        """
        await self.look_up(topic)
        route = self._routes.get(topic)
        queues = () if route is None else subscribe_queues(topic, route)
        if queues:
            self._without_queues.discard(topic)
        elif topic not in self._without_queues and not topic.startswith(RETRY_TOPIC_PREFIX):  # brokers make those
            self._without_queues.add(topic)
            why = "no name server knows the topic" if route is None else "no broker lets read the topic"
            logger.warning(Event(f"nothing is consumed until this changes: {why}", topic=topic))
        return queues

    async def look_up(self, topic: str) -> None:
        """Ask for a topic's route, unless somebody has; raises MQClientError if no name server answers."""
        if topic not in self._asked_at:
            await self._fetch(topic)

    async def follow(self, topic: str) -> None:
        """Ask for a topic's route from now on, also if nobody tells it yet: its brokers hear who is here."""
        self._asked_at.setdefault(topic, -math.inf)
        await self.renew(topic)

    async def renew(self, topic: str) -> None:
        """Ask for a route again, since a broker of it did not answer; if that fails, the route stays."""
        try:
            await self._fetch(topic, max_age_s=_RENEW_AFTER_S)
        except ReputError as error:
            peers.failed("a route stays as it was", error, topic=topic)

    async def refresh(self) -> None:
        """Ask for all routes again; those that nobody tells stay."""
        for topic in list(self._asked_at):
            try:
                await self._fetch(topic)
            except ReputError as error:
                peers.failed("a route stays as it was", error, topic=topic)

    async def _fetch(self, topic: str, max_age_s: float = 0.0) -> None:
        """Ask for a route, once for all that wait for it; unless there is one that is not older."""
        now = asyncio.get_running_loop().time
        begun = now()
        async with self._locks.setdefault(topic, asyncio.Lock()):
            asked_at = self._asked_at.get(topic)
            if asked_at is not None and asked_at + max_age_s > begun:
                return
            route = await self._ask(topic)
            self._asked_at[topic] = now()
            if route is not None:
                self._publish[topic] = publish_queues(topic, route)
                self._keep(topic, route)
            elif topic not in self._routes:
                default = await self._ask(AUTO_CREATE_TOPIC)
                if default is not None:
                    self._publish[topic] = default_publish_queues(topic, default)
                    self._keep(AUTO_CREATE_TOPIC, default)

    def _keep(self, topic: str, route: TopicRouteData) -> None:
        is_new = self._routes.pop(topic, None) != route
        self._routes[topic] = route
        if is_new:
            self._changed()

    def address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The "host:port" of who serves a broker's queues (`serving`); None for no such name."""
        return serving(self.broker(broker_name), broker_id)

    def master(self, broker_name: str) -> str | None:
        """The "host:port" of a master; None if it is not there."""
        return self.broker(broker_name).get(MASTER_ID)

    def broker(self, broker_name: str) -> Mapping[int, str]:
        """The addresses of a broker name by id; none if nobody has the name."""
        for route in reversed(self._routes.values()):
            for one in route.broker_datas:
                if one.broker_name == broker_name:
                    return one.broker_addrs
        return {}

    def brokers_of(self, topic: str) -> list[str]:
        """The addresses of who serves a topic's queues."""
        route = self._routes.get(topic)
        served = () if route is None else (serving(one.broker_addrs) for one in route.broker_datas)
        return [address for address in served if address is not None]

    def addresses(self, *, with_slaves: bool) -> set[str]:
        """The addresses of all brokers that are known."""
        return {
            address
            for route in self._routes.values()
            for one in route.broker_datas
            for broker_id, address in one.broker_addrs.items()
            if with_slaves or broker_id == MASTER_ID
        }
