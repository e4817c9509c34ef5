"""Mark of a start that takes long: `config/reputRecovery.json`, from which the next start goes on after a kill.

The mark is a dispatcher's mark (`reput.log.dispatch_marks`), and says the same: the log is whole before the mark,
queues and index have all of the records before it, and all of this is on the disk. So the mark stays true whoever opens
the store in between, as long as the log has the same record before the mark. A start removes the mark at its end: a
mark that is there means that no start was finished since.
"""

from __future__ import annotations

import os
import zlib
from time import monotonic

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFullError
from reput.files import FileLayer
from reput.formats.own_json import decode_with_crc, encode_with_crc
from reput.formats.paths import CONFIG
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.dispatch_marks import RECOVERY_FILE, DispatchMark, decode_mark, encode_mark, settings_of
from reput.log.resume_points import LastRecord, ResumePoint
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

#: Before the first mark, and between two marks. Longer if a mark, which syncs, takes long: marks take a tenth of the
#: time at the most.
INTERVAL_S = 2.0
_SHARE = 10
#: A mark that no log fits: the start begins at the log's first record.
_UNKNOWN = DispatchMark(ResumePoint(-1))


def mark_path(root: str) -> str:
    """Path of a store's mark."""
    return os.path.join(root, CONFIG, RECOVERY_FILE)


def read_mark(root: str, config: MessageStoreConfig, files: FileLayer) -> DispatchMark | None:
    """Read the mark that an unfinished start left; None if there is no mark.

    A garbled mark has the offset -1. So has the mark of a start with other settings, which wrote other files.
    """
    path = mark_path(root)
    if not files.exists(path):
        return None
    try:
        content = decode_with_crc(files.read_spared(path))
        mark = decode_mark(content["mark"])
        return mark if content["settings"] == settings_of(config) else _UNKNOWN
    except (ValueError, KeyError, TypeError, AttributeError):
        return _UNKNOWN


def fits(mark: DispatchMark, log: CommitLog) -> bool:
    """Whether a log is the log of a mark: the header of the record before the mark is the same.

    A mark without a record before it fits at the beginning of the log, and where a record begins.
    """
    last = mark.point.last
    if not log.min_offset <= mark.point.offset <= log.min_offset + len(log.queue.mapped_files) * log.queue.file_size:
        return False
    if last is None:
        return mark.point.offset == log.min_offset or _begins_record(log, mark.point.offset)
    file = log.queue.find(last.offset)
    return file is not None and zlib.crc32(file.file.read(last.offset - file.start_offset, last.header_size)) == (
        last.header_crc
    )


def _begins_record(log: CommitLog, offset: int) -> bool:
    """Whether a record, or the blank record that ends a file, begins at an offset."""
    file = log.queue.find(offset)
    if file is None:
        return False
    columns = file.scan(RecordScanner(1, level=ScanLevel.HEADER), offset - file.start_offset)
    return columns.rows > 0 or columns.stop is ScanStop.BLANK


def resume_point_after(columns: RecordColumns) -> ResumePoint:
    """The resume point after scanned records; there is at least one record."""
    begin, body = int(columns["position"][-1]), int(columns["body_position"][-1])
    offset, timestamp = int(columns["commit_log_offset"][-1]), int(columns["store_timestamp"][-1])
    header = columns.buffer[begin:body]
    return ResumePoint(columns.next_offset, LastRecord(offset, timestamp, body - begin, zlib.crc32(header.data)))


class RecoveryMarks:
    """Writer of one start's mark: at intervals while the start lasts; at its end the mark is removed.

    Attributes:
        is_written: Whether this start has written the mark.
    """

    def __init__(
        self,
        root: str,
        config: MessageStoreConfig,
        files: FileLayer,
        log: CommitLog,
        queues: QueueTables,
        index: IndexService | None,
    ) -> None:
        self._path = mark_path(root)
        self._config = config
        self._files = files
        self._log = log
        self._queues = queues
        self._index = index
        self._synced = 0
        self.is_written = False
        self._before = files.read_spared(self._path) if files.exists(self._path) else None
        self._due = monotonic() + INTERVAL_S

    def write_if_due(self, columns: RecordColumns) -> None:
        """Write a mark after scanned records if it is time; log, queues and index have these and all before them.

        A disk without space for it gets none: a mark only saves time.
        """
        if columns.rows and monotonic() >= self._due and self._files.is_directory(os.path.dirname(self._path)):
            try:
                self.write(resume_point_after(columns))
            except StoreFullError:
                self._due = monotonic() + INTERVAL_S

    def write(self, point: ResumePoint) -> None:
        """Sync log, queues and index up to a point, then write the mark, durably."""
        begun = monotonic()
        paths = [
            file.path
            for file in self._log.queue.mapped_files
            if file.start_offset < point.offset and file.start_offset + file.size > self._synced
        ]
        self._files.sync_files(paths)
        self._queues.flush()
        if self._index is not None:
            self._index.flush()
        mark = DispatchMark(point, self._index.mark if self._index is not None else None)
        content = {"settings": settings_of(self._config), "mark": encode_mark(mark)}
        self._files.make_directories(os.path.dirname(self._path))
        self._files.write_atomically(self._path, encode_with_crc(content, indent=1) + b"\n")
        self.is_written, self._synced = True, point.offset
        self._due = monotonic() + max(INTERVAL_S, _SHARE * (monotonic() - begun))

    def put_back(self) -> None:
        """Restore the mark of the start before: the store is refused, and stays as it was."""
        if self.is_written and self._before is not None:
            self._files.write_atomically(self._path, self._before)
        elif self.is_written:
            self._files.unlink(self._path)

    def remove(self) -> None:
        """Remove the mark at the end of a start: queues and index have all of the log, synced if a mark was written."""
        if self._files.exists(self._path):
            self._files.unlink(self._path)
