"""NameServers: requests to whichever of the name servers answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reput.client.mq_client_api import MQClientAPI, refusal
from reput.client.peer_log import peers
from reput.errors import ConfigError, MQBrokerError, MQClientError, RemotingCommandError, RemotingError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from reput.remoting.route_bodies import TopicRouteData

_CALL_S = 3.0
#: Field of a request for a route, or for the cluster, of who must know which brokers are away (`withLostBrokers`).
WITH_LOST = {"withLostBrokers": "true"}


def name_server_addresses(text: str) -> tuple[str, ...]:
    """The addresses of a text "host:port;host:port".

    Raises ConfigError where one of them is none.
    """
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) <= 0xFFFF):
            raise ConfigError(f"name server {address!r}: expected HOST:PORT, as in 127.0.0.1:9876")
    if not addresses:
        raise ConfigError("no name server: give its address as HOST:PORT, several of them separated by `;`")
    return addresses


def no_answer(addresses: Sequence[str], reasons: Iterable[str]) -> MQClientError:
    """The error of name servers of which none answers."""
    error = MQClientError(f"no name server answers: {'; '.join(reasons)}")
    error.peer = ";".join(addresses)
    return error


def no_broker(addresses: Sequence[str]) -> str:
    """Text about a cluster without a broker; `addresses` of its name servers."""
    return f"the name server {';'.join(addresses)} knows no broker: start one, and let it register there"


@dataclass(slots=True)
class NameServers:
    """Asks one name server as long as it answers, and then the next one; the first one is drawn.

    Args:
        addresses: "host:port" of each.
        api: Asks one of them.
    """

    addresses: tuple[str, ...]
    api: MQClientAPI
    _current: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._current = random.randrange(len(self.addresses))

    async def call(self, command: RemotingCommand, timeout_s: float = _CALL_S) -> tuple[str, RemotingCommand]:
        """The answer to a request, and who gave it.

        Raises MQClientError where no name server answers.
        """
        reasons = []
        for _ in self.addresses:
            address = self.addresses[self._current]
            try:
                return address, await self.api.ask(address, command, timeout_s)
            except RemotingError as error:
                peers.failed("a name server does not answer", error, address=address)
                reasons.append(str(error))
                self._current = (self._current + 1) % len(self.addresses)
        raise no_answer(self.addresses, reasons)

    async def route(self, topic: str, *, with_lost: bool = False) -> TopicRouteData | None:
        """Where the queues of a topic are; None for a topic that the name server does not know.

        `with_lost`: for who must have all of the topic. A name server of reput's adds the queues of brokers that it has
        lost, without an address or with a slave's; RocketMQ's forgets them. Members of a group share the queues of a
        route without them, as Java's do.

        Raises MQClientError where no name server answers, MQBrokerError where one refuses.
        """
        from reput.remoting.body import decode_body  # here: an import of the client need not wait 50 ms for bodies
        from reput.remoting.route_bodies import TopicRouteData

        fields = {"topic": topic, "acceptStandardJsonOnly": "true"} | (WITH_LOST if with_lost else {})
        address, answer = await self.call(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(address, answer)
        try:
            return decode_body(TopicRouteData, answer.body)
        except RemotingCommandError as error:
            raise MQBrokerError(address, error.code, f"the route of topic {topic} is none: {error.remark}") from None
