"""Requests: the handlers of request codes, and how one command becomes its answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from reput.errors import RemotingCommandError, ReputError, WouldWaitError
from reput.events import Event
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand, decode_command, encode_answer
from reput.transport.channel import Channel
from reput.transport.connection import Connection
from reput.transport.request_queue import RequestQueue

logger = logging.getLogger("reput.transport")

#: The answer to a request, or its frame; None if there is none yet or ever.
Answer = RemotingCommand | bytes | None
#: Takes a request; returns its answer, or a coroutine that will return it.
Handler = Callable[[Channel, RemotingCommand], "Answer | Coroutine[Any, Any, Answer]"]
_Refused = RemotingCommand | None
_RefusedLater = Callable[[], Coroutine[Any, Any, _Refused]]
#: Says what a request is answered that may not be done, None if it may; or returns what will say it, once called.
Refusal = Callable[[Channel, RemotingCommand], _RefusedLater | _Refused]


class Observer(Protocol):
    """Observer of the times that requests take."""

    def answered(self, command: RemotingCommand, answer: Answer, since_s: float) -> None:
        """A request that was taken at a time of `time.perf_counter` has its answer; None: there is none, or not yet."""


#: Requests that handlers work on beside the loop, if no configuration says how many.
_MOST_TASKS = 10_000
#: Bytes of answers that wait for the other answers of a read.
WRITE_AT = 1 << 20


class Requests:
    """The requests of a server's connections, one at a time, by their codes.

    A request that finds its queue full is refused before anything is done for it (`processRequestCommand`): it is
    answered SYSTEM_BUSY, or dropped if nobody waits for an answer.

    Args:
        handlers: By request code.
        queues: Where requests wait that handlers work on beside the loop, by request code.
        others: Where requests of all other codes wait.
        observer: Gets each request.
        refusal: Called before a request is handed to its handler; its answer, if it may not be done.
        most_body: By request code, how many bytes its body has at the most; without it, all are handed on.
        decode: Decodes a frame as `decode_command` does.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        queues: Mapping[int, RequestQueue] | None = None,
        others: RequestQueue | None = None,
        observer: Observer | None = None,
        refusal: Refusal | None = None,
        most_body: Callable[[int], int] | None = None,
        decode: Callable[[memoryview], RemotingCommand] = decode_command,
    ) -> None:
        self._decode = decode
        self._refusal = refusal
        self._most_body = most_body
        self._handlers = handlers
        self._queues = queues or {}
        self._others = RequestQueue("requests", _MOST_TASKS) if others is None else others
        self._observer = observer
        self._tasks: set[asyncio.Task[None]] = set()

    def take_all(self, connection: Connection) -> None:
        """Take all whole frames of a connection, and send what is to be answered at once in one write.

        Large answers are sent in several writes. Frames wait as long as the connection takes no more.

        Raises:
            WouldWaitError: As `take`; the request is the next frame again.
        """
        answers: list[bytes] = []
        size = 0
        try:
            for frame in connection.frames.frames():
                try:
                    answer = self.take(connection, self._decode(frame))
                except WouldWaitError:
                    connection.frames.put_back(len(frame))
                    raise
                if answer is not None:
                    answers.append(encode_answer(answer))
                    size += len(answers[-1])
                if size >= WRITE_AT:
                    connection.write(b"".join(answers))
                    answers.clear()
                    size = 0
                if not connection.takes_more():
                    break
        finally:
            if answers:
                connection.write(b"".join(answers))

    def take(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Handle one command; returns the answer, if there is one already.

        Raises:
            WouldWaitError: The log has no room for what is sent; make it in another thread, and take the command again.
        """
        if command.is_response:
            connection.answered(command)
            return None
        observer = self._observer
        since_s = 0.0 if observer is None else time.perf_counter()
        handler = self._handlers.get(command.code)
        queue = self._queues.get(command.code)
        if queue is not None and queue.refuses(connection):
            answer: Any = _busy(command)
        elif handler is None:
            remark = f" request type {command.code} not supported"
            answer = command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif self._most_body is not None and command.body and len(command.body) > self._most_body(command.code):
            most = self._most_body(command.code)
            remark = f"the body has {len(command.body)} bytes: request {command.code} takes {most} at most"
            answer = command.response(ResponseCode.SYSTEM_ERROR, remark)
        else:
            try:
                refused = None if self._refusal is None else self._refusal(connection, command)
                if refused is None:
                    answer = handler(connection, command)
                elif isinstance(refused, RemotingCommand):
                    answer = refused
                else:
                    answer = _unless_refused(refused, handler, connection, command)
            except Exception as error:
                if isinstance(error, WouldWaitError) and error.room:
                    raise
                answer = _failure(command, error)
        if isinstance(answer, Answer):
            if observer is not None:
                observer.answered(command, answer, since_s)
            return None if command.is_one_way else answer
        self._run(connection, command, answer, since_s)
        return None

    def _run(
        self, connection: Channel, command: RemotingCommand, work: Coroutine[Any, Any, Answer], since_s: float
    ) -> None:
        queue = self._queues.get(command.code, self._others)
        if queue.refuses(connection):
            work.close()
            if not command.is_one_way:
                connection.answer(_busy(command))
            return
        size = request_size(command)
        queue.enter(connection, 1, size)
        task = asyncio.get_running_loop().create_task(
            answer_later(connection, command, work, self._told(command, since_s))
        )
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            queue.leave(connection, 1, size)

        task.add_done_callback(done)

    def _told(self, command: RemotingCommand, since_s: float) -> Callable[[Answer], None] | None:
        """Function that hands a later answer to the observer; None without one."""
        observer = self._observer
        return None if observer is None else lambda answer: observer.answered(command, answer, since_s)

    async def drain(self, timeout_s: float) -> None:
        """Wait until the requests that handlers work on are answered, at most so long; then the others are given up."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def _unless_refused(
    refused: _RefusedLater,
    handler: Handler,
    connection: Channel,
    command: RemotingCommand,
) -> Answer:
    """The answer to a request of which is said later whether it may be done."""
    answer: Any = await refused()
    if answer is None:
        answer = handler(connection, command)
    return answer if isinstance(answer, Answer) else await answer


async def answer_later(
    connection: Channel,
    command: RemotingCommand,
    work: Coroutine[Any, Any, Answer],
    told: Callable[[Answer], None] | None = None,
) -> None:
    """Wait for the answer to a request, and send it; `told` gets it, too."""
    try:
        answer = await work
    except Exception as error:
        answer = _failure(command, error)
    if answer is not None and not command.is_one_way:
        connection.answer(answer)
    if told is not None:
        told(answer)


def _busy(command: RemotingCommand) -> RemotingCommand:
    return command.response(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")


def request_size(command: RemotingCommand) -> int:
    """About how many bytes of memory a request holds."""
    fields = command.ext_fields or {}
    return len(command.body) + sum(map(len, fields)) + sum(map(len, fields.values()))


def _failure(command: RemotingCommand, error: Exception) -> RemotingCommand:
    if not isinstance(error, ReputError):  # a bug
        logger.error(Event("request failed", code=command.code), exc_info=error)
    return failure_answer(command, error)


def failure_answer(command: RemotingCommand, error: Exception) -> RemotingCommand:
    """The answer to a request whose handler failed (`UtilAll.exceptionSimpleDesc`)."""
    if isinstance(error, RemotingCommandError):
        return command.response(error.code, error.remark)
    return command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
