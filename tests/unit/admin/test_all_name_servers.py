"""What several name servers know together; they are stood for by their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reput.admin.all_name_servers import AllNameServers
from reput.client.instance.mq_client_api import MQClientAPI
from reput.errors import MQBrokerError, MQClientError, RemotingError
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.route_bodies import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from tests.support.name_server_answers import NameServerAnswers

A, B_LOST = BrokerData("c", "a", {0: "a:1"}), BrokerData("c", "b")
NOT_READY, UNKNOWN = (ResponseCode.SYSTEM_ERROR, "name server not ready"), (ResponseCode.TOPIC_NOT_EXIST, "no route")


class Answers(NameServerAnswers):
    """They are asked for what is lost, too."""

    async def call(self, address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        assert (command.ext_fields or {})["withLostBrokers"] == "true"
        return await super().call(address, command, timeout_s)

    def ask(self, what: Callable[[AllNameServers], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await what(AllNameServers(tuple(self.answers), MQClientAPI(self)))

        return asyncio.run(run())


def route(*datas: BrokerData, order: str | None = None) -> TopicRouteData:
    queues = tuple(QueueData(one.broker_name, 1, 1, 6) for one in datas)
    return TopicRouteData(queues, datas, order_topic_conf=order)


def test_a_route_has_the_brokers_that_any_of_them_knows() -> None:
    answers = Answers(new=route(A), old=route(A, B_LOST, order="a:1;b:1"), away=None, empty=UNKNOWN, starts=NOT_READY)
    assert answers.ask(lambda servers: servers.route("t")) == route(A, B_LOST, order="a:1;b:1")


def test_a_broker_that_one_of_them_has_lost_and_another_has_not_is_there() -> None:
    there, slave = BrokerData("c", "b", {0: "b:1"}), BrokerData("c", "b", {1: "b:2"})
    for first, second in ((B_LOST, there), (there, B_LOST)):
        found = Answers(x=route(first), y=route(second)).ask(lambda servers: servers.route("t"))
        assert found == route(there)
    found = Answers(x=ClusterInfo({"b": slave}, {"c": ("b",)}), y=ClusterInfo({"b": there, "a": A}, {"c": ("a", "b")}))
    info = found.ask(AllNameServers.cluster)
    assert {name: one.broker_addrs for name, one in info.broker_addr_table.items()} == {
        "a": {0: "a:1"}, "b": {0: "b:1", 1: "b:2"},
    }  # fmt: skip
    assert set(info.cluster_addr_table) == {"c"}


def test_topics_are_those_of_all_of_them() -> None:
    assert Answers(x=TopicList(("t", "u")), y=TopicList(("t", "v"))).ask(AllNameServers.topic_names) == {"t", "u", "v"}


def test_a_topic_that_none_of_them_knows_has_no_route() -> None:
    assert Answers(x=UNKNOWN, y=None, z=NOT_READY).ask(lambda servers: servers.route("t")) is None


def test_where_none_answers_or_all_refuse_nothing_is_known() -> None:
    with pytest.raises(MQClientError, match="no name server answers: x: no connection; y: no connection"):
        Answers(x=None, y=None).ask(AllNameServers.cluster)
    with pytest.raises(MQBrokerError, match="name server not ready"):
        Answers(x=NOT_READY, y=None).ask(AllNameServers.cluster)
    with pytest.raises(RemotingError, match="x: an answer that cannot be read"):
        Answers(x=["no route"], y=None).ask(lambda servers: servers.route("t"))


def test_one_that_does_not_answer_is_not_waited_for_again_while_another_does() -> None:
    answers = Answers(x=None, y=UNKNOWN)

    async def twice(servers: AllNameServers) -> None:
        await servers.route("t")
        await servers.route("t")
        assert answers.asked == ["x", "y", "y"]
        answers.answers |= {"x": UNKNOWN, "y": None}
        with pytest.raises(MQClientError):
            await servers.route("t")
        assert await servers.route("t") is None
        assert answers.asked[3:] == ["y", "x", "y"]

    answers.ask(twice)
