"""PopLongPollingService: pops and notifications that wait for a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.view import BrokerView
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.pop.topics import pop_retry_topic_of
from reput.store.dispatch.arrivals import Arrivals
from reput.transport.channel import Channel
from reput.transport.requests import Answer, answer_later, request_size

#: A request is answered so long before its time is over.
_BEFORE_END_MS = 50
#: Memory of all requests that wait.
_MOST_BYTES = 256 << 20
_ALL_QUEUES = -1


class PollingResult(Enum):
    """Whether a request waits now, or why it does not (`PollingResult`)."""

    POLLING_SUC = "POLLING_SUC"
    POLLING_FULL = "POLLING_FULL"
    POLLING_TIMEOUT = "POLLING_TIMEOUT"
    NOT_POLLING = "NOT_POLLING"


@dataclass(frozen=True, slots=True)
class Polled:
    """Messages that a request waits for: of a queue, -1 for any, or of the group's retry topic.

    `codes`: of the tags that it takes, None for all; `until_ms`: when its client's patience is over.
    """

    topic: str
    group: str
    queue_id: int
    codes: frozenset[int] | None
    until_ms: int


@dataclass(slots=True, eq=False)
class _Waiting:
    connection: Channel
    command: RemotingCommand
    polled: Polled
    again: Callable[[], Coroutine[Any, Any, Answer]]
    size: int
    timer: asyncio.TimerHandle | None = None


#: In the order in which they came.
_InOrder = dict[_Waiting, None]


class PopLongPollingService:
    """RocketMQ's class of the same name, in the broker's loop.

    Messages of a retry topic wake those who wait for its normal topic, by both names of retry topics: RocketMQ lets
    them wait for up to their whole time.
    """

    def __init__(self, view: BrokerView, clock: BrokerClock) -> None:
        self._view, self._clock = view, clock
        self._loop = asyncio.get_running_loop()
        #: By topic and group, by queue id.
        self._waiting: dict[tuple[str, str], dict[int, _InOrder]] = {}
        #: (topic, group)s that a message of a topic wakes, and whether it is their retry topic.
        self._woken_by: dict[str, dict[tuple[str, str], bool]] = {}
        self._of: dict[Channel, _InOrder] = {}
        self._count = self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    # -- holding

    def polling(
        self,
        connection: Channel,
        command: RemotingCommand,
        polled: Polled,
        again: Callable[[], Coroutine[Any, Any, Answer]],
        again_at_ms: int = 0,
    ) -> PollingResult:
        """Let a request wait, and do it again once a message has come or its time is over.

        again_at_ms: When to do it again in any case, 0 for no such time.
        """
        now_ms, config = self._clock.now_ms(), self._view.config
        if self._is_stopped:
            return PollingResult.NOT_POLLING
        if self._count >= config.max_pop_polling_size or self._bytes >= _MOST_BYTES:
            return PollingResult.POLLING_FULL
        left_ms = polled.until_ms - _BEFORE_END_MS - now_ms
        if left_ms <= 0 or not connection.is_open:
            return PollingResult.POLLING_TIMEOUT
        if self.polling_num(polled.topic, polled.group, polled.queue_id) > config.pop_polling_size:
            return PollingResult.POLLING_FULL
        waiting = _Waiting(connection, command, polled, again, request_size(command))
        if again_at_ms:
            left_ms = min(left_ms, max(again_at_ms - now_ms, 1))
        waiting.timer = self._loop.call_later(left_ms / 1000, self._run, waiting)
        pair = polled.topic, polled.group
        if pair not in self._waiting:
            self._waiting[pair] = {}
            for name, is_retry in _waking(*pair):
                self._woken_by.setdefault(name, {})[pair] = is_retry
        self._waiting[pair].setdefault(polled.queue_id, {})[waiting] = None
        self._of.setdefault(connection, {})[waiting] = None
        self._count += 1
        self._bytes += waiting.size
        return PollingResult.POLLING_SUC

    def polling_num(self, topic: str, group: str, queue_id: int) -> int:
        """Number of requests that wait with exactly this queue id."""
        return len(self._waiting.get((topic, group), {}).get(queue_id, ()))

    def connection_closed(self, connection: Channel) -> None:
        """Answer the requests of a client that is gone: its connection may be there."""
        for waiting in list(self._of.get(connection, ())):
            self._forget(waiting)
            connection.answer(waiting.command.response(ResponseCode.POLLING_TIMEOUT))

    def forget(self, connection: Channel, command: RemotingCommand) -> bool:
        """Forget one request, whose client waits no more; False if it does not wait, as it is being done."""
        for waiting in self._of.get(connection, ()):
            if waiting.command is command:
                self._forget(waiting)
                return True
        return False

    async def stop(self) -> None:
        """Answer all that wait with what there is."""
        self._is_stopped = True
        for waiting in [one for all_of in self._of.values() for one in all_of]:
            self._run(waiting)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- waking

    @property
    def any_wait(self) -> bool:
        """Whether requests wait for messages."""
        return bool(self._waiting)

    def messages_arrived(self, arrivals: Arrivals) -> None:
        """Wake, of each group, one request for any queue and one for the queue; called after each dispatch."""
        if not self._waiting:
            return
        for number, (topic, queue_id) in enumerate(arrivals.queues):
            for pair, is_retry in list(self._woken_by.get(topic, {}).items()):
                codes = arrivals.tags_codes[number]
                if not self._wake(pair, _ALL_QUEUES, codes) and is_retry:
                    for asked in list(self._waiting.get(pair, ())):
                        if self._wake(pair, asked, codes):
                            break
                elif not is_retry:
                    self._wake(pair, queue_id, codes)

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one request: a message may be there for it."""
        pair = topic, group
        if not self._wake(pair, _ALL_QUEUES, None):
            self._wake(pair, queue_id, None)

    def _wake(self, pair: tuple[str, str], queue_id: int, codes: set[int] | None) -> bool:
        """Do the oldest request again that takes one of the tags; None: any."""
        for waiting in self._waiting.get(pair, {}).get(queue_id, ()):
            wanted = waiting.polled.codes
            if codes is None or wanted is None or not wanted.isdisjoint(codes):
                self._run(waiting)
                return True
        return False

    def _run(self, waiting: _Waiting) -> None:
        self._forget(waiting)
        if waiting.connection.is_open:
            task = self._loop.create_task(answer_later(waiting.connection, waiting.command, waiting.again()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _forget(self, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._count -= 1
        self._bytes -= waiting.size
        pair, queue_id = (waiting.polled.topic, waiting.polled.group), waiting.polled.queue_id
        queues = self._waiting[pair]
        del queues[queue_id][waiting], self._of[waiting.connection][waiting]
        if not self._of[waiting.connection]:
            del self._of[waiting.connection]
        if not queues[queue_id]:
            del queues[queue_id]
        if not queues:
            del self._waiting[pair]
            for name, _ in _waking(*pair):
                del self._woken_by[name][pair]
                if not self._woken_by[name]:
                    del self._woken_by[name]


def _waking(topic: str, group: str) -> tuple[tuple[str, bool], ...]:
    """The topics whose messages wake a request, and whether they are its retry topics."""
    names = {topic: False}
    names |= {pop_retry_topic_of(topic, group, v2=v2): True for v2 in (False, True)}
    return tuple(names.items())
