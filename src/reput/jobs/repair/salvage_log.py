"""Log of a salvaged store: whole records at their own offsets, and placeholders in RocketMQ's formats for lost records.

A log has no gaps: a reader goes from record to record. So placeholders replace lost records: rolled back messages,
which are in no queue and no index, and which no consumer gets. If the rest of a file is lost, or a whole file, a blank
record ends the file, as in each full file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter

import numpy as np

from reput.errors import StoreFormatError
from reput.files import DISK
from reput.formats.hosts import encode_host
from reput.formats.java import INT64_MAX
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import MIN_RECORD_SIZE, SysFlag
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.property_crcs import carries_crc
from reput.jobs.record_faults import faulty_records
from reput.jobs.repair.known_messages import Known, known_messages
from reput.kernels.records.placeholders import PLACEHOLDER_HOST, PLACEHOLDER_TOPIC, message_count
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import Damage
from reput.log.directory import LogFile
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitStop

_HOST = encode_host(PLACEHOLDER_HOST)
_PLACEHOLDER_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
#: Limit of missing files that are made: a file name may be wrong by far.
_MOST_MISSING_FILES = 100_000
#: A commit log offset after any record.
END_OF_LOG = INT64_MAX


class Placeholder(StrEnum):
    """Kind of placeholder for lost bytes."""

    RECORDS = "rolled back records"
    BLANK = "a blank record"
    ZEROS = "zeros, after the log's end"


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that hold no whole record, commit log offsets [begin, end). Only the end of a log may be of several files.

    Attributes:
        path: of the file in which it begins.
        timestamp: store time (ms) of placeholders.
        with_crc: whether placeholders carry a property CRC.
        messages: messages that the queues have in it; None if the queues do not reach its end.
    """

    path: str
    begin: int
    end: int
    reason: str
    placeholder: Placeholder
    timestamp: int = 0
    with_crc: bool = False
    messages: int | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class FileScan:
    """Whole records of one log file: `records` up to commit log offset `end`, with `losses` between them.

    Attributes:
        messages: count of the records that are messages; the others stand in for bytes that an earlier salvage lost.
        is_ended: whether a blank record comes after them.
        last_timestamp: store time (ms) of the last record.
        data_end: commit log offset after the last byte from `end` on that is not zero; `end` if all are.
    """

    file: LogFile
    records: int
    messages: int
    log_bytes: int
    end: int
    is_ended: bool
    last_timestamp: int
    data_end: int
    losses: tuple[Loss, ...]


def scan_file(file: LogFile, *, log_end: int = END_OF_LOG) -> FileScan:
    """Task: scan one file for its records that begin before the log's end. It does not depend on other files."""
    losses: list[Loss] = []
    records = messages = log_bytes = timestamp = 0
    has_crc = False
    scan = scan_split(
        Split(LogFile(file.path, file.start_offset, file.size), file.start_offset, min(file.end_offset, log_end), True),
        level=ScanLevel.PROPERTIES,
        on_damage=OnDamage.SKIP,
    )
    for columns in scan:
        carries, stamps = carries_crc(columns), columns["store_timestamp"]
        if not timestamp:
            timestamp, has_crc = int(stamps[0]), bool(carries[0])
        faulty = faulty_records(file.path, columns)
        for damage in sorted([*scan.passed, *faulty], key=attrgetter("begin")):
            row = int(np.searchsorted(columns["commit_log_offset"], damage.begin))
            before = (int(stamps[row - 1]), bool(carries[row - 1])) if row else (timestamp, has_crc)
            _add(losses, damage, *before, int(columns["store_size"][row]))
        records += columns.rows - len(faulty)
        messages += message_count(columns) - len(faulty)
        log_bytes += columns.record_bytes - sum(damage.end - damage.begin for damage in faulty)
        timestamp, has_crc = int(stamps[-1]), bool(carries[-1])
    end = file.start_offset if scan.end_offset is None else scan.end_offset
    if scan.passed:  # no record of the new log follows it
        end = scan.passed[0].begin
    is_ended = scan.stop is SplitStop.BLANK
    data_end = end if is_ended else _data_end(file, end)
    return FileScan(file, records, messages, log_bytes, end, is_ended, timestamp, data_end, tuple(losses))


def _data_end(file: LogFile, end: int) -> int:
    """Commit log offset after a file's last byte that is not zero; `end` if there is none from `end` on."""
    with DISK.open(file.path) as opened:
        position = max(end - file.start_offset, 0)
        while position < file.size and opened.has_data_from(position):
            block = opened.read(position, _BLOCK_BYTES)
            if data := block.rstrip(b"\0"):
                end = file.start_offset + position + len(data)
            position += len(block) or file.size
    return end


def _add(losses: list[Loss], damage: Damage, timestamp: int, with_crc: bool, next_size: int) -> None:
    """Add damage before a record of `next_size` bytes to the losses.

    If no placeholder fits into the damage, the record is lost, too: it may be forged by a body.
    """
    begin, end = damage.begin, damage.end
    if losses and begin <= losses[-1].end:
        last = losses.pop()
        begin, end = last.begin, max(end, last.end)
        damage, timestamp, with_crc = damage._replace(reason=last.reason), last.timestamp, last.with_crc
    if end - begin < _min_size(with_crc=False):
        end += next_size
    with_crc &= end - begin >= _min_size(with_crc=True)
    losses.append(Loss(damage.path, begin, end, damage.reason, Placeholder.RECORDS, timestamp, with_crc))


@dataclass(frozen=True, slots=True)
class NewLogFile:
    """One file of the new log.

    Attributes:
        source: the file that is copied up to commit log offset `end`; None for a missing file.
        losses: ranges that are not copied.
    """

    source: str | None
    name: str
    start: int
    size: int
    end: int
    losses: tuple[Loss, ...]


def plan_log(scans: Sequence[FileScan]) -> tuple[NewLogFile, ...]:
    """Plan the files of the new log: up to the last file with a record, missing files between them included.

    Raises StoreFormatError if there is no record, or if more files are missing than a log can have.
    """
    last = max((number for number, scan in enumerate(scans) if scan.records), default=-1)
    if last < 0:
        raise StoreFormatError("nothing whole is in the log: there is nothing to salvage")
    new_files: list[NewLogFile] = []
    for number, scan in enumerate(scans[: last + 1]):
        file, losses = scan.file, scan.losses
        if new_files:
            new_files += _missing_files(new_files[-1].start + new_files[-1].size, file)
        if number < last and not scan.is_ended:
            reason = "no record proves itself from here on, and the log goes on in the next file"
            losses += (Loss(file.path, scan.end, file.end_offset, reason, Placeholder.BLANK),)
        name = offset_to_file_name(file.start_offset)
        new_files.append(NewLogFile(file.path, name, file.start_offset, file.size, scan.end, losses))
    return tuple(new_files)


def _missing_files(begin: int, following: LogFile) -> Iterator[NewLogFile]:
    size = following.size
    if (following.start_offset - begin) // size > _MOST_MISSING_FILES:
        raise StoreFormatError(
            f"{following.path}: by its name it lies {following.start_offset - begin} bytes after the end of the file "
            "before it; give it its own name back, or move it away"
        )
    for start in range(begin, following.start_offset, size):
        name = offset_to_file_name(start)
        path = os.path.join(os.path.dirname(following.path), name)
        loss = Loss(path, start, start + size, "the file is not there", Placeholder.BLANK)
        yield NewLogFile(None, name, start, size, start, (loss,))


def counted_losses(
    listing: StoreListing, scans: Sequence[FileScan], new_files: Sequence[NewLogFile], log_end: int = END_OF_LOG
) -> Iterator[Loss]:
    """Losses of a plan, each with its messages, and the loss after the last whole record.

    Args:
        log_end: begin of a batch that its sink has not committed, if there is one.
    """
    losses = [loss for file in new_files for loss in file.losses]
    last = max((scan for scan in scans if scan.records), key=lambda scan: scan.end)
    begin = last.file.end_offset if last.is_ended else last.end
    reached, tail, *known = known_messages(listing, begin, [(loss.begin, loss.end) for loss in losses])
    for loss, of_loss in zip(losses, known, strict=True):
        yield replace(loss, messages=of_loss.messages if loss.end <= reached else None)
    yield from _tail_losses(scans, begin, tail, log_end)


def _tail_losses(scans: Sequence[FileScan], begin: int, known: Known, log_end: int) -> Iterator[Loss]:
    """Losses after the log's last whole record: what queues know of, and data that comes later."""
    unproven = "no record proves itself from here on"
    uncommitted = "a batch that was not committed when its sink was killed: the sink writes it again"
    known_end, data_end = max(known.end, begin), max(scan.data_end for scan in scans)
    if known_end > begin:
        reason = uncommitted if begin >= log_end else unproven
        yield Loss(_path_at(scans, begin), begin, known_end, reason, Placeholder.ZEROS, messages=known.messages)
    batch_begin = min(max(log_end, known_end), data_end)
    for low, high, reason in ((known_end, batch_begin, unproven), (batch_begin, data_end, uncommitted)):
        if high > low:
            yield Loss(_path_at(scans, low), low, high, reason, Placeholder.ZEROS)


def _path_at(scans: Sequence[FileScan], offset: int) -> str:
    """Path of the file that has, or would have, a commit log offset."""
    file = max((scan.file for scan in scans if scan.file.start_offset <= offset), key=lambda file: file.start_offset)
    name = offset_to_file_name(offset - (offset - file.start_offset) % file.size)
    return file.path if offset < file.end_offset else os.path.join(os.path.dirname(file.path), name)


def write_log_file(folder: str, file: NewLogFile) -> int:
    """Task: write one file of the new log durably, its name included; returns the bytes copied."""
    written = 0
    with DISK.open(os.path.join(folder, file.name), writable=True, create=True, size=file.size) as target:
        if file.source is not None:
            with DISK.open(file.source) as source:
                for begin in range(0, file.end - file.start, _BLOCK_BYTES):
                    block = source.read(begin, min(_BLOCK_BYTES, file.end - file.start - begin))
                    target.write(begin, block)
                    written += len(block)
        for loss in file.losses:
            position = loss.begin - file.start
            for data in _placeholders(loss):
                target.write(position, data)
                position += len(data)
        target.sync()
    DISK.sync_directory(folder)  # before the task counts as done: a start after a power cut does not run it again
    return written


def _placeholders(loss: Loss) -> Iterator[bytes]:
    if loss.placeholder is Placeholder.BLANK:
        yield encode_blank(loss.end - loss.begin)
    if loss.placeholder is not Placeholder.RECORDS:
        return
    offset, least = loss.begin, _min_size(with_crc=loss.with_crc)
    while offset < loss.end:
        left = loss.end - offset
        size = left if left <= _PLACEHOLDER_BYTES else min(_PLACEHOLDER_BYTES, left - least)
        yield _rolled_back(offset, size, loss)
        offset += size


def _rolled_back(offset: int, size: int, loss: Loss) -> bytes:
    """Record of a rolled back message with this size."""
    room = size - _min_size(with_crc=loss.with_crc) + 1
    topic = PLACEHOLDER_TOPIC[:room]
    message = Message(topic, bytes(room - len(topic)), sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    return encode_record(
        message, queue_id=0, queue_offset=0, commit_log_offset=offset, store_timestamp=loss.timestamp,
        store_host=_HOST, born_timestamp=loss.timestamp, born_host=_HOST, property_crc=loss.with_crc,
    )  # fmt: skip


def _min_size(*, with_crc: bool) -> int:
    """Size of a record whose topic has one letter, and without a body."""
    return MIN_RECORD_SIZE + 1 + (PROPERTY_CRC_SIZE if with_crc else 0)
