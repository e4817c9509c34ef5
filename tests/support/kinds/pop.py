"""POP: each message is acked by somebody; nobody else gets it before its invisible time is over, or after its ack."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar

from reput.formats.message_ext import MessageExt
from reput.remoting.codes import ResponseCode
from reput.service.pop.topics import pop_retry_topic_of
from tests.support.broker import Client, consumer, with_topic
from tests.support.invariants import Record
from tests.support.kinds.kind import Kind, NewClient, now_ms, number_of
from tests.support.pop import ack, handles, pop

_TOPIC, _GROUP, _QUEUES, _PRODUCERS, _MEMBERS = "popped", "workers", 2, 2, 2
#: With a second or less check points would not wait for the timer, and overtake acks, which do, after a death.
_INVISIBLE_MS = 2000
_POLL_MS = 1000
_RETRY = pop_retry_topic_of(_TOPIC, _GROUP, v2=False)
#: Of so many messages one is acked only when it comes again.
_FORGOTTEN = 4


class Pop(Kind):
    """Producers, and two members of a group that acks most messages at once, the others when they come again."""

    KEYS: ClassVar[dict[str, object]] = {
        "timerWheelEnable": True, "reviveInterval": 100, "reviveQueueNum": 2, "popFromRetryProbability": 50,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._promised: set[str] = set()
        self._acked: set[str] = set()
        #: By key: topic, queue, offset and pop time of an ack that is not answered.
        self._asked: dict[str, tuple[str, int, int, int]] = {}
        #: By key and how often it had come: when it was popped first, and pops that were not acked in time.
        self._popped_ms: dict[tuple[str, int], int] = {}
        self._unacked: Counter[tuple[str, int]] = Counter()
        #: Of this life: topic, queue and offset of what was handed out.
        self._handed_out: set[tuple[str, int, int]] = set()

    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        self._handed_out = set()
        works: list[Coroutine[Any, Any, None]] = []
        for number in range(_MEMBERS):
            member = await new_client()
            await with_topic(member, _TOPIC, _QUEUES)
            await member.heartbeat(f"{self.life}-{number}", consumer(_GROUP, _TOPIC))
            works.append(self._pop(member))
        return works + [self._produce(await new_client(), number) for number in range(_PRODUCERS)]

    async def _produce(self, client: Client, number: int) -> None:
        async for key in self.keys(number):
            await self.send(client, _TOPIC, key, queueId=number_of(key) % _QUEUES)
            self._promised.add(key)
            self.told()

    async def _pop(self, client: Client) -> None:
        while True:
            answer = await pop(client, _TOPIC, _GROUP, poll_ms=_POLL_MS, invisible_ms=_INVISIBLE_MS)
            if answer.code != ResponseCode.SUCCESS:
                assert answer.code == ResponseCode.POLLING_TIMEOUT, answer
                continue
            for message, topic, handle in handles(answer, _GROUP):
                popped_ms, offset = int(handle.split(" ")[1]), int(handle.split(" ")[-1])
                key = self._came(message, popped_ms, (topic, message.queue_id, offset))
                if number_of(key) % _FORGOTTEN or message.reconsume_times:
                    self._asked[key] = topic, message.queue_id, offset, popped_ms
                    answer = await ack(client, topic, handle, _GROUP)
                    assert answer.code == ResponseCode.SUCCESS, answer
                    self._acked.add(key)
                    del self._asked[key]
                    if now_ms() < popped_ms + _INVISIBLE_MS:
                        self._unacked[key, message.reconsume_times] -= 1
                    self.told()

    def _came(self, message: MessageExt, popped_ms: int, place: tuple[str, int, int]) -> str:
        """The key of a message, which may come now."""
        (key,), times = message.keys, message.reconsume_times
        assert place not in self._handed_out, f"{key} comes twice from {place}"
        self._handed_out.add(place)
        if times and not key.startswith(f"{self.life}-"):  # of a check point whose pop or ack died with its broker
            self.counts["... after an ack and a death"] += self._unacked.get((key, times - 1)) == 0
        elif times:
            assert self._unacked[key, times - 1] > 0, f"{key} comes again after its ack"
            waited = popped_ms - self._popped_ms[key, times - 1]
            assert waited >= _INVISIBLE_MS, f"{key} comes again {waited} ms after it was popped"
        self.counts["messages that were popped again"] += times > 0
        self._popped_ms.setdefault((key, times), popped_ms)
        self._unacked[key, times] += 1
        return key

    def missing(self) -> set[str]:
        return self._promised - self._acked

    def check(self, records: list[Record]) -> None:
        super().check(records)
        bodies = [json.loads(record.row["body"]) for record in records if record.row["tags"] == b"ack"]
        acks = {(body["t"], body["q"], body["ao"], body["pt"]) for body in bodies}
        # The broker died between the sync of the ack and its answer: the message does not come again.
        self._acked |= {key for key, place in self._asked.items() if place in acks}
        for record in records:
            if record.queue[0] == _RETRY:
                key, times = record.row["keys"].decode(), record.row["reconsume_times"]
                assert 0 < times <= self.lives + 1, f"{key} is to come again, {times} times"
