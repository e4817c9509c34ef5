"""Jumps in queue offsets: nothing proves a record's QUEUEOFFSET, so a jump counts if the queue's next records go on.

One wrong bit must not take a queue a million offsets ahead, behind which all later records would be repeats.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import numpy.typing as npt

from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.formats.record_layout import SysFlag
from reput.kernels.records.columns import RecordColumns

#: Next records of the queue that are asked, at the most.
WITNESSES = 8
#: Rows in which witnesses are looked for first, and the factor for each further look.
_FIRST_ROWS, _GROWTH = 512, 8


class Jump(Enum):
    """Meaning of a record whose queue offset is after the queue's next offset, by the queue's next records."""

    COUNTS = "counts"
    #: The next records go on as if the record had another queue offset.
    WRONG = "wrong"
    #: The queue has no later record among these.
    UNKNOWN = "unknown"


def next_queue_offsets(columns: RecordColumns, queue: int, row: int) -> npt.NDArray[np.int64]:
    """int64[up to 8], the queue offsets of a queue's first records at or after a row, of those that have a unit."""
    found, size = np.empty(0, np.int64), _FIRST_ROWS
    while row < columns.rows and found.size < WITNESSES:
        some = slice(row, row + size)
        kind = columns["sys_flag"][some] & SysFlag.TRANSACTION_MASK
        has_unit = (kind != SysFlag.TRANSACTION_PREPARED) & (kind != SysFlag.TRANSACTION_ROLLBACK)
        offsets = columns["queue_offset"][some][(columns["queue"][some] == queue) & has_unit]
        found = np.concatenate([found, offsets[offsets >= 0]])
        row, size = row + size, size * _GROWTH
    return found[:WITNESSES]


def judge_jump(
    queue_offset: int, expected: int, following: npt.NDArray[np.int64], counts: npt.NDArray[np.int64] | None = None
) -> Jump:
    """Judge a record's queue offset by the queue's next records.

    Args:
        queue_offset: Of the record.
        expected: The queue's next offset before it, or -1 if no record of the queue came before.
        following: int64[n], as from `next_queue_offsets`.
        counts: int64[n + 1], messages of the record and of each next record; None: one each.
    """
    if counts is None:
        counts = np.ones(following.size + 1, np.int64)
    go_on_before = 0
    if expected >= 0:
        go_on_before = int(np.count_nonzero(following == expected + np.cumsum(counts[:-1])))
    elif following.size and following[0] <= queue_offset:
        go_on_before = int(np.count_nonzero(following[1:] == following[0] + np.cumsum(counts[1:-1])))
    is_other = following != queue_offset  # a record that repeats it says nothing of it
    following, steps = following[is_other], np.cumsum(np.append(counts[0], counts[1:][is_other])[:-1])
    if not following.size:
        return Jump.UNKNOWN
    go_on = int(np.count_nonzero(following == queue_offset + steps))
    if go_on != go_on_before:
        return Jump.COUNTS if go_on > go_on_before else Jump.WRONG
    lower = int(np.count_nonzero(following < queue_offset))
    if lower >= 2 and 2 * lower > following.size:
        return Jump.WRONG
    return Jump.UNKNOWN if lower == following.size else Jump.COUNTS  # one against one: later records tell


def has_room(queue_offset: int, expected: int, begin: int, end: int) -> bool:
    """Whether the messages that a jump passes over may have lain between two commit log offsets.

    Each message takes at least `MIN_ITEM_SIZE` bytes of the log, alone or inside an inner batch.
    """
    return queue_offset - expected <= max(end - begin, 0) // MIN_ITEM_SIZE
