"""Renewal: what a push consumer holds comes to nobody else, until the client is gone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from reput.formats.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MESSAGE_HEAD,
    PING,
    PREFACE,
    RST_STREAM,
    ErrorCode,
    Setting,
)
from reput.remoting.codes import RequestCode
from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_parts import GrpcResource, duration
from reput.remoting.grpc.protobuf import encode
from reput.transport.hpack import encode_field
from reput.transport.http2_frames import frame, settings
from tests.support.broker import Client, serving_broker, with_topic
from tests.support.grpc_client import OK, bodies, consumer_settings, grpc_client, receive_request
from tests.support.http2 import SERVICE
from tests.support.loop_gaps import loop_gaps


async def prepare(client: Client) -> None:
    await with_topic(client, "orders")
    group = json.dumps({"groupName": "g"}).encode()
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).code == 0


async def test_what_a_push_consumer_holds_is_renewed_until_it_is_acked(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await prepare(await served.client())
        renewals, clock = served.controller._services.grpc._renewals, served.controller.state.clock
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        await client.send("orders", b"x")
        _, (message,) = await client.receive("orders", auto_renew=True)
        for _ in range(4):  # 60 s, 1, 3 and 5 min
            held = next(iter(renewals._handles._of.values()))
            (renewed,) = held.values()
            end_ms = renewed.handle.pop_time + renewed.handle.invisible_time
            clock.put_forward(end_ms - 9_000 - clock.now_ms())
            await renewals.renew()
        other = client.as_client("client-2")
        assert await other.receive("orders") == (Code.MESSAGE_NOT_FOUND, [])
        acked = await client.ack("orders", "g", message)
        assert acked.status is not None
        assert acked.status.code == OK
        assert len(renewals._handles) == 0
        stream.cancel()


async def test_what_a_client_held_that_is_gone_comes_to_others_soon(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await prepare(await served.client())
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        await client.send("orders", b"x")
        _, (message,) = await client.receive("orders", auto_renew=True)
        assert message.body == b"x"
        request = v2.NotifyClientTerminationRequest(GrpcResource(name="g"))
        assert (await client.call("NotifyClientTermination", request)).status.code == OK
        code, messages = await client.as_client("client-2").receive("orders", long_polling_timeout=duration(20_000))
        assert (code, bodies(messages)) == (OK, ["x"])
        stream.cancel()


async def test_what_comes_after_the_end_of_a_client_is_not_renewed(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await prepare(await served.client())
        services = served.controller._services.grpc
        receives, begun, goes_on = services._takers.receives, asyncio.Event(), asyncio.Event()
        popped = receives._pop

        async def pop_late(*args: Any) -> Any:
            answer = await popped(*args)
            begun.set()
            await goes_on.wait()
            return answer

        receives._pop = pop_late  # type: ignore[method-assign]
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        await client.send("orders", b"x")
        received = asyncio.create_task(client.receive("orders", auto_renew=True))
        await begun.wait()
        request = v2.NotifyClientTerminationRequest(GrpcResource(name="g"))
        assert (await client.call("NotifyClientTermination", request)).status.code == OK
        goes_on.set()
        assert (await received)[0] == OK
        assert len(services._renewals._handles) == 0
        stream.cancel()


async def test_many_messages_of_one_client_do_not_hold_the_loop(tmp_path: Path) -> None:
    count = 2000
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await prepare(await served.client())
        renewals, clock = served.controller._services.grpc._renewals, served.controller.state.clock
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        for _ in range(count // 1000):
            await client.send("orders", *(b"%d" % number for number in range(1000)))
        while len(renewals._handles) < count:
            await client.receive("orders", auto_renew=True)
        clock.put_forward(52_000)
        with loop_gaps() as gaps:
            await renewals.renew()
        assert gaps.worst < 0.05
        (held,) = renewals._handles._of.values()
        assert {one.renewals for one in held.values()} == {1}
        with loop_gaps() as gaps:
            request = v2.NotifyClientTerminationRequest(GrpcResource(name="g"))
            assert (await client.call("NotifyClientTermination", request)).status.code == OK
            await renewals.stop()
        assert gaps.worst < 0.05
        stream.cancel()


async def test_an_answer_that_has_not_left_is_not_renewed_once_its_call_is_reset(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await prepare(await served.client())
        renewals = served.controller._services.grpc._renewals
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        await client.send("orders", b"x")
        reader, writer = await asyncio.open_connection(*served.controller.address.split(":"))
        fields = {
            ":method": "POST", ":scheme": "http", ":path": f"{SERVICE}ReceiveMessage",
            "content-type": "application/grpc", "x-mq-client-id": client.client_id,
        }  # fmt: skip
        request = encode(receive_request("orders", auto_renew=True))
        writer.write(
            PREFACE
            + settings({Setting.INITIAL_WINDOW_SIZE: 0})
            + frame(HEADERS, END_HEADERS, 1, b"".join(encode_field(*field) for field in fields.items()))
            + frame(DATA, END_STREAM, 1, MESSAGE_HEAD.pack(0, len(request)) + request)
        )
        while not len(renewals._handles):
            await asyncio.sleep(0.01)
        writer.write(frame(RST_STREAM, 0, 1, ErrorCode.CANCEL.to_bytes(4)) + frame(PING, 0, 0, b"are here"))
        await reader.readuntil(b"are here")
        assert len(renewals._handles) == 0
        writer.close()
        stream.cancel()
