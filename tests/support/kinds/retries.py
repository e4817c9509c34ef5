"""Messages at which a consumer fails: each comes again, once more counted, or is a dead letter of its group."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from reput.formats.message_ext import MessageExt
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.topic_validator import dlq_topic_of, retry_topic_of
from tests.support.broker import Client, consumer, with_topic
from tests.support.invariants import Record
from tests.support.kinds.kind import Kind, NewClient, now_ms, number_of

_TOPIC, _GROUP, _QUEUES, _PRODUCERS = "orders", "billing", 2, 2
_RETRY, _DEAD = retry_topic_of(_GROUP), dlq_topic_of(_GROUP)
#: A message that was consumed so often again, and fails once more, is a dead letter.
_MOST = 1
_DELAY_MS = 1000
#: By the number of a key: how often its consumer fails.
_FAILURES = (0, 1, 0, 2)


class Retries(Kind):
    """Producers, and a group that sends some messages back, once or until they are dead letters."""

    def __init__(self) -> None:
        super().__init__()
        self._promised: set[str] = set()
        self._done: set[str] = set()
        #: By key and how often it had been consumed again: when its consumer failed first.
        self._failed_ms: dict[tuple[str, int], int] = {}
        #: Those of them that were answered.
        self._sent_back: set[tuple[str, int]] = set()

    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        member = await new_client()
        await with_topic(member, _TOPIC, _QUEUES)
        await member.heartbeat(f"{self.life}-member", consumer(_GROUP, _TOPIC))  # makes the retry topic
        queues = [(_RETRY, 0), *((_TOPIC, queue_id) for queue_id in range(_QUEUES))]
        works = [self.consume(member, _GROUP, topic, queue_id, self._taker(member)) for topic, queue_id in queues]
        return works + [self._produce(await new_client(), number) for number in range(_PRODUCERS)]

    async def _produce(self, client: Client, number: int) -> None:
        async for key in self.keys(number):
            await self.send(client, _TOPIC, key, queueId=number_of(key) % _QUEUES)
            self._promised.add(key)
            self.told()

    def _taker(self, client: Client) -> Any:
        async def take(message: MessageExt) -> None:
            (key,), times = message.keys, message.reconsume_times
            assert times == 0 or (key, times - 1) in self._failed_ms, f"{key} comes again {times} times"
            if times >= _failures(key):
                self._done.add(key)
                return
            if times:
                waited = now_ms() - self._failed_ms[key, times - 1]
                assert waited >= _DELAY_MS, f"{key} came again after {waited} ms"
            self._failed_ms.setdefault((key, times), now_ms())
            answer = await client.ask(
                RequestCode.CONSUMER_SEND_MSG_BACK, offset=message.commit_log_offset, group=_GROUP, delayLevel=1,
                originMsgId=message.message_id, originTopic=_TOPIC, unitMode=False, maxReconsumeTimes=_MOST,
            )  # fmt: skip
            assert answer.code == ResponseCode.SUCCESS, answer
            self._sent_back.add((key, times))
            self.counts["dead letters" if times >= _MOST else "messages sent back"] += 1

        return take

    def missing(self) -> set[str]:
        dead = {key for key, times in self._sent_back if times >= _MOST}
        return self._promised - self._done - dead

    def check(self, records: list[Record]) -> None:
        super().check(records)
        there: set[tuple[str, int]] = set()
        for record in records:
            key, times = record.row["keys"].decode(), record.row["reconsume_times"]
            if times:
                assert (key, times - 1) in self._failed_ms, f"{key} is there for the {times}. time, and did not fail"
                there.add((key, times - 1))
            if record.queue[0] == _RETRY:
                waited = record.row["store_timestamp"] - self._failed_ms[key, times - 1]
                assert waited >= _DELAY_MS, f"{key} was delivered again after {waited} ms"
                assert times <= _MOST, f"{key} comes again {times} times"
            if record.queue[0] == _DEAD:
                assert times == _MOST + 1 == _failures(key), f"{key} is a dead letter at {times}"
        lost = self._sent_back - there
        assert not lost, f"{len(lost)} were sent back and are lost, as {min(lost)}"


def _failures(key: str) -> int:
    return _FAILURES[number_of(key) % len(_FAILURES)]
