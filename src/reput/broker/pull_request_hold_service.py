"""PullRequestHoldService: pulls that wait for a message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from reput.broker.state import BrokerState
from reput.remoting.command import RemotingCommand
from reput.remoting.pull_headers import PullMessageRequestHeader
from reput.store.results import GetMessageStatus
from reput.transport.connection import Connection
from reput.transport.requests import Answer, failure_answer

logger = logging.getLogger("reput.broker")

#: Held pulls of one broker, and of one connection; a pull beyond that is answered at once.
_MOST_HELD, _MOST_HELD_OF_CONNECTION = 100_000, 10_000
_CHECK_EVERY_S = 1.0


class _HeldPull(NamedTuple):
    """A pull that waits for a message: nothing matches before `offset`."""

    connection: Connection
    command: RemotingCommand
    header: PullMessageRequestHeader
    tags: str | None
    offset: int
    until: float


class PullRequestHoldService:
    """RocketMQ's `PullRequestHoldService`, in the broker's loop.

    Args:
        state: The broker's.
        pull_again: Takes a request again that was held, and does not hold it.
    """

    def __init__(
        self,
        state: BrokerState,
        pull_again: Callable[[Connection, RemotingCommand, PullMessageRequestHeader], Answer],
    ) -> None:
        self._state = state
        self._pull_again = pull_again
        self._loop = asyncio.get_running_loop()
        self._held: dict[tuple[str, int], list[_HeldPull]] = {}
        self._held_of: dict[Connection, int] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the held pulls by time from now on."""
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)

    def hold(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader, tags: str | None
    ) -> bool:
        """Hold a pull until a message comes or its time is over; False where too many are held.

        tags: an expression that some tags match; None takes all messages (`suspendPullRequest`).
        """
        of_connection = self._held_of.get(connection, 0)
        if self._count >= _MOST_HELD or of_connection >= _MOST_HELD_OF_CONNECTION:
            return False
        config = self._state.config
        wait_ms = header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_mills
        until = self._loop.time() + max(wait_ms, 0) / 1000
        pull = _HeldPull(connection, command, header, tags, header.queue_offset, until)
        self._held.setdefault((header.topic, header.queue_id), []).append(pull)
        self._held_of[connection] = of_connection + 1
        self._count += 1
        return True

    @property
    def any_wait(self) -> bool:
        """Whether pulls wait for messages."""
        return bool(self._held)

    def messages_arrived(self) -> None:
        """Answer the held pulls for which a message has come; called after each dispatch."""
        if not self._held:
            return
        store = self._state.store
        for key, pulls in list(self._held.items()):
            high = store.max_offset(*key)
            if any(high > pull.offset for pull in pulls):
                self._replace(key, [kept for pull in pulls if (kept := self._look_again(pull, high)) is not None])

    def _look_again(self, pull: _HeldPull, high: int) -> _HeldPull | None:
        """The pull, if it waits on; None where it was answered."""
        if high <= pull.offset:
            return pull
        header = pull.header
        if pull.tags is not None:
            get, following = self._state.store.get_message, pull.offset
            while following < high:
                result = get(header.topic, header.queue_id, following, 32, pull.tags)
                if result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
                    break
                following = result.next_begin_offset
            else:  # it waits on, but not for these again
                return pull._replace(offset=following)
        self._answer(pull)
        return None

    def _check(self) -> None:
        """Answer the held pulls whose time is over."""
        self._timer = self._loop.call_later(_CHECK_EVERY_S, self._check)
        now = self._loop.time()
        for key, pulls in list(self._held.items()):
            if any(pull.until <= now for pull in pulls):
                kept = [pull for pull in pulls if pull.until > now]
                over = [pull for pull in pulls if pull.until <= now]
                self._replace(key, kept)
                for pull in over:
                    self._answer(pull)

    def _replace(self, key: tuple[str, int], kept: list[_HeldPull]) -> None:
        if kept:
            self._held[key] = kept
        else:
            self._held.pop(key, None)

    def _answer(self, pull: _HeldPull) -> None:
        """Pull again, and answer; an error is the answer of this pull, and of no other."""
        connection, command, header = pull.connection, pull.command, pull.header
        self._count -= 1
        left = self._held_of.get(connection, 1) - 1
        if left:
            self._held_of[connection] = left
        else:
            self._held_of.pop(connection, None)
        try:
            answer = self._pull_again(connection, command, header)
            if answer is not None and not command.is_one_way:
                connection.send(answer)
        except Exception as error:
            logger.exception(
                "%s: the held pull %d of group %s failed: topic %s, queue %d, offset %d",
                connection.remote, command.opaque, header.consumer_group, header.topic, header.queue_id,
                header.queue_offset,
            )  # fmt: skip
            if not command.is_one_way:
                connection.send(failure_answer(command, error))

    def connection_closed(self, connection: Connection) -> None:
        """Forget the held pulls of a connection."""
        if self._held_of.pop(connection, None) is None:
            return
        for key, pulls in list(self._held.items()):
            kept = [pull for pull in pulls if pull.connection is not connection]
            if len(kept) < len(pulls):
                self._count -= len(pulls) - len(kept)
                self._replace(key, kept)

    def answer_all(self) -> None:
        """Answer all held pulls with what there is, and hold none any more: the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, {}
        for pulls in held.values():
            for pull in pulls:
                self._answer(pull)
