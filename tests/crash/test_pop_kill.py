"""kill -9 of a broker from which groups pop: each message is acked in the end, and each that was not comes again."""

from __future__ import annotations

import asyncio
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.broker import Client, with_topic
from tests.support.broker_load import broker_process
from tests.support.pop import ack, change_invisible_time, handles, pop, renewed

TOPIC, QUEUES, MESSAGES = "orders", 2, 60
_MOST_S = 120
_POPPERS = 3
_GONE = asyncio.IncompleteReadError, ConnectionError


class PopLoad:
    """Messages that are sent, popped and acked, over several lives of a broker.

    Attributes:
        sent: Their bodies.
        acked: Those whose ack was sent.
    """

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self._random = random.Random(7)

    async def live(self, address: str, process: subprocess.Popen[str], acks: int | None) -> None:
        """Send, pop and ack until so many acks were answered, and kill the broker; None: until all is acked."""
        host, _, port = address.rpartition(":")
        before = len(self.acked)

        async def client() -> Client:
            return Client(*await asyncio.open_connection(host, int(port)))

        async def send(member: Client) -> None:
            for number in range(MESSAGES):
                body = b"%d-%d" % (before, number)
                if (await member.send_message(TOPIC, body, queueId=number % QUEUES)).code == 0:
                    self.sent.add(body)

        async def consume(member: Client) -> None:
            while not self.sent <= self.acked if acks is None else len(self.acked) < before + acks:
                answer = await pop(
                    member, TOPIC, invisible_ms=1500, poll_ms=1000, maxMsgNums=self._random.randint(1, 8)
                )
                for message, topic, handle in handles(answer) if answer.code == 0 else ():
                    await self._work(member, message.body, topic, handle, is_last=acks is None)
            if acks is not None:
                process.kill()

        async def until_gone(member: Client, work: object) -> None:
            with suppress(*_GONE):
                await work  # type: ignore[misc]

        members = [await client() for _ in range(_POPPERS + 1)]
        with suppress(*_GONE):
            await with_topic(members[0], TOPIC, QUEUES)
        async with asyncio.timeout(_MOST_S), asyncio.TaskGroup() as tasks:
            if acks is not None:
                tasks.create_task(until_gone(members[0], send(members[0])))
            for member in members[1:]:
                tasks.create_task(until_gone(member, consume(member)))

    async def _work(self, member: Client, body: bytes, topic: str, handle: str, *, is_last: bool) -> None:
        """Ack a message, renew and ack it, or forget it."""
        chance = 1.0 if is_last else self._random.random()
        if chance < 0.3:
            return
        if chance < 0.5:
            answer = await change_invisible_time(member, topic, handle, 2000)
            assert answer.code == 0, answer
            handle = renewed(handle, answer)
        self.acked.add(body)  # if the answer is lost, nobody knows whether it counts
        assert (await ack(member, topic, handle)).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_broker_gives_again_what_nobody_acked(tmp_path: Path, flush_disk_type: str) -> None:
    load = PopLoad()
    keys = {"flushDiskType": flush_disk_type, "flushConsumerOffsetInterval": 10, "log_level": "warning"}
    for acks in (9, 25, 14, None):
        with broker_process(tmp_path / "store", **keys) as (process, ready):  # type: ignore[arg-type]
            asyncio.run(load.live(ready["broker"], process, acks))
            process.kill()
            _, errors = process.communicate(timeout=_MOST_S)
            assert "Traceback" not in errors, errors
    assert load.sent
    assert load.sent <= load.acked
