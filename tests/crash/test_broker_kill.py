"""kill -9 of a broker under load: each message whose SEND_OK came is there after the restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.broker import messages_of, serving_broker
from tests.support.broker_load import GROUP, TOPIC, check_killed, load_and_kill
from tests.support.sockets import run


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_broker_has_every_message_that_it_acknowledged(
    tmp_path: Path, flush_disk_type: str, kills: int
) -> None:
    store = tmp_path / "store"
    for kill in range(kills):
        sent, committed = load_and_kill(store, 200 + 331 * kill, flush_disk_type=flush_disk_type)
        assert len(sent) >= 200
        check_killed(store, tmp_path / f"rebuilt-{kill}", sent, committed)

    async def scenario() -> None:
        async with serving_broker(store, flush_disk_type=flush_disk_type) as served:
            client = await served.client()
            last = max(sent, key=lambda one: one.queue_offset)
            answer = await client.pull(TOPIC, last.queue_offset, queueId=last.queue_id, group=GROUP, maxMsgNums=1)
            assert [message.body for message in messages_of(answer)] == [last.body]
            answers = await asyncio.gather(*[client.send_message(TOPIC, queueId=queue_id) for queue_id in range(3)])
            assert [answer.code for answer in answers] == [0, 0, 0]

    run(scenario())
