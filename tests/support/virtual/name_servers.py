"""A name server in memory, at an address of a virtual net."""

from __future__ import annotations

import random

from reput.client.instance.topic_route import MASTER_ID
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.route_bodies import BrokerData, QueueData, TopicRouteData
from reput.transport.connection import Connection
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import ModelBroker, Server
from tests.support.virtual.slaves import SLAVE_ID


class ModelNameServer(Server):
    """Knows where the queues of one topic are.

    Attributes:
        knows: The brokers whose master is registered.
        slaves: Those that are registered, by broker name: while their master is not, they have its queues.
    """

    def __init__(
        self, loop: VirtualLoop, address: str, chance: random.Random, brokers: list[ModelBroker], queues: int
    ) -> None:
        super().__init__(loop, address, chance, {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})
        self.knows = {broker.name for broker in brokers}
        self.slaves: dict[str, ModelBroker] = {}
        self._brokers = brokers
        self._queues = queues

    def add(self, broker: ModelBroker) -> None:
        """Know one more broker."""
        self._brokers.append(broker)
        self.knows.add(broker.name)

    def _addresses(self, broker: ModelBroker) -> dict[int, str]:
        """The addresses of a broker name by id; none if nobody of the name is registered."""
        slave = self.slaves.get(broker.name)
        found = {MASTER_ID: broker.address} if broker.name in self.knows else {}
        return found if slave is None else {**found, SLAVE_ID: slave.address}

    def _route(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = (command.ext_fields or {})["topic"]
        known = {
            broker.name: addresses
            for broker in self._brokers
            if topic in broker.topics and (addresses := self._addresses(broker))
        }
        if not known:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        count = 1 if topic.startswith("%") else self._queues
        route = TopicRouteData(
            tuple(QueueData(name, count, count, 6) for name in known),
            tuple(BrokerData("c", name, addresses) for name, addresses in known.items()),
        )
        return command.response(body=encode_body(route))
