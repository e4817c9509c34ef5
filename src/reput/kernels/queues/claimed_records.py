"""Units of all queues of a store, each queue's in its own order -> the records that they claim, in log order.

No two records begin within SLOT_BYTES of the log, as the smallest one is longer. So a unit sets the bit of its slot,
and the number of bits before it is its place in the order: nothing is sorted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.formats.consume_queue import FILLER, PHYSICAL_OFFSET, SIZE, UNIT_SIZE
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import bit_count, load_i32, load_i64

Int64s = npt.NDArray[np.int64]

#: Log bytes of a slot: the greatest power of two that is no larger than the smallest record.
SLOT_BYTES = 1 << (MIN_RECORD_SIZE.bit_length() - 1)
#: A claim: commit log offset, size in bytes, number of the queue, queue offset.
CLAIM_OFFSET, CLAIM_SIZE, CLAIM_QUEUE, CLAIM_QUEUE_OFFSET = range(4)
CLAIM_COLUMNS = 4
#: What is known of each queue: units in its buffer, number of the next one among them, queue offset of the first of
#: them; log offsets of the first and the last unit that were taken (-1: none was), how many were taken in this range,
#: and 1 if no unit is left.
RUN_COUNT, RUN_NEXT, RUN_QUEUE_OFFSET, RUN_FIRST, RUN_LAST, RUN_TAKEN, RUN_ENDED = range(7)
RUN_COLUMNS = 7
#: Results of a call: the queue at which it stopped, claims that were taken, and whether two of them have one slot.
AT_QUEUE, TAKEN, IN_ONE_SLOT = range(3)

_SLOT_SHIFT = SLOT_BYTES.bit_length() - 1
#: Slots of a word of bits: 64.
_WORD_SHIFT, _IN_WORD, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)
_UNIT = UNIT_SIZE
_OFFSET, _SIZE = PHYSICAL_OFFSET, SIZE
_FILLER_OFFSET, _FILLER_SIZE = FILLER.commit_log_offset, FILLER.size


@kernel("void(int64, int64, int64[:, ::1], int64, int64, int64, int64, int64[:, ::1], uint64[::1], int64[::1])")
def _take(buffers, room, runs, log_begin, log_end, begin, end, claims, bits, state):  # type: ignore[no-untyped-def]
    row = state[TAKEN]
    for queue in range(state[AT_QUEUE], runs.shape[0]):
        units = buffers + queue * room * _UNIT
        count, last = runs[queue, RUN_COUNT], runs[queue, RUN_LAST]
        next_unit, first, first_row = runs[queue, RUN_NEXT], runs[queue, RUN_QUEUE_OFFSET], row
        stops = runs[queue, RUN_ENDED] != 0
        while next_unit < count and not stops:
            unit = units + next_unit * _UNIT
            offset, size = load_i64(unit + _OFFSET), load_i32(unit + _SIZE)
            is_filler = offset == _FILLER_OFFSET and size == _FILLER_SIZE
            if size > 0 and log_begin <= offset < log_end and not is_filler:
                if offset <= last:  # old units, after the queue's end
                    runs[queue, RUN_ENDED] = 1
                    stops = True
                elif offset >= end or row == claims.shape[0]:
                    stops = True
                else:
                    claims[row, CLAIM_OFFSET] = offset
                    claims[row, CLAIM_SIZE] = size
                    claims[row, CLAIM_QUEUE] = queue
                    claims[row, CLAIM_QUEUE_OFFSET] = first + next_unit
                    slot = np.uint64(max(offset - begin, 0) >> _SLOT_SHIFT)
                    word, bit = slot >> _WORD_SHIFT, _ONE << (slot & _IN_WORD)
                    if offset < begin or bits[word] & bit:
                        state[IN_ONE_SLOT] = 1
                    bits[word] |= bit
                    if last < 0:
                        runs[queue, RUN_FIRST] = offset
                    last = offset
                    row += 1
            if not stops:
                next_unit += 1
        runs[queue, RUN_NEXT], runs[queue, RUN_LAST] = next_unit, last
        runs[queue, RUN_TAKEN] += row - first_row
        if not stops and runs[queue, RUN_ENDED] == 0:  # its buffer is used up
            state[AT_QUEUE], state[TAKEN] = queue, row
            return
    state[AT_QUEUE], state[TAKEN] = runs.shape[0], row


@kernel("void(int64[:, ::1], int64, uint64[::1], int64[::1], int64[:, ::1])")
def _order(claims, begin, bits, ranks, ordered):  # type: ignore[no-untyped-def]
    rank = 0
    for word in range(bits.size):
        ranks[word] = rank
        rank += bit_count(bits[word])
    for row in range(ordered.shape[1]):
        slot = np.uint64((claims[row, CLAIM_OFFSET] - begin) >> _SLOT_SHIFT)
        at = slot >> _WORD_SHIFT
        rank = ranks[at] + bit_count(bits[at] & ((_ONE << (slot & _IN_WORD)) - _ONE))
        for column in range(CLAIM_COLUMNS):
            ordered[column, rank] = claims[row, column]
    for word in range(bits.size):
        bits[word] = 0


@kernel("int64(int64[::1], int64[::1], int64, int64[::1])")
def _seams(offsets, sizes, begin, gaps):  # type: ignore[no-untyped-def]
    count = 0
    for row in range(offsets.size):
        if offsets[row] < begin:
            return -1 - row
        if offsets[row] > begin:
            gaps[count] = row
            count += 1
        begin = offsets[row] + sizes[row]
    return count


class Claims:
    """Table of the claims of one range of the log at a time.

    Args:
        queues: the number of queues.
        range_bytes: the most bytes of a range.
        room: units of a queue that its buffer holds.

    Attributes:
        buffers: uint8[queues, room * 20], the next units of each queue as they lie in its files.
        runs: int64[queues, RUN_COLUMNS], what is known of each queue.
    """

    def __init__(self, queues: int, range_bytes: int, room: int) -> None:
        self.buffers = np.empty((queues, room * UNIT_SIZE), np.uint8)
        self.runs = np.zeros((queues, RUN_COLUMNS), np.int64)
        self.runs[:, [RUN_FIRST, RUN_LAST]] = -1
        self._room = room
        self._claims = np.empty((range_bytes // MIN_RECORD_SIZE + 2, CLAIM_COLUMNS), np.int64)
        self._bits = np.zeros(range_bytes // SLOT_BYTES // 64 + 1, np.uint64)
        self._ranks = np.empty(self._bits.size, np.int64)
        self._state = np.zeros(3, np.int64)

    def begin(self) -> None:
        """Begin a range: no claim of it is taken yet."""
        self._state[:] = 0
        self.runs[:, RUN_TAKEN] = 0

    def take(self, log_begin: int, log_end: int, begin: int, end: int) -> int | None:
        """Take the claims from `begin` to `end` of the units in the buffers.

        Units that do not lead into the log, from `log_begin` to `log_end`, are passed over. A queue ends at a unit that
        leads to no later offset than the unit before it.

        Returns a queue whose units are used up, to be called again once its buffer is filled; None: all are taken.
        """
        _take(
            self.buffers.ctypes.data, self._room, self.runs, log_begin, log_end, begin, end, self._claims, self._bits,
            self._state,
        )  # fmt: skip
        queue = int(self._state[AT_QUEUE])
        return None if queue == self.runs.shape[0] else queue

    @property
    def is_full(self) -> bool:
        """Whether there may be more claims than a range has room for records."""
        return bool(self._state[TAKEN] == self._claims.shape[0])

    def in_order(self, begin: int) -> npt.NDArray[np.int64]:
        """int64[CLAIM_COLUMNS, n], the claims of the range from `begin` on, in log order."""
        taken = int(self._state[TAKEN])
        if self._state[IN_ONE_SLOT]:  # two records cannot begin so near: what is wrong is found in the order
            self._bits[:] = 0
            claims = self._claims[:taken]
            return np.ascontiguousarray(claims[np.argsort(claims[:, CLAIM_OFFSET], kind="stable")].T)
        ordered = np.empty((CLAIM_COLUMNS, taken), np.int64)
        _order(self._claims, begin, self._bits, self._ranks, ordered)
        return ordered


def gaps_before(offsets: Int64s, sizes: Int64s, begin: int) -> tuple[Int64s, int | None]:
    """Rows of claims in log order that do not begin at the end of the claim before them; `begin` ends the first's.

    Returns (rows, None), or (nothing, row) with the first claim that begins before that end.
    """
    gaps = np.empty(offsets.size, np.int64)
    count = int(_seams(np.ascontiguousarray(offsets), np.ascontiguousarray(sizes), begin, gaps))
    return (gaps[:0], -1 - count) if count < 0 else (gaps[:count], None)
