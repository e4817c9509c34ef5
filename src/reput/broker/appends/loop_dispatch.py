"""LoopDispatch: dispatch in the loop's idle time, or beside it if a pass must wait for the disk: it makes a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from reput.broker.disk_work import DiskWork
from reput.errors import WouldWaitError
from reput.files import NeverWaiting
from reput.remoting.command import RemotingCommand
from reput.remoting.topic_validator import SYSTEM_TOPIC_PREFIX
from reput.store.dispatch.arrivals import Arrivals
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: Bytes of one dispatch in the loop: a pass over these takes a millisecond or two.
_DISPATCH_BYTES = 1 << 20
#: Under load dispatch waits for the loop to be idle, at most so long.
_DISPATCH_WITHIN_S = 0.005
#: Requests that go on in one turn of the loop: each takes some 20 us there.
_WOKEN = 256
#: After a dispatch that failed.
_RETRY_S = 1.0


def _nobody() -> None:
    """There are no slaves."""


class MessageArrivingListener(Protocol):
    """A listener that waits for messages (RocketMQ's `MessageArrivingListener`)."""

    @property
    def any_wait(self) -> bool:
        """Whether dispatch is not to wait for more messages, since somebody waits for one."""

    def messages_arrived(self, arrivals: Arrivals) -> None:
        """Called in the loop after each dispatch."""


class LoopDispatch:
    """Dispatches what was sent, and tells those who have waited for it.

    Args:
        store: The broker's.
        writer: Of the store.
        log_work: For passes that make files.

    Attributes:
        listeners: Who waits for messages.
        on_growth: Called when more of the log may be served: slaves wait for it.
        turns: Reads of connections so far: while requests come, the loop is not idle.
    """

    def __init__(self, store: MessageStore, writer: LoopWriter, log_work: DiskWork) -> None:
        self._store = store
        self._writer = writer
        self._log_work = log_work
        self.listeners: list[MessageArrivingListener] = []
        self.on_growth: Callable[[], None] = _nobody
        self._loop = asyncio.get_running_loop()
        self._due_at = 0.0
        self._next: asyncio.Handle | None = None
        self._beside: asyncio.Task[None] | None = None
        #: Requests that wait until the pass beside the loop has ended.
        self._waiting: list[asyncio.Future[None]] = []
        self._is_stopped = False
        #: Whether queues of other topics than `SYSTEM_TOPIC_PREFIX`'s may lack messages.
        self._lacks_others = True
        self.turns = 0

    async def stop(self) -> None:
        """Dispatch nothing more; the pass that is under way ends first. What it raises the store's close tells."""
        self._is_stopped = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._beside is not None:
            await asyncio.gather(self._beside, return_exceptions=True)

    def soon(self, *, is_of_system: bool = False) -> None:
        """Dispatch when the loop is idle, if somebody waits for messages; else 5 ms later, many at once.

        is_of_system: All that was put is of topics of `SYSTEM_TOPIC_PREFIX`.
        """
        if not is_of_system:
            self._lacks_others = True
        self.on_growth()
        self._plan()

    def _plan(self) -> None:
        if self._next is None and self._beside is None and not self._is_stopped:
            self._due_at = self._loop.time() + _DISPATCH_WITHIN_S
            if any(listener.any_wait for listener in self.listeners):
                self._next = self._loop.call_soon(self._pass_if_idle, self.turns)
            else:
                self._next = self._loop.call_at(self._due_at, self._pass)

    def with_all_messages(self, handler: Handler) -> Handler:
        """A handler that sees what was sent before its request."""

        def handle(connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
            if self.passed_all():
                return handler(connection, command)
            return self._handle_later(handler, connection, command)

        return handle

    def with_messages_of_topic(self, handler: Handler) -> Handler:
        """A handler of requests for one topic: it sees what was sent to that before its request.

        Each pop has a check point, and each message an ack, in the timers' topic: they can be dispatched with those of
        the next pops.
        """
        with_all = self.with_all_messages(handler)

        def handle(connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
            topic = (command.ext_fields or {}).get("topic", "")
            sees_topic = not self._lacks_others and not topic.startswith(SYSTEM_TOPIC_PREFIX)
            return (handler if sees_topic else with_all)(connection, command)

        return handle

    def passed_all(self) -> bool:
        """Dispatch what was sent; whether queues have it: not if a pass goes on beside the loop."""
        if self._next is not None:
            self._pass_all()
        return self._beside is None

    async def _handle_later(self, handler: Handler, connection: Channel, command: RemotingCommand) -> Answer:
        """Handle a request once all is dispatched that was sent before it.

        The pass may have ended before this begins, and its end leaves the next one to a timer.
        """
        store = self._store
        end = store.max_commit_log_offset
        while True:
            self._pass_all()
            beside = self._beside
            if beside is None or store.max_commit_log_offset - store.dispatch_behind_bytes >= end:
                break
            self._waiting.append(self._loop.create_future())
            await self._waiting[-1]
            if beside.done():  # or the end of the pass before it has woken this request, too
                beside.result()
        answer = handler(connection, command)
        return await answer if isinstance(answer, Coroutine) else answer

    def _pass_if_idle(self, turns: int) -> None:
        """Do one pass, if no request has come since the last look, or too much time has passed."""
        if turns != self.turns and self._loop.time() < self._due_at:
            self._next = self._loop.call_soon(self._pass_if_idle, self.turns)
        else:
            self._pass()

    def _pass_all(self) -> None:
        """Do all passes at once, but those that must be done beside the loop, or that wait after a failure."""
        while self._next is not None and self._beside is None and not self._is_stopped:
            self._next.cancel()
            self._pass()
            if self._writer.dispatch_failure is not None:
                return

    def _pass(self) -> None:
        self._next = None
        try:
            with NeverWaiting():
                arrivals = self._writer.dispatch(_DISPATCH_BYTES)
        except WouldWaitError:
            self._beside = self._loop.create_task(self._pass_beside())
            self._beside.add_done_callback(self._wake_all)
        else:
            self._passed(arrivals)

    async def _pass_beside(self) -> None:
        try:
            arrivals = await self._log_work.run(self._writer.dispatch, _DISPATCH_BYTES)
        finally:
            self._beside = None
        self._passed(arrivals)
        self.on_growth()
        self._plan()  # what has become safe meanwhile called for a pass that could not be begun

    def _wake_all(self, _: asyncio.Task[None]) -> None:
        waiting, self._waiting = self._waiting, []
        self._wake(waiting)

    def _wake(self, waiting: list[asyncio.Future[None]]) -> None:
        """Let requests go on, some in each turn of the loop: others are to have it, too."""
        for one in waiting[:_WOKEN]:
            if not one.done():
                one.set_result(None)
        if len(waiting) > _WOKEN:
            self._loop.call_soon(self._wake, waiting[_WOKEN:])

    def _passed(self, arrivals: Arrivals | None) -> None:
        if arrivals is not None:
            for listener in self.listeners:
                listener.messages_arrived(arrivals)
        if self._is_stopped:
            return
        if self._writer.dispatch_failure is not None:
            self._next = self._loop.call_later(_RETRY_S, self._pass)
        elif not self._store.dispatch_behind_bytes:
            self._lacks_others = False
        elif arrivals is not None:
            self.on_growth()
            self._plan()
