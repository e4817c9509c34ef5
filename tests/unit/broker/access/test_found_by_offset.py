"""What a request finds by an offset of the log: it is asked for as if it had been named, and a unit proves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reput.formats.message_id import decode_message_id
from reput.formats.record_layout import PHYSICAL_OFFSET
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.asking import request
from tests.support.broker import Client, batch_command, messages_of, send_command, serving_broker, with_topic
from tests.support.signed import ALICE_PASSWORD, AUTHORIZATION, ROOT_PASSWORD, entry, make_alice, signed

#: From the begin of a record to its body.
_BODY = 88


def finding(offset: int, message_id: str = "") -> dict[str, RemotingCommand]:
    """The requests that find a message by its offset; the topic that they name is alice's."""
    code = RequestCode
    back = {"group": "g", "offset": offset, "delayLevel": 1, "originTopic": "hers", "originMsgId": message_id}
    consume = {"consumerGroup": "g", "clientId": "c", "msgId": message_id, "topic": "hers"}
    return {
        "view": request(code.VIEW_MESSAGE_BY_ID, topic="hers", offset=offset),
        "send back": request(code.CONSUMER_SEND_MSG_BACK, **back),
        "consume": request(code.CONSUME_MESSAGE_DIRECTLY, **consume),
    }


def commit(offset: int, queue_offset: object) -> RemotingCommand:
    """The commit of a transaction of the group bank, in alice's topic."""
    return request(
        RequestCode.END_TRANSACTION, topic="hers", producerGroup="bank", tranStateTableOffset=queue_offset,
        commitLogOffset=offset, commitOrRollback=8, msgId="m", fromTransactionCheck=False,
    )  # fmt: skip


def place(answer: RemotingCommand) -> tuple[str, int, str]:
    """Message id, log offset and queue offset of what was sent."""
    fields = answer.ext_fields or {}
    assert answer.code == 0, answer
    return fields["msgId"], decode_message_id(fields["msgId"].split(",")[0])[1], fields["queueOffset"]


async def asked(client: Client, command: RemotingCommand, user: str = "root", password: str = ROOT_PASSWORD) -> Any:
    return await client.begin_all([signed(command, user, password)])[0]


def half(topic: str) -> RemotingCommand:
    return send_command(topic, b"transfer", properties={"TRAN_MSG": "true", "PGROUP": "bank"}, sysFlag=4)


@pytest.mark.parametrize(("topic", "is_allowed"), [("hers", True), ("secret", False)])
async def test_only_messages_of_topics_that_a_user_may_name_are_reached_by_offsets(
    tmp_path: Path, topic: str, is_allowed: bool
) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("Topic:hers", "Pub", "Sub", "Get"), entry("Group:g", "Sub"))
        message_id, offset, _ = place(await asked(client, send_command(topic, b"the secret")))
        for name, command in finding(offset, message_id).items():
            answer = await asked(client, command, "alice", ALICE_PASSWORD)
            assert (answer.code != ResponseCode.NO_PERMISSION) == is_allowed, name
            assert is_allowed or not answer.body
            assert is_allowed or re.search(r"What was found needs .+ of Topic:", str(answer.remark)), answer
        end = served.controller.state.store.max_offset("%RETRY%g", 0)
        assert end == 0  # what may be sent back waits for its delay
        assert (served.controller.state.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1) == is_allowed
        _, offset, queue_offset = place(await asked(client, half(topic)))
        before = served.controller.state.store.max_offset(topic, 0)
        answer = await asked(client, commit(offset, queue_offset), "alice", ALICE_PASSWORD)
        assert answer.code == (0 if is_allowed else ResponseCode.NO_PERMISSION)
        await asked(client, request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0))  # sees all that was put
        assert served.controller.state.store.max_offset(topic, 0) == before + is_allowed


@pytest.mark.parametrize("kind", ["plain", "half", "retry"])
async def test_a_record_in_the_body_of_a_message_is_no_message(tmp_path: Path, kind: str) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.client()
        store, sent = served.controller.state.store, half("orders") if kind == "half" else send_command("orders")
        if kind == "retry":
            sent = send_command("%RETRY%g", code=RequestCode.SEND_MESSAGE)
        _, offset, queue_offset = place(await client.begin_all([sent])[0])
        await client.round_trip()
        record = bytearray(messages_of(await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset))[0].raw)
        at = store.max_commit_log_offset + _BODY
        record[PHYSICAL_OFFSET : PHYSICAL_OFFSET + 8] = at.to_bytes(8, "big")
        assert place(await client.send_message("orders", bytes(record)))[1] + _BODY == at
        assert store.look_message_by_offset(at) is not None  # so much it looks like one
        end = store.max_commit_log_offset
        message_id = place(await client.begin_all([send_command("orders")])[0])[0][:16] + f"{at:016X}"
        end = store.max_commit_log_offset
        for name, command in finding(at, message_id).items():
            answer = await client.begin_all([command])[0]
            assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b""), name
        for command in (commit(at, queue_offset), request(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message_id)):
            assert (await client.begin_all([command])[0]).code == ResponseCode.SYSTEM_ERROR
        assert store.max_commit_log_offset == end


async def test_a_batch_in_a_batch_queue_is_found_by_its_offset(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.client()
        await with_topic(client, "batches", attributes="+queue.type=BatchCQ")
        for _ in range(2):
            command = batch_command("batches", [b"a", b"b"], properties={"UNIQ_KEY": "k"})
            _, offset, _ = place(await client.begin_all([command])[0])
            answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, topic="batches", offset=offset)
            assert messages_of(answer)[0].commit_log_offset == offset
