"""NameServers: what one name server does not know, another may; they are stood for by their answers, and are real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reput.client import Message, MessageClientExt, MQClientError, Producer, PullConsumer, PushConsumer
from reput.client.instance.mq_client_api import MQClientAPI
from reput.client.instance.name_servers import NameServers, name_server_addresses
from reput.errors import MQBrokerError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.queue_tables import QueueKey
from reput.remoting.route_bodies import BrokerData, QueueData, TopicList, TopicRouteData
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from tests.support.broker import Served, serving_broker, with_topic
from tests.support.clients import stored
from tests.support.commands import run_reput
from tests.support.hand_clock import HandClock
from tests.support.master_and_slave import Pair, name_server
from tests.support.name_server_answers import NameServerAnswers
from tests.support.namesrv import asked_name_server
from tests.support.sockets import free_ports

UNKNOWN, NOT_READY = (ResponseCode.TOPIC_NOT_EXIST, "no route"), (ResponseCode.SYSTEM_ERROR, "name server not ready")


def route(*datas: BrokerData) -> TopicRouteData:
    return TopicRouteData(tuple(QueueData(one.broker_name, 1, 1, 6) for one in datas), datas)


KNOWN, OTHER = route(BrokerData("c", "a", {0: "a:1"})), route(BrokerData("c", "b", {1: "b:2"}))
LOST = route(BrokerData("c", "a"))


class Answers(NameServerAnswers):
    """They are asked by a client."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self.servers = NameServers(tuple(answers), MQClientAPI(self))
        self.servers._current = next(iter(answers))  # it is drawn

    async def route(self) -> TopicRouteData | None:
        return await self.servers.route("t", with_lost=True)


async def test_one_question_is_enough_where_the_first_one_knows_the_topic() -> None:
    answers = Answers(x=KNOWN, y=OTHER)
    assert [await answers.route(), await answers.route()] == [KNOWN, KNOWN]
    assert answers.asked == ["x", "x"]


@pytest.mark.parametrize("first", [UNKNOWN, LOST, route(), NOT_READY, None, ["no route"]], ids=str)
async def test_who_knows_where_the_topic_is_is_asked_from_then_on(first: Any) -> None:
    answers = Answers(x=first, y=UNKNOWN, z=KNOWN)
    assert [await answers.route(), await answers.route()] == [KNOWN, KNOWN]
    assert answers.asked == ["x", "y", "z", "z"]


async def test_a_topic_is_not_there_where_all_that_answer_say_so() -> None:
    for answers in (Answers(x=UNKNOWN, y=UNKNOWN), Answers(x=UNKNOWN, y=None), Answers(x=NOT_READY, y=UNKNOWN)):
        assert await answers.route() is None
        assert answers.asked == ["x", "y"]
    assert await Answers(x=UNKNOWN, y=LOST).route() == LOST


async def test_where_none_answers_or_all_refuse_nothing_is_known() -> None:
    with pytest.raises(MQClientError, match="no name server answers: x: no connection; y: no connection"):
        await Answers(x=None, y=None).route()
    with pytest.raises(MQBrokerError, match="name server not ready"):
        await Answers(x=None, y=NOT_READY).route()


async def test_one_that_does_not_answer_is_asked_again_for_a_while_only_where_nobody_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HandClock()
    monkeypatch.setattr("reput.client.instance.name_servers.time.monotonic", clock.now_s)
    answers = Answers(x=None, y=UNKNOWN)
    assert [await answers.route(), await answers.route()] == [None, None]
    assert answers.asked == ["x", "y", "y"]
    answers.answers["y"] = None
    with pytest.raises(MQClientError):
        await answers.route()
    assert answers.asked[3:] == ["y", "x"]
    answers.answers |= {"x": KNOWN, "y": UNKNOWN}
    clock.time_s += 60
    assert await answers.route() == KNOWN
    alone = Answers(x=None)
    for _ in range(2):
        with pytest.raises(MQClientError):
            await alone.route()
    assert alone.asked == ["x", "x"]


async def test_name_servers_that_nobody_reaches_may_be_there_later() -> None:
    (port,) = free_ports(1)
    async with Producer(f"127.0.0.1:{port}", group="g") as producer:
        with pytest.raises(MQClientError, match=r"no name server answers: .*Connection refused") as raised:
            await producer.send(Message("orders", b"x"))
    assert raised.value.retriable


def test_an_address_counts_once() -> None:
    assert name_server_addresses("a:1; b:2,a:1") == ("a:1", "b:2")


async def test_a_list_that_is_empty_is_asked_of_the_others() -> None:
    answers = Answers(x=NOT_READY, y=TopicList(()), z=TopicList(("t",)))

    async def names() -> str:
        command = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        address, _ = await answers.servers.call(command, lambda answer: b'"t"' in answer.body)
        return address

    assert [await names(), await names()] == ["z", "z"]
    assert answers.asked == ["x", "y", "z", "z"]
    answers.answers["z"] = TopicList(())
    assert await names() == "z"


# -- two real ones, of which one was just started: brokers have not registered there


@pytest.fixture(params=[0, 1], ids=["empty first", "empty last"])
def drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client asks this one first."""
    monkeypatch.setattr("reput.client.instance.name_servers.random.choice", lambda addresses: addresses[request.param])


@asynccontextmanager
async def one_is_empty(path: Path) -> AsyncIterator[tuple[str, Served]]:
    """The addresses of both, and the broker."""
    async with (
        asked_name_server(path / "1") as empty,
        asked_name_server(path / "2") as other,
        serving_broker(path / "broker", namesrv_addr=other.address) as broker,
    ):
        await with_topic(await broker.client(), "orders", 2)
        yield f"{empty.address};{other.address}", broker


@pytest.mark.usefixtures("drawn")
async def test_clients_find_a_topic_that_one_of_them_knows(tmp_path: Path) -> None:
    async with one_is_empty(tmp_path) as (namesrv, _):
        async with Producer(namesrv, group="p") as producer:
            await producer.send(Message("orders", b"one"))
        async with PullConsumer(namesrv, group="pull", topics={"orders": "*"}, consume_from="first") as pull:
            assert [one.body for one in await pull.poll(timeout=30)] == [b"one"]
        async with PullConsumer(namesrv, group="chosen") as pull:
            assert len(await pull.queues("orders")) == 2
        seen: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: MessageClientExt) -> None:
            seen.put_nowait(message.body)

        async with PushConsumer(namesrv, group="push", topics={"orders": "*"}, consume_from="first", on_message=take):
            async with asyncio.timeout(30):
                assert await seen.get() == b"one"


@pytest.mark.usefixtures("drawn")
async def test_a_topic_that_none_of_them_knows_is_made_by_its_first_message(tmp_path: Path) -> None:
    async with one_is_empty(tmp_path) as (namesrv, broker), Producer(namesrv, group="p") as producer:
        await producer.send(Message("made", b"one"))
        assert [one.body for one in await stored(broker, "made", 4)] == [b"one"]


@pytest.mark.usefixtures("drawn")
def test_commands_and_spark_find_a_topic_that_one_of_them_knows(tmp_path: Path) -> None:
    with name_server(tmp_path / "1") as empty, name_server(tmp_path / "2") as other:
        both = ("--namesrv", f"{empty};{other}")
        with Pair(tmp_path, other).start("a"):
            assert run_reput("admin", "create-topic", "orders", "--queues", 1, *both).status == 0
            sent = run_reput("produce", "orders", *both, stdin=b"one\ntwo\n")
            assert (sent.status, sent.err) == (0, "")
            consumed = run_reput("consume", "orders", *both)
            assert (consumed.status, consumed.out, consumed.err) == (0, "one\ntwo\n", "")
            options = read_options({"namesrv": f"{empty};{other}", "subscribePattern": "ord.*"})
            matched = Cluster(options.access)
            assert matched.topics(options) == ("orders",)
            matched.close()
            spark = Cluster(options.access)
            assert spark.queues(["orders", "nosuch"]) == (QueueKey("orders", "broker-a", 0),)
            spark.close()


async def test_a_broker_that_is_asked_as_a_name_server_is_told_from_one(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served, Producer(served.controller.address, group="g") as producer:
        with pytest.raises(MQBrokerError, match="it may be a broker; name servers listen on 9876"):
            await producer.send(Message("t", b"x"))
