"""DurableAnswers: answers that wait until what they acknowledge is safe, here and on slaves; one wait for a turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from reput.broker.appends.replica_acks import ReplicaAcks
from reput.broker.rpc_latency import RpcLatency
from reput.errors import StorePoisonedError
from reput.events import Event
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, decode_command, encode_command, frame_size
from reput.store.loop_writer import LoopWriter
from reput.store.results import PutMessageStatus
from reput.transport.channel import Channel
from reput.transport.request_queue import RequestQueue

logger = logging.getLogger("reput.broker")

_CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


class _Answer(NamedTuple):
    """Answers to one connection: frames that say that all is well, and how many sends they are for, by their codes.

    `since_s`: when they were appended, by `time.perf_counter`.
    """

    connection: Channel
    frames: bytes
    sends: dict[int, int]
    since_s: float

    @property
    def is_put_once(self) -> bool:
        """Whether the client puts the message itself unless it hears of success: then it is there twice.

        So what is sent back waits as long as its sync takes, and is taken, too, if slaves lack it (`Appends.put`).
        """
        return RequestCode.CONSUMER_SEND_MSG_BACK in self.sends


class DurableAnswers:
    """Answers to sends of SYNC_FLUSH and of a SYNC_MASTER: answers of a turn wait together, with a write a connection.

    First they wait for the sync, since slaves are sent only what is synced, then for slaves. A send is in the `queue`
    until both are done, though it may have been answered FLUSH_DISK_TIMEOUT: so a disk that stands still is not given
    more and more. Messages that are sent back are answered success or failure, and nothing between.

    Args:
        writer: Of the store; its flush thread calls back.
        queue: Where sends are counted.
        timeout_ms: After so long without a sync a send is answered FLUSH_DISK_TIMEOUT (`syncFlushTimeout`).
        on_safe: Called in the loop after each sync: more may be dispatched.
        replicas: Says when slaves have what is synced; None: nobody waits for slaves.
        latency: Counts how long sends take.
    """

    def __init__(
        self,
        writer: LoopWriter,
        queue: RequestQueue,
        timeout_ms: int,
        on_safe: Callable[[], None] | None = None,
        replicas: ReplicaAcks | None = None,
        latency: RpcLatency | None = None,
    ) -> None:
        self._writer = writer
        self._queue = queue
        self._timeout_s = timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._turn: list[_Answer] = []
        self._end_offset = 0
        self._waiting: dict[int, list[_Answer]] = {}
        self._number = 0
        self._on_safe = on_safe
        self._replicas = replicas
        self._latency = latency

    def add_frames(self, connection: Channel, frames: bytes, sends: dict[int, int], end_offset: int) -> None:
        """Send the answers, whole frames, to the `sends` (a number by code) once the log is safe up to an offset."""
        if not self._turn:
            self._loop.call_soon(self._submit)
        self._turn.append(_Answer(connection, frames, sends, time.perf_counter()))
        self._queue.enter(connection, sum(sends.values()), len(frames))
        self._end_offset = max(self._end_offset, end_offset)

    def add(self, connection: Channel, code: int, answer: RemotingCommand | None, end_offset: int) -> None:
        """Send an answer to a send once the log is safe up to an offset; None: nobody waits for an answer."""
        self.add_frames(connection, b"" if answer is None else encode_command(answer), {code: 1}, end_offset)

    def _submit(self) -> None:
        self._number += 1
        number, end_offset = self._number, self._end_offset
        self._waiting[number], self._turn = self._turn, []
        held = [(one.connection, sum(one.sends.values()), len(one.frames)) for one in self._waiting[number]]
        timer = self._loop.call_later(self._timeout_s, self._late, number)

        def safe(status: PutMessageStatus | StorePoisonedError) -> None:  # in the store's flush thread
            self._loop.call_soon_threadsafe(synced, status)

        def synced(status: PutMessageStatus | StorePoisonedError) -> None:
            timer.cancel()
            if self._on_safe is not None:
                self._on_safe()
            if self._replicas is None or isinstance(status, StorePoisonedError):
                done(status)
            else:
                self._replicas.when_acknowledged(end_offset, done)

        def done(status: PutMessageStatus | StorePoisonedError) -> None:
            self._answer(number, status)
            for connection, sends, size in held:
                self._queue.leave(connection, sends, size)

        self._writer.when_safe(end_offset, safe)

    def _late(self, number: int) -> None:
        """Answer a turn whose sync is late; RocketMQ tells first of the slaves, which cannot have it either."""
        logger.warning(Event("a sync is late", sends=len(self._queue), timeout_ms=int(self._timeout_s * 1000)))
        late = PutMessageStatus.FLUSH_DISK_TIMEOUT if self._replicas is None else self._replicas.status_of_unsent
        turn = self._waiting.pop(number, [])
        if patient := [one for one in turn if one.is_put_once]:
            self._waiting[number] = patient
        self._tell([one for one in turn if not one.is_put_once], late)

    def _answer(self, number: int, status: PutMessageStatus | StorePoisonedError) -> None:
        """Send the answers of one turn, unless that has been done."""
        if isinstance(status, StorePoisonedError) and number in self._waiting:
            logger.error(Event("a sync has failed, nothing more is taken", error=status))
        self._tell(self._waiting.pop(number, []), status)

    def _tell(self, turn: list[_Answer], status: PutMessageStatus | StorePoisonedError) -> None:
        frames: dict[Channel, list[bytes]] = {}
        for one in turn:
            if one.frames:
                code = _code(one, status)
                if self._latency is not None:
                    self._latency.sent(one.sends, one.since_s, code)
                told = one.frames if code == ResponseCode.SUCCESS else _with_code(one.frames, code, status)
                frames.setdefault(one.connection, []).append(told)
        for connection, parts in frames.items():
            connection.answer(b"".join(parts))

    @property
    def is_empty(self) -> bool:
        """Whether no answer waits."""
        return not (self._turn or self._waiting)


def _code(answer: _Answer, status: PutMessageStatus | StorePoisonedError) -> ResponseCode:
    if isinstance(status, StorePoisonedError):  # nobody knows whether it is stored
        return ResponseCode.SYSTEM_ERROR if answer.is_put_once else ResponseCode.SERVICE_NOT_AVAILABLE
    return ResponseCode.SUCCESS if answer.is_put_once else _CODES[status]


def _with_code(frames: bytes, code: ResponseCode, status: PutMessageStatus | StorePoisonedError) -> bytes:
    """Answers that say what is late or missing, or that a sync has failed, in place of those that all is well."""
    told = []
    rest = memoryview(frames)
    while rest:
        size = frame_size(rest)
        answer, rest = decode_command(rest[:size]), rest[size:]
        if isinstance(status, StorePoisonedError):
            answer = RemotingCommand(code, answer.opaque, answer.flag, str(status))
        else:
            answer.code = code
        told.append(encode_command(answer))
    return b"".join(told)
