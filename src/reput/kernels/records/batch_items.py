"""Rows of a table -> bodies of producers' batches (`formats.message_batch`), many in one call.

A batch is for one queue, and has one time of birth for all of its messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.message_batch import ITEM_BODY, ITEM_BODY_LENGTH, ITEM_FLAG, MIN_ITEM_SIZE
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import copy, store_i16, store_i32
from reput.kernels.records.column_addresses import (
    A_BODIES,
    A_BODY_OFFSETS,
    A_BORN_TIMESTAMP,
    A_FLAG,
    A_QUEUE,
    int32_of,
    int64_of,
    text_slice,
)
from reput.kernels.records.record_encode import put_properties

if TYPE_CHECKING:
    from reput.kernels.records.message_table import MessageBatch

#: Bytes of the properties' length, after an item's body.
_PROPERTIES_LENGTH = MIN_ITEM_SIZE - ITEM_BODY
_C_FIRST, _C_BEGIN, _C_QUEUE, _C_BORN, _C_WORDS = range(5)


class BatchBodies(NamedTuple):
    """Bodies of batches, one after the other.

    Attributes:
        data: uint8, all of them.
        rows: int64[rows], the rows as they follow each other: by queue, and in their order.
        cuts: int64[batches + 1, 4]: of each batch its first row (an index into `rows`), where it begins in `data`, its
            queue's number, and its time of birth in ms; the last line has the two ends.
    """

    data: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]
    cuts: npt.NDArray[np.int64]


def batch_bodies(messages: MessageBatch, *, most_rows: int, most_bytes: int) -> BatchBodies:
    """Encode all rows.

    Args:
        messages: The rows; host, sys flag and times beside that of birth are not part of a batch's messages.
        most_rows, most_bytes: Of a batch. A row that is larger makes one by itself.
    """
    rows = np.argsort(messages.queues, kind="stable")
    data = np.empty(int(messages.sizes.sum(dtype=np.int64)), np.uint8)  # an item is smaller than its record
    cuts = np.empty((rows.size + 1, _C_WORDS), np.int64)
    count = _put_batches(
        messages.addresses, rows, messages.properties_sizes, most_rows, most_bytes, data.ctypes.data, cuts
    )  # fmt: skip
    return BatchBodies(data[: cuts[count, _C_BEGIN]], rows, cuts[: count + 1])


@kernel("int64(int64[::1], int64[::1], int32[::1], int64, int64, int64, int64[:, ::1])")
def _put_batches(addresses, rows, properties_sizes, most_rows, most_bytes, out, cuts):  # type: ignore[no-untyped-def]
    """Write the rows to `out`, and `BatchBodies.cuts`; returns the number of batches."""
    p, begin, first, count = out, out, 0, 0
    for i in range(rows.size):
        row = rows[i]
        queue, born = np.int64(int32_of(addresses, A_QUEUE, row)), int64_of(addresses, A_BORN_TIMESTAMP, row)
        body, body_size = text_slice(addresses, A_BODY_OFFSETS, A_BODIES, row)
        properties_size = np.int64(properties_sizes[row])
        size = ITEM_BODY + body_size + _PROPERTIES_LENGTH + properties_size
        is_full = i - first == most_rows or p - begin + size > most_bytes
        if i == 0 or is_full or queue != cuts[count - 1, _C_QUEUE] or born != cuts[count - 1, _C_BORN]:
            begin, first = p, i
            cuts[count, _C_FIRST], cuts[count, _C_BEGIN] = i, p - out
            cuts[count, _C_QUEUE], cuts[count, _C_BORN] = queue, born
            count += 1
        store_i32(p, size)
        store_i32(p + 4, 0)
        store_i32(p + 8, 0)
        store_i32(p + ITEM_FLAG, int32_of(addresses, A_FLAG, row))
        store_i32(p + ITEM_BODY_LENGTH, body_size)
        copy(p + ITEM_BODY, body, body_size)
        store_i16(p + ITEM_BODY + body_size, properties_size)
        put_properties(addresses, row, p + ITEM_BODY + body_size + _PROPERTIES_LENGTH)
        p += size
    cuts[count, _C_FIRST], cuts[count, _C_BEGIN] = rows.size, p - out
    cuts[count, _C_QUEUE] = cuts[count, _C_BORN] = 0
    return count
