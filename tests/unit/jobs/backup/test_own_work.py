"""Restores to an earlier end of a broker's log: what the broker had not done in it is done again, and no more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.formats.op_message import op_offsets
from reput.formats.timer_log import TIMER_TOPIC
from reput.jobs.archive.archive_job import archive
from reput.jobs.backup import own_work
from reput.jobs.backup.backup_job import backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from reput.remoting.codes import RequestCode
from reput.remoting.topic_validator import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.support.broker import LONG_MS, Client, Served, messages_of, send_command, serving_broker, with_topic

#: The delays of the levels, in ms.
DELAYS_MS = (30, 150, 300)
#: Rounds of checks when the test says so, and op messages at once.
KEYS: dict[str, Any] = {
    "transactionCheckInterval": 10**9, "transactionOpBatchInterval": 0, "transactionTimeOut": 0,
    "mapped_file_size_commit_log": 8192, "maxMessageSize": 4096,
}  # fmt: skip
COMMIT, ROLLBACK = 8, 12
SIZES = {"max_hash_slot_num": 100, "max_index_num": 400}


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageStoreConfig, "delay_levels_ms", property(lambda _: DELAYS_MS))


async def received(client: Client, keys: set[str], topic: str) -> list[str]:
    """Unique keys of the messages of a topic, once it has all of `keys`."""
    found: list[str] = []
    while not keys <= set(found):
        found += [str(one.unique_key) for one in messages_of(await client.pull(topic, len(found), hold_ms=LONG_MS))]
    return found


async def send_half(client: Client, key: str) -> dict[str, Any]:
    """Send a half message; returns where it is, as END_TRANSACTION has it."""
    properties = {"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": key}
    born = int(time.time() * 1000) - 1000
    (asked,) = client.begin_all([send_command("paid", properties=properties, sysFlag=5, bornTimestamp=born)])
    fields = (await asked).ext_fields or {}
    _, offset = decode_message_id(fields["msgId"])
    return {"tranStateTableOffset": int(fields["queueOffset"]), "commitLogOffset": offset, "msgId": key}


async def end(client: Client, half: dict[str, Any], how: int = COMMIT, **more: Any) -> None:
    fields = {"producerGroup": "payers", "commitOrRollback": how} | half | more
    assert (await client.ask(RequestCode.END_TRANSACTION, **fields)).code == 0


async def check(served: Served) -> None:
    """Do a round that sees all half messages."""
    state = served.controller._state
    now_ms = state.clock.now_ms()
    while state.clock.now_ms() == now_ms or state.store.dispatch_behind_bytes:
        await asyncio.sleep(0)
    await served.controller._services.transactions.check()


async def started(served: Served) -> Client:
    client = await served.client()
    await client.heartbeat("payer", producers=["payers"])
    for topic in ("orders", "paid", "timed"):
        await with_topic(client, topic)
    return client


async def lived(path: Path) -> None:
    """Let a broker take delayed messages and transactions, and end all of them; some wait for long."""
    async with serving_broker(path, **KEYS) as served:
        client = await started(served)
        sent: set[str] = set()
        for turn in range(4):
            for number in range(6):
                properties = {"DELAY": str(1 + number % 3)} | ({} if number == 4 else {"UNIQ_KEY": f"{turn}-{number}"})
                assert (await client.send_message("orders", b"x" * 300, properties=properties)).code == 0
                sent |= {f"{turn}-{number}"} - {f"{turn}-4"}
            properties = {"TIMER_DELAY_MS": "100", "UNIQ_KEY": f"timed-{turn}"}
            assert (await client.send_message("timed", properties=properties)).code == 0
            left, *ended = [await send_half(client, f"{name}{turn}") for name in "acr"]
            for half, how in zip(ended, (COMMIT, ROLLBACK), strict=True):
                await end(client, half, how)
            await check(served)  # puts the one that is left back
            asked = await asyncio.wait_for(client.requests.get(), 30)
            fields = asked.ext_fields or {}
            assert fields["msgId"] == left["msgId"]
            if turn % 2:
                await received(client, sent, "orders")
            copy = {name: int(fields[name]) for name in ("tranStateTableOffset", "commitLogOffset")}
            await end(client, left | copy, fromTransactionCheck=True)
        await received(client, sent, "orders")
        await client.pull(TRANS_OP_HALF_TOPIC, 11, hold_ms=LONG_MS)
        await check(served)
        for number in range(6):
            properties = {"DELAY": "3", "UNIQ_KEY": f"late-{number}"}
            assert (await client.send_message("orders", b"x" * 300, properties=properties)).code == 0
    late = {f"late-{number}" for number in range(6)}
    with reput.MessageStore.open(path, mapped_file_size_commit_log=8192, **SIZES) as store:
        due_ms = store.put_message(reput.Message("stopped", b"x")).store_timestamp + DELAYS_MS[2]
        while store.put_message(reput.Message("stopped", b"x")).store_timestamp <= due_ms:
            pass  # they are due while no broker is there
    async with serving_broker(path, **KEYS) as served:
        client = await served.client()
        await received(client, late, "orders")
        await received(client, {f"timed-{turn}" for turn in range(4)}, "timed")
        for _ in range(4):  # so that the files before are sealed
            assert (await client.send_message("filler", b"x" * 3000)).code == 0


def rows_of(store: Path, topic: str) -> list[dict[str, Any]]:
    return reput.read_log(store, topics=[topic]).read_all().to_pylist()


def open_halves(store: Path) -> set[str]:
    """Keys of the half messages that the log has, and that no op message of it ends."""
    halves = {row["queue_offset"]: row["unique_key"] for row in rows_of(store, TRANS_HALF_TOPIC)}
    ops = [op_offsets(row["body"], row["tags"]) for row in rows_of(store, TRANS_OP_HALF_TOPIC)]
    return set(halves.values()) - {halves[offset] for offsets in ops for offset in offsets}


async def goes_on(store: Path) -> None:
    """Start a broker on a restored store, and see it do what it had not done."""
    waited = {row["unique_key"] for row in rows_of(store, SCHEDULE_TOPIC)}
    left = open_halves(store)
    had = len(rows_of(store, "orders"))
    async with serving_broker(store, **KEYS) as served:
        client = await started(served)
        found = await received(client, waited, "orders")
        timed = {row["unique_key"] for row in rows_of(store, TIMER_TOPIC)}
        await received(client, timed, "timed")  # those that were delivered come again
        assert set(found[:had]).isdisjoint(found[had:])
        assert len(found[had:]) == len(set(found[had:]))
        await check(served)
        asked: set[str] = set()
        while asked != left:
            request = await asyncio.wait_for(client.requests.get(), 30)
            asked.add(MessageExt(request.body).unique_key or "")
            assert asked <= left
        assert client.requests.empty()


@pytest.mark.parametrize("kind", ["backup", "archive"])
async def test_a_broker_on_a_restored_log_delivers_and_asks_what_the_log_had_not_done(
    tmp_path: Path, kind: str
) -> None:
    await lived(tmp_path / "store")
    take = backup if kind == "backup" else archive
    result = take(tmp_path / "store", str(tmp_path / "target"), runner=LocalRunner(1))
    rows = reput.read_log(tmp_path / "store", columns=["topic", "commit_log_offset"]).read_all().to_pylist()
    offsets = [row["commit_log_offset"] for row in rows if row["topic"] not in ("filler", "stopped")]
    late = [row["commit_log_offset"] for row in rows if row["topic"] == "orders"][-3]
    cuts = [*offsets[7::23], late] if kind == "backup" else [offsets[40], late, result.end_offset]
    for number, offset in enumerate(cuts):
        restored = tmp_path / f"restored{number}"
        restore(str(tmp_path / "target"), restored, runner=LocalRunner(1), until_offset=offset, sizes=SIZES)
        await goes_on(restored)


@pytest.mark.parametrize("delivered", [0, 1, 3, 4, 5, 57, 399, 400])
def test_a_level_with_many_messages_that_wait_is_looked_up_in_a_few_steps(
    delivered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reput.MessageStore.open(tmp_path / "store").close()
    waiting = pa.Table.from_pylist([
        {
            "queue_offset": 10 + n, "commit_log_offset": n, "unique_key": f"key-{n}", "born_timestamp": 0,
            "reconsume_times": 0, "REAL_TOPIC": "orders", "REAL_QID": "0",
        }
        for n in range(400)
    ])  # fmt: skip
    looked_up: list[int] = []

    def deliveries(_: object, topics: set[str], keys: list[str]) -> dict[Any, int]:
        looked_up.append(len(keys))
        there = [key for key in keys if int(key[len("key-") :]) < delivered]
        return {("5", "orders", "0", key, 0, 0): 1000 for key in there}

    monkeypatch.setattr(own_work, "_LOOKED_UP", 4)
    monkeypatch.setattr(own_work, "_deliveries", deliveries)
    found = own_work._last_delivered(StoreDirectory(tmp_path / "store"), {5: waiting}, {"orders"})
    assert found == ({5: 10 + delivered - 1} if delivered else {})
    assert len(looked_up) <= 15
