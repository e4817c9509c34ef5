"""Pending records, on their way into the log, and the locations that an append gives them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.formats.record_layout import Buffer, pack_record
from reput.store.log.queue_offsets import QueueKey


class PendingRecord(NamedTuple):
    """A record without the location and the time that its append gives it, in the fields of `pack_record`.

    Attributes:
        key: Topic and queue id.
        born_timestamp: Milliseconds; None for the time of the append.
        topic: Its length, then the text.
        properties: With as many zeros at the end as the record reserves for a CRC.
    """

    key: QueueKey
    magic_code: int
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp: int | None
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: Buffer
    topic: bytes
    properties: bytes


class Append(NamedTuple):
    """Location of an append: first record's offset, last record's end, first queue offset, store timestamp (ms)."""

    commit_log_offset: int
    end_offset: int
    queue_offset: int
    store_timestamp: int


class AppendedRows(NamedTuple):
    """Locations of encoded rows, one or more, after an append.

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

    def as_one(self) -> Append:
        """The location of all of them, which one queue has."""
        return Append(
            int(self.commit_log_offsets[0]), self.end_offset, int(self.queue_offsets[0]), self.store_timestamp
        )


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


def pack(record: PendingRecord, now_ms: int, queue_offset: int = 0, commit_log_offset: int = 0) -> bytes:
    """The bytes of a record that is stored now, and born now if it has no time; without a CRC."""
    (
        key, magic_code, body_crc, flag, sys_flag, born_timestamp, born_host, store_host, reconsume_times,
        prepared_transaction_offset, body, topic, properties,
    ) = record  # fmt: skip
    return pack_record(
        magic_code, body_crc, key[1], flag, queue_offset, commit_log_offset, sys_flag,
        now_ms if born_timestamp is None else born_timestamp, born_host, now_ms, store_host, reconsume_times,
        prepared_transaction_offset, body, topic, properties,
    )  # fmt: skip


def join_rows(packed: Sequence[bytes], queues: npt.NDArray[np.int32]) -> EncodedRows:
    """Rows of the bytes of records, whose queues have these numbers."""
    positions = np.fromiter(accumulate(map(len, packed), initial=0), np.int32, len(packed) + 1)
    return EncodedRows(np.frombuffer(bytearray().join(packed), np.uint8), positions, queues)
