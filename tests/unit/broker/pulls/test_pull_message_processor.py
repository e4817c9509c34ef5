"""Pulls over sockets: the tables of checks and results."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reput.broker import disk_work, services
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.store.message_store import MessageStore
from tests.support.broker import (
    LONG_MS,
    SMALL,
    Client,
    Served,
    batch_command,
    consumer,
    fill,
    messages_of,
    pull_command,
    serving_broker,
    with_topic,
)
from tests.support.cold_pages import ColdPages


async def with_group(client: Client, group: str, **keys: object) -> None:
    """Make a group, as an operator does."""
    body = json.dumps({"groupName": group, **keys}).encode()
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0


def forbid(served: Served) -> None:
    served.controller._state.groups.update_forbidden("g", "orders", 2, True, 0)


#: (keys of the broker, the pull, its answer's code and remark, forbiddenType); `orders` has one queue, `hidden` may not
#: be read, g2 may not consume, g3 not by broadcast; g, g3 and g4 have members, g4 by SQL92.
REFUSALS: Mapping[str, tuple[dict[str, Any], dict[str, Any], int, str, int | None]] = {
    "broker": (
        {"brokerPermission": 2}, {}, ResponseCode.NO_PERMISSION,
        r"the broker\[127.0.0.1\] pulling message is forbidden", 1,
    ),
    "lite pull": (
        {"litePullMessageEnable": "false"}, {"code": RequestCode.LITE_PULL_MESSAGE}, ResponseCode.NO_PERMISSION,
        r"the broker\[127.0.0.1\] for lite pull consumer is forbidden", 1,
    ),
    "no group": (
        {"autoCreateSubscriptionGroup": "false"}, {"group": "other"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        r"subscription group \[other\] does not exist, \nSee .*", None,
    ),
    "group off": (
        {}, {"group": "g2"}, ResponseCode.NO_PERMISSION, "subscription group no permission, g2", 2,
    ),
    "no topic": (
        {}, {"topic": "other"}, ResponseCode.TOPIC_NOT_EXIST,
        r"topic\[other\] not exist, apply first please! \nSee .*", None,
    ),
    "topic": (
        {}, {"topic": "hidden"}, ResponseCode.NO_PERMISSION, r"the topic\[hidden\] pulling message is forbidden", 3,
    ),
    "queue": (
        {}, {"queueId": 1}, ResponseCode.INVALID_PARAMETER,
        r"queueId\[1\] is illegal, topic:\[orders\] topicConfig.readQueueNums:\[1\] consumer:\[/127.0.0.1:\d+\]", None,
    ),
    "queue below zero": ({}, {"queueId": -1}, ResponseCode.INVALID_PARAMETER, r"queueId\[-1\] is illegal, .*", None),
    "separators": (
        {}, {"tags": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed", None,
    ),
    "SQL without text": (
        {}, {"tags": "", "expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed", None,
    ),
    "SQL": (
        {}, {"tags": "a > 5", "expressionType": "SQL92"}, ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92", None,
    ),
    "no members": (
        {}, {"tags": None, "group": "alone"}, ResponseCode.SUBSCRIPTION_NOT_EXIST,
        r"the consumer's group info not exist\nSee .*", None,
    ),
    "broadcast": (
        {}, {"tags": None, "group": "g3"}, ResponseCode.NO_PERMISSION,
        r"the consumer group\[g3\] can not consume by broadcast way", 4,
    ),
    "not subscribed": (
        {}, {"tags": None, "topic": "TBW102"}, ResponseCode.SUBSCRIPTION_NOT_EXIST,
        r"the consumer's subscription not exist\nSee .*", None,
    ),
    "old subscription": (
        {}, {"tags": None, "subVersion": 2}, ResponseCode.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest", None,
    ),
    "SQL by heartbeat": (
        {}, {"tags": None, "group": "g4"}, ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_pull_is_refused_with_rocketmqs_code_and_remark(tmp_path: Path, case: str) -> None:
    keys, pull, code, remark, forbidden = REFUSALS[case]

    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await with_topic(client, "hidden", perm=2)
        await with_group(client, "g")
        await with_group(client, "g2", consumeEnable=False)
        await with_group(client, "g3", consumeBroadcastEnable=False)
        by_sql = consumer("g4", "orders")
        by_sql["subscriptionDataSet"][0] |= {"expressionType": "SQL92", "subString": "a > 5"}
        broadcast = consumer("g3", "orders", messageModel="BROADCASTING")
        await client.heartbeat("c", consumer("g", "orders"), broadcast, by_sql)
        answer = await client.pull(**{"topic": "orders", "hold_ms": LONG_MS} | pull)
        assert answer.code == code
        assert answer.remark is not None
        assert re.fullmatch(remark, answer.remark), answer.remark
        assert answer.ext_fields == ({} if forbidden is None else {"forbiddenType": str(forbidden)})


async def test_a_topic_that_is_forbidden_to_a_group_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.heartbeat("c", consumer("g", "orders"))
        forbid(served)
        answer = await client.pull("orders", tags=None)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the consumer group[g] is forbidden for topic[orders]"
        assert answer.ext_fields == {"forbiddenType": "5"}


#: (the pull of a queue with five messages of the tags a b a c b, its answer's code and remark, next offset, bodies)
RESULTS: Mapping[str, tuple[dict[str, Any], int, str, int, list[bytes]]] = {
    "all": ({}, 0, "FOUND", 5, [b"0", b"1", b"2", b"3", b"4"]),
    "from the middle": ({"offset": 3}, 0, "FOUND", 5, [b"3", b"4"]),
    "two": ({"maxMsgNums": 2}, 0, "FOUND", 2, [b"0", b"1"]),
    "tags": ({"tags": "b || c"}, 0, "FOUND", 5, [b"1", b"3", b"4"]),
    "tags, one": ({"tags": "b", "maxMsgNums": 1}, 0, "FOUND", 2, [b"1"]),
    "a tag of the same hash": ({"tags": "Aa"}, 20, "NO_MATCHED_MESSAGE", 5, []),
    "no such tag": ({"tags": "d"}, 20, "NO_MATCHED_MESSAGE", 5, []),
    "the end": ({"offset": 5}, 19, "OFFSET_OVERFLOW_ONE", 5, []),
    "beyond the end": ({"offset": 6}, 21, "OFFSET_OVERFLOW_BADLY", 5, []),
    "before the beginning": ({"offset": -1}, 21, "OFFSET_TOO_SMALL", 0, []),
    "lite": ({"code": RequestCode.LITE_PULL_MESSAGE}, 0, "FOUND", 5, [b"0", b"1", b"2", b"3", b"4"]),
    "an empty queue": ({"queueId": 1}, 19, "NO_MESSAGE_IN_QUEUE", 0, []),
    "an empty queue, later": ({"queueId": 1, "offset": 3}, 21, "NO_MESSAGE_IN_QUEUE", 0, []),
}


async def test_a_pull_is_answered_as_its_result_says(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        await fill(client, "orders", "a", "b", "BB", "c", "b")
        for case, (pull, code, remark, following, bodies) in RESULTS.items():
            answer = await client.pull(**{"topic": "orders"} | pull)
            high = 0 if pull.get("queueId") else 5
            assert (answer.code, answer.remark) == (code, remark), case
            assert answer.ext_fields == {
                "suggestWhichBrokerId": "0", "nextBeginOffset": str(following), "minOffset": "0",
                "maxOffset": str(high), "topicSysFlag": "0", "groupSysFlag": "0",
            }, case  # fmt: skip
            assert [one.body for one in messages_of(answer)] == bodies if code == 0 else not answer.body, case


async def test_tags_are_those_of_the_groups_heartbeat(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await fill(client, "orders", "a", "b")
        await client.heartbeat("c", consumer("g", "orders", tags="b", version=7))
        answer = await client.pull("orders", tags=None, subVersion=7)
        assert [message.body for message in messages_of(answer)] == [b"1"]


async def test_a_pull_looks_at_many_messages_that_it_does_not_want_a_part_at_a_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.begin_all([batch_command("orders", [b"x"] * 900)])[0]
        await client.pull("orders", 899, hold_ms=LONG_MS)
        answer = await client.pull("orders", tags="wanted")
        assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (20, "800")
        assert (await client.pull("orders", 800, tags="wanted")).ext_fields == (answer.ext_fields or {}) | {
            "nextBeginOffset": "900"
        }


# -- what a pull commits


def offset_of(served: Served, group: str = "g") -> int:
    offsets: ConsumerOffsetManager = served.controller._state.offsets
    return offsets.query_offset(group, "orders", 0)


async def test_a_pull_commits_its_offset_on_the_first_pass_only(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await fill(client, "orders", "a", "b")
        assert (await client.pull("orders", 0)).code == 0
        assert offset_of(served) == -1
        assert (await client.pull("orders", 0, commit=1)).code == 0
        assert offset_of(served) == 1
        (held,) = client.begin_all([pull_command("orders", 2, commit=2, hold_ms=LONG_MS)])
        await client.round_trip()
        assert offset_of(served) == 2
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="orders", queueId=0, commitOffset=0
        )
        await client.send_message("orders")
        assert (await held).code == 0
        assert offset_of(served) == 0


async def test_fields_that_a_pull_does_not_need_may_be_missing_but_are_numbers(tmp_path: Path) -> None:
    def without(command: RemotingCommand, name: str) -> RemotingCommand:
        assert command.ext_fields is not None
        del command.ext_fields[name]
        return command

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.send_message("orders", b"one")
        await client.heartbeat("c", consumer("g", "orders"))
        for name, needing in (
            ("commitOffset", pull_command("orders", commit=0)),
            ("suspendTimeoutMillis", pull_command("orders", 1, hold_ms=0)),
            ("subVersion", pull_command("orders", tags=None)),
        ):
            (answer,) = client.begin_all([without(pull_command("orders"), name)])
            assert [message.body for message in messages_of(await answer)] == [b"one"]
            (refused,) = client.begin_all([without(needing, name)])
            assert (await refused).code == ResponseCode.SYSTEM_ERROR
            assert (await refused).remark == f"PullMessageRequestHeader: the field {name} is missing"
            text = pull_command("orders")
            assert text.ext_fields is not None
            text.ext_fields[name] = "1x"
            (refused,) = client.begin_all([text])
            assert (await refused).code == ResponseCode.SYSTEM_ERROR
            assert (await refused).remark == f"PullMessageRequestHeader: the field {name} is '1x', no number"


async def test_a_reset_is_told_to_one_pull_and_what_that_one_commits_is_old(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await fill(client, "orders", "a", "b")
        await with_group(client, "g")
        served.controller._state.offsets.assign_reset_offset("orders", "g", 0, 1, 0)
        commit = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 2}
        answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit)
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        answer = await client.pull("orders", 2, commit=2, hold_ms=LONG_MS)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert answer.ext_fields is not None
        assert answer.ext_fields["nextBeginOffset"] == "1"
        assert offset_of(served) == 1
        assert [message.body for message in messages_of(await client.pull("orders", 1))] == [b"1"]


# -- messages that are not in memory


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages_of(answer)]


async def test_a_pull_that_waits_for_the_disk_delays_no_other_request(tmp_path: Path) -> None:
    files = ColdPages()

    async with serving_broker(tmp_path / "store", files=files) as served:
        slow, other = await served.client(), await served.client()
        await fill(slow, "orders", "a", "b")
        with files.held():
            with files.cold():
                (cold,) = slow.begin_all([pull_command("orders", 0, commit=1)])
                await asyncio.to_thread(files.wait)
            assert (await other.send_message("orders", b"new", properties={"TAGS": "c"})).code == 0
            assert (await other.send_message("payments", b"topic")).code == 0
            assert bodies_of(await other.pull("orders", 1, group="other")) == [b"1", b"new"]
            assert bodies_of(await slow.pull("payments", 0)) == [b"topic"]
            assert not cold.done()
        answer = await cold
        assert bodies_of(answer) == [b"0", b"1"]
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0", "nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2",
            "topicSysFlag": "0", "groupSysFlag": "0",
        }  # fmt: skip
        assert offset_of(served) == 1


@pytest.mark.parametrize(("pull", "code", "bodies"), [({"tags": "b"}, 0, [b"1"]), ({"tags": "d"}, 20, [])])
async def test_a_pull_with_tags_that_waits_for_the_disk_is_not_held(
    tmp_path: Path, pull: dict[str, Any], code: int, bodies: list[bytes]
) -> None:
    files = ColdPages()

    async with serving_broker(tmp_path / "store", files=files) as served:
        client = await served.client()
        await fill(client, "orders", "a", "b")
        with files.cold():
            answer = await client.pull("orders", hold_ms=LONG_MS, **pull)
        assert answer.code == code
        assert not bodies or bodies_of(answer) == bodies
        assert files.reads


async def test_a_held_pull_whose_messages_are_not_in_memory_is_answered_beside_the_loop(tmp_path: Path) -> None:
    files = ColdPages()

    async with serving_broker(tmp_path / "store", files=files) as served:
        client, other = await served.client(), await served.client()
        await with_topic(client, "orders")
        held = client.begin_all([pull_command("orders", tags=tags, hold_ms=LONG_MS) for tags in ("*", "b")])
        await client.round_trip()
        with files.held():
            with files.cold():
                await other.send_message("orders", b"0", properties={"TAGS": "b"})
                for _ in held:
                    await asyncio.to_thread(files.wait)
            await other.round_trip()
            assert not any(one.done() for one in held)
        for one in held:
            assert bodies_of(await one) == [b"0"]


async def test_a_pull_that_the_disk_cannot_read_is_an_error_of_that_pull(tmp_path: Path) -> None:
    files = ColdPages()

    async with serving_broker(tmp_path / "store", files=files) as served:
        client = await served.client()
        await fill(client, "orders", "a")
        files.fails = True
        with files.cold():
            answer = await client.pull("orders")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "cannot read at 0: Input/output error" in (answer.remark or "")
        assert bodies_of(await client.pull("orders")) == [b"0"]


async def test_a_connection_may_close_while_its_pull_waits_for_the_disk(tmp_path: Path) -> None:
    files = ColdPages()

    async with serving_broker(tmp_path / "store", files=files) as served:
        gone, stays = await served.client(), await served.client()
        await fill(stays, "orders", "a")
        reads = served.controller._state.pools.reads
        with files.held():
            with files.cold():
                gone.begin_all([pull_command("orders") for _ in range(disk_work._READING_THREADS + 3)])
                for _ in range(disk_work._READING_THREADS):
                    await asyncio.to_thread(files.wait)
            gone._answers.clear()
            await gone.leave()
            while stays_open(served, gone):
                await stays.round_trip()
        while reads._count:
            await stays.round_trip()
        assert reads._of == {}
        assert len([read for read in files.reads if "consumequeue" in read]) == disk_work._READING_THREADS
        assert bodies_of(await stays.pull("orders")) == [b"0"]


def stays_open(served: Served, client: Client) -> bool:
    """Whether the broker has not seen that a client has gone."""
    return any(one.is_open for one in served.controller._state.pools.reads._of)


@pytest.mark.parametrize("is_patient", [True, False])
async def test_the_broker_may_stop_while_a_pull_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    files = ColdPages()
    monkeypatch.setattr(services, "_DRAIN_S", 60 if is_patient else 0)

    async with serving_broker(tmp_path / "store", files=files) as served:
        client = await served.client()
        await fill(client, "orders", "a")
        with files.held():
            with files.cold():
                (cold,) = client.begin_all([pull_command("orders")])
                await asyncio.to_thread(files.wait)
            stopping = asyncio.get_running_loop().create_task(served.stop())
            if not is_patient:
                await client.ended()
                assert not stopping.done()
        if is_patient:
            assert bodies_of(await cold) == [b"0"]
        await stopping
    with MessageStore.open(tmp_path / "store", **SMALL) as store:
        assert not store.recovery.was_killed
