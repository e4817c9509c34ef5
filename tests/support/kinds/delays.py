"""Messages with a delay level: each comes, never before its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message_ext import MessageExt
from tests.support.broker import Client, with_topic
from tests.support.invariants import Record
from tests.support.kinds.kind import Kind, NewClient, now_ms, number_of

_TOPIC, _GROUP, _QUEUES, _PRODUCERS = "delayed", "billing", 2, 2
#: RocketMQ's first two levels.
_LEVEL_MS = {1: 1000, 2: 5000}


class Delays(Kind):
    """Producers of messages of two levels, and a group that consumes them."""

    def __init__(self) -> None:
        super().__init__()
        self._levels: dict[str, int] = {}
        self._sent_ms: dict[str, int] = {}
        self._promised: set[str] = set()
        self._come: set[str] = set()

    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        member = await new_client()
        await with_topic(member, _TOPIC, _QUEUES)
        consuming = [self.consume(member, _GROUP, _TOPIC, queue_id, self._take) for queue_id in range(_QUEUES)]
        return consuming + [self._produce(await new_client(), number) for number in range(_PRODUCERS)]

    async def _produce(self, client: Client, number: int) -> None:
        async for key in self.keys(number):
            level = 2 if self.lives == 1 and number_of(key) % 8 == 7 else 1  # the last life does not wait for long ones
            self._levels[key], self._sent_ms[key] = level, now_ms()
            properties = {"DELAY": str(level)}
            await self.send(client, _TOPIC, key, queueId=number_of(key) % _QUEUES, properties=properties)
            self._promised.add(key)
            self.told()

    async def _take(self, message: MessageExt) -> None:
        (key,) = message.keys
        waited = now_ms() - self._sent_ms[key]
        assert waited >= self._delay_ms(key), f"{key} came after {waited} ms, with level {self._levels[key]}"
        self.counts["delayed messages come"] += key not in self._come
        self._come.add(key)

    def missing(self) -> set[str]:
        return self._promised - self._come

    def check(self, records: list[Record]) -> None:
        super().check(records)
        waits = {record.row["keys"].decode(): record.row for record in records if record.queue[0] == SCHEDULE_TOPIC}
        copies: Counter[str] = Counter()
        for record in records:
            if record.queue[0] == _TOPIC:
                key = record.row["keys"].decode()
                waited = record.row["store_timestamp"] - waits[key]["store_timestamp"]
                assert waited >= self._delay_ms(key), f"{key} was delivered after {waited} ms"
                copies[key] += 1
                assert copies[key] <= self.lives, f"{key} was delivered {copies[key]} times in {self.lives} lives"

    def _delay_ms(self, key: str) -> int:
        return _LEVEL_MS[self._levels[key]]
