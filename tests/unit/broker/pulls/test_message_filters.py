"""Pulls and POPs by SQL92 expressions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.errors import ConfigError
from reput.filter.compiled_expressions import compile_all, take_short
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import LONG_MS, Client, consumer, messages_of, serving_broker, with_topic

ON = {"enablePropertyFilter": "true"}
SQL = {"expressionType": "SQL92"}
#: Longer than what is compiled in the loop.
LONG = "n >= 2 AND region IN (" + ", ".join(f"'{i:03}'" for i in range(60)) + ", 'east')"


@pytest.mark.parametrize(("package", "extra"), [("lark", "broker"), ("pyarrow", "tables")])
def test_a_broker_that_cannot_filter_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    line = rf"enablePropertyFilter=true needs {package}: pip install 'reput\[{extra}\]'"
    with pytest.raises(ConfigError, match=line):
        Broker.start(tmp_path / "store", enable_property_filter=True)
    assert not list(tmp_path.iterdir())


async def send_regions(client: Client, topic: str, *regions: str) -> None:
    """A message for each region; `n` is its number among them."""
    for number, region in enumerate(regions):
        properties = {"n": str(number), "region": region}
        assert (await client.send_message(topic, b"%d" % number, properties=properties)).code == 0


def pulled_bodies(answer: RemotingCommand) -> list[bytes]:
    return [bytes(one.body) for one in messages_of(answer)]


def following(answer: RemotingCommand) -> int:
    return int((answer.ext_fields or {})["nextBeginOffset"])


def sql_consumer(group: str, topic: str, text: str, version: int = 1) -> dict[str, Any]:
    """A group in a heartbeat that filters by an expression."""
    found = consumer(group)
    subscription = {"topic": topic, "subString": text, "subVersion": version, "expressionType": "SQL92"}
    return found | {"subscriptionDataSet": [subscription]}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n >= 2 AND region = 'east'", [b"3"]),
        ("region IN ('west', 'east')", [b"0", b"1", b"3"]),
        ("missing IS NULL", [b"0", b"1", b"2", b"3"]),
        ("region BETWEEN 1 AND 3 OR n < 4", [b"2"]),  # for the others the evaluation throws, before the OR
        (LONG, [b"3"]),
    ],
)
async def test_a_pull_gets_the_messages_that_its_expression_matches(
    tmp_path: Path, text: str, wanted: list[bytes]
) -> None:
    async with serving_broker(tmp_path / "store", **ON) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_regions(client, "orders", "east", "west", "5", "east")
        answer = await client.pull("orders", tags=text, **SQL)
        assert pulled_bodies(answer) == wanted
        assert following(answer) == 4


async def test_nothing_that_matches_is_answered_at_once_with_the_offset_behind_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **ON) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_regions(client, "orders", *["east"] * 3)
        answer = await client.pull("orders", tags="region = 'west'", hold_ms=LONG_MS, **SQL)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert following(answer) == 3


async def test_a_held_pull_waits_for_a_message_that_its_expression_matches(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **ON) as served:
        client, sender = await served.client(), await served.client()
        await with_topic(client, "orders")
        fields = pull_fields("region = 'west'")
        held = client.begin(RequestCode.PULL_MESSAGE, **fields)
        await client.round_trip()
        await send_regions(sender, "orders", "east", "north")
        await sender.round_trip()
        assert not held.done()
        await send_regions(sender, "orders", "west")
        assert pulled_bodies(await held) == [b"0"]
        assert following(await held) == 3


def pull_fields(text: str) -> dict[str, object]:
    return {
        "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 2 + 4,
        "commitOffset": 0, "suspendTimeoutMillis": LONG_MS, "subVersion": 0, "subscription": text, **SQL,
    }  # fmt: skip


REFUSALS: Sequence[tuple[dict[str, str], str, ResponseCode, str]] = [
    ({}, "n > 3", ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92"),
    ({}, LONG, ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92"),
    (ON, "n > ", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"),
    (ON, LONG + ")(", ResponseCode.SUCCESS, ""),
]


@pytest.mark.parametrize(("keys", "text", "code", "remark"), REFUSALS)
async def test_a_pull_whose_expression_cannot_be_used_is_refused(
    tmp_path: Path, keys: dict[str, str], text: str, code: ResponseCode, remark: str
) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_regions(client, "orders", "5", "5", "east")
        answer = await client.pull("orders", tags=text, **SQL)
        assert answer.code == code
        if remark:
            assert answer.remark == remark


async def test_a_group_pulls_by_the_expression_of_its_heartbeats(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **ON) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_regions(client, "orders", "east", "west")
        await client.heartbeat("c", sql_consumer("g", "orders", "region = 'west'", version=5))
        assert pulled_bodies(await client.pull("orders", tags=None, subVersion=5)) == [b"1"]
        await client.heartbeat("c", sql_consumer("g", "orders", LONG + " OR region = 'east'", version=6))
        assert pulled_bodies(await client.pull("orders", tags=None, subVersion=6)) == [b"0"]
        await client.heartbeat("c", sql_consumer("g", "orders", "region = ", version=7))
        answer = await client.pull("orders", tags=None, subVersion=7)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "is not exist" in (answer.remark or "")


async def test_a_filter_that_is_older_than_the_request_does_not_do(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **ON) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.heartbeat("c", sql_consumer("g", "orders", "region = 'west'", version=5))
        data = served.controller._state.filters._data["orders"]
        object.__setattr__(data["g"], "client_version", 4)  # as after a heartbeat that is taken meanwhile
        answer = await client.pull("orders", tags=None, subVersion=5)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST
        assert answer.remark == "the consumer's consumer filter data not latest"


@pytest.mark.parametrize(
    ("keys", "kind", "text", "code"),
    [
        ({}, "TAG", "a", ResponseCode.SUCCESS),
        ({}, "SQL92", "n > 3", ResponseCode.SYSTEM_ERROR),
        (ON, "SQL92", "n > 3", ResponseCode.SUCCESS),
        (ON, "SQL92", LONG, ResponseCode.SUCCESS),
        (ON, "SQL92", "n > 'a'", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (ON, "OTHER", "n > 3", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_the_check_of_a_clients_configuration_compiles_its_expression(
    tmp_path: Path, keys: dict[str, str], kind: str, text: str, code: ResponseCode
) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        subscription = {"topic": "orders", "subString": text, "expressionType": kind}
        body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription}).encode()
        assert (await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body)).code == code


async def test_a_pop_takes_the_messages_that_its_expression_matches(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **ON) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_regions(client, "orders", "east", "west", "east")
        pop = {
            "consumerGroup": "g", "topic": "orders", "queueId": 0, "maxMsgNums": 32, "invisibleTime": 60_000,
            "pollTime": 0, "bornTime": 0, "initMode": 0, "expType": "SQL92",
        }  # fmt: skip
        answer = await client.ask(RequestCode.POP_MESSAGE, exp="region = 'west'", **pop)
        assert pulled_bodies(answer) == [b"1"]
        answer = await client.ask(RequestCode.POP_MESSAGE, exp="region = ", **pop)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_filters_are_switched_on_while_the_broker_runs(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await send_regions(client, "orders", "east", "west")
        assert (await client.pull("orders", tags="region = 'west'", **SQL)).code == ResponseCode.SYSTEM_ERROR
        assert (await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"enablePropertyFilter=true\n")).code == 0
        assert pulled_bodies(await client.pull("orders", tags="region = 'west'", **SQL)) == [b"1"]
        await client.heartbeat("c", sql_consumer("g", "orders", "region = 'east'"))
        assert pulled_bodies(await client.pull("orders", tags=None, subVersion=1)) == [b"0"]


async def test_filters_are_written_at_the_stop_and_read_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async with serving_broker(path, **ON) as served:
        client = await served.client()
        await client.heartbeat("c", sql_consumer("g", "orders", "region = 'west'"))
    written = json.loads((path / "config/consumerFilter.json").read_text())
    found = written["filterDataByTopic"]["orders"]["groupFilterData"]["g"]
    assert (found["expression"], found["dead"], found["bloomFilterData"]["bitNum"]) == ("region = 'west'", True, 112)
    async with serving_broker(path, **ON) as served:
        data = served.controller._state.filters.filter_data("orders", "g")
        assert data is not None
        assert data.dead_time >= data.born_time > 0  # until its consumer comes


def test_only_what_is_short_or_known_is_compiled_in_the_loop() -> None:
    text = "a = 'something new' OR " * 6 + "b = 'x'"
    assert take_short(["a > 3", "b > 3"])
    assert not take_short([text])
    compile_all([text, "a >"])
    assert take_short([text])
