"""What the broker puts again: one message that can never be put keeps none before and none behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reput.broker.appends.inner_appends import Appends
from reput.config.message_store import MessageStoreConfig
from reput.errors import MessageIllegalError, StoreFullError
from reput.formats.hosts import encode_host
from reput.formats.message_batch import INNER_BATCH
from reput.formats.message_ext import MessageExt
from reput.formats.properties import SIZE_ADDED_LATER
from reput.formats.record_layout import MAX_PROPERTIES_SIZE
from reput.remoting.codes import RequestCode, ResponseCode
from reput.store.puts.put_rows import PutRow, PutRowResult
from tests.support.broker import LONG_MS, Client, batch_command, messages_of, serving_broker, with_topic
from tests.support.pop import pop

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
NO_TOPIC = "t" * 128
KEYS: dict[str, Any] = {
    "transactionTimeOut": 0, "transactionCheckInterval": 100, "revive_queue_num": 1, "timerPrecisionMs": 100,
    "max_message_size": 1000,
}  # fmt: skip


class Kind(NamedTuple):
    """A way in which the broker puts a message again.

    topic: Where it waits; None: in a topic of its own, until its pop is over.
    waits: Its properties there, with {now} and {slot}, a time and that of its slot.
    evil: Those of one that can never be put: the value of `x` fills them up.
    last: Where that goes.
    again: Where the others go.
    """

    topic: str | None
    waits: Mapping[str, str]
    evil: Mapping[str, str]
    last: str
    again: str


_LEVEL = {"REAL_TOPIC": "orders", "REAL_QID": "0", "DELAY": "1"}
_TIMED = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": "{slot}", "TIMER_DELIVER_MS": "{now}"}
_HALF = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "payers"}
KINDS = {
    "a delay level": Kind("SCHEDULE_TOPIC_XXXX", _LEVEL, {"REAL_TOPIC": NO_TOPIC}, "%DLQ%SCHEDULE_CONSUMER", "orders"),
    "a delay level of a group": Kind(
        "SCHEDULE_TOPIC_XXXX", _LEVEL, {"REAL_TOPIC": "%RETRY%g" + "+" + "t" * 255}, "%DLQ%g", "orders"
    ),
    "a delay level without a topic": Kind(
        "SCHEDULE_TOPIC_XXXX", _LEVEL, {"REAL_QID": "x"}, "%DLQ%SCHEDULE_CONSUMER", "orders"
    ),
    "a delay level of a group with a long name": Kind(
        "SCHEDULE_TOPIC_XXXX", _LEVEL, {"REAL_TOPIC": "%RETRY%" + "g" * 251}, "%DLQ%SCHEDULE_CONSUMER", "orders"
    ),
    "a delay level of a group with an illegal name": Kind(
        "SCHEDULE_TOPIC_XXXX", _LEVEL, {"REAL_TOPIC": "%RETRY%a/b"}, "%DLQ%SCHEDULE_CONSUMER", "orders"
    ),
    "a delay level of a group with letters of two bytes": Kind(
        "SCHEDULE_TOPIC_XXXX", _LEVEL, {"REAL_TOPIC": "%RETRY%" + "é" * 200}, "%DLQ%SCHEDULE_CONSUMER", "orders"
    ),
    "a time": Kind("rmq_sys_wheel_timer", _TIMED, {"x": ""}, "%DLQ%SCHEDULE_CONSUMER", "orders"),
    "a time, and no topic": Kind(
        "rmq_sys_wheel_timer", _TIMED, {"REAL_TOPIC": NO_TOPIC}, "%DLQ%SCHEDULE_CONSUMER", "orders"
    ),
    "a pop": Kind(None, {}, {"x": ""}, "%DLQ%g", "%RETRY%g_popped"),
    "a check of a transaction": Kind(HALF, _HALF, {"x": ""}, "TRANS_CHECK_MAX_TIME_TOPIC", HALF),
    "a half message that is put back": Kind(
        HALF, _HALF | {"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}, {"x": ""}, "TRANS_CHECK_MAX_TIME_TOPIC", HALF
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageStoreConfig, "delay_levels_ms", property(lambda _: (100,)))


def row(topic: str, body: bytes, properties: Mapping[str, str]) -> PutRow:
    """A record with these properties; `x` takes all that is left."""
    now_ms = int(time.time() * 1000)
    pairs = {
        name: value.format(now=now_ms + 300, slot=(now_ms + 300) // 100 * 100) for name, value in properties.items()
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    if pairs.get("x") == "":
        text = text.replace("x\x01\x02", "x\x01" + "x" * (MAX_PROPERTIES_SIZE - len(text)) + "\x02")
    return PutRow(topic, 0, body, text.encode(), 0, 0, now_ms - 1000, encode_host("127.0.0.1:1"))


async def bodies(client: Client, topic: str, count: int, offset: int = 0) -> list[bytes]:
    """The bodies of so many messages of a queue; waits until they are there."""
    found: list[MessageExt] = []
    while len(found) < count:
        answer = await client.pull(topic, offset + len(found), hold_ms=LONG_MS)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:  # it is being made
            await asyncio.sleep(0.01)
        else:
            found += messages_of(answer)
    return [one.body for one in found]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_what_can_never_be_put_goes_to_its_last_topic_and_all_others_where_they_belong(
    tmp_path: Path, kind: Kind
) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client, appends = await served.client(), served.controller._state.appends
        for topic in ("orders", "popped"):
            await with_topic(client, topic)
        large = b"larger than maxMessageSize, which was lowered since".ljust(1001)
        sent = {b"before": {}, b"evil": kind.evil, large: {}}
        rows = [row(kind.topic or "popped", body, {**kind.waits, **more}) for body, more in sent.items()]
        assert all(isinstance(one, PutRowResult) for one in await appends.append_rows(rows))
        if kind.topic is None:
            await client.pull("popped", 2, hold_ms=LONG_MS)
            assert len(messages_of(await pop(client, "popped", "g", invisible_ms=100))) == 3
        put_before = 3 if kind.again == HALF else 0
        assert await bodies(client, kind.last, 1) == [b"evil"]
        assert await bodies(client, kind.again, 2, put_before) == [b"before", large]


@pytest.mark.parametrize("size", [251, 255])
async def test_a_group_with_a_long_name_that_acks_nothing_stops_no_other_group(tmp_path: Path, size: int) -> None:
    """It can have neither a retry topic nor dead letters."""
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        await with_topic(client, "popped")
        assert (await client.send_message("popped", b"popped")).code == 0
        for group in ("g" * size, "g"):
            assert len(messages_of(await pop(client, "popped", group, invisible_ms=100))) == 1
        assert await bodies(client, "%DLQ%SCHEDULE_CONSUMER", 1) == [b"popped"]
        assert await bodies(client, "%RETRY%g_popped", 1) == [b"popped"]


async def test_a_failure_that_may_pass_counts_what_was_revived_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is "not yet": the rest comes later, and what was done is not done again."""
    left, append_row = 1, Appends.append_row

    async def append_some(self: Appends, one: PutRow) -> PutRowResult:
        nonlocal left
        if one.topic.startswith("%RETRY%"):
            left -= 1
            if left == -1:
                raise StoreFullError("no space left for this message")
        return await append_row(self, one)

    monkeypatch.setattr("reput.broker.pop.pop_revive_service._RETRY_S", 0.01)
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        await with_topic(client, "popped")
        for body in (b"one", b"two"):
            assert (await client.send_message("popped", body)).code == 0
            assert len(messages_of(await pop(client, "popped", "g", invisible_ms=100, maxMsgNums=1))) == 1
        monkeypatch.setattr(Appends, "append_row", append_some)
        assert await bodies(client, "%RETRY%g_popped", 2) == [b"one", b"two"]
        assert left == -2, "one was put, two failed, two was put"


# -- inner batches


async def with_inner_batch(client: Client) -> MessageExt:
    """The record of a batch of the topic `batches`."""
    await with_topic(client, "batches", attributes="+queue.type=BatchCQ")
    command = batch_command("batches", [b"one", b"two"], properties={"UNIQ_KEY": "u"})
    assert (await client.begin_all([command])[0]).code == 0
    stored: MessageExt
    (stored,) = messages_of(await client.pull("batches", hold_ms=LONG_MS))
    assert stored.sys_flag & INNER_BATCH == INNER_BATCH
    return stored


async def test_a_message_of_an_inner_batch_that_is_sent_back_is_refused(tmp_path: Path) -> None:
    """Its client puts the one message again itself; the broker knows the whole batch alone."""
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        stored = await with_inner_batch(client)
        for level in (-1, 1):
            back = {"offset": stored.commit_log_offset, "group": "g", "delayLevel": level}
            answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
            assert (answer.code, "inner batch" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
        assert (await client.pull("%DLQ%g")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_an_inner_batch_that_is_popped_and_not_acked_comes_again_as_its_messages(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        await with_inner_batch(client)
        assert len(messages_of(await pop(client, "batches", "g", invisible_ms=100))) == 1
        assert await bodies(client, "%RETRY%g_batches", 2) == [b"one", b"two"]
        again = messages_of(await client.pull("%RETRY%g_batches", hold_ms=LONG_MS))
        assert [(one.sys_flag & INNER_BATCH, one.tags, one.reconsume_times) for one in again] == [
            (0, "0", 1),
            (0, "1", 1),
        ]


async def test_an_inner_batch_that_is_given_up_is_its_messages_in_the_dead_letters(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        stored = await with_inner_batch(client)
        why = MessageIllegalError("no topic takes it")
        await served.controller.state.dead_letters.give_up(stored.raw, "%DLQ%g", why)
        assert await bodies(client, "%DLQ%g", 2) == [b"one", b"two"]


# -- sizes


def sent_properties(size: int) -> dict[str, str]:
    """Properties so large as a client's, with what the broker adds when it takes them."""
    return {"UNIQ_KEY": "u", "x": "x" * size}


async def longest(client: Client, topic: str, **more: str) -> int:
    """The longest value of a property that a send takes."""
    low, high = 0, MAX_PROPERTIES_SIZE
    while high - low > 1:
        middle = (low + high) // 2
        answer = await client.send_message(topic, properties=sent_properties(middle) | more)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL)
        low, high = (middle, high) if answer.code == ResponseCode.SUCCESS else (low, middle)
    return low


async def test_the_largest_message_that_is_taken_can_be_popped_and_sent_back_and_waits(tmp_path: Path) -> None:
    """What a send is answered SUCCESS for has room for all that is added to it on its way."""
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        await with_topic(client, "orders")
        size = await longest(client, "orders")
        assert MAX_PROPERTIES_SIZE - SIZE_ADDED_LATER - 200 < size < MAX_PROPERTIES_SIZE - SIZE_ADDED_LATER
        await with_topic(client, "largest")
        answer = await client.send_message("largest", b"the largest", properties=sent_properties(size))
        (message,) = messages_of(await client.pull("largest", hold_ms=LONG_MS))
        back = {"offset": message.commit_log_offset, "group": "g", "delayLevel": 1, "maxReconsumeTimes": 3}
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
        (again,) = messages_of(await client.pull("%RETRY%g", hold_ms=LONG_MS))
        assert again.properties["RETRY_TOPIC"] == "largest", answer
        for _ in range(2):  # from its topic, and from its retry topic
            while (popped := await pop(client, "largest", "g", invisible_ms=100)).code:
                await asyncio.sleep(0.05)
            assert len(messages_of(popped)) == 1
        timed = await longest(client, "orders", TIMER_DELAY_MS="300")
        await with_topic(client, "timed")
        await client.send_message("timed", b"timed", properties=sent_properties(timed) | {"TIMER_DELAY_MS": "300"})
        assert await bodies(client, "timed", 1) == [b"timed"]


async def test_what_is_sent_back_and_fits_no_more_goes_to_the_dead_letters_of_its_group(tmp_path: Path) -> None:
    """The consumer is answered SUCCESS: else it would send the message back again and again."""
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        await with_topic(client, "orders")
        stored = await served.controller._state.appends.append_row(row("orders", b"full", {"x": ""}))
        back = {"offset": stored.commit_log_offsets[0], "group": "g", "delayLevel": 1}
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
        assert await bodies(client, "%DLQ%g", 1) == [b"full"]


async def test_a_level_beyond_the_highest_one_is_the_highest_one(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await served.client()
        await with_topic(client, "orders")
        assert (await client.send_message("orders", b"again")).code == 0
        (message,) = messages_of(await client.pull("orders", hold_ms=LONG_MS))
        back = {"offset": message.commit_log_offset, "group": "g", "delayLevel": 2_000_000_000}
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
        assert await bodies(client, "%RETRY%g", 1) == [b"again"]
