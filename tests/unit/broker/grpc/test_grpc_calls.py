"""Calls of gRPC clients at a broker's own port, by Google's client: what they do, and what they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from reput.errors import ConfigError
from reput.formats.properties import DELAY_LEVELS_MS
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import AddressScheme, ClientType, Code, FilterType, GrpcMessageType, Permission
from reput.remoting.grpc.grpc_parts import (
    Address,
    Endpoints,
    FilterExpression,
    GrpcResource,
    Settings,
    Timestamp,
    duration,
    timestamp,
    to_ms,
)
from tests.support.broker import Client, Served, controller_of, messages_of, serving_broker, with_topic
from tests.support.grpc_client import (
    OK,
    GrpcClient,
    bodies,
    consumer_settings,
    grpc_client,
    handle_of,
    message,
    producer_settings,
    receive_request,
)
from tests.support.loop_gaps import loop_gaps
from tests.support.pop import pop
from tests.support.sockets import free_ports


@asynccontextmanager
async def served_topic(
    tmp_path: Path, *topics: str, **keys: object
) -> AsyncIterator[tuple[Served, Client, GrpcClient]]:
    """A broker with topics of one queue (`name:TYPE`), an operator, and a client of gRPC."""
    async with serving_broker(tmp_path / "store", **keys) as served:
        operator = await served.client()
        for one in topics:
            name, _, kind = one.partition(":")
            await with_topic(operator, name, attributes=f"+message.type={kind or 'NORMAL'}")
        async with grpc_client(served.controller.address) as client:
            yield served, operator, client


def named(topic: str) -> GrpcResource:
    return GrpcResource(name=topic)


async def make_group(operator: Client, group: str, **more: object) -> None:
    body = json.dumps({"groupName": group, **more}).encode()
    assert (await operator.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0


# -- routes


async def test_a_route_has_the_queues_of_the_topic_at_the_address_that_the_client_has(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders:FIFO") as (served, operator, client):
        await with_topic(operator, "orders", 3, writable=1, attributes="+message.type=FIFO")
        asked = Endpoints(AddressScheme.DOMAIN_NAME, [Address("broker.example", 1)])
        route = await client.call("QueryRoute", v2.QueryRouteRequest(named("orders"), asked))
        assert route.status.code == OK
        port = int(served.controller.address.rpartition(":")[2])
        assert [(one.id, one.permission, one.accept_message_types) for one in route.message_queues] == [
            (0, Permission.READ, [GrpcMessageType.FIFO]),
            (1, Permission.READ, [GrpcMessageType.FIFO]),
            (2, Permission.READ_WRITE, [GrpcMessageType.FIFO]),
        ]
        assert {one.broker.name for one in route.message_queues} == {"broker-a"}
        endpoints = route.message_queues[0].broker.endpoints
        assert endpoints == Endpoints(AddressScheme.DOMAIN_NAME, [Address("broker.example", port)])
        plain = await client.call("QueryRoute", v2.QueryRouteRequest(named("orders")))
        expected = Endpoints(AddressScheme.IPV4, [Address("127.0.0.1", port)])
        assert plain.message_queues[0].broker.endpoints == expected


async def test_a_port_of_its_own_is_one_more_and_the_one_that_clients_are_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with served_topic(tmp_path, "orders", grpcServerPort=port) as (_, _, client):
        with pytest.raises(ConfigError, match="grpcServerPort are both"):
            await controller_of(tmp_path / "other", grpcServerPort=port, listen_port=port).open()
        async with grpc_client(f"127.0.0.1:{port}") as other:
            for one in (client, other):
                route = await one.call("QueryRoute", v2.QueryRouteRequest(named("orders")))
                assert route.message_queues[0].broker.endpoints.addresses == [Address("127.0.0.1", port)]
                assert (await one.send("orders", b"x")).entries[0].offset == int(one is other)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_no_topic_is_made_by_who_asks_for_one(tmp_path: Path) -> None:
    async with served_topic(tmp_path) as (served, _, client):
        for name, request in (
            ("QueryRoute", v2.QueryRouteRequest(named("none"))),
            ("QueryAssignment", v2.QueryAssignmentRequest(named("none"), named("g"))),
        ):
            answer = await client.call(name, request)
            assert (answer.status.code, answer.status.message) == (
                Code.TOPIC_NOT_FOUND, "No topic route info in name server for the topic: none",
            )  # fmt: skip
        assert (await client.send("none", b"x")).status.code == Code.TOPIC_NOT_FOUND
        assert (await client.receive("none"))[0] == Code.TOPIC_NOT_FOUND
        assert served.controller.state.topics.select_topic_config("none") is None


async def test_an_assignment_is_one_for_all_queues_unless_the_group_is_in_order(tmp_path: Path) -> None:
    async with served_topic(tmp_path) as (_, operator, client):
        await with_topic(operator, "orders", 3)
        await make_group(operator, "in-order", consumeMessageOrderly=True)
        for group, ids in (("g", [-1]), ("in-order", [0, 1, 2])):
            answer = await client.call("QueryAssignment", v2.QueryAssignmentRequest(named("orders"), named(group)))
            queues = [one.message_queue for one in answer.assignments]
            assert [(one.id, one.permission) for one in queues] == [(number, Permission.READ_WRITE) for number in ids]
        await with_topic(operator, "closed", perm=2)
        answer = await client.call("QueryAssignment", v2.QueryAssignmentRequest(named("closed"), named("g")))
        assert (answer.status.code, answer.status.message) == (Code.FORBIDDEN, "no readable queue")


# -- settings


async def test_settings_are_answered_with_those_of_the_server(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, operator, client):
        await make_group(operator, "g", retryMaxTimes=3, consumeMessageOrderly=True)
        stream, told = await client.settle(consumer_settings("g", "orders"))
        assert told.status is not None
        assert told.settings is not None
        assert told.settings.subscription is not None
        assert told.settings.backoff_policy is not None
        assert told.settings.backoff_policy.customized_backoff is not None
        subscription, backoff = told.settings.subscription, told.settings.backoff_policy
        assert (told.status.code, told.settings.client_type) == (OK, ClientType.PUSH_CONSUMER)
        assert (subscription.fifo, subscription.receive_batch_size, to_ms(subscription.long_polling_timeout)) == (
            True, 32, 20_000,
        )  # fmt: skip
        assert backoff.max_attempts == 4
        assert tuple(map(to_ms, told.settings.backoff_policy.customized_backoff.next)) == DELAY_LEVELS_MS
        other, told = await client.as_client("client-2").settle(producer_settings("orders"))
        assert told.settings is not None
        assert told.settings.publishing is not None
        assert told.settings.backoff_policy is not None
        publishing, backoff = told.settings.publishing, told.settings.backoff_policy
        assert (publishing.max_body_size, publishing.validate_message_type) == (4 << 20, True)
        assert backoff.exponential_backoff is not None
        exponential = backoff.exponential_backoff
        assert (backoff.max_attempts, to_ms(exponential.initial), to_ms(exponential.max)) == (3, 10, 1000)
        assert exponential.multiplier == 2
        consumers, producers = served.controller.state.consumers, served.controller.state.producers
        assert consumers.client_ids("g") == ["client-1"]
        assert [one.client_id for one in producers.channels("orders").values()] == ["client-2"]
        for one in (stream, other):
            await one.done_writing()
            assert await one.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(ClientType.PRODUCER), "there is no publishing or subscription data in settings"),
        (producer_settings("a b"), "process client telemetryCommand failed. The specified topic[a b] contains illegal"),
        (consumer_settings("", "t"), "process client telemetryCommand failed. the specified group is blank"),
        (
            consumer_settings("g", "t", tags="||"),
            "process client telemetryCommand failed. expression format is not correct",
        ),
        (
            consumer_settings("g", "t", client_type=ClientType.PULL_CONSUMER),
            "process client telemetryCommand failed. Client type is not consumer, type: PULL_CONSUMER",
        ),
        (
            consumer_settings("g", "t", client_type=ClientType.LITE_PUSH_CONSUMER),
            "process client telemetryCommand failed. Client type is not consumer, type: LITE_PUSH_CONSUMER",
        ),
        (producer_settings(*(f"t{number}" for number in range(1001))), "1001 groups, and 0 of heartbeats before"),
    ],
)
async def test_odd_settings_end_the_stream(tmp_path: Path, settings: Settings, text: str) -> None:
    async with served_topic(tmp_path) as (served, _, client):
        stream = client.telemetry()
        await stream.write(v2.TelemetryCommand(settings=settings))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert text in (raised.value.details() or "")
        assert served.controller.state.consumers.groups() == []


async def test_a_heartbeat_is_of_a_client_with_settings_until_it_says_farewell(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, _, client):
        beat = v2.HeartbeatRequest(named("g"), ClientType.SIMPLE_CONSUMER)
        unknown = await client.call("Heartbeat", beat)
        assert (unknown.status.code, unknown.status.message) == (
            Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client",
        )  # fmt: skip
        stream, _ = await client.settle(consumer_settings("g", "orders", client_type=ClientType.SIMPLE_CONSUMER))
        assert (await client.call("Heartbeat", beat)).status.code == OK
        assert (await client.call("Heartbeat", v2.HeartbeatRequest())).status.code == Code.ILLEGAL_CONSUMER_GROUP
        consumers = served.controller.state.consumers
        assert consumers.client_ids("g") == ["client-1"]
        info = consumers.consumer_group_info("g")
        assert info is not None
        assert set(info.subscription_table) == {"orders"}
        farewell = v2.NotifyClientTerminationRequest(named("g"))
        assert (await client.call("NotifyClientTermination", farewell)).status.code == OK
        assert await stream.read() is grpc.aio.EOF
        assert consumers.client_ids("g") == []
        again = await client.call("NotifyClientTermination", farewell)
        assert again.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_a_client_without_an_id_is_refused(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, _, client):
        nobody = client.as_client(" ")
        answer = await nobody.call("QueryRoute", v2.QueryRouteRequest(named("orders")))
        assert (answer.status.code, answer.status.message) == (Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        assert (await nobody.receive("orders"))[0] == Code.CLIENT_ID_REQUIRED


async def test_calls_without_settings_make_no_client(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, _, client):
        for number in range(20):
            other = client.as_client(f"client-{number}")
            assert (await other.call("QueryRoute", v2.QueryRouteRequest(named("orders")))).status.code == OK
        clients = served.controller._services.grpc._clients
        assert (len(clients._by_id), len(clients._unknown)) == (0, 1)


async def test_a_client_that_is_silent_for_long_is_forgotten(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, _, client):
        stream, _ = await client.settle(producer_settings())
        clients = served.controller._services.grpc._clients
        (channel,) = clients._by_id.values()
        channel.last_heartbeat_ms -= 121_000
        clients.scan_not_active()
        assert await stream.read() is grpc.aio.EOF
        assert not clients._by_id


async def test_calls_that_are_not_served_say_so(tmp_path: Path) -> None:
    async with served_topic(tmp_path) as (_, _, client):
        for name in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"):
            method = client._channel.unary_unary(f"/{v2.SERVICE}/{name}")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await method(b"", metadata=client._metadata)
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_message_end_the_call(tmp_path: Path) -> None:
    async with served_topic(tmp_path) as (_, _, client):
        for name in ("SendMessage", "ReceiveMessage"):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await client._channel.unary_unary(f"/{v2.SERVICE}/{name}")(b"\xff", metadata=client._metadata)
            assert raised.value.code() is grpc.StatusCode.INTERNAL
        stream = client.telemetry()
        stream._request_serializer = None
        await stream.write(b"\xff")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code() is grpc.StatusCode.INTERNAL


# -- sends


async def test_a_message_is_stored_as_a_remoting_client_would_send_it(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        sent = await client.send(
            "orders", b"hello", user={"colour": "red"}, tag="paid", keys=["k1", "k2"], born_host="host-1",
            born_timestamp=timestamp(1_700_000_000_123), trace_context="trace",
        )  # fmt: skip
        assert (sent.status and sent.status.code, len(sent.entries)) == (OK, 1)
        (entry,) = sent.entries
        assert (entry.message_id, entry.transaction_id, entry.offset) == ("id-68656c6c6f", "id-68656c6c6f", 0)
        (stored,) = messages_of(await operator.pull("orders"))
        assert (stored.body, stored.tags, stored.keys, stored.unique_key) == (
            b"hello", "paid", ("k1", "k2"), entry.message_id,
        )  # fmt: skip
        assert stored.born_timestamp == 1_700_000_000_123
        assert stored.properties == stored.properties | {
            "colour": "red", "PGROUP": "orders", "RECONSUME_TIME": "0", "__BORNHOST": "host-1",
            "BORN_TIMESTAMP": "1700000000123", "TRACE_CONTEXT": "trace",
        }  # fmt: skip


async def test_several_messages_are_one_batch(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        sent = await client.send("orders", b"a", b"b", b"c", tag="t")
        assert sent.status is not None
        assert sent.status.code == OK, sent.status
        (entry,) = sent.entries
        assert (sent.status and sent.status.code, entry.message_id) == (OK, "id-61,id-62,id-63")
        stored = messages_of(await operator.pull("orders"))
        assert [(one.body, one.tags, one.unique_key) for one in stored] == [
            (b"a", "t", "id-61"), (b"b", "t", "id-62"), (b"c", "t", "id-63"),
        ]  # fmt: skip
        request = v2.SendMessageRequest([message("orders"), message("refunds")])
        answer = await client.call("SendMessage", request)
        assert (answer.status.code, answer.status.message) == (Code.MESSAGE_CORRUPTED, "topic in message is not same")


async def test_a_call_has_a_bound_for_its_messages(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        sent = await client.send("orders", *(b"%d" % number for number in range(1024)))
        assert sent.status is not None
        assert sent.status.code == OK, sent.status
        request = v2.SendMessageRequest([message("orders")] * 1025)
        assert (await client.call("SendMessage", request)).status.code == Code.MESSAGE_CORRUPTED
        entries = [v2.AckMessageEntry("id", "odd")] * 1025
        acked = await client.call("AckMessage", v2.AckMessageRequest(named("g"), named("orders"), entries))
        assert (acked.status.code, acked.entries) == (Code.BAD_REQUEST, ())
        stored = await operator.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        assert (stored.ext_fields or {})["offset"] == "1024"


async def test_sends_are_answered_once_they_are_safe(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders", flush_disk_type="SYNC_FLUSH", syncFlushTimeout=60_000) as (
        _,
        op,
        client,
    ):
        answers = await asyncio.gather(*(client.send("orders", b"%d" % number) for number in range(20)))
        assert [one.status and one.status.code for one in answers] == [OK] * 20
        assert len(messages_of(await op.pull("orders"))) == 20


async def test_a_group_of_messages_has_one_queue(tmp_path: Path) -> None:
    async with served_topic(tmp_path) as (_, operator, client):
        await with_topic(operator, "orders", 4, attributes="+message.type=FIFO")
        for number in range(12):
            group = f"group-{number % 3}"
            sent = await client.send("orders", b"%d" % number, message_group=group)
            assert sent.status is not None
            assert sent.status.code == OK
        by_group: dict[str, set[int]] = {}
        for queue in range(4):
            answer = await operator.pull("orders", queueId=queue)
            for one in messages_of(answer) if answer.code == 0 else ():
                by_group.setdefault(one.properties["__SHARDINGKEY"], set()).add(queue)
        assert len(by_group) == 3
        assert all(len(queues) == 1 for queues in by_group.values())


@pytest.mark.parametrize(
    ("topic", "system", "code", "text"),
    [
        ("normal", {"message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "NORMAL, but actual type is FIFO"),
        ("fifo", {}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "FIFO, but actual type is NORMAL"),
        ("delay", {}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "DELAY, but actual type is NORMAL"),
        ("normal", {"delivery_timestamp": Timestamp(9)}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "type is DELAY"),
        ("normal", {"message_type": 4}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "type is TRANSACTION"),
        ("normal", {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'"),
        ("normal", {"message_id": ""}, Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty"),
        ("normal", {"lite_topic": "l"}, Code.UNSUPPORTED, "lite topics are not supported"),
        ("normal", {"priority": 1}, Code.UNSUPPORTED, "messages with a priority are not supported"),
        ("delay", {"delivery_timestamp": Timestamp(1 << 60)}, Code.ILLEGAL_DELIVERY_TIME, "max is 86400000"),
    ],
)
async def test_a_message_that_may_not_be_is_refused(
    tmp_path: Path, topic: str, system: dict[str, Any], code: Code, text: str
) -> None:
    async with served_topic(tmp_path, "normal:NORMAL", "fifo:FIFO", "delay:DELAY") as (_, _, client):
        answer = await client.send(topic, b"x", **system)
        assert answer.status is not None
        assert (answer.status.code, text in answer.status.message) == (code, True), answer.status


async def test_a_topic_of_all_kinds_takes_all_kinds(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders:MIXED") as (_, _, client):
        for system in ({}, {"message_group": "g"}, {"delivery_timestamp": Timestamp(9)}, {"message_type": 4}):
            answer = await client.send("orders", b"x", **system)
            assert answer.status is not None
            assert answer.status.code == OK


async def test_what_the_broker_forbids_is_an_error_of_the_server(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders:DELAY") as (served, _, client):
        at_ms = served.controller.state.clock.now_ms() + 3_600_000
        (entry,) = (await client.send("orders", b"x", delivery_timestamp=timestamp(at_ms))).entries
        answer = await client.call("RecallMessage", v2.RecallMessageRequest(named("orders"), entry.recall_handle))
        assert (answer.status.code, answer.status.message) == (
            Code.INTERNAL_SERVER_ERROR, "recall failed, operation is forbidden",
        )  # fmt: skip


async def test_a_message_that_waits_for_its_time_can_be_recalled(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders:DELAY", recall_message_enable=True) as (served, _, client):
        clock = served.controller.state.clock
        sent = await client.send("orders", b"x", delivery_timestamp=timestamp(clock.now_ms() + 3_600_000))
        (entry,) = sent.entries
        assert entry.recall_handle
        recalled = await client.call("RecallMessage", v2.RecallMessageRequest(named("orders"), entry.recall_handle))
        assert (recalled.status.code, recalled.message_id) == (OK, entry.message_id)
        odd = await client.call("RecallMessage", v2.RecallMessageRequest(named("orders"), "odd"))
        assert odd.status.code == Code.INTERNAL_SERVER_ERROR


# -- receives


async def test_messages_are_received_and_acked(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        await make_group(operator, "g")
        await client.send("orders", b"a", tag="red", user={"n": "1"})
        await client.send("orders", b"b", tag="blue")
        code, (first,) = await client.receive("orders", tags="red")
        assert (code, first.topic, first.body, first.user_properties) == (OK, named("orders"), b"a", {"n": "1"})
        system = first.system_properties
        assert system is not None
        assert (system.tag, system.message_id, system.queue_offset, system.delivery_attempt) == ("red", "id-61", 0, 1)
        assert system.body_digest is not None
        assert system.body_digest.checksum == "0CC175B9C0F1B6A831C399E269772661"
        assert len(handle_of(first).split(" ")) == 9
        acked = await client.ack("orders", "g", first)
        assert acked.status is not None
        assert [(one.message_id, one.status and one.status.code) for one in acked.entries] == [("id-61", OK)]
        assert (acked.status.code, acked.status.message) == (OK, "OK")


async def test_a_receive_waits_for_a_message(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        await make_group(operator, "g")
        waiting = asyncio.ensure_future(client.receive("orders", long_polling_timeout=duration(20_000)))
        await operator.round_trip()
        await client.send("orders", b"late")
        code, messages = await waiting
        assert (code, bodies(messages)) == (OK, ["late"])


async def test_an_empty_receive_says_so_after_its_time(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, _, client):
        assert await client.receive("orders", timeout_s=5.2) == (Code.MESSAGE_NOT_FOUND, [])
        assert (await client.receive("orders", timeout_s=4))[0] == Code.ILLEGAL_POLLING_TIME


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"invisible_duration": duration(9_999)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": None}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": duration(12 * 3_600_000 + 1)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"tags": "||"}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"group": ""}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": "CID_RMQ_SYS_x"}, Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
async def test_an_odd_receive_is_refused(tmp_path: Path, more: dict[str, Any], code: Code) -> None:
    async with served_topic(tmp_path, "orders") as (_, _, client):
        assert (await client.receive("orders", **more))[0] == code


async def test_messages_are_chosen_by_sql(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders", enable_property_filter=True) as (_, operator, client):
        await make_group(operator, "g")
        for number in range(4):
            await client.send("orders", b"%d" % number, user={"n": str(number)})
        wanted = FilterExpression(FilterType.SQL, "n > 1")
        found: list[str] = []
        while len(found) < 2:
            code, messages = await client.receive("orders", filter_expression=wanted)
            assert code == OK
            found += bodies(messages)
        assert sorted(found) == ["2", "3"]


async def test_a_message_whose_time_is_changed_comes_again(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        await make_group(operator, "g")
        await client.send("orders", b"x")
        _, (first,) = await client.receive("orders")
        request = v2.ChangeInvisibleDurationRequest(
            named("g"), named("orders"), handle_of(first), duration(60_000), "id-78"
        )
        changed = await client.call("ChangeInvisibleDuration", request)
        assert changed.status.code == OK
        assert len(changed.receipt_handle.split(" ")) == 9
        request.receipt_handle, request.invisible_duration = changed.receipt_handle, duration(0)
        assert (await client.call("ChangeInvisibleDuration", request)).status.code == OK
        _, (again,) = await client.receive("orders", long_polling_timeout=duration(20_000))
        assert again.system_properties is not None
        assert (again.body, again.system_properties.delivery_attempt, again.topic) == (b"x", 2, named("orders"))
        acked = await client.ack("orders", "g", again)
        assert acked.status is not None
        assert acked.status.code == OK
        request.receipt_handle, request.invisible_duration = handle_of(again), duration(12 * 3_600_000 + 1)
        assert (await client.call("ChangeInvisibleDuration", request)).status.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_acks_of_handles_that_are_none_or_old_say_so(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, operator, client):
        await make_group(operator, "g")
        await client.send("orders", b"x")
        _, (first,) = await client.receive("orders")
        entries = [v2.AckMessageEntry("id-78", text) for text in ("odd", "a b c d e f g h", handle_of(first))]
        request = v2.AckMessageRequest(named("g"), named("orders"), entries)
        served.controller.state.clock.put_forward(60_000)
        answer = await client.call("AckMessage", request)
        assert [one.status.code for one in answer.entries] == [
            Code.INTERNAL_SERVER_ERROR, Code.INTERNAL_SERVER_ERROR, Code.INVALID_RECEIPT_HANDLE,
        ]  # fmt: skip
        assert answer.entries[2].status.message == "receipt handle is expired"
        assert (answer.status.code, answer.status.message) == (Code.MULTIPLE_RESULTS, "MULTIPLE_RESULTS")
        request.entries = []
        answer = await client.call("AckMessage", request)
        assert answer.status.message == "ack message result is empty"


async def test_a_message_is_forwarded_to_the_dead_letters(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        await make_group(operator, "g")
        await client.send("orders", b"x")
        _, (first,) = await client.receive("orders")
        request = v2.ForwardMessageToDeadLetterQueueRequest(
            named("g"), named("orders"), handle_of(first), "id-78", 1, 1
        )
        answer = await client.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == OK
        (dead,) = messages_of(await operator.pull("%DLQ%g"))
        assert (dead.body, dead.unique_key) == (b"x", "id-78")


async def test_a_message_that_came_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        await make_group(operator, "g", retryMaxTimes=0)
        await client.send("orders", b"x")
        _, (first,) = await client.receive("orders")
        request = v2.ChangeInvisibleDurationRequest(named("g"), named("orders"), handle_of(first), duration(0), "id-78")
        assert (await client.call("ChangeInvisibleDuration", request)).status.code == OK
        assert await client.receive("orders", long_polling_timeout=duration(20_000)) == (Code.MESSAGE_NOT_FOUND, [])
        while (answer := await operator.pull("%DLQ%g", hold_ms=20_000)).code == ResponseCode.TOPIC_NOT_EXIST:
            pass  # it is made beside the receive
        (dead,) = messages_of(answer)
        assert dead.body == b"x"


async def test_a_receive_that_is_cancelled_takes_no_message(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, operator, client):
        await make_group(operator, "g")
        polling = served.controller._services.pop.pops
        for _ in range(3):
            stream = client.receiving(receive_request("orders", long_polling_timeout=duration(20_000)))
            reading = asyncio.ensure_future(stream.read())
            while not polling.any_wait:
                await asyncio.sleep(0)
            stream.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            while polling.any_wait:
                await asyncio.sleep(0)
        await client.send("orders", b"x")
        code, messages = await client.receive("orders")
        assert (code, bodies(messages)) == (OK, ["x"])
        assert messages[0].system_properties is not None
        assert messages[0].system_properties.delivery_attempt == 1


# -- with clients of the remoting protocol


async def test_clients_of_both_protocols_share_topics_and_groups(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, operator, client):
        await make_group(operator, "g")
        await operator.send_message("orders", b"remoting", properties={"TAGS": "t", "UNIQ_KEY": "u1"})
        await client.send("orders", b"grpc")
        _, first = await client.receive("orders", batch_size=1)
        popped = messages_of(await pop(operator, "orders"))
        assert sorted([*bodies(first), *(one.body.decode() for one in popped)]) == ["grpc", "remoting"]


@pytest.mark.parametrize(
    "request_of",
    [
        lambda text: v2.QueryRouteRequest(named("orders"), Endpoints(AddressScheme.DOMAIN_NAME, [Address(text, 1)])),
        lambda text: v2.QueryRouteRequest(GrpcResource(text, "orders")),
        lambda text: v2.QueryAssignmentRequest(GrpcResource(text, "orders"), named("g")),
    ],
)
async def test_a_route_does_not_multiply_what_a_client_says(tmp_path: Path, request_of: Any) -> None:
    async with served_topic(tmp_path, "orders") as (_, _, client):
        name = type(request_of("")).__name__.removesuffix("Request")
        assert (await client.call(name, request_of("h" * 255))).status.code == OK
        answer = await client.call(name, request_of("h" * 100_000))
        assert answer.status.code == Code.BAD_REQUEST
        assert "at most" in answer.status.message


async def test_an_attempt_id_is_bounded(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (_, _, client):
        assert (await client.receive("orders", attempt_id="a" * 256))[0] == Code.BAD_REQUEST


async def test_settings_of_all_clients_are_bounded(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, _, client):
        clients = served.controller._services.grpc._clients
        stream, _ = await client.settle(producer_settings("orders"))
        for topics in (["orders"] * 2000, ["orders"]):  # the newest settings count
            await stream.write(v2.TelemetryCommand(settings=producer_settings(*topics)))
            await stream.read()
        small = clients._settings_size
        assert 0 < small < 100
        clients._settings_size = (32 << 20) - small
        other, _ = await client.as_client("client-2").settle(producer_settings("orders"))
        refused = client.as_client("client-3").telemetry()
        await refused.write(v2.TelemetryCommand(settings=producer_settings("orders")))
        with pytest.raises(grpc.aio.AioRpcError, match="settings of at most"):
            await refused.read()
        for one in (client, client.as_client("client-2")):
            await one.call("NotifyClientTermination", v2.NotifyClientTerminationRequest())
        assert clients._settings_size == (32 << 20) - 2 * small
        stream.cancel()
        other.cancel()


async def test_many_messages_of_a_telemetry_stream_do_not_hold_the_loop(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, _, client):
        clients = served.controller._services.grpc._clients
        registered, goes_on = clients._register, asyncio.Event()

        async def register_late(*args: Any) -> None:
            await goes_on.wait()
            await registered(*args)

        clients._register = register_late  # type: ignore[method-assign]
        stream = client.telemetry()
        await stream.write(v2.TelemetryCommand(settings=producer_settings("orders")))
        for _ in range(20_000):
            await stream.write(v2.TelemetryCommand())
        with loop_gaps() as gaps:
            goes_on.set()
            assert await stream.read() is not grpc.aio.EOF
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
        assert gaps.worst < 0.05


async def test_a_receive_of_a_client_that_ends_is_answered(tmp_path: Path) -> None:
    async with served_topic(tmp_path, "orders") as (served, _, client):
        stream, _ = await client.settle(consumer_settings("g", "orders"))
        received = asyncio.create_task(client.receive("orders", timeout_s=None, long_polling_timeout=duration(20_000)))
        polling = served.controller._services.pop.pops
        while not polling.any_wait:
            await asyncio.sleep(0.01)
        request = v2.NotifyClientTerminationRequest(GrpcResource(name="g"))
        assert (await client.call("NotifyClientTermination", request)).status.code == OK
        async with asyncio.timeout(10):
            assert await received == (Code.MESSAGE_NOT_FOUND, [])
        stream.cancel()
