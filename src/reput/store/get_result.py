"""What a pull answers: messages as they lie in the log, and the units that say where; copied when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reput.formats.message import MessageExt
from reput.kernels.consume_queue import UNIT_TYPE
from reput.kernels.record_scan import read_records_at
from reput.store.results import GetMessageStatus

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = memoryview(b"")
#: What a kernel chose out of units: native int64.
PAIR_TYPE = np.dtype([("commit_log_offset", np.int64), ("size", np.int64)])


class GetMessageResult:
    """The messages of one pull: one buffer, and where in it each lies.

    Attributes:
        status: FOUND, or why there is nothing.
        next_begin_offset: The queue offset to ask for next.
        min_offset, max_offset: Of the queue.
        suggest_pulling_from_slave: More of the log lies behind this pull than what counts as in memory.
        buffer: The bytes that hold the records (and others between them); `positions` say where.
    """

    __slots__ = (
        "_base_offset",
        "_count",
        "_layout",
        "_position",
        "_store_name",
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
        store_name: str = "",
        layout: np.dtype[np.void] = UNIT_TYPE,
    ) -> None:
        """`count` units from `position` of `units` on say where the messages lie; `buffer` begins at `base_offset`."""
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
        self._store_name = store_name
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
        """int64[messages], where in `buffer` each record starts."""
        return self.pairs[:, 0] - self._base_offset

    def messages(self) -> list[MessageExt]:
        """The messages; each decodes a field when it is first asked for. Bodies are as stored."""
        buffer = self.buffer
        return [MessageExt(buffer, position) for position in self.positions.tolist()]

    def raw(self) -> list[memoryview]:
        """The records' bytes, as they lie in the log."""
        buffer, pairs = self.buffer, self.pairs
        begins = pairs[:, 0] - self._base_offset
        ends = begins + pairs[:, 1]
        return [buffer[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def to_arrow(self, columns: Sequence[str] | None = None, *, raw_body: bool = False) -> pa.RecordBatch:
        """The messages as Arrow; columns as in `read_log`, bodies decompressed unless `raw_body`.

        Raises:
            ConfigError: No such column.
        """
        import pyarrow as pa

        from reput.log.reader import record_batches
        from reput.log.selection import make_selection

        selection = make_selection(columns=columns, raw_body=raw_body, store=self._store_name)
        if not self._count:
            return pa.RecordBatch.from_pylist([], selection.schema)
        offsets = self.pairs[:, 0].copy()
        records = read_records_at(np.frombuffer(self.buffer, np.uint8), offsets - self._base_offset, offsets)
        batches = record_batches(records, selection)
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
