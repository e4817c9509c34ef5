"""Knowledge of the clients of one kind of messages, over all lives of a broker, and its invariants."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import Client, messages_of, send_command
from tests.support.broker_ledger import body_of
from tests.support.invariants import Record

#: Makes another client of the broker that runs.
NewClient = Callable[[], Awaitable[Client]]
_NONE_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_HOLD_MS = 2000
#: Between two messages of a producer: consumers keep up.
_PACE_S = 0.004


def now_ms() -> int:
    """The time in ms since 1970 UTC, as a broker of this machine has it."""
    return int(time.time() * 1000)


def number_of(key: str) -> int:
    """The number at the end of a key, which says what is done to its message."""
    return int(key.rpartition("-")[2])


class Kind(ABC):
    """One kind of messages.

    Attributes:
        KEYS: Of the broker.
        life: Of the broker that runs; names of messages begin with it.
        lives: How many began.
        is_sending: False in the rest of the last life.
        answers: Sends that were answered.
        told: Called after each message and answer that a client gets.
        counts: For a report.
    """

    KEYS: ClassVar[dict[str, object]] = {}

    def __init__(self) -> None:
        self.life, self.lives = "", 0
        self.is_sending = True
        self.answers = 0
        self.told: Callable[[], None] = lambda: None
        self.counts: Counter[str] = Counter()
        self._at: dict[int, str] = {}
        self._places: dict[tuple[str, int, int], str] = {}
        self.consumed: dict[tuple[str, str, int], int] = {}

    @abstractmethod
    async def begin(self, new_client: NewClient) -> list[Coroutine[Any, Any, None]]:
        """Work of the clients of a life until the broker is gone."""

    @abstractmethod
    def missing(self) -> set[str]:
        """Messages that were promised to clients, and have not come to them."""

    def check(self, records: list[Record]) -> None:
        """Compare the log that a life has left with what its clients know; AssertionError for a broken promise."""
        keys = {record.offset: record.row["keys"].decode() for record in records}
        for offset, key in self._at.items():
            assert keys.get(offset) == key, f"{key} was answered, and is lost"
        places = {(*record.queue, record.row["queue_offset"]): keys[record.offset] for record in records}
        for place, key in self._places.items():
            assert places.get(place) == key, f"{key} was consumed at {place}, where {places.get(place)} is now"

    def check_offsets(self, persisted: dict[tuple[str, str, int], int]) -> None:
        """No group is ahead of what it has consumed."""
        for queue, offset in persisted.items():
            if queue in self.consumed:
                assert offset <= self.consumed[queue], f"{queue}: committed {offset}, consumed {self.consumed[queue]}"

    # -- what clients do

    async def send(self, client: Client, topic: str, key: str, **more: Any) -> RemotingCommand:
        """Send a message with a body that its key gives; its answer is a promise."""
        properties = {"KEYS": key, **more.pop("properties", {})}
        command = send_command(topic, body_of(key), properties=properties, bornTimestamp=now_ms(), **more)
        (begun,) = client.begin_all([command])
        answer = await begun
        assert answer.code == ResponseCode.SUCCESS, answer
        _, offset = decode_message_id((answer.ext_fields or {})["msgId"])
        self._at[offset] = key
        self.answers += 1
        return answer

    async def consume(
        self, client: Client, group: str, topic: str, queue_id: int, take: Callable[[MessageExt], Awaitable[None]]
    ) -> None:
        """Go on where the group was; what was taken is committed."""
        queue = group, topic, queue_id
        fields: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
        offset = int((answer.ext_fields or {}).get("offset", 0))
        assert offset <= self.consumed.get(queue, 0), f"{queue}: goes on at {offset}, which it has not consumed"
        while True:
            answer = await client.pull(topic, offset, queueId=queue_id, group=group, hold_ms=_HOLD_MS)
            if answer.code in _NONE_YET:
                continue
            for message in messages_of(answer):
                assert message.queue_offset == offset, f"{queue}: {message.queue_offset} comes, {offset} is left out"
                self.saw(message)
                await take(message)
                self.told()
                offset += 1
            self.consumed[queue] = max(offset, self.consumed.get(queue, 0))
            answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=offset, **fields)
            assert answer.code == ResponseCode.SUCCESS, answer

    def saw(self, message: MessageExt) -> str:
        """The key of a message, which has the right body, and stays where it is in all lives."""
        (key,) = message.keys
        assert message.body == body_of(key), f"the body of {key} is another one"
        place = message.topic, message.queue_id, message.queue_offset
        before = self._places.setdefault(place, key)
        assert before == key, f"{place}: {key}, where {before} was before"
        return key

    async def keys(self, producer: int) -> AsyncIterator[str]:
        """Names of messages of one producer of this life, until nobody is to send any more."""
        number = random.Random(f"{self.life} {producer}").randrange(8)
        while self.is_sending:
            yield f"{self.life}-{producer}-{number}"
            number += 1
            await asyncio.sleep(_PACE_S)
        await asyncio.get_running_loop().create_future()  # the connection stays
