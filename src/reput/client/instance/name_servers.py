"""NameServers: requests to whichever of the name servers answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reput.client.instance.mq_client_api import MQClientAPI, refusal
from reput.client.instance.peer_log import peers
from reput.errors import ConfigError, MQBrokerError, MQClientError, RemotingCommandError, RemotingError
from reput.formats.hosts import is_address
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from reput.remoting.route_bodies import TopicRouteData

_CALL_S = 3.0
#: For so long one that did not answer is not waited for again if another one answers.
_SILENT_S = 30.0
#: Field of a request for a route, or for the cluster, of who must know which brokers are away (`withLostBrokers`).
WITH_LOST = {"withLostBrokers": "true"}


def name_server_addresses(text: str) -> tuple[str, ...]:
    """The addresses of a text "host:port;host:port", each once.

    Raises ConfigError if one of them is none.
    """
    addresses = tuple(dict.fromkeys(part.strip() for part in text.replace(",", ";").split(";") if part.strip()))
    for address in addresses:
        if not is_address(address):
            raise ConfigError(f"name server {address!r}: expected HOST:PORT, as in 127.0.0.1:9876")
    if not addresses:
        raise ConfigError("no name server: give its address as HOST:PORT, several of them separated by `;`")
    return addresses


def no_answer(addresses: Sequence[str], errors: Iterable[RemotingError]) -> MQClientError:
    """The error of name servers of which none answers; `retriable` if one of them may be back later."""
    found = tuple(errors)
    error = MQClientError(f"no name server answers: {'; '.join(map(str, found))}")
    error.peer, error.retriable = ";".join(addresses), any(one.retriable for one in found)
    return error


def no_broker(addresses: Sequence[str]) -> str:
    """Text about a cluster without a broker; `addresses` of its name servers."""
    return f"the name server {';'.join(addresses)} knows no broker: start one, and let it register there"


@dataclass(slots=True)
class NameServers:
    """Asks one name server as long as it answers, and then the next one; the first one is drawn.

    Name servers do not know each other. One that was just started knows no topic until brokers register again, 30 s
    later at most: that a topic is not there is believed once none of the others knows it (`route`, `call`).

    Args:
        addresses: "host:port" of each.
        api: Asks one of them.
    """

    addresses: tuple[str, ...]
    api: MQClientAPI
    _current: str = field(init=False, default="")
    _silent: dict[str, float] = field(init=False, default_factory=dict)  # until when, by address

    def __post_init__(self) -> None:
        self._current = random.choice(self.addresses)

    async def call(
        self, command: RemotingCommand, tells: Callable[[RemotingCommand], bool] = lambda _: True
    ) -> tuple[str, RemotingCommand]:
        """The first answer that tells something, or if none does, the first one; and who gave it.

        Raises MQClientError if no name server answers.
        """
        found: list[tuple[str, RemotingCommand]] = []
        errors: list[RemotingError] = []
        for address in self._in_turn():
            if found and address in self._silent:
                continue
            try:
                answer = await self._ask(address, command)
            except RemotingError as error:
                errors.append(error)
                continue
            if tells(answer):
                self._current = address
                return address, answer
            found.append((address, answer))
        if not found:
            raise no_answer(self.addresses, errors)
        return found[0]

    def _in_turn(self) -> list[str]:
        """All addresses, from the current one on; last those that did not answer a while ago."""
        at, now = self.addresses.index(self._current), time.monotonic()
        self._silent = {address: until for address, until in self._silent.items() if now < until}
        return sorted(self.addresses[at:] + self.addresses[:at], key=self._silent.__contains__)

    async def _ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """The answer of one; if it does not answer, it is not the current one any more."""
        try:
            return await self.api.ask(address, command, _CALL_S)
        except RemotingError as error:
            peers.failed("a name server does not answer", error, address=address)
            self._silent[address] = time.monotonic() + _SILENT_S
            if address == self._current:
                self._current = self._in_turn()[0]
            raise

    async def route(self, topic: str, *, with_lost: bool = False) -> TopicRouteData | None:
        """The route of a topic; None for a topic that no name server knows.

        The first route with the address of a broker counts, and who gave it is the current one then. Name servers that
        do not answer or refuse are passed over. One that did not answer is not waited for again for a while, if
        another one answers.

        `with_lost`: for who must have all of the topic. A name server of reput's adds the queues of brokers that it has
        lost, without an address or with a slave's; RocketMQ's forgets them. Members of a group share the queues of a
        route without them, as Java's do.

        Raises MQClientError if no name server answers, MQBrokerError if those that answer refuse.
        """
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"} | (WITH_LOST if with_lost else {})
        found: list[TopicRouteData | None] = []  # where nobody is
        errors: list[RemotingError] = []
        for address in self._in_turn():
            if found and address in self._silent:
                continue
            try:
                route = await self._route_of(address, topic, fields)
            except RemotingError as error:
                errors.append(error)
                continue
            if route is not None and any(one.broker_addrs for one in route.broker_datas):
                self._current = address
                return route
            found.append(route)
        if found:
            return next((one for one in found if one is not None), None)
        raise next((error for error in errors if isinstance(error, MQBrokerError)), no_answer(self.addresses, errors))

    async def _route_of(self, address: str, topic: str, fields: Mapping[str, str]) -> TopicRouteData | None:
        """The route by one of them; raises RemotingError if it does not answer, MQBrokerError if it refuses."""
        from reput.remoting.body import decode_body  # here: an import of the client need not wait 50 ms for bodies
        from reput.remoting.route_bodies import TopicRouteData

        command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=dict(fields))
        answer = await self._ask(address, command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            text = (
                "it knows no routes, as a name server does: it may be a broker; name servers listen on 9876 as a rule"
            )
            raise MQBrokerError(address, answer.code, text)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(address, answer)
        try:
            return decode_body(TopicRouteData, answer.body)
        except RemotingCommandError as error:
            raise MQBrokerError(address, error.code, f"the route of topic {topic} is none: {error.remark}") from None
