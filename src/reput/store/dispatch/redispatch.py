"""Dispatch records again, whose units and index entries a store may lack at a start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError
from reput.files import Mapping
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner
from reput.progress import Progress
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.log.mapped_file import Scanner
from reput.store.log.whole_records import is_hiding
from reput.store.queues.tables import QueueTables

_MAX_ROWS = 65_536
#: Each batch opens each of its queues once, so batches are larger if queues are many.
_MANY_QUEUES = 1_000
_MAX_ROWS_OF_MANY = 131_072


def max_rows(queues: QueueTables) -> int:
    """Records of a batch, at the most."""
    return _MAX_ROWS if len(queues.queues()) < _MANY_QUEUES else _MAX_ROWS_OF_MANY


def dispatch_scanner(config: MessageStoreConfig, rows: int) -> RecordScanner:
    """Scanner for the columns that dispatch takes, with at most `rows` records a batch."""
    rules = config.dispatch_rules
    delays_ms = config.delay_levels_ms if rules.redispatches_deliver_time else ()
    return RecordScanner(rows, delays_ms=delays_ms, index_tags=rules.indexes_tags)


class ScannedBatch(NamedTuple):
    """Scanned records, the map of their file, and their position in it."""

    columns: RecordColumns
    mapping: Mapping
    position: int

    def release(self) -> None:
        """Release the file's pages, so that a start over gigabytes keeps little of them in memory.

        After its last batch a file's other pages, too: a mebibyte is asked for at a time, also for a blank record.
        """
        goes_on = self.columns.stop is ScanStop.FULL
        self.mapping.release(self.position, self.position + self.columns.consumed if goes_on else None)


def walk(log: CommitLog, scanner: Callable[[], Scanner | None], begin: int, end: int) -> Iterator[ScannedBatch]:
    """Scan the records that start in [begin, end), batch by batch, as long as `scanner()` gives a scanner.

    Raises:
        CorruptRecordError: No record lies where one should start.
        StoreError: The disk cannot read a page.
    """
    offset, timestamp = begin, None
    while offset < end and (file := log.queue.find(offset)) is not None and (using := scanner()) is not None:
        position, limit = offset - file.start_offset, min(file.size, end - file.start_offset)
        columns = file.scan(using, position, limit)
        following, stop = columns.next_offset, columns.stop
        timestamp = int(columns["store_timestamp"][-2:].min()) if columns.rows else timestamp
        yield ScannedBatch(columns, file.mapping, position)
        if stop is ScanStop.BLANK and not is_hiding(file, following - file.start_offset, timestamp):
            offset = file.start_offset + file.size
        elif following > offset:
            offset = following
        else:
            raise CorruptRecordError(
                file.path,
                offset,
                f"expected a record, found {stop.name}. This is damage, and queues and index lack the records "
                "after it: copy the store, see what `reput repair` can save, or restore the file from a replica or a "
                "backup; `read_log` in mode PERMISSIVE and a read-only store can be read meanwhile",
            )


def redispatch(
    log: CommitLog,
    queues: QueueTables,
    index: IndexService | None,
    config: MessageStoreConfig,
    begin: int,
    progress: Progress,
    on_batch: Callable[[RecordColumns], None],
) -> int:
    """Dispatch again all records from `begin` on, at which a record starts; returns their number.

    `on_batch` is called with each batch that was dispatched.
    """
    scanner = dispatch_scanner(config, max_rows(queues))
    end, records = log.max_offset, 0
    for batch in walk(log, lambda: scanner, begin, end):
        columns = batch.columns
        progress(columns.base_offset - begin, end - begin, "bringing queues and index in step")
        queues.dispatch(columns)
        if index is not None:
            index.dispatch(columns)
        records += columns.rows
        on_batch(columns)
        batch.release()
    return records
