"""Operators and clients of gRPC: members of groups, stacks of threads, a message that is consumed at once, metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_parts import GrpcResource, Status
from tests.support.broker import consumer, messages_of, serving_broker, with_topic
from tests.support.grpc_client import OK, bodies, consumer_settings, grpc_client, producer_settings
from tests.support.metrics import MEASURED, families


async def test_members_of_both_protocols_are_listed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        await with_topic(operator, "orders")
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        other, _ = await client.as_client("client-2").settle(producer_settings("orders"))
        await operator.heartbeat("client-3", consumer("g", "orders"), producers=["orders"])
        for code, name in (
            (RequestCode.GET_CONSUMER_CONNECTION_LIST, "consumerGroup"),
            (RequestCode.GET_PRODUCER_CONNECTION_LIST, "producerGroup"),
        ):
            answer = await operator.ask(code, **{name: "g" if name == "consumerGroup" else "orders"})
            members = {one["clientId"]: one["language"] for one in json.loads(answer.body)["connectionSet"]}
            ours = "client-1" if name == "consumerGroup" else "client-2"
            assert members == {ours: "PYTHON", "client-3": "JAVA"}
        for one in (stream, other):
            one.cancel()


def body_of(answer: RemotingCommand) -> Any:
    assert answer.code == 0, answer
    return json.loads(answer.body)


async def test_a_client_tells_the_stacks_of_its_threads(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        asked = {"consumerGroup": "g", "clientId": "client-1"}
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        waiting = operator.begin(code, jstackEnable=True, **asked)
        told = (await stream.read()).print_thread_stack_trace_command
        assert told is not None
        trace = v2.ThreadStackTrace(told.nonce, "main: at work")
        await stream.write(v2.TelemetryCommand(Status(Code.OK), thread_stack_trace=trace))
        assert body_of(await waiting) == {"jstack": "main: at work"}
        refused = await operator.ask(code, jstackEnable=False, **asked)
        assert (refused.code, "is not asked for 307" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        for nonce in ("", "x", "9" * 30, "12345"):  # nobody waits for these
            odd = v2.ThreadStackTrace(nonce, "odd")
            await stream.write(v2.TelemetryCommand(Status(Code.OK), thread_stack_trace=odd))
        await client.settle(consumer_settings("g", "orders"))
        stream.cancel()


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (Code.OK, "CR_SUCCESS"), (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"), (1, "CR_LATER"),
    ],
)  # fmt: skip
async def test_a_client_consumes_a_message_that_an_operator_has_chosen(
    tmp_path: Path, status: int, result: str
) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        await with_topic(operator, "orders")
        await client.send("orders", b"x")
        (stored,) = messages_of(await operator.pull("orders"))
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        waiting = operator.begin(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", clientId="client-1", msgId=stored.message_id,
            brokerName="broker-a", topic="orders",
        )  # fmt: skip
        told = (await stream.read()).verify_message_command
        assert told is not None
        assert told.message is not None
        assert (told.message.topic, told.message.body) == (GrpcResource(name="orders"), b"x")
        verified = v2.VerifyMessageResult(told.nonce)
        await stream.write(v2.TelemetryCommand(Status(status), verify_message_result=verified))
        answer = body_of(await waiting)
        assert (answer["consumeResult"], answer["remark"]) == (result, "from gRPC client")
        stream.cancel()


async def test_a_client_without_a_stream_is_asked_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        await stream.done_writing()
        await stream.read()
        answer = await operator.ask(
            RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="client-1", jstackEnable=True
        )
        assert (answer.code, "has no stream" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_metrics_have_the_protocol_of_clients(tmp_path: Path) -> None:
    async with (
        serving_broker(tmp_path / "store", **MEASURED) as served,
        grpc_client(served.controller.address) as client,
    ):
        operator = await served.client()
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        await operator.heartbeat("client-3", producers=["orders"])
        found = {one.name: one.labels for family in await families(served) for one in family.samples}
        assert found["rocketmq_consumer_connections"]["protocol_type"] == "grpc"
        assert found["rocketmq_producer_connections"]["protocol_type"] == "remoting"
        stream.cancel()


async def test_sends_go_on_over_the_end_of_a_log_file_and_keep_their_order(tmp_path: Path) -> None:
    """Some need a file that is not there, and wait for it beside the loop; those after them wait, too."""
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        await with_topic(operator, "orders")
        body = bytes(200_000)
        sent = await asyncio.gather(*(client.send("orders", b"%03d" % number + body) for number in range(40)))
        assert [one.status and one.status.code for one in sent] == [OK] * 40
        offsets = [one.entries[0].offset for one in sent]
        assert sorted(offsets) == list(range(40))
        assert served.controller.state.store.max_commit_log_offset > 7 * (1 << 20)


async def test_many_clients_of_one_connection_are_told_apart(tmp_path: Path) -> None:
    """As Node's are, which share a connection."""
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        await with_topic(operator, "orders")
        streams = []
        for number in range(20):
            one = client.as_client(f"client-{number}")
            streams.append((await one.settle(consumer_settings(f"g{number}", "orders")))[0])
        await client.send("orders", b"x")
        received = await asyncio.gather(
            *(client.as_client(f"client-{number}").receive("orders", f"g{number}") for number in range(20))
        )
        assert [(code, bodies(messages)) for code, messages in received] == [(OK, ["x"])] * 20
        assert len(served.controller.state.consumers.groups()) == 20
        for stream in streams:
            stream.cancel()
