"""AdminClient: requests of an operator to name servers and brokers (`DefaultMQAdminExt`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from shlex import quote
from typing import Any, Self, TypeVar

from reput.admin.all_name_servers import AllNameServers
from reput.client.consuming.consumer_api import ConsumerAPI
from reput.client.instance.arguments import check_arguments
from reput.client.instance.mq_client_api import MQClientAPI, checked
from reput.client.instance.name_servers import name_server_addresses, no_broker
from reput.client.instance.session_credentials import SessionCredentials
from reput.client.instance.topic_route import MASTER_ID, master_away, nobody_there, subscribe_queues
from reput.errors import MQBrokerError, MQClientError, RemotingCommandError, RemotingError
from reput.remoting.body import decode_json
from reput.remoting.command import RemotingCommand
from reput.remoting.route_bodies import ClusterInfo, TopicRouteData
from reput.transport.client import RemotingClient
from reput.transport.tls import ClientTls

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Addresses by broker name, and there by broker id.
Brokers = Mapping[str, Mapping[int, str]]

#: How long a broker may take to look at all groups, or to make a topic.
_CALL_S = 10.0
#: Requests that are under way at once.
_AT_ONCE = 16


class AdminClient:
    """Asks name servers where brokers are, and brokers what they have.

        async with AdminClient("127.0.0.1:9876") as client:
            print(await client.cluster())

    Every method raises MQClientError if no name server answers, RemotingError if a broker cannot be reached, and
    MQBrokerError if one of them refuses.

    What is looked at is asked of the master of each broker name, and of its slaves if the master is away or does not
    answer (`ask_each`). What is changed is asked of masters alone (`masters`).

    Args:
        namesrv: The name servers, "host:port;host:port".
        credentials: Sign each request; None for none.
        tls: How to talk TLS; None for the plain protocol.

    Raises ConfigError for an argument that is none.

    Attributes:
        slaves: What is to be said of the brokers whose slave has answered, by broker name: a slave may lag.
        silent: Why nobody has answered for a broker, by broker name. If it is not empty, what was asked of all
            brokers is of the others alone, and what they make together is not known (`whole`).
    """

    def __init__(
        self, namesrv: str, *, credentials: SessionCredentials | None = None, tls: ClientTls | None = None
    ) -> None:
        check_arguments(namesrv=namesrv, credentials=credentials, tls=tls)
        self.credentials, self.tls = credentials, tls
        self._remoting = RemotingClient(tls=tls)
        self.api = MQClientAPI(self._remoting, credentials)
        self.name_servers = AllNameServers(name_server_addresses(namesrv), self.api)
        self.queues = ConsumerAPI(self.api)
        self.slaves: dict[str, str] = {}
        self.silent: dict[str, str] = {}
        self._failures: dict[str, str] = {}  # by address: who did not answer is not waited for again

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._remoting.close()

    # -- name servers

    async def cluster(self) -> ClusterInfo:
        """All clusters and their brokers; those that a name server has lost are without an address.

        Raises MQClientError if no broker is registered.
        """
        found = await self.name_servers.cluster()
        if not found.broker_addr_table:
            raise MQClientError(no_broker(self.name_servers.addresses))
        return found

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic: its queues, with the queues of lost brokers.

        Raises MQClientError, with the nearest name, if name servers know no such topic, or no broker.
        """
        route = await self.name_servers.route(topic)
        if route is None:
            raise MQClientError(await self.no_topic(topic))
        return route

    async def no_topic(self, topic: str) -> str:
        """Text about a topic that name servers do not know: they learn it from a master, which may be away."""
        brokers = (await self.cluster()).broker_addr_table.values()
        text = unknown("topic", topic, await self.name_servers.topic_names())
        away = sorted(one.broker_name for one in brokers if MASTER_ID not in one.broker_addrs)
        if away:
            text += (
                f"; or its broker is {' or '.join(away)}, whose master is away: name servers learn topics from masters"
            )
        return text

    # -- brokers

    async def brokers(self) -> Brokers:
        """All brokers; errors as of `cluster`."""
        return {name: one.broker_addrs for name, one in (await self.cluster()).broker_addr_table.items()}

    async def ask_each(self, brokers: Brokers, look: Callable[[str, str], Awaitable[_R]]) -> dict[str, _R]:
        """Answers of the brokers, by broker name, without the `silent` ones.

        Raises MQBrokerError if one refuses, RemotingError if nobody answers for any of them.

        Args:
            brokers: Who is asked.
            look: Asks one: its broker name, and the address of the master or of a slave.
        """
        answers: dict[str, _R] = {}

        async def ask(name: str) -> None:
            for broker_id, address in sorted(brokers[name].items()):
                if address in self._failures:
                    continue
                try:
                    answers[name] = await look(name, address)
                except MQBrokerError:
                    raise
                except RemotingError as error:
                    self._failures[address] = str(error)
                    continue
                if broker_id != MASTER_ID:
                    self.slaves[name] = self._of_slave(name, address, brokers[name].get(MASTER_ID))
                return
            reasons = [self._failures[address] for _, address in sorted(brokers[name].items())]
            self.silent[name] = "; ".join(reasons) or nobody_there([name])

        await gather(ask, brokers)
        if brokers and not answers:
            raise RemotingError("; ".join(self.notes()))
        return {name: answers[name] for name in sorted(answers)}

    def _of_slave(self, name: str, address: str, master: str | None) -> str:
        """Text about a slave that has answered."""
        what = "is away" if master is None else f"does not answer ({self._failures[master]})"
        return f"the master of {name} {what}; its slave {address} answers, which may lag"

    def notes(self) -> list[str]:
        """Notes on an answer: the slaves that have given it, and the brokers for which nobody has answered."""
        silent = (f"nobody answers for {name}: {reason}" for name, reason in sorted(self.silent.items()))
        return [*(note for _, note in sorted(self.slaves.items())), *silent]

    def whole(self, value: _T) -> _T | None:
        """A value of all brokers together; None if one of them is silent: then nobody knows the value."""
        return None if self.silent else value

    def ask_again(self) -> None:
        """Ask those again that did not answer: they may be back."""
        for found in (self.slaves, self.silent, self._failures):
            found.clear()
        self.name_servers.ask_again()

    async def change_each(self, masters: Mapping[str, str], change: Callable[[str, str], Awaitable[object]]) -> None:
        """Let masters change something, one after the other; `change` asks one: its broker name, and its address.

        Raises what the first one raises that fails, and if others have done it, MQClientError that names them.
        """
        done: list[str] = []
        for name, address in sorted(masters.items()):
            try:
                await change(name, address)
            except RemotingError as error:
                if not done:
                    raise
                left = ", ".join(sorted(masters.keys() - set(done)))
                raise MQClientError(f"{error}; it is done on {', '.join(done)}, and not on {left}") from error
            done.append(name)

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


def brokers_of(topic: str, route: TopicRouteData) -> Brokers:
    """The brokers of a topic; without an address those that are lost, or that an order topic names and nobody knows."""
    named: Brokers = {queue.broker_name: {} for queue in subscribe_queues(topic, route)}
    return {**named, **{one.broker_name: one.broker_addrs for one in route.broker_datas}}


def masters_of(topic: str, route: TopicRouteData) -> dict[str, str]:
    """The address of the master of each of a topic's brokers, by broker name.

    Raises MQClientError as `masters`, and if the topic's order names a broker that name servers do not know.
    """
    brokers = brokers_of(topic, route)
    strange = brokers.keys() - {one.broker_name for one in route.broker_datas}
    if strange:
        parts = (route.order_topic_conf or "").split(";")
        rest = ";".join(part for part in parts if part.partition(":")[0] not in strange)
        command = f"mqadmin updateOrderConf -m put -t {quote(topic)} -v {quote(rest)}"
        raise MQClientError(
            f"nothing was changed: the order of topic {topic!r} names {', '.join(sorted(strange))}, and no name server "
            f"knows such a broker: start it, or leave it out by `{command}`"
        )
    return masters(brokers)


def masters(brokers: Brokers) -> dict[str, str]:
    """The address of each broker's master, which alone changes anything, by broker name.

    Raises MQClientError if one of them is away: nothing is to be changed at the others alone.
    """
    lost = [name for name, addresses in brokers.items() if not addresses]
    away = [name for name, addresses in brokers.items() if addresses and MASTER_ID not in addresses]
    if lost or away:
        reasons = [text(names) for text, names in ((nobody_there, lost), (master_away, away)) if names]
        raise MQClientError(f"nothing was changed: {'; '.join(reasons)}")
    return {name: addresses[MASTER_ID] for name, addresses in brokers.items()}


def number(address: str, fields: Mapping[str, Any], name: str) -> int:
    """A number of an answer; raises RemotingError if it is not there: it is not known then, and is not 0."""
    value = fields.get(name)
    if type(value) is not int:
        raise RemotingError(f"{address}: an answer that cannot be read: {name} is {value!r}, and no number")
    return value


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Text about a name that nobody knows, with the nearest one."""
    nearest = get_close_matches(name, list(names), n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; `reput admin {kind}s` lists them"
    return f"there is no {kind} {name!r}{hint}"


async def gather(ask: Callable[[_T], Awaitable[_R]], of: Iterable[_T]) -> list[_R]:
    """The answers for each, in their order; a few are asked at once."""
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
