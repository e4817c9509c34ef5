"""Batch acks, changes of invisible times, peeks and notifications, over sockets."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from reput.broker.clock import BrokerClock
from reput.broker.pop import pop_revive_service
from reput.formats.pop_messages import Ack, CheckPointKey, decode_ack
from reput.remoting.codes import RequestCode, ResponseCode
from reput.service.pop import revive_round
from tests.support.broker import LONG_MS, SYNCED, Served, fill, messages_of, serving_broker, with_topic
from tests.support.pop import ack, change_invisible_time, handles, pop, pop_command, renewed

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
QUICK = SYNCED | {"revive_interval": 5, "revive_max_slow": 1}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revive_round, "JUDGED_AFTER_MS", 300)
    monkeypatch.setattr(revive_round, "QUIET_MS", 30)
    monkeypatch.setattr(pop_revive_service, "_LOOK_EVERY_S", 0.005)


def acks(served: Served) -> list[Ack | None]:
    store = served.controller._state.store
    found = [one for queue in range(8) for one in store.get_message(REVIVE, queue, 0).messages()]
    return [decode_ack(one.body, "") for one in found if one.tags in ("ack", "bAck")]


async def test_a_batch_ack_names_messages_by_bits(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abcd")
        answer = await pop(client, "orders", invisible_ms=1500)
        fields = answer.ext_fields or {}
        assert len(messages_of(answer)) == 4
        one = {"c": "g", "t": "orders", "r": "0", "so": 0, "q": 0, "rq": int(fields["reviveQid"]), "it": 1500,
               "pt": int(fields["popTime"]), "b": base64.b64encode(bytes([0b1011])).decode()}  # fmt: skip
        passed = [one | {"t": "none"}, one | {"q": 7}, one | {"q": -1, "b": "AQ=="}, one | {"rq": 55}]
        body = json.dumps({"brokerName": "broker-a", "acks": [*passed, one]}).encode()
        assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == 0
        again = await pop(client, "orders", poll_ms=LONG_MS)
        assert [message.tags for message, _, _ in handles(again)] == ["c"]
        key = CheckPointKey("orders", "g", 0, 0, int(fields["popTime"]), "broker-a")
        assert acks(served) == [Ack(key, (0, 1, 3))]


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"", 208), (b"{}", 208), (b'{"acks":[]}', 208), (b"[]", 1), (b'{"acks":[1]}', 1), (b"\xff", 1),
     (b'{"acks":[{"c":"g","t":"orders","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"AQ=="}]}', 1),
     (b'{"acks":[{"r":"3","c":"g","t":"orders","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"AQ=="}]}', 1),
     (b'{"acks":[{"r":"0","c":"g","t":"orders","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"A"}]}', 1),
     (b'{"acks":[{"r":"0","c":"g","t":"orders","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"%s"}]}' % (b"AAAA" * 4096), 1)],
)  # fmt: skip
async def test_a_batch_ack_of_another_form_changes_nothing(tmp_path: Path, body: bytes, code: int) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == code
        await client.round_trip()
        assert acks(served) == []


async def test_a_longer_invisible_time_keeps_a_message_away_and_its_new_handle_acks_it(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", *"abc")
        first, second, _ = handles(await pop(client, "orders", invisible_ms=1500))
        longer = await change_invisible_time(client, first[1], first[2], 600_000)
        shorter = await change_invisible_time(client, second[1], second[2], 2000)
        assert (longer.code, longer.remark) == (0, "not set any response code")
        assert (longer.ext_fields or {})["invisibleTime"] == "600000"
        assert (await ack(client, second[1], renewed(second[2], shorter))).code == 0
        again = await pop(client, "orders", poll_ms=LONG_MS)
        assert [message.tags for message, _, _ in handles(again)] == ["c"], "neither longer nor acked"
        for offset, invisible in ((9, 10), (0, 259_200_001)):
            handle = first[2].rpartition(" ")[0] + f" {offset}"
            refused = await change_invisible_time(client, first[1], handle, invisible)
            expected = ResponseCode.NO_MESSAGE if offset else ResponseCode.INVALID_PARAMETER
            assert (refused.code, (refused.ext_fields or {})["popTime"]) == (expected, "0")


async def test_a_shorter_invisible_time_brings_a_message_sooner(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        ((_, topic, handle),) = handles(await pop(client, "orders", invisible_ms=150))
        assert (await change_invisible_time(client, topic, handle, 50)).code == 0
        again = handles(await pop(client, "orders", poll_ms=LONG_MS))
        # One, or two: a machine that stands still brings the ack too late for the short waits of this test.
        assert {(message.tags, message.reconsume_times) for message, _, _ in again} == {("a", 1)}


async def test_changes_within_a_millisecond_of_the_pop_lose_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ack of an old check point must not count for the new one."""

    async with serving_broker(tmp_path / "store", **QUICK) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a")
        with monkeypatch.context() as still:
            now_ms = int(time.time() * 1000)
            still.setattr(BrokerClock, "now_ms", staticmethod(lambda: now_ms))
            ((_, topic, handle),) = handles(await pop(client, "orders", invisible_ms=50))
            for number in range(1, 4):
                answer = await change_invisible_time(client, topic, handle, 50)
                assert (answer.ext_fields or {})["popTime"] == str(now_ms + number)
                handle = renewed(handle, answer)
        again = handles(await pop(client, "orders", poll_ms=LONG_MS))
        # One, or two: a machine that stands still brings the ack too late for the short waits of this test.
        assert {(message.tags, message.reconsume_times) for message, _, _ in again} == {("a", 1)}


async def test_a_peek_gives_what_a_pop_would_and_takes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 2)
        await fill(client, "orders", *"abc")
        ask: dict[str, Any] = {"topic": "orders", "queueId": -1, "maxMsgNums": 2, "consumerGroup": "g"}
        for _ in range(2):
            answer = await client.ask(RequestCode.PEEK_MESSAGE, **ask)
            assert [message.tags for message in messages_of(answer)] == ["a", "b"]
            assert answer.ext_fields == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "3"}
        assert len(messages_of(await pop(client, "orders"))) == 3
        answer = await client.ask(RequestCode.PEEK_MESSAGE, **ask)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        assert (await client.ask(RequestCode.PEEK_MESSAGE, **(ask | {"topic": "none"}))).code == 17


async def test_a_notification_says_when_a_message_is_there(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, other = await served.client(), await served.client()
        await with_topic(client, "orders")
        ask: dict[str, Any] = {
            "consumerGroup": "g", "topic": "orders", "queueId": -1, "bornTime": int(time.time() * 1000)
        }  # fmt: skip
        answer = await client.ask(RequestCode.NOTIFICATION, pollTime=0, **ask)
        assert answer.ext_fields == {"hasMsg": "false", "pollingFull": "false"}
        assert (await pop(client, "orders")).code == ResponseCode.POLLING_TIMEOUT  # the group's first is written
        waiting = client.begin(RequestCode.NOTIFICATION, pollTime=LONG_MS, **(ask | {"consumerGroup": "h"}))
        popping = client.begin_all([pop_command("orders", poll_ms=LONG_MS)])[0]
        await client.round_trip()
        info = {"consumerGroup": "g", "topic": "orders"}
        numbers = [await client.ask(RequestCode.POLLING_INFO, queueId=queue, **info) for queue in (-1, 0)]
        assert [(one.ext_fields or {})["pollingNum"] for one in numbers] == ["1", "0"]
        await other.send_message("orders", b"x")
        assert len(messages_of(await popping)) == 1
        answer = await waiting
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
        assert (await client.ask(RequestCode.NOTIFICATION, pollTime=0, **(ask | {"topic": "none"}))).code == 17


async def test_more_pops_than_may_wait_are_told_so(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", pop_polling_size=1, max_pop_polling_size=3) as served:
        client = await served.client()
        await with_topic(client, "orders")
        for group in "ghi":
            assert (await pop(client, "orders", group)).code == ResponseCode.POLLING_TIMEOUT
        begun = client.begin_all([pop_command("orders", poll_ms=LONG_MS) for _ in range(3)])
        assert (await begun[2]).code == ResponseCode.POLLING_FULL
        more = client.begin_all([pop_command("orders", group, poll_ms=LONG_MS) for group in ("h", "i")])
        assert (await more[1]).code == ResponseCode.POLLING_FULL
        await client.leave()
        other = await served.client()
        await other.round_trip()
        polling = served.controller._services.pop.listeners[0]
        while polling.any_wait:
            await other.round_trip()
        assert polling._count == polling._bytes == 0
