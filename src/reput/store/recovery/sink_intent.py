"""Recovery of a sink's batch that a kill cut short: committed, cut off, or kept to be completed.

A sink's batch is appended under an intent (`reput.formats.sink_commit`): its offset and its content are on the disk
before its first record. A start that reads an intent compares it with the log. A batch that is whole in the log, proved
by its CRC, is committed. The records of any other batch are cut off.

There is one exception. A writer that does not know intents may have opened the store in between. RocketMQ takes the
first records of such a batch for ordinary records: it serves them, moves the checkpoint past them, and may append its
own records after them. Then nothing is cut, whether RocketMQ was killed or not, and the batch is completed when it is
written again (`reput.store.sinks.commit`).
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer
from reput.formats.hosts import HOST_GROWTH
from reput.formats.paths import CONFIG
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import PHYSICAL_OFFSET, QUEUE_OFFSET, STORE_TIMESTAMP, SysFlag
from reput.formats.sink_commit import SINKS_FILE, BrokenBatch, SinkCommit, SinkIntent, Sinks, encode_sinks
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.log.sink_commits import read_sinks, was_opened_since
from reput.store.log.commit_log import CommitLog
from reput.store.recovery_report import LogEnd

_MAX_ROWS = 65_536

logger = logging.getLogger("reput.store")


def write_sinks(files: FileLayer, path: str, sinks: Sinks) -> None:
    """Replace `config/reputSinks.json`; it is on the disk when this returns."""
    files.make_directories(f"{path}/{CONFIG}")
    files.write_atomically(f"{path}/{CONFIG}/{SINKS_FILE}", encode_sinks(sinks))


class UnfinishedBatch(NamedTuple):
    """Plan of a start for the batch of an intent.

    Attributes:
        begin_offset: Commit log offset at which the batch begins, or would have begun.
        log_end: The end that the log is to have: before the batch if the batch is to be cut off.
        sinks: What `config/reputSinks.json` is to say once the log ends there, durably.
    """

    begin_offset: int
    log_end: LogEnd
    sinks: Sinks


def find_unfinished_batch(files: FileLayer, path: str, log: CommitLog, end: LogEnd) -> UnfinishedBatch | None:
    """Decide about the intent that the last writer left; None if there is no intent. Nothing is changed.

    Args:
        files: The file layer.
        path: The store's directory.
        log: The log; its files are loaded.
        end: Where the log ends.
    """
    sinks = read_sinks(files, path)
    intent = sinks.intent
    if intent is None:
        return None
    settled = replace(sinks, intent=None)
    logged = _find_records(log, intent, end.offset)
    batch = intent.batch
    name = f"{path}: batch {batch.batch_id} of sink {batch.sink_id}" if batch is not None else f"{path}: a batch"
    if logged.is_whole:
        logger.warning("%s was in the log when its writer was killed: it counts as committed", name)
        settled = with_commit(
            settled, SinkCommit(batch, intent.begin_offset, logged.end_offset, intent.rows, intent.store_timestamp)
        )
    elif logged.rows and (logged.end_offset < end.offset or was_opened_since(files, path)):
        logger.warning(
            "%s was cut short by a kill, and another writer has opened the store since: the batch's first %d of %d "
            "records, from commit log offset %d on, cannot be cut off",
            name, logged.rows, intent.rows, intent.begin_offset,
        )  # fmt: skip
        if batch is not None:
            settled = replace(settled, broken={**sinks.broken, batch.sink_id: BrokenBatch(intent, logged.rows)})
    elif intent.begin_offset < end.offset == logged.end_offset:
        logger.warning(
            "%s was cut short by a kill: its first %d of %d records are cut off", name, logged.rows, intent.rows
        )
        end = end._replace(offset=intent.begin_offset, last_timestamp=intent.last_store_timestamp, has_tail=True)
    return UnfinishedBatch(intent.begin_offset, end, settled)


def with_commit(sinks: Sinks, commit: SinkCommit) -> Sinks:
    """The state of all sinks after a commit: without the intent, and without a broken batch of the same sink."""
    if commit.batch is None:
        return replace(sinks, intent=None)
    sink_id = commit.batch.sink_id
    broken = {other: one for other, one in sinks.broken.items() if other != sink_id}
    return replace(sinks, commits={**sinks.commits, sink_id: commit}, intent=None, broken=broken)


class _LoggedRecords(NamedTuple):
    """The records of a batch that are in the log: their number, where they end, and whether the batch is whole."""

    rows: int
    end_offset: int
    is_whole: bool


def _find_records(log: CommitLog, intent: SinkIntent, log_end: int) -> _LoggedRecords:
    """Find an intent's records: from `begin_offset` on, with the intent's store timestamp; their CRC is compared."""
    scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.HEADER)
    offset, rows, crc, is_proven = intent.begin_offset, 0, 0, True
    parts = list(intent.parts)
    left = parts[0].rows
    while parts and offset < log_end and (file := log.queue.find(offset)) is not None:
        position = offset - file.start_offset
        end = min(file.size, log_end - file.start_offset)
        columns = file.scan(scanner, position, end, left=file.size - position)
        count = _count(columns, intent.store_timestamp, left)
        size = int(columns["position"][count]) if count < columns.rows else columns.consumed
        crc = zlib.crc32(_pending(columns.buffer[:size], columns, count, property_crc=intent.property_crc).data, crc)
        file.mapping.release(position, position + size)
        rows, left, offset = rows + count, left - count, offset + size
        if not left:
            is_proven &= crc == parts.pop(0).crc
            left, crc = parts[0].rows if parts else 0, 0
        elif count == columns.rows and columns.stop is ScanStop.BLANK:
            offset = file.start_offset + file.size
        elif not count:
            break
    return _LoggedRecords(rows, offset, is_proven and not parts)


def _count(columns: RecordColumns, store_timestamp: int, limit: int) -> int:
    """Number of the first rows that have a store timestamp, `limit` at the most."""
    other = np.flatnonzero(columns["store_timestamp"][:limit] != store_timestamp)
    return int(other[0]) if other.size else min(columns.rows, limit)


def _pending(
    data: npt.NDArray[np.uint8], columns: RecordColumns, rows: int, *, property_crc: bool
) -> npt.NDArray[np.uint8]:
    """Copy of records as they were staged: zeros for queue offset, log offset, store timestamp and property CRC."""
    copied = data.copy()
    positions = columns["position"][:rows].astype(np.int64)
    grown = (columns["sys_flag"][:rows] & SysFlag.BORN_HOST_V6 != 0) * HOST_GROWTH
    fields = [(positions + QUEUE_OFFSET, 8), (positions + PHYSICAL_OFFSET, 8), (positions + STORE_TIMESTAMP + grown, 8)]
    if property_crc:
        ends = positions + columns["store_size"][:rows]
        fields.append((ends - PROPERTY_CRC_SIZE, PROPERTY_CRC_SIZE))
    for begins, width in fields:
        copied[begins[:, None] + np.arange(width)] = 0
    return copied
