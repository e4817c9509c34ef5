"""Transactions without sockets: which half messages are judged how, and what op messages say.

After `TransactionalMessageServiceImpl`, `TransactionalMessageBridge` and `TransactionalMessageUtil` of RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from reput.formats.java import parse_long
from reput.formats.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    REAL_QID,
    REAL_TOPIC,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
)

#: Offsets that wait for their op message, a queue (`MessageQueueOpContext`).
_MOST_WAITING = 20_000


def half_properties(properties: Mapping[str, str], topic: str, queue_id: int, unique_key: str) -> dict[str, str]:
    """The properties of a half message from those that were sent (`parseHalfMessageInner`)."""
    transaction = {TRANSACTION_ID: unique_key} if unique_key else {}
    return {**properties, **transaction, REAL_TOPIC: topic, REAL_QID: str(queue_id)}


def is_too_late(properties: Mapping[str, str], age_ms: int, transaction_timeout_ms: int) -> bool:
    """Whether a producer that was not asked ends its transaction too late (`rejectCommitOrRollback`).

    Only a message with a time of its own has such an end: then the broker has begun to ask.
    """
    immunity = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
    if not immunity:
        return False
    return age_ms > max(parse_long(immunity) * 1000, transaction_timeout_ms)


# -- op messages


class OpBatches:
    """Ended half messages that wait for an op message (`MessageQueueOpContext`), by half queue.

    Args:
        max_size: Characters of an op message, which its last offset may exceed.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._waiting: dict[int, dict[int, None]] = {}
        self._sizes: dict[int, int] = {}
        self._written: dict[int, frozenset[int]] = {}

    def add(self, queue_id: int, offset: int) -> bool:
        """Let an offset wait; False if too many do: the producer is asked again for that one."""
        waiting = self._waiting.setdefault(queue_id, {})
        if offset not in waiting:
            if len(waiting) >= _MOST_WAITING:
                return False
            waiting[offset] = None
            self._sizes[queue_id] = self._sizes.get(queue_id, 0) + _size(offset)
        return True

    def queues(self, *, full: bool) -> list[int]:
        """The queues with waiting offsets, or only those with enough for a full op message."""
        least = max(self._max_size, 1) if full else 1
        return [queue_id for queue_id, size in self._sizes.items() if size >= least]

    def first(self, queue_id: int) -> list[int]:
        """The offsets of the next op message; they wait until they are `written`."""
        found: list[int] = []
        size = 0
        for offset in self._waiting[queue_id]:
            if found and size >= self._max_size:
                break
            found.append(offset)
            size += _size(offset)
        return found

    def written(self, queue_id: int, offsets: Iterable[int]) -> None:
        """The op message of these offsets is in the log."""
        self._written[queue_id] = frozenset(offsets)
        for offset in self._written[queue_id]:
            del self._waiting[queue_id][offset]
            self._sizes[queue_id] -= _size(offset)

    def is_ending(self, queue_id: int, offset: int) -> bool:
        """Whether an offset waits, or is in an op message so new that its queue may not show it yet."""
        return offset in self._waiting.get(queue_id, ()) or offset in self._written.get(queue_id, ())


def _size(offset: int) -> int:
    return len(str(offset)) + 1


class EndedHalves:
    """The half messages that op messages end, and how far op messages are used up (`fillOpRemoveMap`).

    Args:
        op_offset: Of the first op message that is read.
        half_offset: Of the first half message that is judged.
    """

    def __init__(self, op_offset: int, half_offset: int) -> None:
        self._begin = op_offset
        self._half_offset = half_offset
        self._ops_of: dict[int, list[int]] = {}
        self._left: dict[int, set[int]] = {}
        self._before: set[int] = set()
        self._end = op_offset

    def add(self, op_offset: int, offsets: Iterable[int]) -> None:
        """Take the next op message; what it ends before the first half message is no longer needed."""
        self._end = op_offset + 1
        left = {offset for offset in offsets if offset >= self._half_offset}
        self._before.update(offset for offset in offsets if offset < self._half_offset)
        if left:
            self._left[op_offset] = left
        for offset in left:
            self._ops_of.setdefault(offset, []).append(op_offset)

    def __contains__(self, half_offset: object) -> bool:
        return half_offset in self._ops_of or half_offset in self._before

    def take(self, half_offset: int) -> bool:
        """Whether a half message has ended; it has been judged then."""
        ops = self._ops_of.pop(half_offset, None)
        for op in ops or ():
            self._left[op].discard(half_offset)
            if not self._left[op]:
                del self._left[op]
        return ops is not None

    @property
    def op_offset(self) -> int:
        """The first op message that is still needed (`calculateOpOffset`)."""
        return min(self._left, default=self._end)


# -- half messages


class Verdict(Enum):
    """Action for a half message that has not ended."""

    #: It is given up: it goes into TRANS_CHECK_MAX_TIME_TOPIC.
    DISCARD = "discard"
    #: It and those behind it are too new.
    LATER = "later"
    #: It goes back into its queue, and nobody is asked: its own time is not over.
    PUT_BACK = "put back"
    #: It has ended under the offset that it had first.
    ENDED = "ended"
    #: It goes back into its queue, and its producer is asked.
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Limits of the checks of half messages: `transactionTimeOut`, `transactionCheckMax`, `fileReservedTime`."""

    timeout_ms: int
    check_max: int
    reserved_ms: int


def judge(
    properties: Mapping[str, str],
    *,
    born_ms: int,
    stored_ms: int,
    now_ms: int,
    began_ms: int,
    limits: CheckLimits,
    ended: Container[int],
) -> Verdict:
    """Choose the action for a half message that no op message ends under its offset (`check`).

    Args:
        properties: Its own.
        born_ms, stored_ms: Its times.
        now_ms, began_ms: Now, and when the round began: what came since is for the next round.
        limits: The broker's.
        ended: Queue offsets of half messages that op messages end.
    """
    age_ms = now_ms - born_ms
    times = properties.get(TRANSACTION_CHECK_TIMES)
    if (times is not None and parse_long(times) >= limits.check_max) or age_ms > limits.reserved_ms:
        return Verdict.DISCARD
    if stored_ms >= began_ms:
        return Verdict.LATER
    immunity, immune_ms = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS), limits.timeout_ms
    if immunity is not None:
        seconds = parse_long(immunity)
        immune_ms = limits.timeout_ms if seconds == -1 else seconds * 1000
        first = parse_long(properties.get(TRAN_PREPARED_QUEUE_OFFSET, ""))
        # One of a clock that is far ahead would go back for good, each time into the log.
        if -limits.reserved_ms <= age_ms < immune_ms and (first != -1 or TRAN_PREPARED_QUEUE_OFFSET not in properties):
            return Verdict.ENDED if first != -1 and first in ended else Verdict.PUT_BACK
    return Verdict.CHECK if age_ms > immune_ms or age_ms < 0 else Verdict.LATER


def checked_once_more(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a half message that is put back, and whose producer is asked (`needDiscard`)."""
    times = properties.get(TRANSACTION_CHECK_TIMES)
    return {**properties, TRANSACTION_CHECK_TIMES: "1" if times is None else str(parse_long(times) + 1)}


def with_first_offset(properties: Mapping[str, str], queue_offset: int) -> dict[str, str]:
    """The properties of a half message that is put back before its time is over (`renewImmunityHalfMessageInner`).

    No check is counted, as nobody is asked; RocketMQ counts it, and gives up such a message unasked.
    """
    return {TRAN_PREPARED_QUEUE_OFFSET: str(queue_offset)} | dict(properties)
