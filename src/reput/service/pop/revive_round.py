"""ReviveRound: which popped messages were not acked, as one look at a revive queue tells (`PopReviveService`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reput.formats.pop_messages import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CK_TAG,
    CheckPoint,
    CheckPointKey,
    decode_ack,
    decode_check_point,
)

#: A check point is judged once the queue has come so far behind its revive time: its acks are due at that time, and
#: the timer puts messages in within a second.
JUDGED_AFTER_MS = 2_000
#: If nothing has come for so long, the queue has come as far as the timers have delivered.
QUIET_MS = 3_000
#: Waits of check points whose messages could not be read or put, in s; the last for ever after.
_RE_PUT_S = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class Judged(NamedTuple):
    """A check point whose time is over.

    Attributes:
        revive_offset: Its queue offset in the revive queue.
        unacked: The queue offsets of its messages that nobody acked.
    """

    revive_offset: int
    check_point: CheckPoint
    unacked: tuple[int, ...]


class ReviveRound:
    """Check points and acks of one revive queue, read in their order from the first check point that is not done.

    Acks come after their check point: one that finds none is of a check point that is done.

    Args:
        broker_name: Of an ack that names none.
    """

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name
        self._check_points: dict[CheckPointKey, tuple[int, int, CheckPoint]] = {}
        self._acked: dict[CheckPointKey, set[int]] = {}
        #: How far the queue has come, as the times tell at which its messages were due; ms since 1970 UTC.
        self.end_time = 0
        #: The revive time of the first check point, 0 for none.
        self.first_revive_time = 0
        self.is_empty = True

    @property
    def has_check_points(self) -> bool:
        """Whether a check point was read."""
        return bool(self._check_points)

    def add(
        self, revive_offset: int, tag: str | None, body: bytes, deliver_ms: int, now_ms: int
    ) -> CheckPointKey | None:
        """Take the next message of the queue, and return whose it is; None for one that is neither check point nor ack.

        deliver_ms: when it was due, 0 if it did not wait for that.
        """
        self.is_empty = False
        self.end_time = max(self.end_time, min(deliver_ms, now_ms))
        if tag == CK_TAG:
            check_point = decode_check_point(body)
            if check_point is not None:
                is_ahead = check_point.key.pop_time > now_ms + QUIET_MS
                due_ms = 1 if is_ahead else check_point.revive_time
                self._check_points[check_point.key] = revive_offset, due_ms, check_point
                self.first_revive_time = self.first_revive_time or due_ms
            return None if check_point is None else check_point.key
        ack = decode_ack(body, self._broker_name) if tag in (ACK_TAG, BATCH_ACK_TAG) else None
        if ack is not None and ack.key in self._check_points:
            self._acked.setdefault(ack.key, set()).update(ack.offsets)
        return None if ack is None else ack.key

    def quiet(self, come_ms: int) -> None:
        """The queue has no more messages that were due before a time."""
        if come_ms - self.end_time > QUIET_MS:
            self.end_time = come_ms

    @property
    def is_at_end(self) -> bool:
        """Whether the first check point can be judged: more messages only help later ones."""
        return self.end_time - self.first_revive_time > JUDGED_AFTER_MS

    def judged(self) -> Iterator[Judged]:
        """The check points whose time is over, in the order of the queue, up to the first whose time is not.

        So is the time of one that is to be popped yet: both came by a clock that was ahead.
        """
        for key, (revive_offset, due_ms, check_point) in sorted(
            self._check_points.items(), key=lambda item: item[1][0]
        ):
            if self.end_time - due_ms <= JUDGED_AFTER_MS:
                return
            acked, bits = self._acked.get(key, ()), check_point.bit_map
            unacked = tuple(
                offset
                for number, offset in enumerate(check_point.offsets)
                if offset not in acked and not bits >> number & 1
            )
            yield Judged(revive_offset, check_point, unacked)


def written_again(check_point: CheckPoint, offset: int, now_ms: int) -> CheckPoint:
    """The check point of one message that could not be revived, due later each time (`rePutCK`)."""
    times = check_point.re_put_times or 0
    invisible = check_point.invisible_time
    if check_point.revive_time <= now_ms:
        invisible += 1000 * _RE_PUT_S[min(times, len(_RE_PUT_S) - 1)]
    return CheckPoint(check_point.key._replace(start_offset=offset), invisible, (offset,), 0, times + 1)
