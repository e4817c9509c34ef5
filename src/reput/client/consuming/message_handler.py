"""MessageHandler: calls a program's function for each message, in the loop or in a thread."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Any

from reput.client.consuming.consume_statistics import ConsumeStatistics
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.trace_data import ConsumeReturnType
from reput.client.program_errors import call_in_thread, goes_on
from reput.errors import MQClientError
from reput.events import Event

if TYPE_CHECKING:
    from reput.client.instance.traces import Traces

logger = logging.getLogger("reput.client")


class ConsumeStatus(Enum):
    """Result of a message's handler."""

    SUCCESS = "SUCCESS"
    #: It comes again later: what a handler's error means, too.
    RECONSUME_LATER = "RECONSUME_LATER"


#: Python 3.11 takes 0.2 us for a member of an enum; these are asked for with each message.
_RECONSUME_LATER = ConsumeStatus.RECONSUME_LATER
_SUCCESS, _FAILED = ConsumeReturnType.SUCCESS, ConsumeReturnType.FAILED

#: Takes a message; what it returns counts only if it is `ConsumeStatus.RECONSUME_LATER`.
OnMessage = Callable[[MessageClientExt], Awaitable[Any] | Any]


class MessageHandler:
    """Runs a handler: a coroutine function in the loop, any other function in threads of its own.

    What either returns is awaited in the loop, if it can be: a decorated function may return a coroutine.

    Args:
        on_message: The handler.
        threads: How many messages a plain function is given at once.
        ended: Called once, when Python has ended the threads: the handler cannot be called any more.

    Attributes:
        statistics: How fast messages are pulled and handled.
        traces: Gets each message; None for no traces.
    """

    def __init__(self, on_message: OnMessage, threads: int, ended: Callable[[], None]) -> None:
        self.statistics = ConsumeStatistics()
        self.traces: Traces | None = None
        self._on_message = on_message
        self._ended = ended
        self._has_ended = False
        is_async = inspect.iscoroutinefunction(on_message) or inspect.iscoroutinefunction(
            getattr(on_message, "__call__", None)  # noqa: B004, an object with a method is called, too
        )
        self._threads = None if is_async else ThreadPoolExecutor(threads, thread_name_prefix="reput-consume")

    async def handle(self, message: MessageClientExt) -> bool:
        """Whether a message is done; an error of the handler is logged, and means that it is not."""
        begun = time.monotonic()
        returned, _ = await (self._call if self.traces is None else self.returned)(message)
        is_done = returned is _SUCCESS
        self.statistics.handled(message.queue.topic, time.monotonic() - begun, is_done=is_done)
        return is_done

    async def returned(self, message: MessageClientExt) -> tuple[ConsumeReturnType, BaseException | None]:
        """Result of the handler for a message, and its error."""
        before = None if self.traces is None else self.traces.consuming(message)
        found = ConsumeReturnType.EXCEPTION  # where it is cancelled
        try:
            found, error = await self._call(message)
        finally:
            if before is not None and self.traces is not None:
                self.traces.consumed(before, found)
        return found, error

    async def _call(self, message: MessageClientExt) -> tuple[ConsumeReturnType, BaseException | None]:
        running = None if self._threads is None else self._submit(self._threads, message)
        try:
            result = self._on_message(message) if running is None else await asyncio.wrap_future(running)
            if inspect.isawaitable(result):
                result = await result
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise MQClientError("the handler has returned a generator, whose body nobody runs: it has a `yield`")
        except BaseException as error:
            if goes_on(error):
                raise
            if isinstance(error, asyncio.CancelledError):
                error = MQClientError("the handler waited for something that was cancelled")
            fields = {"topic": message.topic, "id": message.message_id, "reconsume_times": message.reconsume_times}
            logger.warning(Event("a handler failed with a message", **fields), exc_info=error)
            return ConsumeReturnType.EXCEPTION, error
        return (_FAILED if result is _RECONSUME_LATER else _SUCCESS), None

    def _in_thread(self, message: MessageClientExt) -> Any:
        try:
            return call_in_thread(self._on_message, message)
        except (KeyboardInterrupt, SystemExit) as error:
            raise MQClientError(f"the handler raised {error!r}, which ends no program in a thread") from error

    def _submit(self, threads: ThreadPoolExecutor, message: MessageClientExt) -> Future[Any]:
        try:
            return threads.submit(self._in_thread, message)
        except RuntimeError as error:  # Python ends its pools with the main thread, also where other threads go on
            if not self._has_ended:
                self._has_ended = True
                self._ended()
            raise asyncio.CancelledError from error  # neither handled nor failed: who asked for it ends, too

    def close(self) -> None:
        """Give the threads back; those that a handler still keeps end with it."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
