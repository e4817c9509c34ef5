"""Queues and index of a killed store brought in step with its log: first what is there is confirmed, which changes
nothing, then the rest is dispatched again.

After a kill nearly all is there: units and index entries are in the page cache. Only a power cut may have taken some of
them. So records are compared with what they should have left, in the pass that looks for the log's end, and dispatched
again from the first one that has left anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError
from reput.files import Mapping
from reput.kernels.columns import RecordColumns, ScanStop
from reput.kernels.record_scan import RecordScanner
from reput.store.commit_log import CommitLog
from reput.store.index_service import IndexService
from reput.store.queue_tables import QueueTables

_MAX_ROWS = 65_536
#: Each piece opens each of its queues once: with many of them, larger pieces.
_MANY_QUEUES = 1_000
_MAX_ROWS_OF_MANY = 131_072

#: Called now and then: (what is being done, bytes done, bytes in all).
Progress = Callable[[str, int, int], None]


def _scanner(config: MessageStoreConfig, queues: QueueTables) -> RecordScanner:
    rules = config.dispatch_rules
    delays_ms = config.delay_levels_ms if rules.redispatches_deliver_time else ()
    rows = _MAX_ROWS if len(queues.queues()) < _MANY_QUEUES else _MAX_ROWS_OF_MANY
    return RecordScanner(rows, delays_ms=delays_ms, index_tags=rules.indexes_tags)


class _Piece(NamedTuple):
    """Scanned records, and where in their file they lie."""

    columns: RecordColumns
    mapping: Mapping
    position: int

    def release(self) -> None:
        """A start over gigabytes keeps little of them in its memory."""
        self.mapping.release(self.position, self.position + self.columns.consumed)


def walk(log: CommitLog, scanner: Callable[[], RecordScanner | None], begin: int, end: int) -> Iterator[_Piece]:
    """The records that start in [begin, end), piece by piece, as long as there is a scanner for the next one.

    Raises:
        CorruptRecordError: Where one should start lies none.
    """
    offset = begin
    while offset < end and (file := log.queue.find(offset)) is not None and (using := scanner()) is not None:
        position, limit = offset - file.start_offset, min(file.size, end - file.start_offset)
        columns = using.scan(np.frombuffer(file.view[position:limit], np.uint8), offset)
        yield _Piece(columns, file.mapping, position)
        if columns.stop is ScanStop.BLANK:
            offset = file.start_offset + file.size
        elif columns.rows:
            offset = columns.next_offset
        else:
            raise CorruptRecordError(
                file.path,
                offset,
                f"expected a record, found {columns.stop.name}. This is damage, and queues and index lack what lies "
                "behind it: copy the store, see what `reput repair` can save, or restore the file from a replica or a "
                "backup; `read_log` in mode PERMISSIVE and a read-only store can be read meanwhile",
            )


class Confirmation:
    """How far queues and index have what dispatch would write. One thread compares a piece while the next is scanned.

    `on_piece` is called with each piece that they have.

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
        self._scanners = [_scanner(config, queues), _scanner(config, queues)]
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reput-confirm")
        self._running: Future[bool] | None = None
        self._is_going = True
        self.offset = begin
        self.records = 0

    @property
    def scanner(self) -> RecordScanner | None:
        """What the next piece is to be scanned with; None once something was missing."""
        return self._scanners[0] if self._is_going else None

    def take(self, columns: RecordColumns, mapping: Mapping, position: int) -> None:
        """Compare a piece, which follows the one before, while the caller goes on.

        Args:
            columns: Scanned with `scanner`.
            mapping: Of the file that they lie in, from `position` on; its memory is given back afterwards.
        """
        self._wait()
        piece = _Piece(columns, mapping, position)
        if not self._is_going:
            piece.release()
            return
        self._scanners.reverse()
        self._running = self._pool.submit(self._confirm, piece)

    def walk(self, log: CommitLog, end: int, progress: Progress) -> None:
        """Compare the records from `offset` up to another one, whose bytes nobody asks about."""
        begin = self.offset
        for piece in walk(log, lambda: self.scanner, begin, end):
            progress("comparing queues and index with the log", piece.columns.base_offset - begin, end - begin)
            self.take(*piece)

    def finish(self) -> None:
        """Wait for the last piece."""
        try:
            self._wait()
        finally:
            self._pool.shutdown()

    def _wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._is_going = running.result() and self._is_going

    def _confirm(self, piece: _Piece) -> bool:
        columns = piece.columns
        try:
            if not self._queues.confirm(columns) or not (self._index is None or self._index.confirm(columns)):
                return False
        finally:
            piece.release()
        self.offset = columns.next_offset
        self.records += columns.rows
        self._on_piece(columns)
        return True


def redispatch(
    log: CommitLog,
    queues: QueueTables,
    index: IndexService | None,
    config: MessageStoreConfig,
    begin: int,
    progress: Progress,
    on_piece: Callable[[RecordColumns], None],
) -> int:
    """Dispatch again all records from an offset on, at which one starts; returns how many that were.

    `on_piece` is called with each piece that was.
    """
    scanner = _scanner(config, queues)
    end, records = log.max_offset, 0
    for piece in walk(log, lambda: scanner, begin, end):
        columns = piece.columns
        progress("bringing queues and index in step", columns.base_offset - begin, end - begin)
        queues.dispatch(columns)
        if index is not None:
            index.dispatch(columns)
        records += columns.rows
        on_piece(columns)
        piece.release()
    return records
