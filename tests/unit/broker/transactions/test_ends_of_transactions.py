"""Transactions over sockets: half messages, their ends, checks, and what a restart or a kill leaves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from reput.broker.transactions import transactional_message_check_service
from reput.broker.transactions.transactional_op_batch_service import TransactionalOpBatchService
from reput.errors import MessageIllegalError, StoreBusyError, StoreFullError
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.store.loop_writer import LoopWriter
from tests.support.broker import LONG_MS, SYNCED, Client, Served, messages_of, send_command, serving_broker, with_topic
from tests.support.faulty_files import FaultyFiles
from tests.support.held_disk import HeldDisk
from tests.support.metrics import MEASURED, labelled

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP, KEY = "CID_RMQ_SYS_TRANS", "AB" * 16
COMMIT, ROLLBACK = 8, 12
#: No round by time, and op messages at once: the tests say when.
KEYS = {"transactionCheckInterval": 10**9, "transactionOpBatchInterval": 0, "transactionTimeOut": 0}
PROPERTIES = {"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": KEY, "TAGS": "paid"}


async def send_half(client: Client, body: bytes = b"pay", *, age_ms: int = 1000, **properties: str) -> RemotingCommand:
    """The answer to a half message for the queue 1 of orders, born some time ago."""
    born = int(time.time() * 1000) - age_ms
    command = send_command(
        "orders", body, properties=PROPERTIES | properties, queueId=1, sysFlag=5, flag=7, bornTimestamp=born
    )
    (answer,) = client.begin_all([command])
    assert (await answer).code == 0
    return await answer


def where(answer: RemotingCommand) -> dict[str, Any]:
    """The fields that END_TRANSACTION has of a half message."""
    fields = answer.ext_fields or {}
    _, offset = decode_message_id(fields["msgId"])
    return {"tranStateTableOffset": int(fields["queueOffset"]), "commitLogOffset": offset}


async def end(client: Client, half: dict[str, Any], how: int = COMMIT, **more: Any) -> RemotingCommand:
    return await client.ask(
        RequestCode.END_TRANSACTION, **{"producerGroup": "payers", "commitOrRollback": how, "msgId": KEY} | half | more
    )


async def pulled(client: Client, topic: str, offset: int = 0, queue_id: int = 0) -> list[MessageExt]:
    return messages_of(await client.pull(topic, offset, queueId=queue_id, hold_ms=LONG_MS))


async def count(client: Client, topic: str, queue_id: int = 0) -> int:
    answer = await client.ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
    return int((answer.ext_fields or {})["offset"])


async def check(served: Served) -> None:
    """Do a round that sees all messages; those of the ms in which it begins would be for the next one."""
    state = served.controller._state
    now_ms = state.clock.now_ms()
    while state.clock.now_ms() == now_ms or state.store.dispatch_behind_bytes:
        await asyncio.sleep(0)
    await served.controller._services.transactions.check()


def judged(served: Served) -> tuple[int, int]:
    """How far half and op messages are judged."""
    offsets = served.controller._state.offsets
    return offsets.query_offset(GROUP, HALF, 0), offsets.query_offset(GROUP, OP, 0)


async def asked(client: Client) -> tuple[dict[str, Any], MessageExt]:
    """The fields of END_TRANSACTION, and the message, of the broker's next question."""
    command = await asyncio.wait_for(client.requests.get(), 30)
    assert (command.code, command.is_one_way) == (RequestCode.CHECK_TRANSACTION_STATE, True)
    fields = command.ext_fields or {}
    assert (fields["msgId"], fields["transactionId"]) == (KEY, KEY)
    _, offset = decode_message_id(fields["offsetMsgId"])
    assert int(fields["commitLogOffset"]) == offset
    names = "tranStateTableOffset", "commitLogOffset"
    return {name: int(fields[name]) for name in names} | {"fromTransactionCheck": True}, MessageExt(command.body)


async def started(served: Served) -> Client:
    client = await served.client()
    await client.heartbeat("payer", producers=["payers"])
    await with_topic(client, "orders", 2)
    return client


@pytest.mark.parametrize("keys", [{}, SYNCED], ids=["async", "sync"])
async def test_a_half_message_is_stored_apart_until_its_commit(tmp_path: Path, keys: dict[str, Any]) -> None:
    async with serving_broker(tmp_path / "store", **KEYS | keys) as served:
        client = await started(served)
        answer = await send_half(client)
        fields = answer.ext_fields or {}
        assert (fields["queueId"], fields["queueOffset"], fields["transactionId"]) == ("1", "0", KEY)
        (half,) = await pulled(client, HALF)
        assert (half.body, half.flag, half.sys_flag, half.prepared_transaction_offset) == (b"pay", 7, 1, 0)
        properties = half.properties
        assert properties == {
            "TRAN_MSG": "true", "PGROUP": "payers", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster", "__transactionId__": KEY, "REAL_TOPIC": "orders", "REAL_QID": "1",
        }  # fmt: skip
        assert await count(client, "orders", 1) == 0
        done = await end(client, where(answer))
        assert (done.code, done.remark) == (0, None)
        (message,) = await pulled(client, "orders", queue_id=1)
        assert (message.body, message.tags, message.unique_key) == (b"pay", "paid", KEY)
        assert (message.flag, message.sys_flag) == (7, 9)
        assert message.prepared_transaction_offset == half.commit_log_offset
        assert message.properties == properties
        assert (message.born_timestamp, message.born_host) == (half.born_timestamp, half.born_host)
        (op,) = await pulled(client, OP)
        assert (op.body, op.tags) == (b"0,", "d")
        assert op.raw.endswith(b"WAIT\x01true\x02TAGS\x01d\x02")  # in Apache's order
        assert op.born_host == op.store_host == served.controller.address
        await check(served)
        assert judged(served) == (1, 1)
        assert client.requests.empty()


async def test_a_rollback_leaves_nothing_to_consume(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        assert (await end(client, where(await send_half(client)), ROLLBACK)).code == 0
        await pulled(client, OP)
        await check(served)
        assert judged(served) == (1, 1)
        assert (await count(client, "orders", 1), await count(client, HALF)) == (0, 1)


async def test_transactions_that_have_not_ended_are_counted_by_topic_across_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client, open_ones = await started(served), served.controller._state.transactions
        halves = [where(await send_half(client)) for _ in range(4)]
        assert (open_ones.count("orders"), open_ones.count(HALF)) == (4, 0)
        assert (await end(client, halves[0])).code == 0
        assert (await end(client, halves[1], ROLLBACK)).code == 0
        assert (await end(client, halves[2], producerGroup="others")).code != 0
        assert open_ones.count("orders") == 2
        await check(served)  # puts copies back
        assert open_ones.count("orders") == 2
    async with serving_broker(tmp_path / "store", **KEYS, **MEASURED) as served:
        assert await labelled(served, "rocketmq_half_messages", "topic") == {("orders",): 2}


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1 << 60}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitOrRollback": 4}, "commitOrRollback field wrong"),
    ],
)
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_an_end_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, Any], remark: str, how: int
) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        half = where(await send_half(client))
        answer = await end(client, half, how, **change)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert (await count(client, "orders", 1), await count(client, OP)) == (0, 0)


async def test_only_a_half_message_can_be_committed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        await end(client, where(await send_half(client)))
        (message,) = await pulled(client, "orders", queue_id=1)
        final = {"tranStateTableOffset": message.queue_offset, "commitLogOffset": message.commit_log_offset}
        assert (await end(client, final)).remark == "Find prepared transaction message failed"


async def test_a_producer_that_does_not_know_is_asked_until_it_does(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        half = where(await send_half(client))
        await client.one_way(RequestCode.END_TRANSACTION, producerGroup="payers", commitOrRollback=0, msgId=KEY, **half)
        for times in ("1", "2"):
            await check(served)
            copy, message = await asked(client)
            assert (message.topic, message.queue_id, message.body, message.flag) == (
                "orders", 1, b"pay", 7 if times == "1" else 0,
            )  # fmt: skip
            assert message.properties["TRANSACTION_CHECK_TIMES"] == times
            assert (message.queue_offset, message.store_size) == (int(times), len(message.raw))
            assert message.commit_log_offset == copy["commitLogOffset"]
            assert judged(served)[0] == int(times)
        assert (await end(client, copy)).code == 0
        (final,) = await pulled(client, "orders", queue_id=1)
        assert (final.body, final.prepared_transaction_offset) == (b"pay", copy["commitLogOffset"])
        await pulled(client, OP)
        await check(served)
        assert judged(served) == (3, 1)
        assert client.requests.empty()


async def test_a_producer_is_asked_when_an_end_finds_the_half_message(tmp_path: Path) -> None:
    disk = HeldDisk()

    files = FaultyFiles(disk.judge)
    async with serving_broker(tmp_path / "store", files=files, **KEYS | SYNCED) as served:
        client = await started(served)
        await send_half(client)
        with disk.held():
            checking = asyncio.ensure_future(check(served))
            await asyncio.to_thread(disk.wait)
            await client.round_trip()
            assert client.requests.empty()
        half, _ = await asked(client)
        assert (await end(client, half)).code == 0
        await checking


async def test_a_transaction_is_given_up_after_the_last_check(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS, transactionCheckMax=1) as served:
        client = await started(served)
        await send_half(client)
        await check(served)
        await asked(client)
        await check(served)
        (given_up,) = await pulled(client, GIVEN_UP)
        assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"pay", "orders")
        assert judged(served)[0] == 2
        assert client.requests.empty()
        open_ones = served.controller._state.transactions
        assert open_ones.count("orders") == 0

        answer = await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic=HALF, msgId=given_up.message_id)
        assert answer.code == 0
        assert open_ones.count("orders") == 1
        await check(served)
        copy, message = await asked(client)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert (await end(client, copy)).code == 0
        for bad in ("x", "00" * 15 + "01", given_up.message_id[:-2] + "07"):
            answer = await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=bad)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert str(answer.remark).startswith("Exception was thrown when putting message back")


async def test_what_is_too_new_waits_and_what_is_too_old_is_given_up(tmp_path: Path) -> None:
    keys = KEYS | {"transactionTimeOut": 50_000, "fileReservedTime": 1}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await started(served)
        await send_half(client, b"old", age_ms=3_700_000)
        await send_half(client, b"new", age_ms=10)
        await send_half(client, b"behind", age_ms=60_000)
        await check(served)
        (given_up,) = await pulled(client, GIVEN_UP)
        assert given_up.body == b"old"
        assert judged(served)[0] == 1
        assert client.requests.empty()


async def test_a_message_with_a_time_of_its_own(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        half = where(await send_half(client, age_ms=1000, CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
        await check(served)
        copy = (await pulled(client, HALF, 1))[0]
        assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert (await end(client, half)).code == 0  # under its first offset
        await pulled(client, OP)
        await check(served)
        assert (await count(client, HALF), judged(served)) == (2, (2, 1))
        assert client.requests.empty()

        late = where(await send_half(client, age_ms=61_000, CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
        answer = await end(client, late)
        assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, None)
        assert (await end(client, late, fromTransactionCheck=True)).code == 0


async def test_rounds_before_a_message_s_own_time_are_no_checks(tmp_path: Path) -> None:
    """Else a message whose time is longer than transactionCheckMax rounds was given up, and nobody was asked."""
    async with serving_broker(tmp_path / "store", **KEYS | {"transactionCheckMax": 2}) as served:
        client = await started(served)
        await send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        for rounds in range(1, 5):
            await check(served)
            assert len(await pulled(client, HALF)) == 1 + rounds  # put back each time
        copies = await pulled(client, HALF, 1)
        assert {copy.properties.get("TRANSACTION_CHECK_TIMES") for copy in copies} == {None}
        assert client.requests.empty()
        assert await count(client, GIVEN_UP) == 0

        served.controller.state.clock.put_forward(61_000)
        for _ in range(2):
            await check(served)
            await asked(client)
        await check(served)
        assert len(await pulled(client, GIVEN_UP)) == 1


async def test_members_of_a_group_are_asked_in_turn_and_a_group_may_be_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client, other = await started(served), await served.client()
        await other.heartbeat("other", producers=["payers"])
        await send_half(client)
        await send_half(client)
        await check(served)
        await asked(client)
        await asked(other)
        await client.leave()
        await other.leave()
        late = await served.client()
        await late.round_trip()
        await check(served)
        assert judged(served)[0] == 4
        told = [one.getMessage() for one in caplog.records if "nobody can be asked" in one.getMessage()]
        assert told == ["nobody can be asked how transactions ended group=payers transactions=2"]
        await late.heartbeat("late", producers=["payers"])
        await check(served)
        await asked(late)
        await asked(late)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_after_a_restart(tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end whose op message waits is not asked for, and holds up no other one; nor is it after a kill, or a stop."""
    keys = KEYS | {"transactionOpBatchInterval": 1_000_000}

    async def write_nothing(self: object) -> None: ...

    with monkeypatch.context() as patch:
        if is_killed:
            patch.setattr(TransactionalOpBatchService, "stop", write_nothing)
        async with serving_broker(tmp_path / "store", **keys) as served:
            client = await started(served)
            ended = where(await send_half(client, b"ended"))
            await send_half(client, b"open")
            assert (await end(client, ended)).code == 0
            await check(served)
            assert (await asked(client))[1].body == b"open"
            assert client.requests.empty()
            assert judged(served) == (2, -1)
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        await check(served)
        assert (await asked(client))[1].body == b"open"
        assert client.requests.empty()
        assert [one.body for one in await pulled(client, "orders", queue_id=1)] == [b"ended"]


async def test_many_transactions_end_in_few_op_messages(tmp_path: Path) -> None:
    keys = KEYS | {"transactionOpBatchInterval": 1_000_000, "transactionOpMsgMaxSize": 40}
    async with serving_broker(tmp_path / "store", **keys) as served:
        client = await started(served)
        halves = [where(await send_half(client)) for _ in range(150)]
        answers = await asyncio.gather(
            *(end(client, half, ROLLBACK if number % 3 == 2 else COMMIT) for number, half in enumerate(halves))
        )
        assert {answer.code for answer in answers} == {0}
        await served.controller._services.ended.stop()
        ops: list[MessageExt] = []
        while len([text for op in ops for text in op.body.split(b",") if text]) < 150:
            ops += await pulled(client, OP, len(ops))
        assert all(len(op.body) <= 44 for op in ops)
        assert len(ops) <= 20
        await check(served)
        assert judged(served) == (150, len(ops))
        assert await count(client, "orders", 1) == 100
        assert client.requests.empty()


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (StoreFullError("full"), ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."),
        (StoreBusyError("busy"), ResponseCode.SYSTEM_ERROR, "OS page cache busy, please try another machine"),
        (MessageIllegalError("large"), ResponseCode.MESSAGE_ILLEGAL, "The message is illegal, maybe msg body or "),
    ],
)
async def test_a_commit_that_fails_leaves_the_transaction_open(
    tmp_path: Path, error: Exception, code: int, remark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        half = where(await send_half(client))
        with monkeypatch.context() as patch:
            patch.setattr(LoopWriter, "put_rows", lambda self, rows: [error])
            answer = await end(client, half)
            assert answer.code == code
            assert str(answer.remark).startswith(remark)
        assert (await end(client, half)).code == 0
        assert await count(client, "orders", 1) == 1


async def test_a_half_message_that_cannot_be_put_back_now_is_judged_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        half = where(await send_half(client))
        with monkeypatch.context() as patch:
            patch.setattr(LoopWriter, "put_rows", lambda self, rows: [StoreFullError("full")])
            await check(served)
            assert judged(served) == (-1, -1)
        assert (await end(client, half)).code == 0
        assert await count(client, "orders", 1) == 1


async def test_ends_that_cannot_be_written_are_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        first, second = where(await send_half(client)), where(await send_half(client))
        with monkeypatch.context() as patch:
            patch.setattr(LoopWriter, "put_rows", lambda self, rows: [StoreBusyError("busy")])
            assert (await end(client, first, ROLLBACK)).code == 0
            await served.controller._services.ended.stop()
        assert (await end(client, second, ROLLBACK)).code == 0
        assert [op.body for op in await pulled(client, OP)] == [b"0,1,"]


async def test_offsets_that_are_gone_are_jumped_over(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        offsets = served.controller._state.offsets
        for topic in (HALF, OP):
            offsets.commit_offset(GROUP, topic, 0, 100, 0)
        await send_half(client)
        await check(served)
        assert judged(served)[1] < 100
        await check(served)
        assert judged(served)[0] < 100


async def test_a_bug_ends_one_round_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        client = await started(served)
        await send_half(client)
        with monkeypatch.context() as patch:
            patch.setattr(transactional_message_check_service, "judge", None)
            await check(served)
        await check(served)
        await asked(client)


async def test_rounds_come_by_time(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS | {"transactionCheckInterval": 5}) as served:
        client = await started(served)
        await send_half(client)
        await asked(client)


async def test_a_delayed_retry_of_an_old_client_is_no_half_message(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **KEYS, rejectTransactionMessage="true") as served:
        client = await started(served)
        properties = PROPERTIES | {"DELAY": "3"}
        answer = await client.send_message("orders", properties=properties, reconsumeTimes=1)
        assert answer.code != ResponseCode.NO_PERMISSION
        assert await count(client, HALF) == 0
