"""kill -9 of a broker while messages wait for their times: each comes, none early, and twice only the last ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from reput.formats.message_ext import MessageExt
from tests.support.broker import LONG_MS, Client, messages_of, send_command, with_topic
from tests.support.broker_load import broker_process

COUNT, BEFORE_KILL = 400, 200
#: What may come again was due so shortly before the kill: a flush each second, and the slot that was open.
AGAIN_MS = 4000


async def client_of(address: str) -> Client:
    host, _, port = address.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def received(client: Client, until: Counter[bytes], found: list[MessageExt]) -> None:
    """Read on until all these bodies have come."""
    while until.keys() - {one.body for one in found}:
        answer = await client.pull("orders", len(found), hold_ms=LONG_MS)
        if answer.code == 0:
            found += messages_of(answer)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_broker_delivers_all_that_waited(tmp_path: Path, flush_disk_type: str) -> None:
    path, found = tmp_path / "store", list[MessageExt]()

    async def first_life(address: str) -> dict[bytes, int]:
        client = await client_of(address)
        await with_topic(client, "orders")
        begin = int(time.time() * 1000) + 1500
        dues = {b"%d" % number: begin + 13 * number for number in range(COUNT)}
        commands = [
            send_command("orders", body, properties={"TIMER_DELIVER_MS": str(due)}) for body, due in dues.items()
        ]
        assert {(await answer).code for answer in client.begin_all(commands)} == {0}
        await received(client, Counter(list(dues)[:BEFORE_KILL]), found)
        return dues

    async def second_life(address: str, dues: dict[bytes, int]) -> None:
        client = await client_of(address)
        again: list[MessageExt] = []
        await received(client, Counter(dues), again)
        found[:] = again
        await client.leave()

    with broker_process(path, flushDiskType=flush_disk_type) as (process, ready):
        dues = asyncio.run(first_life(ready["broker"]))
        killed_ms = int(time.time() * 1000)
        process.kill()
        process.wait()
    with broker_process(path, flushDiskType=flush_disk_type) as (_, ready):
        asyncio.run(second_life(ready["broker"], dues))
    assert all(one.store_timestamp >= dues[one.body] for one in found)
    times = Counter(one.body for one in found)
    twice = [dues[body] for body, count in times.items() if count > 1]
    assert all(due >= killed_ms - AGAIN_MS for due in twice)
    assert max(times.values()) <= 2
