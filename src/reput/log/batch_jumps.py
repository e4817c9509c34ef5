"""Units of batch consume queues that count: nothing proves a queue offset, so its neighbours have to agree.

A unit contains its queue offset, so a gap takes no fillers. But a reader searches, so queue offsets have to ascend.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.batch_consume_queue import BatchUnit
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE
from reput.log.queue_jumps import WITNESSES, Jump, has_room, judge_jump

#: Units in log order: structured[n] of `BATCH_UNIT_TYPE`.
BatchUnits = npt.NDArray[Any]
NO_UNITS: BatchUnits = np.empty(0, BATCH_UNIT_TYPE)


class BatchJump(NamedTuple):
    """State of a queue whose last unit left a gap, and whose next records do not decide yet.

    The unit before it, None if it is the first one, and the units since then, which got no place.
    """

    before: BatchUnit | None
    following: BatchUnits


class JudgedUnits(NamedTuple):
    """Result of `judge_units`.

    Attributes:
        counts: bool[n], units that count. The others are wrong, or repeat queue offsets of units before them.
        wrong: bool[n], units whose queue offset the next ones contradict.
        takes_back: whether the queue's last unit before these is wrong, and is to be removed.
        jump: of the queue after these units.
    """

    counts: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_]
    takes_back: bool
    jump: BatchJump | None


def judge_units(
    units: BatchUnits, last: BatchUnit | None, jump: BatchJump | None = None, following: BatchUnits = NO_UNITS
) -> JudgedUnits:
    """Judge the next units of a queue: its queue offsets ascend, and one odd record is believed if the next ones go on.

    Args:
        units: of the queue's next records, as `group_batch_units` makes them.
        last: the queue's last unit; None without units.
        jump: of the queue, if its last unit is to be judged by these.
        following: units after these that are known already; the first `WITNESSES` are enough.
    """
    bases, messages = units["base_offset"].astype(np.int64), units["message_count"].astype(np.int64)
    counts, wrong = np.zeros(bases.size, np.bool_), np.zeros(bases.size, np.bool_)
    takes_back = False
    if jump is not None and last is not None and bases.size:
        seen = np.concatenate([jump.following, units[:WITNESSES]])
        judged = _judge(last.base_offset, last.message_count, jump.before, seen)
        takes_back = judged is Jump.WRONG
        last = jump.before if takes_back else last
        jump = jump._replace(following=seen[-2:]) if judged is Jump.UNKNOWN else None
    expected = last.next_offset if last is not None else 0
    breaks = np.flatnonzero(bases != np.append(expected, bases[:-1] + messages[:-1])[: bases.size])
    row = 0
    while row < bases.size:
        expected = last.next_offset if last is not None else 0
        judged = Jump.COUNTS
        if bases[row] != expected:
            judged = _judge_row(units, row, last, following)
        if judged is not Jump.COUNTS and judged is not Jump.UNKNOWN:
            wrong[row] = last is None or bases[row] > last.base_offset
            row += 1
            continue
        jump = BatchJump(last, _after(units, row, following)) if judged is Jump.UNKNOWN else None
        at = int(np.searchsorted(breaks, row, "right"))
        end = int(breaks[at]) if at < breaks.size else bases.size
        counts[row:end] = True
        if end > row + 1:
            jump = None
        last, row = BatchUnit._make(units[end - 1].item()), end
    return JudgedUnits(counts, wrong, takes_back, jump)


def _judge_row(units: BatchUnits, row: int, last: BatchUnit | None, following: BatchUnits) -> Jump:
    """Judge a unit that does not begin where the last one ends."""
    unit = BatchUnit._make(units[row].item())
    if last is not None and unit.base_offset <= last.base_offset:
        return Jump.WRONG
    jump = _judge(unit.base_offset, unit.message_count, last, _after(units, row, following))
    expected, begin = (-1, 0) if last is None else (last.next_offset, last.commit_log_offset + last.size)
    if jump is Jump.UNKNOWN and not has_room(unit.base_offset, expected, begin, unit.commit_log_offset):
        return Jump.WRONG
    return jump


def _judge(base_offset: int, message_count: int, before: BatchUnit | None, following: BatchUnits) -> Jump:
    return judge_jump(
        base_offset,
        -1 if before is None else before.next_offset,
        following["base_offset"].astype(np.int64),
        np.append(message_count, following["message_count"].astype(np.int64)),
    )


def _after(units: BatchUnits, row: int, following: BatchUnits) -> BatchUnits:
    return np.concatenate([units[row + 1 : row + 1 + WITNESSES], following])[:WITNESSES]
