"""AllNameServers: what the name servers know together.

A client asks one of them. An operator asks all that answer: brokers register with each of them, and one that has lost
the connection to a broker, or was started after a broker was lost, knows less than another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from reput.client.instance.mq_client_api import MQClientAPI, checked, refusal, unreadable
from reput.client.instance.name_servers import WITH_LOST, no_answer
from reput.client.instance.topic_route import together
from reput.errors import MQClientError, RemotingCommandError, RemotingError
from reput.remoting.body import decode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.namesrv_headers import WipeWritePermOfBrokerRequestHeader
from reput.remoting.route_bodies import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData

_T = TypeVar("_T")

_CALL_S = 3.0


class AllNameServers:
    """Every method raises MQClientError if no name server answers, MQBrokerError if those that answer refuse.

    Args:
        addresses: "host:port" of each.
        api: Asks one of them.
    """

    def __init__(self, addresses: Sequence[str], api: MQClientAPI) -> None:
        self.addresses = tuple(addresses)
        self._api = api
        self._silent: dict[
            str, RemotingError
        ] = {}  # why, by address: they are not waited for again while others answer

    def ask_again(self) -> None:
        """Ask those again that did not answer: they may be back."""
        self._silent.clear()

    async def cluster(self) -> ClusterInfo:
        """All clusters and their brokers; those that are lost are without an address."""
        found = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, ClusterInfo)
        brokers = together(data for one in found.values() for data in one.broker_addr_table.values())
        clusters = {name: names for one in found.values() for name, names in one.cluster_addr_table.items()}
        return ClusterInfo(brokers, clusters)

    async def topic_names(self) -> set[str]:
        """The names of all topics, also of lost brokers."""
        found = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, TopicList)
        return {topic for one in found.values() for topic in one.topic_list}

    async def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic, with the queues of lost brokers; None if no name server knows the topic."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        found = list((await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, TopicRouteData)).values())
        if not found:
            return None
        queues: dict[str, QueueData] = {}
        for one in (queue for route in found for queue in route.queue_datas):
            queues.setdefault(one.broker_name, one)
        brokers = together(data for route in found for data in route.broker_datas)
        order = next((one.order_topic_conf for one in found if one.order_topic_conf), None)
        return replace(
            found[0], queue_datas=tuple(queues.values()), broker_datas=tuple(brokers.values()), order_topic_conf=order
        )

    async def forget_topic(self, topic: str) -> None:
        """Let all name servers forget a topic; raises RemotingError if one of them does not answer."""
        for address in self.addresses:
            command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext_fields={"topic": topic})
            checked(address, await self._api.ask(address, command, _CALL_S))

    async def brokers_of_each(self) -> dict[str, Mapping[str, BrokerData]]:
        """Brokers that each name server knows, by its address and broker name, as of `cluster`.

        Raises MQClientError if one of them does not answer, or refuses: nobody knows what it knows.
        """
        found = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, ClusterInfo)
        missing = [str(self._silent.get(one, f"{one} refuses")) for one in self.addresses if one not in found]
        if missing:
            raise MQClientError(f"{'; '.join(missing)}; leave a name server that is gone for ever out of the list")
        return {address: one.broker_addr_table for address, one in found.items()}

    async def forget_broker(self, address: str, name: str) -> None:
        """Let one of them forget a broker that it has lost; one that is there for it stays as it is."""
        fields = encode_header(WipeWritePermOfBrokerRequestHeader(name, lost_only=True))
        command = RemotingCommand(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext_fields=fields)
        checked(address, await self._api.ask(address, command, _CALL_S))

    async def _ask(self, code: RequestCode, fields: Mapping[str, str], kind: type[_T]) -> dict[str, _T]:
        """The bodies of answers by address, but of name servers that do not know a topic, or refuse beside others."""

        async def ask(address: str) -> tuple[str, RemotingCommand] | None:
            command = RemotingCommand(code, ext_fields={**fields, **WITH_LOST})
            try:
                answer = await self._api.ask(address, command, _CALL_S)
            except RemotingError as error:
                self._silent[address] = error
                return None
            self._silent.pop(address, None)
            return address, answer

        asked = [one for one in self.addresses if one not in self._silent] or self.addresses
        answers = [one for one in await asyncio.gather(*map(ask, asked)) if one is not None]
        if not answers:
            raise no_answer(self.addresses, self._silent.values())
        known = [one for one in answers if one[1].code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)]
        if not known:
            raise refusal(*answers[0])
        told = {address: answer for address, answer in known if answer.code == ResponseCode.SUCCESS}
        return {address: _decoded(address, answer, kind) for address, answer in told.items()}


def _decoded(address: str, answer: RemotingCommand, kind: type[_T]) -> _T:
    try:
        return decode_body(kind, answer.body)
    except RemotingCommandError as error:
        raise unreadable(address, error.remark) from None
