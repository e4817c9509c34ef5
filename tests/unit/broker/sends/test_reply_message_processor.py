"""Replies over sockets: pushed to the producer that asked, and stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reput.broker import broker_to_client
from reput.broker.appends.inner_message import read_properties
from reput.errors import StoreFullError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.store.loop_writer import LoopWriter
from tests.support.broker import BORN_MS, LONG_MS, Client, Served, messages_of, send_command, serving_broker, with_topic

TOPIC = "DefaultCluster_REPLY_TOPIC"
EXT = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
PROPERTIES = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000"}


def reply_command(properties: dict[str, str] = PROPERTIES, **fields: Any) -> RemotingCommand:
    code = fields.pop("code", RequestCode.SEND_REPLY_MESSAGE_V2)
    is_long = code == RequestCode.SEND_REPLY_MESSAGE
    names = RequestCode.SEND_MESSAGE if is_long else RequestCode.SEND_MESSAGE_V2
    command = send_command(fields.pop("topic", TOPIC), b"re", code=names, properties=properties, **fields)
    command.code = code
    return command


async def stored(client: Client, topic: str = TOPIC, offset: int = 0) -> Any:
    (message,) = messages_of(await client.pull(topic, offset, hold_ms=LONG_MS))
    return message


async def asking(served: Served) -> Client:
    client = await served.client()
    await client.heartbeat("asker", producers=["askers"])
    return client


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_is_pushed_to_who_asked_and_stored(tmp_path: Path, code: int) -> None:
    async with serving_broker(tmp_path / "store") as served:
        asker, replier = await asking(served), await served.client()
        (answer,) = replier.begin_all([reply_command(code=code, flag=7, sysFlag=0x301, reconsumeTimes=2)])
        pushed = await asker.requests.get()
        assert (pushed.code, pushed.flag, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 0, b"re")
        fields = dict(pushed.ext_fields or {})
        properties = read_properties(fields.pop("properties"))
        now_ms = served.controller._state.clock.now_ms()
        assert 0 <= now_ms - int(properties.pop("PUSH_REPLY_TIME")) < 60_000
        assert 0 <= now_ms - int(fields.pop("storeTimestamp")) < 60_000
        assert properties == PROPERTIES | EXT
        host, port = replier.writer.get_extra_info("sockname")
        assert fields == {
            "producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "769", "bornTimestamp": str(BORN_MS), "flag": "7", "reconsumeTimes": "2",
            "unitMode": "false", "bornHost": f"{host}:{port}", "storeHost": served.controller.address,
        }  # fmt: skip
        assert not answer.done()
        asker.send(pushed.response())
        message = await stored(replier)
        told = await answer
        assert (told.code, told.remark) == (0, None)
        assert told.ext_fields == {"msgId": message.message_id, "queueId": "0", "queueOffset": "0", **EXT}
        assert (message.body, message.flag, message.sys_flag, message.reconsume_times) == (b"re", 7, 0x301, 2)
        assert (message.born_timestamp, message.born_host) == (BORN_MS, f"{host}:{port}")
        assert message.properties == PROPERTIES | EXT


async def test_a_reply_need_not_be_stored(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", storeReplyMessageEnable="false") as served:
        asker, replier = await asking(served), await served.client()
        (answer,) = replier.begin_all([reply_command(queueId=-1)])
        asker.send((await asker.requests.get()).response())
        assert (await answer).ext_fields == {"msgId": "0", "queueId": "0", "queueOffset": "0", **EXT}
        await asker.leave()
        (answer,) = replier.begin_all([reply_command()])
        assert (await answer).ext_fields == EXT
        assert served.controller._state.store.max_offset(TOPIC, 0) == 0


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"MSG_TYPE": "reply"}, "reply message properties[REPLY_TO_CLIENT] is null"),
        (PROPERTIES | {"REPLY_TO_CLIENT": "x"}, "push reply message fail, channel of <x> not found."),
    ],
    ids=["for nobody", "for a stranger"],
)
async def test_a_reply_that_nobody_gets_is_stored_and_the_answer_says_so(
    tmp_path: Path, properties: dict[str, str], remark: str
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        await asking(served)
        client = await served.client()
        answer = await client.begin_all([reply_command(properties)])[0]
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert (answer.ext_fields or {})["msgId"] == (await stored(client)).message_id


@pytest.mark.parametrize("how", ["refuses", "leaves", "is silent"])
async def test_a_client_that_does_not_take_its_reply(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "is silent":
        monkeypatch.setattr(broker_to_client, "_CALL_S", 0.01)
    async with serving_broker(tmp_path / "store") as served:
        asker, replier = await asking(served), await served.client()
        (answer,) = replier.begin_all([reply_command()])
        pushed = await asker.requests.get()
        if how == "refuses":
            asker.send(pushed.response(ResponseCode.SYSTEM_ERROR, "no"))
        elif how == "leaves":
            await asker.leave()
        told = await answer
        assert (told.code, told.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to askerfail.")


@pytest.mark.parametrize(
    "more", [{"DELAY": "x"}, {"TIMER_DELAY_MS": "x"}, {"INNER_NUM": "1000"}], ids=lambda one: next(iter(one))
)
async def test_a_reply_that_no_send_could_be_is_pushed_and_not_stored(tmp_path: Path, more: dict[str, str]) -> None:
    async with serving_broker(tmp_path / "store") as served:
        asker, replier = await asking(served), await served.client()
        (answer,) = replier.begin_all([reply_command(PROPERTIES | more)])
        asker.send((await asker.requests.get()).response())
        assert (await answer).ext_fields == {"msgId": "0", "queueId": "0", "queueOffset": "0", **EXT}
        end = await replier.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        assert end.ext_fields == {"offset": "0"}


async def test_a_reply_that_waits_for_its_client_does_not_hold_the_stop(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        asker, replier = await asking(served), await served.client()
        (answer,) = replier.begin_all([reply_command()])
        await asker.requests.get()
        await served.stop()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer


async def test_a_reply_that_is_pushed_and_not_stored_is_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        asker, replier = await asking(served), await served.client()
        monkeypatch.setattr(LoopWriter, "put_rows", lambda self, rows: [StoreFullError("full")])
        (answer,) = replier.begin_all([reply_command()])
        asker.send((await asker.requests.get()).response())
        told = await answer
        assert (told.code, told.ext_fields) == (0, {"msgId": "0", "queueId": "0", "queueOffset": "0", **EXT})


@pytest.mark.parametrize(
    ("fields", "keys", "code", "remark"),
    [
        ({"topic": "no topic"}, {}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "SELF_TEST_TOPIC"}, {}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"queueId": 1}, {}, ResponseCode.INVALID_PARAMETER, "request queueId[1] is illegal"),
        ({"topic": "new", "defaultTopic": "x"}, {}, ResponseCode.TOPIC_NOT_EXIST, "topic[new] not exist"),
        ({}, {"startAcceptSendRequestTimeStamp": 1 << 62}, ResponseCode.SYSTEM_ERROR, "broker unable to service"),
    ],
)
async def test_a_reply_is_refused_as_a_send_is(
    tmp_path: Path, fields: dict[str, Any], keys: dict[str, Any], code: int, remark: str
) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        asker, replier = await asking(served), await served.client()
        answer = await replier.begin_all([reply_command(**fields)])[0]
        assert (answer.code, answer.ext_fields) == (code, EXT)
        assert remark in str(answer.remark)
        assert asker.requests.qsize() == 0


async def test_a_reply_makes_its_topic(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        answer = await client.begin_all([reply_command({}, topic="replies", queueId=3)])[0]
        assert (answer.ext_fields or {})["queueId"] == "3"
        await with_topic(client, "replies", 4)


async def test_replies_that_wait_are_bounded(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", replyThreadPoolQueueCapacity=2) as served:
        asker, replier = await asking(served), await served.client()
        begun = replier.begin_all([reply_command() for _ in range(2)])
        assert (await begun[1]).code == ResponseCode.SYSTEM_BUSY
        asker.send((await asker.requests.get()).response())
        assert (await asyncio.wait_for(begun[0], 30)).code == 0
