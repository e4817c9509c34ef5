"""Which batches of Spark's sinks are in the log, and what a start does about one that a kill cut short.

A batch is appended under an intent (`reput.formats.sink_commit`): its place and its content are on the disk before its
first record is. A start that finds an intent compares it with the log. A batch that is there whole, proved by its CRC,
is committed; of any other nothing stays. Unless somebody who does not know of intents has opened the store in between:
RocketMQ takes the first records of such a batch for what they look like: it serves them, moves the checkpoint beyond
them, and its own may lie behind them. Then nothing is cut, whether it was killed itself or not, and the batch is
completed when it is written again (`reput.store.sinks.commit`).
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.paths import CONFIG
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import PHYSICAL_OFFSET, QUEUE_OFFSET, STORE_TIMESTAMP, SysFlag
from reput.formats.sink_commit import SINKS_FILE, BrokenBatch, SinkCommit, SinkIntent, Sinks, encode_sinks
from reput.kernels.columns import RecordColumns, ScanStop
from reput.kernels.record_scan import RecordScanner, ScanLevel
from reput.log.sink_commits import read_sinks, was_opened_since
from reput.store.log.commit_log import CommitLog
from reput.store.recovery_report import LogEnd

_MAX_ROWS = 65_536
_HOST_GROWTH = HOST_V6_SIZE - HOST_V4_SIZE

logger = logging.getLogger("reput.store")


def write_sinks(files: FileLayer, path: str, sinks: Sinks) -> None:
    """Replace the file; it is on the disk when this returns."""
    files.make_directories(f"{path}/{CONFIG}")
    files.write_atomically(f"{path}/{CONFIG}/{SINKS_FILE}", encode_sinks(sinks))


class Unfinished(NamedTuple):
    """What a start has to do about an intent.

    Attributes:
        begin_offset: Where the batch begins, or would have.
        log_end: The log's end, before the batch where that is to be cut off.
        sinks: What the store says once the log ends there, durably.
    """

    begin_offset: int
    log_end: LogEnd
    sinks: Sinks


def find_unfinished(files: FileLayer, path: str, log: CommitLog, end: LogEnd) -> Unfinished | None:
    """Judge the intent that the last writer left, if any; nothing is changed.

    Args:
        log: Its files are loaded; where it ends is told by `end`.
    """
    sinks = read_sinks(files, path)
    intent = sinks.intent
    if intent is None:
        return None
    settled = replace(sinks, intent=None)
    found = _find_records(log, intent, end.offset)
    batch = intent.batch
    name = f"{path}: batch {batch.batch_id} of sink {batch.sink_id}" if batch is not None else f"{path}: a batch"
    if found.is_whole:
        logger.warning("%s was in the log when its writer was killed: it counts as committed", name)
        settled = with_commit(
            settled, SinkCommit(batch, intent.begin_offset, found.end_offset, intent.rows, intent.store_timestamp)
        )
    elif found.rows and (found.end_offset < end.offset or was_opened_since(files, path)):
        logger.warning(
            "%s was cut short by a kill, and somebody else has opened the store since: its first %d of %d records, "
            "from commit log offset %d on, cannot be taken back", name, found.rows, intent.rows, intent.begin_offset,
        )  # fmt: skip
        if batch is not None:
            settled = replace(settled, broken={**sinks.broken, batch.sink_id: BrokenBatch(intent, found.rows)})
    elif intent.begin_offset < end.offset == found.end_offset:
        logger.warning("%s was cut short by a kill: its first %d of %d records go", name, found.rows, intent.rows)
        end = end._replace(offset=intent.begin_offset, last_timestamp=intent.last_store_timestamp, has_tail=True)
    return Unfinished(intent.begin_offset, end, settled)


def with_commit(sinks: Sinks, commit: SinkCommit) -> Sinks:
    """What the store says after a commit: the intent is gone, and so is what was broken of that sink."""
    if commit.batch is None:
        return replace(sinks, intent=None)
    sink_id = commit.batch.sink_id
    broken = {other: one for other, one in sinks.broken.items() if other != sink_id}
    return replace(sinks, commits={**sinks.commits, sink_id: commit}, intent=None, broken=broken)


class _Found(NamedTuple):
    """Records of a batch in the log: how many from its begin on, where they end, and whether they are all of it."""

    rows: int
    end_offset: int
    is_whole: bool


def _find_records(log: CommitLog, intent: SinkIntent, log_end: int) -> _Found:
    """The records from the intent's begin on that have its store timestamp, compared with what was staged."""
    scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.HEADER)
    offset, rows, crc, is_proven = intent.begin_offset, 0, 0, True
    parts = list(intent.parts)
    left = parts[0].rows
    while parts and offset < log_end and (file := log.queue.find(offset)) is not None:
        position = offset - file.start_offset
        data = np.frombuffer(file.view[position : min(file.size, log_end - file.start_offset)], np.uint8)
        columns = scanner.scan(data, offset)
        count = _count(columns, intent.store_timestamp, left)
        size = int(columns["position"][count]) if count < columns.rows else columns.consumed
        crc = zlib.crc32(_pending(data[:size], columns, count, property_crc=intent.property_crc).data, crc)
        file.mapping.release(position, position + size)
        rows, left, offset = rows + count, left - count, offset + size
        if not left:
            is_proven &= crc == parts.pop(0).crc
            left, crc = parts[0].rows if parts else 0, 0
        elif count == columns.rows and columns.stop is ScanStop.BLANK:
            offset = file.start_offset + file.size
        elif not count:
            break
    return _Found(rows, offset, is_proven and not parts)


def _count(columns: RecordColumns, store_timestamp: int, limit: int) -> int:
    """How many of the first rows have a store timestamp; at most `limit`."""
    other = np.flatnonzero(columns["store_timestamp"][:limit] != store_timestamp)
    return int(other[0]) if other.size else min(columns.rows, limit)


def _pending(
    data: npt.NDArray[np.uint8], columns: RecordColumns, rows: int, *, property_crc: bool
) -> npt.NDArray[np.uint8]:
    """A copy of records with zeros where the append put queue offset, log offset, store timestamp and property CRC."""
    copied = data.copy()
    positions = columns["position"][:rows].astype(np.int64)
    grown = (columns["sys_flag"][:rows] & SysFlag.BORN_HOST_V6 != 0) * _HOST_GROWTH
    fields = [(positions + QUEUE_OFFSET, 8), (positions + PHYSICAL_OFFSET, 8), (positions + STORE_TIMESTAMP + grown, 8)]
    if property_crc:
        ends = positions + columns["store_size"][:rows]
        fields.append((ends - PROPERTY_CRC_SIZE, PROPERTY_CRC_SIZE))
    for begins, width in fields:
        copied[begins[:, None] + np.arange(width)] = 0
    return copied
