"""Messages that nobody acks come again, those that somebody acks do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.broker.pop import pop_revive_service
from reput.formats.pop_messages import CheckPoint, CheckPointKey, decode_check_point, encode_check_point
from reput.remoting.codes import ResponseCode
from reput.service.pop import revive_round
from tests.support.broker import LONG_MS, SYNCED, fill, messages_of, serving_broker, with_topic
from tests.support.pop import ack, handles, pop
from tests.support.sockets import run

QUICK = SYNCED | {"revive_interval": 5, "revive_max_slow": 1}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revive_round, "JUDGED_AFTER_MS", 300)
    monkeypatch.setattr(revive_round, "QUIET_MS", 30)
    monkeypatch.setattr(pop_revive_service, "_LOOK_EVERY_S", 0.005)


def test_a_message_without_an_ack_comes_again_and_wakes_who_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving_broker(tmp_path / "store", **QUICK) as served:
            client = await served.client()
            await with_topic(client, "orders")
            await fill(client, "orders", *"abc")
            first = handles(await pop(client, "orders", invisible_ms=1500))
            assert [message.tags for message, _, _ in first] == ["a", "b", "c"]
            for message, topic, handle in first:
                if message.tags != "b":
                    assert (await ack(client, topic, handle)).code == 0
            again = await pop(client, "orders", invisible_ms=20, poll_ms=LONG_MS)
            assert (again.ext_fields or {})["startOffsetInfo"] == "1 0 0"
            ((message, topic, handle),) = handles(again)
            assert (message.tags, message.topic, message.reconsume_times) == ("b", "orders", 1)
            assert topic == "%RETRY%g_orders"
            assert message.properties["POP_CK"] == handle
            assert message.properties["1ST_POP_TIME"] == first[0][2].split(" ")[1]
            third = await pop(client, "orders", invisible_ms=60_000, poll_ms=LONG_MS)
            ((message, topic, handle),) = handles(third)
            assert (message.tags, message.reconsume_times) == ("b", 2)
            assert (await ack(client, topic, handle)).code == 0

    run(scenario())


def test_v2_names_of_retry_topics_are_found_beside_v1(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving_broker(tmp_path / "store", **QUICK, enable_retry_topic_v2=True) as served:
            client = await served.client()
            await with_topic(client, "orders")
            await fill(client, "orders", "a")
            assert (await pop(client, "orders", invisible_ms=20)).code == 0
            ((_, topic, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
            assert topic == "%RETRY%g+orders"

    run(scenario())


def test_a_stop_between_pop_and_revival_loses_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving_broker(tmp_path / "store", **QUICK) as served:
            client = await served.client()
            await with_topic(client, "orders")
            await fill(client, "orders", *"ab")
            (_, topic, handle), _ = handles(await pop(client, "orders", invisible_ms=1500))
            assert (await ack(client, topic, handle)).code == 0
        async with serving_broker(tmp_path / "store", **QUICK) as served:
            client = await served.client()
            ((message, _, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
            assert (message.tags, message.reconsume_times) == ("b", 1)

    run(scenario())


def test_check_points_that_cannot_be_done_stop_no_other(tmp_path: Path) -> None:
    """Hand-made ones: no JSON, unknown topic, unknown group, a message that is not there, another broker's."""

    async def scenario() -> None:
        async with serving_broker(tmp_path / "store", **QUICK) as served:
            client = await served.client()
            await with_topic(client, "orders")
            await fill(client, "orders", *"ab")
            assert len(messages_of(await pop(client, "orders"))) == 2
            key = CheckPointKey("orders", "g", 0, 0, 1, "broker-a")
            keys = [key._replace(topic="none"), key._replace(group="none"), key._replace(start_offset=99),
                    key._replace(broker_name="broker-x"), key._replace(start_offset=1)]  # fmt: skip
            bodies = [b"no JSON", *(encode_check_point(CheckPoint(one, 1, (one.start_offset,))) for one in keys)]
            topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
            for body in bodies:
                properties = {"TAGS": "ck", "TIMER_DELIVER_MS": "1700000000000"}
                sent = await client.send_message(topic, body, properties=properties, queueId=1)
                assert sent.code == 0, sent
            ((message, _, _),) = handles(await pop(client, "orders", poll_ms=LONG_MS))
            assert (message.tags, message.reconsume_times) == ("b", 1)
            again, *_ = served.controller._state.store.get_message(topic, 1, 6).messages()  # it is due, and tried again
            point = decode_check_point(again.body)
            assert point is not None
            assert (point.key.broker_name, point.re_put_times, point.invisible_time) == ("broker-x", 1, 10_001)

    run(scenario())


def test_a_late_ack_is_answered_with_success_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving_broker(tmp_path / "store", **QUICK) as served:
            client = await served.client()
            await with_topic(client, "orders")
            await fill(client, "orders", "a")
            ((_, topic, handle),) = handles(await pop(client, "orders", invisible_ms=20))
            assert len(messages_of(await pop(client, "orders", poll_ms=LONG_MS))) == 1
            assert (await ack(client, topic, handle)).code == 0
            beyond = await ack(client, topic, handle.rpartition(" ")[0] + " 99")
            assert (beyond.code, beyond.remark) == (
                ResponseCode.NO_MESSAGE, "offset is illegal, key:orders@0, commit:99, store:0~1",
            )  # fmt: skip

    run(scenario())
