"""Clients over sockets: heartbeats, members, notifications and locks."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from reput.remoting.codes import VERSION, RequestCode, ResponseCode
from reput.remoting.command import decode_command
from reput.service import rebalance_lock_manager
from tests.support.broker import Client, consumer, serving_broker
from tests.support.frames import Recorded, recorded_frames

HEARTBEATS = [one for one in recorded_frames() if one.header.get("code") == 34 and one.header.get("flag") == 0]


async def members(client: Client, group: str) -> list[str] | None:
    """The client ids of a group; None where the broker says that there are none."""
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    if answer.code == 0:
        return list(json.loads(answer.body)["consumerIdList"])
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return None


async def notified(client: Client) -> str:
    """The group of the next notification that a client gets."""
    command = await client.requests.get()
    assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert command.is_one_way
    assert command.ext_fields is not None
    return command.ext_fields["consumerGroup"]


@pytest.mark.parametrize("recorded", HEARTBEATS, ids=lambda one: one.name)
async def test_heartbeats_of_all_clients_are_understood(tmp_path: Path, recorded: Recorded) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        (begun,) = client.begin_all([decode_command(recorded.frame)])
        answer = await begun
        assert (answer.code, answer.remark) == (0, None)
        assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        data = json.loads(recorded.body)
        state = served.controller._state
        for one in data.get("consumerDataSet") or ():
            group = one["groupName"]
            assert await members(client, group) == [data["clientID"]]
            assert group in state.groups.subscription_group_table
            info = state.consumers.consumer_group_info(group)
            assert info is not None
            assert set(info.subscription_table) == {each["topic"] for each in one["subscriptionDataSet"]}
            while state.topics.select_topic_config(f"%RETRY%{group}") is None:
                await client.round_trip()
            config = state.topics.select_topic_config(f"%RETRY%{group}")
            assert config is not None
            assert (config.read_queue_nums, config.perm) == (1, 6)
        for one in data.get("producerDataSet") or ():
            assert len(state.producers.channels(one["groupName"])) == 1


async def test_a_group_that_may_not_be_made_is_passed_over(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", autoCreateSubscriptionGroup="false") as served:
        client = await served.client()
        await client.heartbeat("c", consumer("g", "orders"))
        assert await members(client, "g") is None
        assert "g" not in served.controller._state.groups.subscription_group_table


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"clientID":"c","consumerDataSet":[{"groupName":3}]}'])
async def test_a_body_that_is_no_heartbeat_is_refused_and_the_connection_lives(tmp_path: Path, body: bytes) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        assert (await client.ask(RequestCode.HEART_BEAT, body)).code == ResponseCode.SYSTEM_ERROR
        await client.round_trip()


async def test_members_are_told_of_those_who_join_leave_and_close(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        one, two, three = [await served.client() for _ in range(3)]
        await one.heartbeat("1", consumer("g", "orders"))
        assert await notified(one) == "g"
        await two.heartbeat("2", consumer("g", "orders"))
        assert [await notified(client) for client in (one, two)] == ["g", "g"]
        await three.heartbeat("3", consumer("g", "orders"))
        assert [await notified(client) for client in (one, two, three)] == ["g", "g", "g"]
        assert await members(one, "g") == ["1", "2", "3"]
        await three.heartbeat("3", consumer("g", "orders"))  # nothing new: nobody is told
        answer = await three.ask(RequestCode.UNREGISTER_CLIENT, clientID="3", consumerGroup="g", producerGroup="")
        assert answer.code == 0
        assert [await notified(client) for client in (one, two)] == ["g", "g"]
        assert await members(one, "g") == ["1", "2"]
        await two.leave()
        assert await notified(one) == "g"
        assert await members(one, "g") == ["1"]
        await one.heartbeat("1", consumer("g", "orders", "payments", version=2))
        assert await notified(one) == "g"
        assert [client.requests.qsize() for client in (one, two, three)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("keys", "more"),
    [({"notifyConsumerIdsChangedEnable": "false"}, {}), ({}, {"messageModel": "BROADCASTING"})],
    ids=["switched off", "broadcasting"],
)
async def test_nobody_is_told(tmp_path: Path, keys: dict[str, Any], more: dict[str, Any]) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        one, two = await served.client(), await served.client()
        for number, client in enumerate((one, two)):
            await client.heartbeat(str(number), consumer("g", "orders", **more))
        await one.round_trip()
        assert [client.requests.qsize() for client in (one, two)] == [0, 0]
        assert await members(one, "g") == ["0", "1"]


async def test_the_log_tells_once_who_joins_a_group_and_who_leaves_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        lines = [str(record.msg) for record in caplog.records if record.name == "reput.service"]
        caplog.clear()
        return lines

    with caplog.at_level(logging.INFO, "reput.service"):
        async with serving_broker(tmp_path / "store") as served:
            client = await served.client()
            await client.round_trip()
            (connection,) = served.controller._server.connections
            who = f"group=g client={connection.remote} id=one language=JAVA version={VERSION}"
            for _ in range(2):
                await client.heartbeat("one", consumer("g", "orders"), producers=["g", "p"])
            of_p = who.replace("group=g", "group=p")
            assert told() == [f"consumer joined {who}", f"producer joined {who}", f"producer joined {of_p}"]
            fields = {"clientID": "one", "consumerGroup": "g", "producerGroup": "g"}
            for _ in range(2):
                assert (await client.ask(RequestCode.UNREGISTER_CLIENT, **fields)).code == 0
            assert told() == [f"producer left {who}", f"consumer left {who}"]
            await client.leave()
            other = await served.client()
            await other.heartbeat("two", consumer("h", "orders"))
            assert told()[0] == f"producer left {of_p}"
            next(iter(served.controller._state.consumers.channels("h").values())).last_update_ms = 0
            served.controller._services.clients.scan_not_active_channels()
            await other.ended()
            (line,) = told()
            assert line.startswith("consumer left group=h client=127.0.0.1:")


async def test_a_silent_client_is_closed_and_the_others_are_told(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", channelExpiredTimeout=60_000) as served:
        silent, other = await served.client(), await served.client()
        await silent.heartbeat("1", consumer("g", "orders"), producers=["p"])
        await other.heartbeat("2", consumer("g", "orders"))
        await notified(other)
        state = served.controller._state
        info = next(iter(state.consumers.channels("g").values()))
        info.last_update_ms -= 60_001
        served.controller._services.clients.scan_not_active_channels()
        await silent.ended()
        assert await notified(other) == "g"
        assert await members(other, "g") == ["2"]
        assert not state.producers.channels("p")


async def test_sql_expressions_are_refused_before_a_consumer_starts(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        codes = {}
        for kind in ("TAG", "SQL92"):
            subscription = {"topic": "orders", "subString": "a", "expressionType": kind}
            body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription}).encode()
            codes[kind] = (await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body)).code
        assert codes == {"TAG": 0, "SQL92": ResponseCode.SYSTEM_ERROR}


# -- offsets


async def locked(client: Client, code: int, client_id: str, *queues: int) -> set[int]:
    """Lock or unlock queues; the ids of those that the client holds."""
    found = [{"topic": "orders", "brokerName": "broker-a", "queueId": number} for number in queues]
    body = {"consumerGroup": "g", "clientId": client_id, "mqSet": found, "onlyThisBroker": False}
    answer = await client.ask(code, json.dumps(body).encode() + b"\n")
    assert answer.code == 0
    return {queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]} if answer.body else set()


async def test_a_queue_is_locked_by_one_client_until_it_frees_it(tmp_path: Path) -> None:
    lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ

    async with serving_broker(tmp_path / "store") as served:
        one, two = await served.client(), await served.client()
        assert await locked(one, lock, "1", 0, 1) == {0, 1}
        assert await locked(two, lock, "2", 1, 2) == {2}
        assert await locked(one, lock, "1", 0, 1, 2) == {0, 1}
        assert await locked(two, unlock, "2", 0, 1) == set()
        assert await locked(two, lock, "2", 1) == set()
        await locked(one, unlock, "1", 1)
        assert await locked(two, lock, "2", 1) == {1}
        await one.leave()  # a closed connection frees nothing
        assert await locked(two, lock, "2", 0) == set()
        locks = served.controller._state.locks._locks["g"]
        expired = {
            queue: (holder, time - rebalance_lock_manager.LOCK_MAX_LIVE_TIME_MS - 1)
            for queue, (holder, time) in locks.items()
        }
        locks |= expired
        assert await locked(two, lock, "2", 0) == {0}


async def test_a_heartbeat_is_answered_when_the_retry_topics_of_new_groups_are_there(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.heartbeat("c", consumer("one", "orders"), consumer("two", "orders"))
        topics = served.controller._state.topics
        assert all(topics.select_topic_config(f"%RETRY%{group}") is not None for group in ("one", "two"))
