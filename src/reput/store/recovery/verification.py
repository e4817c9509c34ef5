"""Queues and index of a killed store compared with its log, which changes nothing.

After a kill nearly all is there: units and index entries are in the page cache. Only a power cut may have taken some of
them. So records are compared with what they should have left, in the pass that looks for the log's end, and dispatched
again from the first one that has left anything else (`reput.store.dispatch.redispatch`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config.message_store import MessageStoreConfig
from reput.files import Mapping
from reput.kernels.columns import RecordColumns, ScanStop
from reput.kernels.record_scan import RecordScanner, find_record
from reput.store.dispatch.redispatch import Piece, Progress, dispatch_scanner, max_rows, walk
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

#: Pieces that are under way: two are scanned while two wait to be compared.
_SLOTS = 4
#: How far the next piece's begin is looked for: behind a log's end lie zeros, which are not to be read.
_SEARCHED_BYTES = 65_536


@dataclass(slots=True)
class _Slot:
    """A scanner, and who still reads what it scanned last."""

    scanner: RecordScanner
    reader: Future[None] | None = None

    def wait(self) -> None:
        """Until its memory may be used again; raises what its reader raised."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.result()


class _Prefetched(NamedTuple):
    """What another thread scans: with which arguments, and where it goes."""

    call: tuple[object, ...]
    slot: _Slot
    columns: Future[RecordColumns]


class Verification:
    """How far queues and index have what dispatch would write.

    Three threads: the caller scans a piece while a second one scans the next, whose begin is looked for in its bytes
    and proved by the end of the first, and a third one compares the pieces before, in order. `on_piece` is called with
    each piece that is right.

    Attributes:
        offset: Commit log offset up to which all is there; final after `finish`.
        records: How many records that are.
    """

    def __init__(
        self,
        queues: QueueTables,
        index: IndexService | None,
        config: MessageStoreConfig,
        begin: int,
        on_piece: Callable[[RecordColumns], None],
    ) -> None:
        self._queues = queues
        self._index = index
        self._on_piece = on_piece
        rows = max_rows(queues)
        self._slots = deque(_Slot(dispatch_scanner(config, rows)) for _ in range(_SLOTS))
        self._slot = self._slots[0]
        self._prefetched: _Prefetched | None = None
        self._stride = 0  # behind so many bytes the next piece is to begin; 0 where it is not known that more follow
        self._scanning = ThreadPoolExecutor(1, thread_name_prefix="reput-scan")
        self._comparing = ThreadPoolExecutor(1, thread_name_prefix="reput-verify")
        self._is_going = True
        self.offset = begin
        self.records = 0

    @property
    def is_going(self) -> bool:
        """Whether nothing was missing yet, so that the next piece is to be scanned here, and taken."""
        return self._is_going

    def scan(self, buffer: npt.NDArray[np.uint8], offset: int, **checks: bool) -> RecordColumns:
        """As `RecordScanner.scan`; what it gives is to be taken, and valid until it was compared."""
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            # Of use or not, it reads the caller's map.
            columns, self._slot = prefetched.columns.result(), prefetched.slot
        if prefetched is None or prefetched.call != _call(buffer, offset, checks):
            columns = self._scan_two(buffer, offset, checks)
        # Three quarters of what filled a scan do not fill the next one. Behind any other stop there may be holes alone.
        self._stride = columns.consumed * 3 // 4 if columns.stop is ScanStop.FULL else 0
        return columns

    def _scan_two(self, buffer: npt.NDArray[np.uint8], offset: int, checks: dict[str, bool]) -> RecordColumns:
        """Scan a piece that ends where a record was found, from which on another thread scans the next piece."""
        slot = self._slot = self._next_slot()
        searched = buffer[: self._stride + _SEARCHED_BYTES]
        cut = find_record(searched, offset, self._stride) if 0 < self._stride < searched.size else -1
        if cut < 0:
            return slot.scanner.scan(buffer, offset, **checks)
        following, behind = self._next_slot(), buffer[cut:]
        scanned = self._scanning.submit(following.scanner.scan, behind, offset + cut, **checks)
        self._prefetched = _Prefetched(_call(behind, offset + cut, checks), following, scanned)
        columns = slot.scanner.scan(buffer[:cut], offset, **checks)
        if columns.consumed == cut:
            columns.stop = ScanStop.FULL
        elif columns.stop is not ScanStop.FULL:  # what was found lies in a record
            columns = slot.scanner.scan(buffer, offset, **checks)
        return columns

    def take(self, columns: RecordColumns, mapping: Mapping, position: int) -> None:
        """Compare a piece, which follows the one before, while the caller goes on.

        Args:
            columns: What `scan` gave last, or their first rows.
            mapping: Of the file that they lie in, from `position` on; its memory is given back afterwards.
        """
        self._slot.reader = self._comparing.submit(self._verify, Piece(columns, mapping, position))

    def walk(self, log: CommitLog, end: int, progress: Progress) -> None:
        """Compare the records from `offset` up to another one, whose bytes nobody asks about."""
        begin = self.offset
        for piece in walk(log, lambda: self if self._is_going else None, begin, end):
            progress("comparing queues and index with the log", piece.columns.base_offset - begin, end - begin)
            self.take(*piece)

    def finish(self) -> None:
        """Wait for the last piece."""
        try:
            for slot in self._slots:
                slot.wait()
        finally:
            self._scanning.shutdown()
            self._comparing.shutdown()

    def _next_slot(self) -> _Slot:
        """That of the oldest piece, which has been compared."""
        slot = self._slots[0]
        self._slots.rotate(-1)
        slot.wait()
        return slot

    def _verify(self, piece: Piece) -> None:
        columns, is_right = piece.columns, False
        try:
            if self._is_going and self._queues.verify(columns) and self._has_keys(columns):
                self.offset = columns.next_offset
                self.records += columns.rows
                self._on_piece(columns)
                is_right = True
        finally:
            self._is_going = is_right
            piece.release()

    def _has_keys(self, columns: RecordColumns) -> bool:
        return self._index is None or self._index.verify(columns)


def _call(buffer: npt.NDArray[np.uint8], offset: int, checks: dict[str, bool]) -> tuple[object, ...]:
    """Equal for two scans that would give the same."""
    return buffer.ctypes.data, buffer.size, offset, checks
