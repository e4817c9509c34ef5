"""Who is asked for a broker: its master, else its slaves; what nobody tells is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput.admin.admin_client import AdminClient, brokers_of, masters, masters_of, number
from reput.admin.topics import topic_state
from reput.client.instance.topic_route import nobody_there
from reput.errors import MQBrokerError, MQClientError, RemotingError
from reput.remoting.codes import ResponseCode
from reput.remoting.route_bodies import BrokerData, QueueData, TopicRouteData
from tests.support.master_and_slave import NUMBERS, Pair, fill, hurry, name_server, unreachable, until_copied

#: By broker name and id. Addresses that begin with "no" do not answer.
BROKERS = {"a": {0: "a-master", 1: "a-slave"}, "b": {0: "no-master", 1: "b-slave"}, "c": {2: "c-slave", 1: "no-slave"}}


def client() -> AdminClient:
    return AdminClient("127.0.0.1:1")


class Asked:
    """Answers with the broker's name and address; keeps who was asked."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def __call__(self, name: str, address: str) -> str:
        self.addresses.append(address)
        if address.startswith("no"):
            raise RemotingError(f"{address}: gone")
        if address.startswith("refuses"):
            raise MQBrokerError(address, ResponseCode.SYSTEM_ERROR, "no")
        return f"{name} {address}"


async def test_a_slave_is_asked_where_the_master_is_away_or_does_not_answer() -> None:
    one, look = client(), Asked()
    assert await one.ask_each(BROKERS, look) == {"a": "a a-master", "b": "b b-slave", "c": "c c-slave"}
    assert one.notes() == [
        "the master of b does not answer (no-master: gone); its slave b-slave answers, which may lag",
        "the master of c is away; its slave c-slave answers, which may lag",
    ]
    assert one.whole(7) == 7


async def test_who_did_not_answer_is_not_waited_for_again_until_it_is_asked_for() -> None:
    one, look = client(), Asked()
    for _ in range(2):
        await one.ask_each(BROKERS, look)
    assert look.addresses.count("no-master") == look.addresses.count("no-slave") == 1
    one.ask_again()
    assert one.notes() == []
    await one.ask_each(BROKERS, look)
    assert look.addresses.count("no-master") == 2


async def test_what_all_make_together_is_not_known_where_nobody_answers_for_one() -> None:
    one = client()
    brokers: dict[str, dict[int, str]] = {"a": {0: "a-master"}, "lost": {0: "no-1", 1: "no-2"}, "nowhere": {}}
    for _ in range(2):
        assert await one.ask_each(brokers, Asked()) == {"a": "a a-master"}
        assert one.silent == {"lost": "no-1: gone; no-2: gone", "nowhere": nobody_there(["nowhere"])}
        assert one.whole(7) is None


@pytest.mark.parametrize(
    ("brokers", "error", "text"),
    [
        ({"a": {0: "no-1"}, "b": {1: "no-2"}}, RemotingError, "nobody answers for a: no-1: gone; nobody answers for b"),
        ({"a": {0: "refuses", 1: "a-slave"}}, MQBrokerError, "refuses answers code 1"),
    ],
)
async def test_who_refuses_has_answered_and_nobody_is_an_error(brokers: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await client().ask_each(brokers, Asked())


def test_masters_alone_change_something() -> None:
    assert masters({"a": {0: "a-master", 1: "a-slave"}}) == {"a": "a-master"}
    with pytest.raises(MQClientError, match=r"nothing was changed: the master of b, c is away"):
        masters({"a": {0: "a-master"}, "c": {1: "c-slave"}, "b": {1: "b-slave"}})
    with pytest.raises(MQClientError, match=r"knows where c, d is: start it.*; the master of b is away"):
        masters({"a": {0: "a-master"}, "d": {}, "b": {1: "b-slave"}, "c": {}})


async def test_a_change_that_fails_after_others_says_where_it_is_done() -> None:
    def change(*addresses: str) -> Awaitable[None]:
        return client().change_each(dict(zip("abc", addresses, strict=True)), Asked())

    await change("1", "2", "3")
    with pytest.raises(MQClientError, match="no-2: gone; it is done on a, and not on b, c"):
        await change("1", "no-2", "3")
    with pytest.raises(RemotingError, match=r"^no-1: gone$"):
        await change("no-1", "2", "3")


def test_a_number_that_an_answer_lacks_is_not_0() -> None:
    assert number("host:1", {"maxOffset": 7}, "maxOffset") == 7
    for fields in ({}, {"maxOffset": None}, {"maxOffset": "7"}, {"maxOffset": True}):
        with pytest.raises(RemotingError, match="host:1: an answer that cannot be read: maxOffset is"):
            number("host:1", fields, "maxOffset")


def test_a_broker_that_an_order_topic_names_and_nobody_knows_is_one_of_the_topic() -> None:
    datas = (BrokerData("c", "a", {0: "a-master"}),)
    route = TopicRouteData((QueueData("a", 1, 1, 6),), datas, order_topic_conf="a:1;gone:2")
    assert brokers_of("orders", route) == {"a": {0: "a-master"}, "gone": {}}
    with pytest.raises(MQClientError) as raised:
        masters_of("orders", route)
    assert str(raised.value) == (
        "nothing was changed: the order of topic 'orders' names gone, and no name server knows such a broker: start "
        "it, or leave it out by `mqadmin updateOrderConf -m put -t orders -v a:1`"
    )
    assert masters_of("orders", replace(route, order_topic_conf="a:1")) == {"a": "a-master"}


async def test_a_slave_answers_for_a_master_that_name_servers_still_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)

    with name_server(tmp_path) as namesrv:
        pair = Pair(tmp_path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            await asyncio.to_thread(fill, master)
            await asyncio.to_thread(until_copied, master, slave)
            master.close()
            with unreachable(namesrv, "broker-a", "orders"):
                async with AdminClient(namesrv) as asked:
                    state = await topic_state(asked, "orders")
                    assert (state.messages, state.groups) == (len(NUMBERS), [])
                    (note,) = asked.notes()
                    assert note.startswith("the master of broker-a does not answer (127.0.0.1:")
                    assert note.endswith("; its slave " + slave.address + " answers, which may lag")
