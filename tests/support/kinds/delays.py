"""Messages that wait, for a delay level or a time: each comes, never before its time, and none that was recalled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar

from reput.formats.message_ext import MessageExt
from reput.remoting.codes import RequestCode, ResponseCode
from tests.support.broker import Client, with_topic
from tests.support.invariants import Record
from tests.support.kinds.kind import Kind, NewClient, now_ms, number_of

_TOPIC, _GROUP, _QUEUES, _PRODUCERS = "delayed", "billing", 2, 2
#: RocketMQ's first two levels.
_LEVEL_MS = {1: 1000, 2: 5000}
#: Messages that a producer sends before it waits for them: a put syncs the log for those that are delivered
#: meanwhile, too, so most are to be delivered while nobody sends.
_BURST = 20


class Delays(Kind):
    """Producers of messages with delay levels, and a group that consumes them."""

    def __init__(self) -> None:
        super().__init__()
        self._due_ms: dict[str, int] = {}
        self._promised: set[str] = set()
        self._recalled: set[str] = set()
        self._come: set[str] = set()

    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        self._one_came = asyncio.Event()
        member = await new_client()
        await with_topic(member, _TOPIC, _QUEUES)
        consuming = [self.consume(member, _GROUP, _TOPIC, queue_id, self._take) for queue_id in range(_QUEUES)]
        return consuming + [self._produce(await new_client(), number) for number in range(_PRODUCERS)]

    def wait(self, number: int) -> tuple[int, dict[str, str]]:
        """Wait of a message, in ms, and the properties that say so; a last life has no long waits."""
        level = 2 if self.lives == 1 and number % 8 == 7 else 1
        return _LEVEL_MS[level], {"DELAY": str(level)}

    async def _produce(self, client: Client, number: int) -> None:
        burst: set[str] = set()
        async for key in self.keys(number):
            if len(burst) == _BURST:
                await self._until_come(burst)
                burst.clear()
            sent_ms = now_ms()
            wait_ms, properties = self.wait(number_of(key))
            self._due_ms[key] = sent_ms + wait_ms
            answer = await self.send(client, _TOPIC, key, queueId=number_of(key) % _QUEUES, properties=properties)
            self._promised.add(key)
            burst.add(key)
            handle = (answer.ext_fields or {}).get("recallHandle")
            if handle is not None and number_of(key) % 8 == 3:
                await self._recall(client, key, handle)
            self.told()

    async def _until_come(self, burst: set[str]) -> None:
        while burst & self._promised - self._come:
            self._one_came.clear()
            await self._one_came.wait()

    async def _recall(self, client: Client, key: str, handle: str) -> None:
        self._promised.discard(key)  # nobody knows, until it is answered
        answer = await client.ask(RequestCode.RECALL_MESSAGE, topic=_TOPIC, recallHandle=handle)
        if answer.code == ResponseCode.SUCCESS and now_ms() < self._due_ms[key]:
            self._recalled.add(key)
            self.counts["messages recalled"] += 1

    async def _take(self, message: MessageExt) -> None:
        (key,) = message.keys
        assert now_ms() >= self._due_ms[key], f"{key} came {self._due_ms[key] - now_ms()} ms before its time"
        assert key not in self._recalled, f"{key} was recalled, and comes"
        self.counts["delayed messages come"] += key not in self._come
        self._come.add(key)
        self._one_came.set()

    def missing(self) -> set[str]:
        return self._promised - self._come

    def check(self, records: list[Record]) -> None:
        super().check(records)
        copies: Counter[str] = Counter()
        for record in records:
            if record.queue[0] == _TOPIC:
                key, stored_ms = record.row["keys"].decode(), record.row["store_timestamp"]
                early_ms = self._due_ms[key] - stored_ms
                assert early_ms <= 0, f"{key} was delivered {early_ms} ms before its time"
                assert key not in self._recalled, f"{key} was recalled, and is delivered"
                copies[key] += 1
                assert copies[key] <= self.lives, f"{key} was delivered {copies[key]} times in {self.lives} lives"


class Timers(Delays):
    """Producers of messages with a time, some of which they recall."""

    KEYS: ClassVar[dict[str, object]] = {
        "timerWheelEnable": True, "timerPrecisionMs": 100, "timerFlushIntervalMs": 50, "recallMessageEnable": True,
        "mappedFileSizeTimerLog": 4096,
    }  # fmt: skip

    def wait(self, number: int) -> tuple[int, dict[str, str]]:
        if number % 3 == 0:
            return 1000, {"TIMER_DELAY_SEC": "1", **_unique_key(number)}
        wait_ms = 300 + number * 131 % 1500
        name, value = ("TIMER_DELAY_MS", wait_ms) if number % 3 == 1 else ("TIMER_DELIVER_MS", now_ms() + wait_ms)
        return wait_ms, {name: str(value), **_unique_key(number)}


def _unique_key(number: int) -> dict[str, str]:
    return {"UNIQ_KEY": f"{now_ms()}-{number}"}
