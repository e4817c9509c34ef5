"""Search for whole records in a log file, where a scan found none: after damage, and after a blank record."""

from __future__ import annotations

import numpy as np

from reput.files import PAGE_SIZE
from reput.formats.record_layout import BLANK_SIZE
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.kernels.records.record_search import UNREADABLE, find_record
from reput.store.log.mapped_file import MappedFile


def find_whole(file: MappedFile, position: int) -> RecordColumns | None:
    """Find the first record at or after a position whose CRC fits; records without a fitting CRC are passed over.

    Returns:
        One row, at `ScanLevel.HEADER`; None without such a record.

    Raises:
        StoreError: The disk cannot read a page.
    """
    scanner = RecordScanner(1, level=ScanLevel.HEADER)
    while True:
        mapping = file.mapping
        rest = np.frombuffer(mapping.view[position:], np.uint8)
        found = find_record(rest, file.start_offset + position, records=1, page_size=PAGE_SIZE)
        if found == UNREADABLE:
            mapping.refuse(position)
        if found < 0:
            return None
        columns = file.scan(scanner, position + found, check_crc=True)
        if columns.first_fault():
            return columns
        position += found + columns.consumed


def is_hiding(file: MappedFile, position: int, timestamp: int | None) -> bool:
    """Whether whole records lie between the blank record at a position and the file's end: then it is damage.

    Older records do not count: RocketMQ cuts a log without zeros, so its next life may leave them there.

    Args:
        file: The file.
        position: Of the blank record.
        timestamp: Store time (ms) of the record before it. None: not known, as a walk begins here; then only a blank
            record that begins its file hides others, as no writer makes such a one.
    """
    if timestamp is None and position:
        return False
    has_data = file.file.has_data_from(position + BLANK_SIZE)
    file.close_descriptor()  # a start looks at the blank records of all files
    if not has_data:
        return False
    position += BLANK_SIZE
    while (record := find_whole(file, position)) is not None:
        if timestamp is None or record["store_timestamp"][0] >= timestamp:
            return True
        position = record.next_offset - file.start_offset
    return False
