"""Result of a pull: messages as they lie in the log, and the units that locate them; copied only on request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.extras import require
from reput.formats.message_ext import MessageExt
from reput.formats.paths import COMMIT_LOG
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.columns import RecordColumns, RecordStatus
from reput.kernels.records.record_scan import read_records_at
from reput.store.reads.pulled_message import PulledFields, PulledMessage
from reput.store.results import GetMessageStatus

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = memoryview(b"")
#: Offset and size of a message that a kernel chose among units: native int64.
PAIR_TYPE = np.dtype([("commit_log_offset", np.int64), ("size", np.int64)])


class GetRawResult(NamedTuple):
    """The messages of one pull as a broker sends them: the bytes of their records, one after the other.

    `status`, `next_begin_offset`, `min_offset`, `max_offset` and `suggest_pulling_from_slave` as of `GetMessageResult`;
    `messages`: how many.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: bytes
    messages: int
    suggest_pulling_from_slave: bool


class GetMessageResult:
    """The messages of one pull: one buffer, and the position of each message in it.

    Attributes:
        status: FOUND, or why there is no message.
        next_begin_offset: The queue offset of the next pull.
        min_offset, max_offset: Of the queue.
        suggest_pulling_from_slave: Whether more of the log follows after this pull than memory is taken to hold.
        buffer: The bytes that hold the records, and other records between them; see `positions`.
    """

    __slots__ = (
        "_base_offset",
        "_count",
        "_layout",
        "_position",
        "_store_path",
        "_units",
        "buffer",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "status",
        "suggest_pulling_from_slave",
    )

    def __init__(
        self,
        status: GetMessageStatus,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        suggest_pulling_from_slave: bool = False,
        count: int = 0,
        units: memoryview | bytes = _NOTHING,
        position: int = 0,
        buffer: memoryview = _NOTHING,
        base_offset: int = 0,
        store_path: str = "",
        layout: np.dtype[np.void] = UNIT_TYPE,
    ) -> None:
        """`count` units from `position` in `units` on locate the messages; `buffer` begins at offset `base_offset`."""
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.suggest_pulling_from_slave = suggest_pulling_from_slave
        self._count = count
        self._units = units
        self._position = position
        self.buffer = buffer
        self._base_offset = base_offset
        self._store_path = store_path
        self._layout = layout

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return (
            f"GetMessageResult(status={self.status.name}, messages={len(self)}, "
            f"next_begin_offset={self.next_begin_offset}, min_offset={self.min_offset}, max_offset={self.max_offset})"
        )

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        """int64[messages, 2], commit log offset and size of each record."""
        units = np.frombuffer(self._units, self._layout, self._count, self._position)
        pairs = np.empty((self._count, 2), np.int64)
        pairs[:, 0], pairs[:, 1] = units["commit_log_offset"], units["size"]
        return pairs

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """int64[messages], position in `buffer` at which each record starts."""
        return self._offsets - self._base_offset

    @property
    def _offsets(self) -> npt.NDArray[np.int64]:
        units = np.frombuffer(self._units, self._layout, self._count, self._position)
        return units["commit_log_offset"].astype(np.int64)

    def messages(self) -> list[MessageExt]:
        """The messages, whose fields are decoded at their first use; bodies, tags and keys for all of them at once.

        Bodies are as stored.

        Raises:
            CorruptRecordError: A record does not prove itself, or does not fit a CRC; `raw` and `to_arrow` still work.
        """
        buffer, (records, offsets, positions) = self.buffer, self._records(check_crc=True)
        fault = records.first_fault(RecordStatus.BAD_BODY_CRC | RecordStatus.BAD_PROPERTY_CRC)
        if fault < self._count:
            raise self._damage(int(offsets[fault]), "the record does not fit its CRC")
        fields = PulledFields(records)
        return [PulledMessage(buffer, position, fields, row) for row, position in enumerate(positions.tolist())]

    def raw(self) -> list[memoryview]:
        """The records' bytes, as they lie in the log."""
        buffer, pairs = self.buffer, self.pairs
        begins = pairs[:, 0] - self._base_offset
        ends = begins + pairs[:, 1]
        return [buffer[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def to_arrow(self, columns: Sequence[str] | None = None, *, raw_body: bool = False) -> pa.RecordBatch:
        """The messages as Arrow; columns as in `read_log`, bodies decompressed unless `raw_body`.

        The CRCs of bodies are compared only if the column `status` is asked for, which holds the result.

        Raises:
            ConfigError: No such column, or Arrow is not installed.
            CorruptRecordError: A record does not prove itself.
        """
        require("pyarrow", "to_arrow")
        import pyarrow as pa

        from reput.log.reads.batches import record_batches
        from reput.log.selection import make_selection

        name = os.path.basename(self._store_path)
        selection = make_selection(columns=columns, raw_body=raw_body, store=name)
        if not self._count:
            return pa.RecordBatch.from_pylist([], selection.schema)
        records, *_ = self._records(check_crc="status" in selection.schema.names)
        batches = record_batches(records, selection)
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _records(self, *, check_crc: bool) -> tuple[RecordColumns, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Scan the records at the units' offsets; returns them, their commit log offsets int64[messages], and their
        positions in `buffer` int64[messages].
        """
        offsets = self._offsets
        positions = offsets - self._base_offset
        records = read_records_at(np.frombuffer(self.buffer, np.uint8), positions, offsets, check_crc=check_crc)
        if records.rows < self._count:
            raise self._damage(int(offsets[records.rows]), "no whole record lies where the queue says")
        return records, offsets, positions

    def _damage(self, offset: int, reason: str) -> CorruptRecordError:
        path = f"{self._store_path}/{COMMIT_LOG}"
        return CorruptRecordError(
            path, offset, f"{reason}; look at it with `reput dump`, and go on pulling from the next queue offset"
        )
