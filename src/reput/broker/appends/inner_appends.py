"""Appends: messages of the broker's own, such as those that it delivers later, and when they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.appends.put_hooks import PutHooks
from reput.broker.appends.replica_acks import ReplicaAcks
from reput.broker.appends.room_waiters import RoomWaiters
from reput.errors import ReputError, StorePoisonedError, WouldWaitError
from reput.files import NeverWaiting
from reput.remoting.command import RemotingCommand
from reput.remoting.topic_validator import SYSTEM_TOPIC_PREFIX
from reput.store.loop_writer import LoopWriter
from reput.store.puts.put_rows import PutRow, PutRowResult
from reput.store.results import PutMessageStatus
from reput.transport.requests import Answer

_T = TypeVar("_T")


class Appends:
    """Puts messages for requests and services that wait until these are as safe as the flush mode promises.

    Args:
        writer: Of the store.
        room: Room in the log.
        dispatch: Called once messages are safe.
        is_sync: Whether a message is safe only after a sync.
        replicas: Says when slaves have what is safe; None: nobody waits for slaves.
        hooks: Lets messages wait for their delay or their time.
        now_ms: The time, for these.
    """

    def __init__(
        self,
        writer: LoopWriter,
        room: RoomWaiters,
        dispatch: LoopDispatch,
        hooks: PutHooks,
        now_ms: Callable[[], int],
        *,
        is_sync: bool,
        replicas: ReplicaAcks | None,
    ) -> None:
        self._writer = writer
        self._room = room
        self._dispatch = dispatch
        self._is_sync = is_sync
        self._replicas = replicas
        self._hooks = hooks
        self._now_ms = now_ms

    async def put(self, message: MessageExtBrokerInner) -> PutRowResult:
        """Put a message, or let it wait for its delay, and return where it went once it is safe, on slaves, too.

        Raises:
            ReputError: It is not in the log, as of `MessageStore.put_message` and `PutHooks`.
            StorePoisonedError: A sync has failed: nobody knows whether it is in the log.
        """
        result = await self.append(message)
        await self.safe(result.end_offset, on_slaves=True)
        return result

    async def append(self, message: MessageExtBrokerInner) -> PutRowResult:
        """Put a message, and return where it went; `safe` waits for many at once. Errors as of `put`."""
        self._hooks.handle_schedule_message(message, self._now_ms())
        return await self.append_row(message.row())

    async def append_row(self, row: PutRow) -> PutRowResult:
        """Put a row as it is, and return where it went. Errors as of `put`."""
        while True:
            try:
                return self._append_row_now(row)
            except WouldWaitError as error:
                await self._room.make(error.room)

    async def append_rows(self, rows: Sequence[PutRow]) -> list[PutRowResult | ReputError]:
        """Put rows as they are, in their order, and return for each where it went, or the error of `append_row`."""
        results: list[PutRowResult | ReputError] = []
        while len(results) < len(rows):
            for result in self.append_rows_now(rows[len(results) :]):
                if not isinstance(result, WouldWaitError):
                    results.append(result)
                    continue
                try:
                    await self._room.make(result.room)
                    await asyncio.sleep(0)  # there may be room, and a thread that reserves more of it
                except ReputError as error:
                    results += [error] * (len(rows) - len(results))
                break
        return results

    def answer_rows(
        self, rows: Sequence[PutRow], answer: RemotingCommand, told: Callable[[int, bool], None]
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Put the rows of a request in their order, and return its answer: at once if nothing is waited for.

        If room or a sync is waited for, a coroutine does the rest and returns the answer. Errors as of `put`; the
        rows behind the one that cannot be put are not put either.

        Args:
            rows: At least one.
            answer: Once they are safe.
            told: Called with a row's number, and whether it was put.
        """
        # A coroutine may still be refused, as too many wait: under SYNC_FLUSH nothing is put before. Where a later row
        # has no room, those before it stay in the log, and who is refused comes again.
        if self._is_sync:
            return self._put_rows(rows, 0, answer, told)
        for number, row in enumerate(rows):
            try:
                self._append_row_now(row)
            except WouldWaitError:
                return self._put_rows(rows, number, answer, told)
            except ReputError:
                told(number, False)
                raise
            told(number, True)
        return answer

    async def _put_rows(
        self, rows: Sequence[PutRow], first: int, answer: RemotingCommand, told: Callable[[int, bool], None]
    ) -> RemotingCommand:
        end_offset = 0
        for number in range(first, len(rows)):
            try:
                end_offset = (await self.append_row(rows[number])).end_offset
            except ReputError:
                told(number, False)
                raise
            told(number, True)
        await self.safe(end_offset)
        return answer

    def append_rows_now(self, rows: Sequence[PutRow]) -> list[PutRowResult | ReputError]:
        """Put rows in their order, each with a place or a fault of its own: `LoopWriter.put_rows` in `NeverWaiting`."""
        with NeverWaiting():
            results = self._writer.put_rows(rows)
        if not self._is_sync:
            self._dispatch.soon(is_of_system=all(row.topic.startswith(SYSTEM_TOPIC_PREFIX) for row in rows))
        return results

    def _append_row_now(self, row: PutRow) -> PutRowResult:
        (result,) = self.append_rows_now([row])
        if isinstance(result, ReputError):
            raise result
        return result

    async def safe(self, end_offset: int, *, on_slaves: bool = False) -> None:
        """Return once the log is safe up to an offset, and let that be dispatched.

        With `on_slaves`, if a client gets an answer, it returns once slaves have it, too, or are late. The broker's own
        services do not wait for slaves: one that stands still would stop them.

        Raises StorePoisonedError if a sync has failed.
        """
        if self._is_sync:
            await self._synced(end_offset)
        if on_slaves and self._replicas is not None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._replicas.when_acknowledged(end_offset, lambda _: _tell(done, None))
            await done

    async def _synced(self, end_offset: int) -> None:
        loop = asyncio.get_running_loop()
        safe: asyncio.Future[StorePoisonedError | None] = loop.create_future()

        def done(status: PutMessageStatus | StorePoisonedError) -> None:  # in the store's flush thread
            loop.call_soon_threadsafe(_tell, safe, status if isinstance(status, StorePoisonedError) else None)

        self._writer.when_safe(end_offset, done)
        failure = await safe
        self._dispatch.soon()
        if failure is not None:
            raise failure


def _tell(waiting: asyncio.Future[_T], result: _T) -> None:
    """Give a future its result, if who waited for it has not gone."""
    if not waiting.done():
        waiting.set_result(result)
