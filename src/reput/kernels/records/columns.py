"""RecordColumns: the columns of scanned records, one row for each record, in log order.

Two matrices hold the columns, one of int64 and one of int32, so that a kernel takes two arguments instead of thirty. A
column is a contiguous row of a matrix. `WIDE` and `NARROW` name the rows; the constants are their numbers, for kernels.
Slices (body, topic, properties, tags, keys, unique key) are positions and sizes in the scanned buffer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

#: int64 columns.
WIDE = (
    "commit_log_offset",
    "queue_offset",
    "born_timestamp",
    "store_timestamp",
    "prepared_transaction_offset",
    "tags_code",
)
W_COMMIT_LOG_OFFSET, W_QUEUE_OFFSET, W_BORN_TIMESTAMP, W_STORE_TIMESTAMP, W_PREPARED, W_TAGS_CODE = range(len(WIDE))

#: int32 columns; `queue` numbers the queues of one scan in the order of their first records.
NARROW = (
    "position",
    "store_size",
    "magic_code",
    "body_crc",
    "queue_id",
    "flag",
    "sys_flag",
    "reconsume_times",
    "body_position",
    "body_size",
    "topic_position",
    "topic_size",
    "properties_position",
    "properties_size",
    "status",
    "queue",
    "tags_position",
    "tags_size",
    "keys_position",
    "keys_size",
    "unique_key_position",
    "unique_key_size",
)
(
    N_POSITION,
    N_SIZE,
    N_MAGIC_CODE,
    N_BODY_CRC,
    N_QUEUE_ID,
    N_FLAG,
    N_SYS_FLAG,
    N_RECONSUME_TIMES,
    N_BODY_POSITION,
    N_BODY_SIZE,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_STATUS,
    N_QUEUE,
    N_TAGS_POSITION,
    N_TAGS_SIZE,
    N_KEYS_POSITION,
    N_KEYS_SIZE,
    N_UNIQUE_KEY_POSITION,
    N_UNIQUE_KEY_SIZE,
) = range(len(NARROW))


class ScanStop(IntEnum):
    """Reason why a scan ended."""

    #: Fewer bytes are left than the next record needs: a torn tail, or the buffer ends inside the record.
    END_OF_BUFFER = 0
    #: A blank record fills the end of the file: go on in the next file.
    BLANK = 1
    #: Neither a message nor a blank record. Zero bytes, too: the written part of a file ends with this.
    BAD_MAGIC = 2
    #: TOTALSIZE and the inner lengths do not add up.
    BAD_SIZE = 3
    #: The record's PHYSICALOFFSET is another one: old bytes of a reused file.
    OFFSET_MISMATCH = 4
    #: The columns are full; scan again from the end of this scan.
    FULL = 5
    #: The buffer is a map, and the disk cannot read its next page.
    UNREADABLE = 6


class RecordStatus:
    """Bits of a row's status; 0: no fault."""

    OK = 0
    BAD_BODY_CRC = 1
    TEXT_REPLACED = 2
    TIME_OUT_OF_RANGE = 4
    BODY_UNDECODED = 8
    #: The record's properties have a CRC of the record (`enabledAppendPropCRC`), and it differs from that of its bytes.
    BAD_PROPERTY_CRC = 16
    NAMES = (
        (1, "BAD_BODY_CRC"),
        (2, "TEXT_REPLACED"),
        (4, "TIME_OUT_OF_RANGE"),
        (8, "BODY_UNDECODED"),
        (16, "BAD_PROPERTY_CRC"),
    )


_PLACES = {name: (True, i) for i, name in enumerate(WIDE)} | {name: (False, i) for i, name in enumerate(NARROW)}


class RecordColumns:
    """Rows of one scan. The arrays are views of the scanner's memory: valid until its next scan (see `copy`).

    Attributes:
        buffer: The scanned bytes (uint8[size]); kept alive by this object, so slices may refer to it.
        base_offset: Commit log offset of the buffer's first byte.
        rows: Number of records.
        consumed: Bytes from the buffer's start to the end of the last record; damage that was passed over included.
        stop: Why the scan ended there.
        wide: int64[len(WIDE), rows].
        narrow: int32[len(NARROW), rows].
        queue_rows: int32[queues], the first row of each queue. Empty below `ScanLevel.QUEUES`.
        key_hashes: int32[keys], index hashes: UNIQ_KEY first, then KEYS in order, row by row. Empty below
            `ScanLevel.KEYS`.
        key_rows: int32[keys], the row of each hash.
    """

    __slots__ = (
        "base_offset",
        "buffer",
        "consumed",
        "key_hashes",
        "key_rows",
        "narrow",
        "queue_rows",
        "rows",
        "stop",
        "wide",
    )

    def __init__(
        self,
        buffer: npt.NDArray[np.uint8],
        base_offset: int,
        consumed: int,
        stop: ScanStop,
        wide: npt.NDArray[np.int64],
        narrow: npt.NDArray[np.int32],
        queue_rows: npt.NDArray[np.int32],
        key_hashes: npt.NDArray[np.int32],
        key_rows: npt.NDArray[np.int32],
    ) -> None:
        self.buffer = buffer
        self.base_offset = base_offset
        self.rows = narrow.shape[1]
        self.consumed = consumed
        self.stop = stop
        self.wide = wide
        self.narrow = narrow
        self.queue_rows = queue_rows
        self.key_hashes = key_hashes
        self.key_rows = key_rows

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One column by its name: int64[rows] of `WIDE`, int32[rows] of `NARROW`."""
        wide, i = _PLACES[name]
        column: npt.NDArray[Any] = self.wide[i] if wide else self.narrow[i]
        return column

    def copy(self) -> RecordColumns:
        """The same rows in arrays of their own, valid as long as the copy is held.

        The buffer is not copied: the copy holds a read-only view of it.
        """
        buffer = self.buffer.view()
        buffer.flags.writeable = False
        return RecordColumns(
            buffer, self.base_offset, self.consumed, self.stop, self.wide.copy(), self.narrow.copy(),
            self.queue_rows.copy(), self.key_hashes.copy(), self.key_rows.copy(),
        )  # fmt: skip

    def queues(self) -> list[tuple[bytes, int]]:
        """The queues of this scan, by number: (topic as stored, queue id)."""
        rows = self.narrow[:, self.queue_rows]
        starts, sizes, ids = rows[N_TOPIC_POSITION].tolist(), rows[N_TOPIC_SIZE].tolist(), rows[N_QUEUE_ID].tolist()
        view = self.buffer.data  # slices of a memoryview cost a third of an array's slices
        return [(bytes(view[p : p + n]), q) for p, n, q in zip(starts, sizes, ids, strict=True)]

    def first_fault(self, faults: int = RecordStatus.BAD_BODY_CRC) -> int:
        """The first row whose status has one of these bits; `rows` if there is none."""
        found = self.narrow[N_STATUS] & faults
        return int((found != 0).argmax()) if self.rows and found.any() else self.rows

    @property
    def record_bytes(self) -> int:
        """Bytes of the records: all that was consumed, but for damage that was passed over."""
        return int(self.narrow[N_SIZE].sum(dtype=np.int64))

    @property
    def next_offset(self) -> int:
        """Commit log offset after the last record."""
        return self.base_offset + self.consumed
