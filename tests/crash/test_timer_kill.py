"""kill -9 of a broker while messages wait for their times: each comes, none early, and twice only the last ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from reput.formats.message_ext import MessageExt
from reput.formats.paths import TIMER_CHECK
from reput.formats.timer_checkpoint import decode_timer_checkpoint
from tests.support.asking import until
from tests.support.broker import LONG_MS, Client, messages_of, send_command, with_topic
from tests.support.broker_load import broker_process

COUNT, BEFORE_KILL = 400, 200


async def client_of(address: str) -> Client:
    host, _, port = address.rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port)))


def read_time_ms(path: Path) -> int:
    """Time from which on a start delivers again; 0 without a checkpoint."""
    file = path / TIMER_CHECK
    return decode_timer_checkpoint(file.read_bytes()).last_read_time_ms if file.exists() else 0


async def received(client: Client, bodies: Collection[bytes], found: list[MessageExt]) -> None:
    """Read on until all these bodies have come."""
    while set(bodies) - {one.body for one in found}:
        answer = await client.pull("orders", len(found), hold_ms=LONG_MS)
        if answer.code == 0:
            found += messages_of(answer)


@pytest.mark.slow
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
        await received(client, list(dues)[:BEFORE_KILL], found)
        until(lambda: read_time_ms(path) > begin)
        return dues

    async def second_life(address: str, dues: dict[bytes, int]) -> None:
        client = await client_of(address)
        again: list[MessageExt] = []
        await received(client, dues, again)
        found[:] = again
        await client.leave()

    with broker_process(path, flushDiskType=flush_disk_type) as (process, ready):
        dues = asyncio.run(first_life(ready["broker"]))
        process.kill()
        process.wait()
    again_from_ms = read_time_ms(path)
    with broker_process(path, flushDiskType=flush_disk_type) as (_, ready):
        asyncio.run(second_life(ready["broker"], dues))
    assert all(one.store_timestamp >= dues[one.body] for one in found)
    times = Counter(one.body for one in found)
    first_ms = {one.body: one.store_timestamp for one in reversed(found)}
    assert all(first_ms[body] >= again_from_ms for body, count in times.items() if count > 1)
    assert max(times.values()) <= 2
