"""Scanning a mapped log file to columns, and reading a log as Arrow."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from lab.bench.figures import Figure, Goal, stopwatch
from lab.bench.setting import Setting
from reput import read_log
from reput.kernels.records.columns import ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.directory import StoreDirectory

#: Columns that a scan of the headers knows.
_HEADER_COLUMNS = (
    *("queue_id", "queue_offset", "commit_log_offset", "store_size", "magic_code", "flag", "sys_flag"),
    *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc"),
)


def measure(setting: Setting) -> list[Figure]:
    """Records a second, each after a round that is not measured."""
    return [*_scans(setting), *_reads(setting)]


def _scans(setting: Setting) -> list[Figure]:
    read, copy = setting.records_limit("one byte a cache line"), setting.records_limit("memcpy, one thread")
    scans = [
        (Figure("scan to header columns", "msg/s", goal=Goal(least=12_000_000), limit=read), ScanLevel.HEADER, False),
        (Figure("scan with queues, tags and keys", "msg/s", limit=read), ScanLevel.KEYS, False),
        (Figure("scan with queues, tags, keys and CRC", "msg/s", limit=copy), ScanLevel.KEYS, True),
    ]
    path = StoreDirectory(setting.stock()).log_files()[0].path
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        log = np.frombuffer(mapped, np.uint8)
        for figure, level, check_crc in scans:
            _scan(log, level, check_crc)
            for _ in range(setting.repeats):
                figure.values.append(_scan(log, level, check_crc))
        del log
    return [figure for figure, *_ in scans]


def _scan(log: npt.NDArray[np.uint8], level: ScanLevel, check_crc: bool) -> float:
    """Records a second over a whole log file that starts at offset 0."""
    scanner = RecordScanner(level=level)
    rows = position = 0
    stop = ScanStop.FULL
    with stopwatch() as watch:
        while stop is ScanStop.FULL:
            columns = scanner.scan(log[position:], position, check_crc=check_crc)
            rows, position, stop = rows + columns.rows, position + columns.consumed, columns.stop
    return rows / watch.seconds


def _reads(setting: Setting) -> list[Figure]:
    copy = setting.records_limit("memcpy, one thread")
    reads: list[tuple[Figure, tuple[str, ...] | None]] = [
        (Figure("read_log, all columns", "msg/s", goal=Goal(least=3_000_000), limit=copy), None),
        (Figure("read_log, header columns", "msg/s", limit=copy), _HEADER_COLUMNS),
        (Figure("read_log, body column", "msg/s", limit=copy), ("body",)),
    ]
    for figure, columns in reads:
        for i in range(1 + setting.repeats):
            with stopwatch() as watch:
                _read(setting, columns)
            if i:
                figure.values.append(setting.stock_count / watch.seconds)
    return [figure for figure, _ in reads]


def _read(setting: Setting, columns: tuple[str, ...] | None) -> None:
    rows = sum(batch.num_rows for batch in read_log(setting.stock(), columns))
    if rows != setting.stock_count:
        raise AssertionError(f"{rows} of {setting.stock_count} messages were read")
