"""Verification of a killed store: its queues and index are compared with its log, and nothing is changed.

After a kill nearly all units and index entries are there: they are in the page cache. Only a power cut may have lost
some. So the scan that looks for the log's end also compares: are the units and entries of each record what dispatch
would write? Records are dispatched again from the first difference on (`reput.store.dispatch.redispatch`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config.message_store import MessageStoreConfig
from reput.files import Mapping
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner
from reput.kernels.records.record_search import find_record
from reput.progress import Progress
from reput.store.dispatch.redispatch import ScannedBatch, dispatch_scanner, max_rows, walk
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

#: Batches at a time: two are scanned while two wait to be compared.
_SLOTS = 4
#: Bytes that are searched for the next batch's first record: after a log's end lie zeros, which are not to be read.
_SEARCHED_BYTES = 65_536


@dataclass(slots=True)
class _Slot:
    """A scanner, and the comparison of the batch that it scanned last."""

    scanner: RecordScanner
    comparison: Future[None] | None = None

    def wait(self) -> None:
        """Wait until the comparison has ended and the scanner may be used again; raises what the comparison raised."""
        comparison, self.comparison = self.comparison, None
        if comparison is not None:
            comparison.result()


class _Prefetched(NamedTuple):
    """A scan in another thread: its arguments (`_call`), the slot of its scanner, and its result."""

    call: tuple[object, ...]
    slot: _Slot
    columns: Future[RecordColumns]


class Verification:
    """Comparison of scanned records with queues and index: how far they hold what dispatch would write.

    Three threads work. The caller scans a batch. A second thread scans the next batch: its first record is found by a
    search in the log's bytes, and proved when the caller's batch ends right before it. A third thread compares the
    scanned batches, in order.

    Args:
        queues: All queues, loaded.
        index: The index, loaded; None if the store has no index.
        config: What dispatch would write.
        begin: Commit log offset of the first record to compare.
        on_batch: Called by the third thread with each batch that is right.

    Attributes:
        offset: Commit log offset up to which all units and entries are right; final after `finish`.
        records: Number of records from `begin` to `offset`.
    """

    def __init__(
        self,
        queues: QueueTables,
        index: IndexService | None,
        config: MessageStoreConfig,
        begin: int,
        on_batch: Callable[[RecordColumns], None],
    ) -> None:
        self._queues = queues
        self._index = index
        self._on_batch = on_batch
        rows = max_rows(queues)
        self._slots = deque(_Slot(dispatch_scanner(config, rows)) for _ in range(_SLOTS))
        self._slot = self._slots[0]
        self._prefetched: _Prefetched | None = None
        self._stride = 0  # bytes after which the next batch is to begin; 0: no next batch is known
        self._scanning = ThreadPoolExecutor(1, thread_name_prefix="reput-scan")
        self._comparing = ThreadPoolExecutor(1, thread_name_prefix="reput-verify")
        self._is_going = True
        self.offset = begin
        self.records = 0

    @property
    def is_going(self) -> bool:
        """Whether no difference was found yet: the next batch is to be scanned by `scan` and given to `take`."""
        return self._is_going

    def scan(self, buffer: npt.NDArray[np.uint8], offset: int, /, **checks: Any) -> RecordColumns:
        """Scan as `RecordScanner.scan` does. The columns are to be given to `take`, and are valid until compared."""
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            # Waits even for a scan that is of no use: it reads the caller's map.
            columns, self._slot = prefetched.columns.result(), prefetched.slot
        if prefetched is None or prefetched.call != _call(buffer, offset, checks):
            columns = self._scan_two(buffer, offset, checks)
        # Three quarters of the bytes that filled a scan do not fill the next scan. After any other stop the file may
        # hold nothing but a hole.
        self._stride = columns.consumed * 3 // 4 if columns.stop is ScanStop.FULL else 0
        return columns

    def _scan_two(self, buffer: npt.NDArray[np.uint8], offset: int, checks: dict[str, Any]) -> RecordColumns:
        """Scan a batch up to a record that the search finds; another thread scans the next batch from that record."""
        slot = self._slot = self._next_slot()
        searched = buffer[: self._stride + _SEARCHED_BYTES]
        is_long = 0 < self._stride < searched.size
        cut = find_record(searched, offset, self._stride, page_size=checks.get("page_size", 0)) if is_long else -1
        if cut < 0:
            return slot.scanner.scan(buffer, offset, **checks)
        next_slot, rest = self._next_slot(), buffer[cut:]
        scanned = self._scanning.submit(next_slot.scanner.scan, rest, offset + cut, **checks)
        self._prefetched = _Prefetched(_call(rest, offset + cut, checks), next_slot, scanned)
        columns = slot.scanner.scan(buffer[:cut], offset, **checks)
        if columns.consumed == cut:
            columns.stop = ScanStop.FULL
        elif columns.stop is not ScanStop.FULL:  # the search found bytes inside a record
            columns = slot.scanner.scan(buffer, offset, **checks)
        return columns

    def take(self, columns: RecordColumns, mapping: Mapping, position: int) -> None:
        """Compare a batch in the third thread; it follows the batch that was given before.

        Args:
            columns: The columns that `scan` returned last, or their first rows.
            mapping: Map of the file that holds the records; their memory is released after the comparison.
            position: Of the first record in the file.
        """
        self._slot.comparison = self._comparing.submit(self._verify, ScannedBatch(columns, mapping, position))

    def walk(self, log: CommitLog, end: int, progress: Progress) -> None:
        """Compare the records from `offset` up to `end`, without a check of their CRCs."""
        begin = self.offset
        for batch in walk(log, lambda: self if self._is_going else None, begin, end):
            progress(batch.columns.base_offset - begin, end - begin, "comparing queues and index with the log")
            self.take(*batch)

    def finish(self) -> None:
        """Wait for the comparison of the last batch, and end the threads."""
        try:
            for slot in self._slots:
                slot.wait()
        finally:
            self._scanning.shutdown()
            self._comparing.shutdown()

    def _next_slot(self) -> _Slot:
        """The slot of the oldest batch, after its comparison."""
        slot = self._slots[0]
        self._slots.rotate(-1)
        slot.wait()
        return slot

    def _verify(self, batch: ScannedBatch) -> None:
        columns, is_right = batch.columns, False
        try:
            if self._is_going and self._queues.verify(columns) and self._has_keys(columns):
                self.offset = columns.next_offset
                self.records += columns.rows
                self._on_batch(columns)
                is_right = True
        finally:
            self._is_going = is_right
            batch.release()

    def _has_keys(self, columns: RecordColumns) -> bool:
        return self._index is None or self._index.verify(columns)


def _call(buffer: npt.NDArray[np.uint8], offset: int, checks: dict[str, Any]) -> tuple[object, ...]:
    """The arguments of a scan, to be compared: equal for two scans that give the same."""
    return buffer.ctypes.data, buffer.size, offset, checks
