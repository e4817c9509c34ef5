"""Transactions of gRPC clients: ended soon, late, after a restart, or when the broker asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reput.remoting.codes import RequestCode
from reput.remoting.grpc import grpc_interface as v2
from reput.remoting.grpc.grpc_codes import Code, GrpcMessageType, TransactionResolution, TransactionSource
from reput.remoting.grpc.grpc_parts import GrpcResource
from tests.support.broker import Client, messages_of, serving_broker, with_topic
from tests.support.grpc_client import OK, GrpcClient, grpc_client, producer_settings

TRANSACTION = {"message_type": GrpcMessageType.TRANSACTION}


async def make_topic(client: Client) -> None:
    await with_topic(client, "orders", attributes="+message.type=TRANSACTION")


def end(
    transaction_id: str, resolution: int = TransactionResolution.COMMIT, source: int = TransactionSource.CLIENT
) -> v2.EndTransactionRequest:
    topic = GrpcResource(name="orders")
    return v2.EndTransactionRequest(topic, transaction_id, transaction_id, resolution, source)


async def begin(client: GrpcClient, body: bytes) -> str:
    sent = await client.send("orders", body, **TRANSACTION)
    (entry,) = sent.entries
    return entry.transaction_id


async def test_a_commit_delivers_and_a_rollback_does_not(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        await make_topic(operator)
        first, second = await begin(client, b"committed"), await begin(client, b"rolled back")
        assert (await operator.pull("orders")).code != 0
        assert (await client.call("EndTransaction", end(second, TransactionResolution.ROLLBACK))).status.code == OK
        assert (await client.call("EndTransaction", end(first))).status.code == OK
        (stored,) = messages_of(await operator.pull("orders", hold_ms=20_000))
        assert (stored.body, stored.unique_key) == (b"committed", first)


async def test_a_transaction_ends_once(tmp_path: Path) -> None:
    """A commit that comes twice, or after a restart, or after a rollback, delivers nothing more."""
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        operator = await served.client()
        await make_topic(operator)
        transaction_id, other = await begin(client, b"x"), await begin(client, b"y")
        assert (await client.call("EndTransaction", end(transaction_id))).status.code == OK
        assert (await client.call("EndTransaction", end(other, TransactionResolution.ROLLBACK))).status.code == OK
        for one in (transaction_id, other):
            assert (await client.call("EndTransaction", end(one))).status.message == "cannot found transaction data"
        assert len(messages_of(await operator.pull("orders", hold_ms=20_000))) == 1
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        again = await client.call("EndTransaction", end(transaction_id))
        assert again.status.message == "cannot found transaction data"
        assert len(messages_of(await (await served.client()).pull("orders"))) == 1


async def test_an_odd_end_says_so(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await make_topic(await served.client())
        blank, unknown = [await client.call("EndTransaction", end(one)) for one in (" ", "none")]
        assert (blank.status.code, blank.status.message) == (
            Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty",
        )  # fmt: skip
        assert (unknown.status.code, unknown.status.message) == (
            Code.INTERNAL_SERVER_ERROR, "cannot found transaction data",
        )  # fmt: skip
        transaction_id = await begin(client, b"x")
        assert (await client.call("EndTransaction", end(transaction_id, 0))).status.code == OK
        assert (await client.call("EndTransaction", end(transaction_id))).status.code == OK, "it can be ended yet"


async def test_an_end_after_a_restart_finds_its_half_message(tmp_path: Path) -> None:
    """Apache's proxy has forgotten it, and the producer is asked later."""
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        await make_topic(await served.client())
        transaction_id = await begin(client, b"x")
    async with serving_broker(tmp_path / "store") as served, grpc_client(served.controller.address) as client:
        assert (await client.call("EndTransaction", end(transaction_id))).status.code == OK
        (stored,) = messages_of(await (await served.client()).pull("orders", hold_ms=20_000))
        assert stored.body == b"x"


async def test_the_producer_is_asked_how_a_transaction_ended(tmp_path: Path) -> None:
    async with (
        serving_broker(tmp_path / "store", transactionTimeOut=0, transactionCheckInterval=10**9) as served,
        grpc_client(served.controller.address) as client,
    ):
        operator = await served.client()
        await make_topic(operator)
        stream, _ = await client.settle(producer_settings("orders"))
        transaction_id = await begin(client, b"orphan")
        state = served.controller.state
        begun_ms = state.clock.now_ms()
        while state.clock.now_ms() == begun_ms or state.store.dispatch_behind_bytes:
            await asyncio.sleep(0)
        await served.controller._services.transactions.check()
        asked = await stream.read()
        recover = asked.recover_orphaned_transaction_command
        assert recover is not None
        assert recover.message is not None
        system = recover.message.system_properties
        assert system is not None
        assert (recover.transaction_id, recover.message.body) == (transaction_id, b"orphan")
        assert (recover.message.topic, system.receipt_handle) == (GrpcResource(name="orders"), None)
        told = end(transaction_id, source=TransactionSource.SERVER_CHECK)
        assert (await client.call("EndTransaction", told)).status.code == OK
        (stored,) = messages_of(await operator.pull("orders", hold_ms=20_000))
        assert stored.body == b"orphan"
        await stream.done_writing()
        assert (await operator.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="orders")).code == 0
