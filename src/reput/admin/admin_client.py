"""AdminClient: requests of an operator to name servers and brokers (`DefaultMQAdminExt`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from reput.client.consumer_api import ConsumerAPI
from reput.client.mq_client_api import MQClientAPI, checked
from reput.client.name_servers import NameServers, name_server_addresses
from reput.client.session_credentials import SessionCredentials
from reput.client.topic_route import MASTER_ID
from reput.errors import MQClientError, RemotingCommandError, RemotingError
from reput.remoting.body import decode_body, decode_json
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.route_bodies import BrokerData, ClusterInfo, TopicList, TopicRouteData
from reput.transport.client import RemotingClient
from reput.transport.tls import ClientTls

_T = TypeVar("_T")
_R = TypeVar("_R")

#: How long a broker may take to look at all groups, or to make a topic.
_CALL_S = 10.0
#: Requests that are under way at once.
_AT_ONCE = 16


class AdminClient:
    """Asks name servers where brokers are, and brokers what they have.

        async with AdminClient("127.0.0.1:9876") as client:
            print(await client.topic_names())

    Every method raises MQClientError where no name server answers, RemotingError where a broker cannot be reached, and
    MQBrokerError where one of them refuses.

    Args:
        namesrv: The name servers, "host:port;host:port".
        credentials: Sign each request; None for none.
        tls: How to talk TLS; None for the plain protocol.
    """

    def __init__(
        self, namesrv: str, *, credentials: SessionCredentials | None = None, tls: ClientTls | None = None
    ) -> None:
        self.credentials, self.tls = credentials, tls
        self._remoting = RemotingClient(tls=tls)
        self._addresses = name_server_addresses(namesrv)
        self.api = MQClientAPI(self._remoting, credentials)
        self.name_servers = NameServers(self._addresses, self.api)
        self.queues = ConsumerAPI(self.api)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._remoting.close()

    # -- name servers

    async def _ask(self, code: int, fields: dict[str, str] | None = None) -> tuple[str, RemotingCommand]:
        address, answer = await self.name_servers.call(RemotingCommand(code, ext_fields=fields))
        return address, checked(address, answer)

    async def cluster(self) -> ClusterInfo:
        """All clusters and their brokers."""
        address, answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return _decoded(address, answer, lambda body: decode_body(ClusterInfo, body))

    async def topic_names(self) -> list[str]:
        """The names of all topics, sorted."""
        address, answer = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(_decoded(address, answer, lambda body: decode_body(TopicList, body)).topic_list)

    async def route(self, topic: str) -> TopicRouteData:
        """Where the queues of a topic are.

        Raises MQClientError, with the nearest name, where there is no such topic.
        """
        route = await self.name_servers.route(topic)
        if route is None:
            raise MQClientError(unknown("topic", topic, await self.topic_names()))
        return route

    async def forget_topic(self, topic: str) -> None:
        """Let all name servers forget a topic."""
        for address in self._addresses:
            command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext_fields={"topic": topic})
            checked(address, await self.api.ask(address, command, _CALL_S))

    # -- brokers

    async def masters(self) -> dict[str, str]:
        """The address of each broker's master, by broker name.

        Raises MQClientError where no broker is registered.
        """
        found = masters((await self.cluster()).broker_addr_table.values())
        if not found:
            raise MQClientError(
                f"the name server {';'.join(self._addresses)} knows no broker: start one, and let it register there"
            )
        return found

    async def ask(
        self, address: str, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The answer of success to a request; `fields` as Java names them."""
        texts = {name: _text(value) for name, value in (fields or {}).items()}
        command = RemotingCommand(code, ext_fields=texts, body=body)
        return checked(address, await self.api.ask(address, command, _CALL_S))

    async def ask_json(self, address: str, code: int, fields: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The body of an answer that is one JSON object."""
        value = _decoded(address, await self.ask(address, code, fields), decode_json)
        if not isinstance(value, dict):
            raise RemotingError(f"{address}: the answer to request {code} is no JSON object")
        return value


def masters(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """The address of each broker's master, by broker name."""
    return {one.broker_name: one.broker_addrs[MASTER_ID] for one in brokers if MASTER_ID in one.broker_addrs}


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Text about a name that nobody knows, with the nearest one."""
    nearest = get_close_matches(name, list(names), n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; `reput admin {kind}s` lists them"
    return f"there is no {kind} {name!r}{hint}"


async def gather(ask: Callable[[_T], Awaitable[_R]], of: Iterable[_T]) -> list[_R]:
    """What is answered for each, a few at once, in their order."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(asked: _T) -> _R:
        async with room:
            return await ask(asked)

    return await asyncio.gather(*map(one, of))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(address: str, answer: RemotingCommand, decode: Callable[[bytes], _T]) -> _T:
    try:
        return decode(answer.body)
    except RemotingCommandError as error:
        raise RemotingError(f"{address}: an answer that cannot be read: {error.remark}") from None
