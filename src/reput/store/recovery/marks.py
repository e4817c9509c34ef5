"""How far a start has come that takes long: `config/reputRecovery.json`, so that one that is killed goes on from there.

The mark is one of those that dispatchers write (`reput.log.dispatch_marks`), and says as much: what lies before it in
the log is whole, queues and index have all of it, and all that is on the disk. So it stays true whoever opens the store
in between, as long as the log has the same record before it. A start removes it at its end: where one is found, none
was finished.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from time import monotonic

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.files import FileLayer
from reput.formats.index_file import encode_header
from reput.formats.own_json import decode_json
from reput.formats.paths import CONFIG
from reput.kernels.columns import RecordColumns, ScanStop
from reput.kernels.record_scan import RecordScanner, ScanLevel
from reput.log.dispatch_marks import RECOVERY_FILE, DispatchMark, decode_mark, encode_mark, settings_of
from reput.log.positions import LastRecord, LogPosition
from reput.store.index.index_service import IndexService
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

#: Before the first mark, and between two; but a mark, which syncs, takes a tenth of the time at the most.
INTERVAL_S = 2.0
_SHARE = 10
#: More than any record has before its body.
_MAX_HEADER_SIZE = 1 << 10
#: A mark that says nothing: all is to be looked at from the log's first record on.
_UNKNOWN = DispatchMark(LogPosition(-1))


def mark_path(root: str) -> str:
    """Where the mark of a store is."""
    return os.path.join(root, CONFIG, RECOVERY_FILE)


def read_mark(root: str, config: MessageStoreConfig, files: FileLayer) -> DispatchMark | None:
    """The mark that an unfinished start left; None where there is none.

    One that is garbled, or of a start that wrote other files than this one will, has an offset of -1.
    """
    path = mark_path(root)
    if not files.exists(path):
        return None
    try:
        content = decode_json(files.read_bytes(path))
        mark = decode_mark(content["mark"])
        last = mark.position.last
        if mark.index is not None:
            encode_header(mark.index.header)
        if last is not None and last.header_size not in range(_MAX_HEADER_SIZE):
            return _UNKNOWN
        return mark if content["settings"] == settings_of(config) else _UNKNOWN
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        return _UNKNOWN


def holds(mark: DispatchMark, log: CommitLog) -> bool:
    """Whether the log has what it had before a mark, by the header of the record before it, or by the record behind."""
    last = mark.position.last
    if not log.min_offset <= mark.position.offset <= log.min_offset + len(log.queue.mapped_files) * log.queue.file_size:
        return False
    if last is None:
        return mark.position.offset == log.min_offset or _begins_record(log, mark.position.offset)
    file = log.queue.find(last.offset)
    return file is not None and zlib.crc32(file.file.read(last.offset - file.start_offset, last.header_size)) == (
        last.header_crc
    )


def _begins_record(log: CommitLog, offset: int) -> bool:
    """Whether a record, or the blank one that ends a file, lies at an offset."""
    file = log.queue.find(offset)
    if file is None:
        return False
    data = np.frombuffer(file.view[offset - file.start_offset :], np.uint8)
    columns = RecordScanner(1, level=ScanLevel.HEADER).scan(data, offset)
    return columns.rows > 0 or columns.stop is ScanStop.BLANK


def position_behind(columns: RecordColumns) -> LogPosition:
    """The position behind scanned records, of which there is one at least."""
    begin, body = int(columns["position"][-1]), int(columns["body_position"][-1])
    offset, timestamp = int(columns["commit_log_offset"][-1]), int(columns["store_timestamp"][-1])
    header = columns.buffer[begin:body]
    return LogPosition(columns.next_offset, LastRecord(offset, timestamp, body - begin, zlib.crc32(header.data)))


class RecoveryMarks:
    """Writes the mark of one start now and then, and removes it.

    Attributes:
        is_written: Whether it was written.
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
        self._before = files.read_bytes(self._path) if files.exists(self._path) else None
        self._due = monotonic() + INTERVAL_S

    def pass_by(self, columns: RecordColumns) -> None:
        """Called when log, queues and index have these records and all before them: write a mark if it is time."""
        if columns.rows and monotonic() >= self._due and self._files.is_directory(os.path.dirname(self._path)):
            self.write(position_behind(columns))

    def write(self, position: LogPosition) -> None:
        """Sync what lies before a position, and say so, durably."""
        begun = monotonic()
        paths = [
            file.path
            for file in self._log.queue.mapped_files
            if file.start_offset < position.offset and file.start_offset + file.size > self._synced
        ]
        self._files.sync_files(paths)
        self._queues.flush()
        if self._index is not None:
            self._index.flush()
        mark = DispatchMark(position, self._index.mark if self._index is not None else None)
        content = {"settings": settings_of(self._config), "mark": encode_mark(mark)}
        self._files.make_directories(os.path.dirname(self._path))
        self._files.write_atomically(self._path, (json.dumps(content, indent=1) + "\n").encode())
        self.is_written, self._synced = True, position.offset
        self._due = monotonic() + max(INTERVAL_S, _SHARE * (monotonic() - begun))

    def put_back(self) -> None:
        """The store is refused: leave what was found."""
        if self.is_written and self._before is not None:
            self._files.write_atomically(self._path, self._before)
        elif self.is_written:
            self._files.unlink(self._path)

    def remove(self) -> None:
        """The start is done: queues and index are in step with the log, and on the disk where a mark was needed."""
        if self._files.exists(self._path):
            self._files.unlink(self._path)
