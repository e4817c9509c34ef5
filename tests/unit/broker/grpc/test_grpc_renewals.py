"""Renewal: what a push consumer holds comes to nobody else, until the client is gone."""

from __future__ import annotations

import json
from pathlib import Path

from reput.remoting.codes import RequestCode
from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_parts import GrpcResource, duration
from tests.support.broker import Client, serving_broker, with_topic
from tests.support.grpc_client import OK, bodies, consumer_settings, grpc_client


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
