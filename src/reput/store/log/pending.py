"""Pending records, on their way into the log, and the locations that an append gives them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reput.formats.properties import INNER_BASE, encode_properties
from reput.formats.record_layout import Buffer, pack_record
from reput.store.log.queue_offsets import QueueKey

#: A pending record: (topic, queue id), then as `record_layout.pack_record` takes them: magic code, body CRC,
#: flag, sys flag, born timestamp (ms, None for now), born host, store host, reconsume times, prepared transaction
#: offset, body, topic with its length, properties. A plain tuple: naming the fields would cost as much as packing them.
PendingRecord: TypeAlias = tuple[
    QueueKey, int, int, int, int, int | None, bytes, bytes, int, int, Buffer, bytes, bytes
]  # fmt: skip


class Append(NamedTuple):
    """Location of an append: first record's offset, last record's end, first queue offset, store timestamp (ms)."""

    commit_log_offset: int
    end_offset: int
    queue_offset: int
    store_timestamp: int


class AppendedRows(NamedTuple):
    """Locations of encoded rows after an append.

    Attributes:
        end_row: The first row that is not appended yet.
        end_offset: Commit log offset after the last row that is appended.
        store_timestamp: Milliseconds, of all these rows.
        commit_log_offsets: int64[appended rows], where each record starts in the log.
        queue_offsets: int64[appended rows], 0 for prepared and rolled back messages, which have none.
    """

    end_row: int
    end_offset: int
    store_timestamp: int
    commit_log_offsets: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]


class EncodedRows(NamedTuple):
    """Record bytes of some rows without their locations, as `record_encode.encode` leaves them.

    Attributes:
        data: uint8, the bytes of the records, one after another.
        positions: int32[rows + 1], where each record starts in `data`, and where the last one ends.
        queues: int32[rows], the queue of each record by its number in `CommitLog.queue_offsets`.
    """

    data: npt.NDArray[np.uint8]
    positions: npt.NDArray[np.int32]
    queues: npt.NDArray[np.int32]


def pack_inner_batch(record: PendingRecord, queue_offset: int, now: int, reserved: int) -> bytearray:
    """The bytes of an inner batch at a queue offset, stored `now` (ms), but for its log offset.

    INNER_BASE is added to the properties, followed by `reserved` zero bytes.
    """
    (
        key, magic_code, body_crc, flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared_transaction_offset, body, topic, properties,
    ) = record  # fmt: skip
    return bytearray(
        pack_record(
            magic_code, body_crc, key[1], flag, queue_offset, 0, sys_flag,
            now if born_timestamp is None else born_timestamp, born_host, now, store_host,
            reconsume_times, prepared_transaction_offset, body, topic,
            properties + encode_properties([(INNER_BASE, str(queue_offset))]) + bytes(reserved),
        )
    )  # fmt: skip
