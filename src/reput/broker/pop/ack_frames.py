"""AckFrames: the acks that one read of a connection brings are put together."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from reput.broker.pop.handles import check_handle, check_point_key
from reput.broker.pop.revive_messages import ReviveMessage, ReviveMessages
from reput.broker.state import BrokerState
from reput.errors import ReputError, WouldWaitError
from reput.formats.pop_messages import Ack
from reput.remoting.ack_frames import ACK_BEGIN, AckFrame, decode_plain_ack, encode_taken
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.pop_headers import PopKey
from reput.transport.connection import Connection
from reput.transport.requests import encode_answer, failure_answer

#: Acks that are put together at most: they take about a millisecond.
_MOST = 64
_NO_RANGE = (0, -1)
_queue_and_info = itemgetter(0, 1)


class AckFrames:
    """Takes acks as `AckMessageProcessor` does, as many at once as come one after the other; under ASYNC_FLUSH.

    Args:
        state: The broker's.
        revive: Makes what acks become, and puts it.
    """

    def __init__(self, state: BrokerState, revive: ReviveMessages) -> None:
        self._state = state
        self._revive = revive

    def take(self, connection: Connection, keep: Callable[[bytes], None]) -> bool:
        """Take the acks that come next, and give their answers to `keep`; False where the next frame is no plain ack.

        Plain is an ack that `AckMessageProcessor` would put: of a message that a queue has, not popped in order.

        Raises:
            WouldWaitError: The log has no room for the next ack; those before it are answered.
        """
        since_s = time.perf_counter()
        acks, sizes = self._next(connection)
        faults = self._put(acks)
        latency = self._state.rpc_latency
        if latency is not None:
            latency.sent({RequestCode.ACK_MESSAGE: faults.count(None)}, since_s)
        for number, (ack, fault) in enumerate(zip(acks, faults, strict=True)):
            if fault is None:
                keep(encode_taken(ack.opaque))
            elif isinstance(fault, WouldWaitError):
                connection.frames.put_back(sum(sizes[number:]))
                raise fault
            else:
                keep(self._refuse(ack, fault, since_s))
        return bool(acks)

    def _next(self, connection: Connection) -> tuple[list[AckFrame], list[int]]:
        """The plain acks that come next, and the bytes of their frames."""
        acks: list[AckFrame] = []
        sizes: list[int] = []
        ranges: dict[PopKey, tuple[int, int]] = {}
        frames = connection.frames
        while len(acks) < _MOST and frames.begins_with(8, ACK_BEGIN) and (frame := frames.frame()) is not None:
            ack = decode_plain_ack(frame)
            if ack is None or not self._is_plain(connection, ack, ranges):
                frames.put_back(len(frame))
                break
            acks.append(ack)
            sizes.append(len(frame))
        return acks, sizes

    def _is_plain(self, connection: Connection, ack: AckFrame, ranges: dict[PopKey, tuple[int, int]]) -> bool:
        queue, info, offset, _ = ack
        if queue not in ranges:
            topic, _, queue_id = queue
            store, refusal = self._state.store, check_handle(self._state, connection, queue)
            found = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            ranges[queue] = found if refusal is None else _NO_RANGE
        low, high = ranges[queue]
        return low <= offset <= high and not info.is_order and self._revive.has_queue(info.revive_qid)

    def _put(self, acks: list[AckFrame]) -> list[ReputError | None]:
        """Put acks; the fault of each that is not put."""
        messages: list[ReviveMessage | ReputError] = []
        for (queue, info), some in groupby(acks, _queue_and_info):
            ack = Ack(check_point_key(queue, info), tuple([one.offset for one in some]))
            try:
                messages += self._revive.acks(ack, info.revive_qid, info.revive_time)
            except ReputError as error:
                messages += [error] * len(ack.offsets)
        faults = iter(self._revive.put_now([one for one in messages if isinstance(one, ReviveMessage)]))
        return [next(faults) if isinstance(one, ReviveMessage) else one for one in messages]

    def _refuse(self, ack: AckFrame, fault: ReputError, since_s: float) -> bytes:
        command = RemotingCommand(RequestCode.ACK_MESSAGE, ack.opaque)
        answer = failure_answer(command, fault)
        if self._state.rpc_latency is not None:
            self._state.rpc_latency.answered(command, answer, since_s)
        return encode_answer(answer)
