"""Lines of `reput dump --what log`: the records of the commit log, and the damage between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reput.cli.display.messages import message_fields
from reput.errors import CorruptRecordError
from reput.formats.message_ext import MessageExt
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory
from reput.log.scan import scan_split
from reput.log.splits import Split, SplitStop


def log_lines(
    directory: StoreDirectory, begin: int, end: int, topic: str | None, queue_id: int | None, *, as_hex: bool
) -> Iterator[dict[str, Any]]:
    """Lines of records that start in [begin, end), commit log offsets, and of each damage between them."""
    for file in directory.log_files():
        if file.end_offset <= begin or file.start_offset >= end:
            continue
        split = _split(file, max(begin, file.start_offset), end)
        while True:
            scan = scan_split(split, level=ScanLevel.QUEUES, files=directory.files)
            try:
                for columns in scan:
                    yield from _record_lines(columns, topic, queue_id, as_hex)
            except CorruptRecordError as damage:
                yield {
                    "status": "DAMAGED",
                    "commit_log_offset": damage.offset,
                    "damage": damage.reason,
                    "path": damage.path,
                }
                split = _split(file, damage.offset + 1, end)
            else:
                break
        if scan.stop is SplitStop.LOG_END:
            return


def _split(file: LogFile, begin: int, end: int) -> Split:
    return Split(file, begin, min(end, file.end_offset), is_record_start=begin == file.start_offset)


def _record_lines(
    columns: RecordColumns, topic: str | None, queue_id: int | None, as_hex: bool
) -> Iterator[dict[str, Any]]:
    wanted = [
        (topic is None or name == topic.encode()) and (queue_id is None or number == queue_id)
        for name, number in columns.queues()
    ]
    rows = np.flatnonzero(np.array(wanted, bool)[columns["queue"]]).tolist()
    positions, sizes, faults = columns["position"], columns["store_size"], columns["status"]
    for row in rows:
        record = columns.buffer[positions[row] : positions[row] + sizes[row]].tobytes()
        message = MessageExt(record)
        status = "BAD_PROPERTY_CRC" if faults[row] else "OK"  # any other fault ends a scan
        yield {"status": status} | message_fields(message, message.body) | ({"hex": record.hex()} if as_hex else {})
