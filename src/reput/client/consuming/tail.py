"""Tail: the messages of a pull consumer's queues one by one, and the commits of those that are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.errors import ReputError
from reput.remoting.queue_tables import QueueKey

#: Messages that are taken at a time, and seconds between two commits while messages come.
_MOST, _COMMIT_S = 100, 1.0


class PullTail:
    """An asynchronous iterator; made by `PullConsumer.tail`.

    Args:
        poll: Called with the most messages, and how long to wait for them (None: for ever); gives what has come.
        commit: Keep what was polled, but for these offsets of queues whose messages are not handled.
        timeout: It ends when no message has come for this time in seconds; None: never.
        held: Messages that were polled for another tail, and not given.
    """

    def __init__(
        self,
        poll: Callable[[int, float | None], Awaitable[list[MessageClientExt]]],
        commit: Callable[[dict[QueueKey, int]], Awaitable[None]],
        timeout: float | None,
        held: Sequence[MessageClientExt] = (),
    ) -> None:
        self._poll = poll
        self._commit_but = commit
        self._timeout = timeout
        self._now = asyncio.get_running_loop().time
        self._held = list(held)
        self._given = 0
        self._commit_at = self._now() + _COMMIT_S

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageClientExt:
        if self.must_wait:
            await self.advance()
        if self._given == len(self._held):
            raise StopAsyncIteration
        return self.give()

    @property
    def must_wait(self) -> bool:
        """Whether `advance` is to be called before `give`."""
        return self._given == len(self._held) or self._now() >= self._commit_at

    async def advance(self) -> bool:
        """Commit what is handled, and wait for messages if none is held; False if none comes in time."""
        if self._now() >= self._commit_at:
            await self.commit_handled(self._given)
        if self._given < len(self._held):
            return True
        self._held, self._given = await self._poll(_MOST, 0), 0
        if not self._held:
            await self.commit_handled(0)
            self._held = await self._poll(_MOST, self._timeout)
        return bool(self._held)

    def give(self) -> MessageClientExt:
        """The next message."""
        self._given += 1
        return self._held[self._given - 1]

    def hand_over(self) -> list[MessageClientExt]:
        """The messages that it has not given; it gives them no more."""
        rest = self._held[self._given :]
        del self._held[self._given :]
        return rest

    async def close(self, *, last_is_handled: bool) -> None:
        """Commit what is handled; what is held is given no more, as nothing would commit it."""
        await self.commit_handled(self._given if last_is_handled else max(self._given - 1, 0))
        self.hand_over()

    async def commit_handled(self, handled: int) -> None:
        """Commit all but the messages that are held after the first `handled`."""
        self._commit_at = self._now() + _COMMIT_S
        rest = self._held[handled:]
        try:
            await self._commit_but({message.queue: message.queue_offset for message in reversed(rest)})
        except ReputError as error:  # of a broker that is away; the next commit has these offsets, too
            peers.failed("offsets were not kept", error)
