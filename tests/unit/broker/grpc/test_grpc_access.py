"""Users and policies of gRPC clients: each call is of a user, who may do what the remoting protocol lets it."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from reput.remoting.codes import RequestCode
from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import ClientType, Code
from reput.remoting.grpc.grpc_parts import GrpcResource, duration
from tests.support.broker import serving_broker
from tests.support.grpc_client import (
    OK,
    GrpcClient,
    bodies,
    consumer_settings,
    grpc_client,
    handle_of,
    producer_settings,
)
from tests.support.signed import (
    ALICE_PASSWORD,
    AUTHENTICATION,
    AUTHORIZATION,
    ROOT_PASSWORD,
    as_root,
    entry,
    make_alice,
)

DATE = "20270101T000000Z"


def signed_metadata(user: str, password: str, date: str = DATE) -> dict[str, str]:
    signature = hmac.new(password.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
    header = f"MQv2-HMAC-SHA1 Credential={user}/reput, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": header, "x_mq_date_time": date}


def as_user(client: GrpcClient, user: str, password: str) -> GrpcClient:
    return client.as_client(client.client_id, **signed_metadata(user, password))


ROUTE = v2.QueryRouteRequest(GrpcResource(name="orders"))


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({}, "username cannot be null."),
        ({"authorization": "MQv2-HMAC-SHA1 Credential=root, Signature=00"}, "datetime is null."),
        ({"authorization": "odd", "x_mq_date_time": DATE}, "authentication header is incorrect."),
        (
            {"authorization": "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=",
             "x_mq_date_time": DATE},
            "username cannot be null.",
        ),
        (signed_metadata("nobody", ROOT_PASSWORD), "User:nobody is not found."),
        (signed_metadata("root", "wrong"), "check signature failed."),
        (signed_metadata("root", ROOT_PASSWORD) | {"x_mq_date_time": "other"}, "check signature failed."),
    ],
)  # fmt: skip
async def test_a_call_whose_user_is_not_proven_is_refused(tmp_path: Path, metadata: dict[str, str], text: str) -> None:
    async with serving_broker(tmp_path, **AUTHENTICATION) as served, grpc_client(served.controller.address) as plain:
        client = plain.as_client("c", **metadata)
        for name, request in (("QueryRoute", ROUTE), ("Heartbeat", v2.HeartbeatRequest())):
            answer = await client.call(name, request)
            assert (answer.status.code, answer.status.message) == (Code.UNAUTHORIZED, text)
        sent = await client.send("orders", b"x")
        assert sent.status is not None
        assert sent.status.code == Code.UNAUTHORIZED
        assert (await client.receive("orders"))[0] == Code.UNAUTHORIZED
        stream = client.telemetry()
        with pytest.raises(grpc.aio.AioRpcError, match=text.replace(".", r"\.")):
            await stream.read()
        operator = await served.client()
        stored = await as_root(operator, RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        assert stored.ext_fields["offset"] == "0"


async def make_topic_and_alice(served: Any, *policies: dict[str, Any]) -> None:
    operator = await served.client()
    made = await as_root(
        operator, RequestCode.UPDATE_AND_CREATE_TOPIC, topic="orders", defaultTopic="TBW102", readQueueNums=1,
        writeQueueNums=1, perm=6, topicSysFlag=0, topicFilterType="SINGLE_TAG", order=False,
    )  # fmt: skip
    assert made.code == 0
    group = await as_root(operator, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert group.code == 0
    await make_alice(operator, *policies)


async def statuses(client: GrpcClient) -> dict[str, int]:
    """The status of each call that needs a right."""
    found = {}
    topic, group = GrpcResource(name="orders"), GrpcResource(name="g")
    for name, request in (
        ("QueryRoute", ROUTE),
        ("QueryAssignment", v2.QueryAssignmentRequest(topic, group)),
        ("SendMessage", None),
        ("ReceiveMessage", None),
        ("AckMessage", None),
    ):
        if name == "SendMessage":
            found[name] = (await client.send("orders", b"x")).status.code  # type: ignore[union-attr]
        elif name == "ReceiveMessage":
            found[name], messages = await client.receive("orders")
        elif name == "AckMessage":
            handle = handle_of(messages[0]) if messages else "0 9999999999999 60000 0 0 broker-a 0 0 0"
            entries = [v2.AckMessageEntry("id", handle)]
            acked = await client.call("AckMessage", v2.AckMessageRequest(group, topic, entries))
            found[name] = acked.status.code
        else:
            found[name] = (await client.call(name, request)).status.code
    return found


async def settled(client: GrpcClient, settings: Any) -> bool:
    """Whether settings are taken."""
    try:
        stream, _ = await client.settle(settings)
    except (grpc.aio.AioRpcError, AssertionError):
        return False
    stream.cancel()
    return True


async def test_a_user_may_do_what_its_policies_say(tmp_path: Path) -> None:
    keys = {**AUTHENTICATION, **AUTHORIZATION}
    async with serving_broker(tmp_path, **keys) as served, grpc_client(served.controller.address) as plain:
        await make_topic_and_alice(served, entry("Topic:orders", "Pub"))
        alice = as_user(plain, "alice", ALICE_PASSWORD)
        refused = int(Code.UNAUTHORIZED)
        found = await statuses(alice)
        assert found.pop("AckMessage") != OK
        assert found == {"QueryRoute": OK, "QueryAssignment": refused, "SendMessage": OK, "ReceiveMessage": refused}
        assert await settled(alice, producer_settings("orders"))
        assert not await settled(alice, consumer_settings("g", "orders"))
        root = as_user(plain, "root", ROOT_PASSWORD)
        assert await statuses(root) == dict.fromkeys(
            ("QueryRoute", "QueryAssignment", "SendMessage", "ReceiveMessage", "AckMessage"), OK
        )


async def test_a_consumer_needs_its_group_and_its_topic(tmp_path: Path) -> None:
    keys = {**AUTHENTICATION, **AUTHORIZATION}
    async with serving_broker(tmp_path, **keys) as served, grpc_client(served.controller.address) as plain:
        await make_topic_and_alice(served, entry("Topic:orders", "Sub"), entry("Group:g", "Sub"))
        alice, root = as_user(plain, "alice", ALICE_PASSWORD), as_user(plain, "root", ROOT_PASSWORD)
        await root.send("orders", b"x")
        found = await statuses(alice)
        assert found == {
            "QueryRoute": OK, "QueryAssignment": OK, "SendMessage": Code.UNAUTHORIZED, "ReceiveMessage": OK,
            "AckMessage": OK,
        }  # fmt: skip
        assert not await settled(alice, producer_settings("orders"))
        settings = consumer_settings("g", "orders", client_type=ClientType.SIMPLE_CONSUMER)
        stream, _ = await alice.settle(settings)
        beat = v2.HeartbeatRequest(GrpcResource(name="g"), ClientType.SIMPLE_CONSUMER)
        assert (await alice.call("Heartbeat", beat)).status.code == OK
        await root.send("orders", b"y")
        code, messages = await alice.receive("orders", long_polling_timeout=duration(20_000))
        assert (code, bodies(messages)) == (OK, ["y"])
        stream.cancel()


async def test_nobody_takes_over_or_ends_the_client_of_another_user(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served, grpc_client(served.controller.address) as plain:
        await make_topic_and_alice(served, entry("Topic:mine", "Pub"), entry("Group:mg", "Sub"))
        owner, thief = as_user(plain, "root", ROOT_PASSWORD), as_user(plain, "alice", ALICE_PASSWORD)
        stream, _ = await owner.settle(producer_settings("orders"))
        producers = served.controller.state.producers
        (channel,) = producers.channels("orders")
        theirs = channel.telemetry
        ending = v2.NotifyClientTerminationRequest(GrpcResource(name="mg"))
        assert (await thief.call("NotifyClientTermination", ending)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        other, _ = await thief.settle(producer_settings("mine"))
        assert list(producers.channels("orders")) == [channel]
        assert channel.telemetry is theirs
        assert channel not in producers.channels("mine")
        assert (await thief.call("NotifyClientTermination", ending)).status.code == OK
        assert channel.is_open
        assert list(producers.channels("orders")) == [channel]
        stream.cancel()
        other.cancel()


async def test_where_a_call_comes_from_is_where_its_own_connection_comes_from(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served, grpc_client(served.controller.address) as plain:
        await make_topic_and_alice(served, entry("Topic:orders", "Pub", ips=("127.0.0.1",)))
        near = as_user(plain, "alice", ALICE_PASSWORD)
        stream, _ = await near.settle(producer_settings("orders"))
        clients = served.controller._services.grpc._clients
        (channel,) = clients._by_id.values()
        channel.remote_host = "10.0.0.1", 1  # as by a call over another connection, between two of this one
        await stream.write(v2.TelemetryCommand(settings=producer_settings("orders")))
        assert await stream.read() is not grpc.aio.EOF
        stream.cancel()
