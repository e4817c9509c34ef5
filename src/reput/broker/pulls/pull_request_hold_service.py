"""PullRequestHoldService: pulls that wait for a message."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from reput.broker.rpc_latency import RpcLatency
from reput.broker.view import BrokerView
from reput.events import Event
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.header import required
from reput.remoting.pull_headers import PullMessageRequestHeader
from reput.remoting.subscription_data import build_subscription_data
from reput.store.dispatch.arrivals import Arrivals
from reput.store.message_store import MessageStore
from reput.store.reads.message_filter import MessageFilter
from reput.store.results import GetMessageStatus
from reput.transport.channel import Channel
from reput.transport.requests import Answer, failure_answer, request_size

logger = logging.getLogger("reput.broker")

_Key = TypeVar("_Key")

#: Held pulls of one broker, of one connection, and their memory; a pull beyond that is answered at once.
_MOST_HELD, _MOST_HELD_OF_CONNECTION, _MOST_HELD_BYTES = 100_000, 10_000, 256 << 20
_CHECK_EVERY_S = 1.0
#: A turn of the loop looks at held pulls, and answers them, for so long, and then for one more.
_TURN_S = 0.005


@dataclass(slots=True, eq=False)
class _HeldPull:
    """A pull that waits for a message with one of some tags codes; None: for any message.

    `since_s`: by `time.perf_counter`.
    message_filter: Wants the message, too; it has looked at all messages before the queue offset `looked_at`.
    """

    connection: Channel
    command: RemotingCommand
    header: PullMessageRequestHeader
    codes: frozenset[int] | None
    message_filter: MessageFilter | None
    looked_at: int
    until: float
    size: int
    since_s: float


#: In the order in which they came.
_HeldPulls = dict[_HeldPull, None]


class PullRequestHoldService:
    """RocketMQ's `PullRequestHoldService`, in the broker's loop.

    Args:
        view, store, rpc_latency: The broker's.
        pull_again: Takes a request again that was held, and does not hold it.
    """

    def __init__(
        self,
        view: BrokerView,
        store: MessageStore,
        rpc_latency: RpcLatency | None,
        pull_again: Callable[[Channel, RemotingCommand, PullMessageRequestHeader], Answer],
    ) -> None:
        self._view, self._store, self._rpc_latency = view, store, rpc_latency
        self._pull_again = pull_again
        self._loop = asyncio.get_running_loop()
        # Each held pull is in three tables: by its queue, its connection, and the look at which its time is over.
        self._held: dict[tuple[str, int], _HeldPulls] = {}
        self._held_of: dict[Channel, _HeldPulls] = {}
        self._held_until: dict[int, _HeldPulls] = {}
        self._count = self._bytes = 0
        #: Those that are to be answered once their clients read again.
        self._unread: _HeldPulls = {}
        #: What is not done yet, from look to look at one pull.
        self._looks: deque[Iterator[None]] = deque()
        self._next: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the held pulls by time from now on."""
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)

    def hold(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        tags: str | None,
        message_filter: MessageFilter | None = None,
    ) -> bool:
        """Hold a pull until a message comes or its time is over; False if too many are held.

        tags: an expression that some tags match; None takes all messages (`suspendPullRequest`). message_filter: of
        SQL92.
        """
        if not connection.is_open or self._bytes >= _MOST_HELD_BYTES:
            return False
        if self._count >= _MOST_HELD or len(self._held_of.get(connection, ())) >= _MOST_HELD_OF_CONNECTION:
            return False
        config = self._view.config
        wait_ms = required(header, "suspend_timeout_millis")
        if not config.long_polling_enable:
            wait_ms = config.short_polling_time_mills
        until = self._loop.time() + max(wait_ms, 0) / 1000
        codes = None if tags is None else build_subscription_data(header.topic, tags).codes
        size, looked_at = request_size(command), header.queue_offset
        pull = _HeldPull(
            connection, command, header, codes, message_filter, looked_at, until, size, time.perf_counter()
        )
        self._held.setdefault((header.topic, header.queue_id), {})[pull] = None
        self._held_of.setdefault(connection, {})[pull] = None
        self._held_until.setdefault(int(until / _CHECK_EVERY_S), {})[pull] = None
        self._count += 1
        self._bytes += pull.size
        return True

    @property
    def any_wait(self) -> bool:
        """Whether pulls wait for messages."""
        return bool(self._held)

    def messages_arrived(self, arrivals: Arrivals) -> None:
        """Answer the held pulls for which a message has come; called after each dispatch (`notifyMessageArriving`).

        Pulls of other queues cost nothing. As in RocketMQ only hashes are compared (`isMatchedByConsumeQueue`).
        """
        if self._held:
            self._begin(self._look(arrivals))

    def _begin(self, look: Iterator[None]) -> None:
        """Look at pulls now, as far as a turn goes; the rest waits for the next ones, behind what waits already."""
        self._looks.append(look)
        if self._next is None:
            self._turn()

    def _turn(self) -> None:
        self._next = None
        end = time.perf_counter() + _TURN_S
        while self._looks:
            for _ in self._looks[0]:
                if time.perf_counter() > end:
                    self._next = self._loop.call_soon(self._turn)
                    return
            self._looks.popleft()

    def _look(self, arrivals: Arrivals) -> Iterator[None]:
        for number, (key, max_offset) in enumerate(zip(arrivals.queues, arrivals.max_offsets, strict=True)):
            for pull in list(self._held.get(key, ())):
                is_wanted = pull.codes is None or not pull.codes.isdisjoint(arrivals.tags_codes[number])
                if is_wanted and max_offset > pull.looked_at and self._is_held(pull) and self._finds(pull, max_offset):
                    self._answer(pull)
                yield

    def _is_held(self, pull: _HeldPull) -> bool:
        """Whether it was not answered, and its connection not closed, since a look began."""
        return pull in self._held_of.get(pull.connection, ())

    def _finds(self, pull: _HeldPull, max_offset: int) -> bool:
        """Whether a filter wants one of the new messages, or is to be asked again as there are too many."""
        if pull.message_filter is None:
            return True
        header, get = pull.header, self._store.get_raw
        result = get(header.topic, header.queue_id, pull.looked_at, 1, None, pull.message_filter, may_wait=False)
        if result is None or result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            return True
        pull.looked_at = result.next_begin_offset
        return pull.looked_at < max_offset

    def _check(self) -> None:
        """Answer the held pulls whose time is over."""
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)
        now = self._loop.time()
        over = [
            pull
            for look, pulls in self._held_until.items()
            if look <= now / _CHECK_EVERY_S
            for pull in pulls
            if pull.until <= now
        ]
        self._begin(self._answer_each([*over, *self._unread]))

    def _answer_each(self, pulls: list[_HeldPull]) -> Iterator[None]:
        for pull in pulls:
            if self._is_held(pull):
                self._answer(pull)
            yield

    def _forget(self, pull: _HeldPull) -> None:
        self._count -= 1
        self._bytes -= pull.size
        self._unread.pop(pull, None)
        header = pull.header
        _remove(self._held, (header.topic, header.queue_id), pull)
        _remove(self._held_of, pull.connection, pull)
        _remove(self._held_until, int(pull.until / _CHECK_EVERY_S), pull)

    def _answer(self, pull: _HeldPull) -> None:
        """Pull again, and answer, unless the client leaves too much unread: it is answered once it reads again.

        An error is the answer of this pull, and of no other.
        """
        connection, command, header = pull.connection, pull.command, pull.header
        if connection.is_choked:
            self._unread[pull] = None
            return
        self._forget(pull)
        try:
            answer = self._pull_again(connection, command, header)
            if self._rpc_latency is not None:
                self._rpc_latency.answered(command, answer, pull.since_s, is_long_polling=True)
            if answer is not None and not command.is_one_way:
                connection.answer(answer if isinstance(answer, bytes) else encode_command(answer))
        except Exception as error:
            fields = {"topic": header.topic, "queue": header.queue_id, "offset": header.queue_offset}
            logger.exception(Event("held pull failed", client=connection.remote, group=header.consumer_group, **fields))
            if not command.is_one_way:
                connection.answer(failure_answer(command, error))

    def connection_closed(self, connection: Channel) -> None:
        """Forget the held pulls of a connection."""
        for pull in list(self._held_of.get(connection, ())):
            self._forget(pull)

    def answer_all(self) -> None:
        """Answer all held pulls with what there is: the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        if self._next is not None:
            self._next.cancel()
        self._looks.clear()
        for pull in [pull for pulls in self._held.values() for pull in pulls]:
            self._answer(pull)


def _remove(table: dict[_Key, _HeldPulls], key: _Key, pull: _HeldPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
