"""The log of a salvaged store: all whole records at their own offsets, and nothing but RocketMQ's own forms in between.

A log has no gaps: who reads it goes from record to record. So where records are lost, others stand in for them, which
say that they were rolled back: no queue and no index has such a record, and nobody gets it. Where the rest of a file is
lost, or a whole file, the blank record ends it that ends each file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reput.errors import StoreFormatError
from reput.files import DISK
from reput.formats.hosts import encode_host
from reput.formats.java import INT64_MAX
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import MIN_RECORD_SIZE, SysFlag
from reput.jobs.audit.crcs import carries_crc
from reput.jobs.record_faults import faulty_records
from reput.jobs.repair.look import tail_of
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import LogFile
from reput.log.scan import Damage, OnDamage, scan_split
from reput.log.splits import Split, SplitStop

#: Of the records that stand in for others; where there is no room, its first letters.
STAND_IN_TOPIC = "DAMAGED"
_HOST = encode_host("0.0.0.0:0")
_STAND_IN_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
#: A file name that no log has come to yet asks for more files than a file system should get.
_MOST_MISSING_FILES = 100_000
#: Behind any record.
END_OF_LOG = INT64_MAX


class StandIn(StrEnum):
    """What takes the place of lost bytes."""

    RECORDS = "rolled back records"
    BLANK = "a blank record"
    ZEROS = "zeros, behind the log's end"


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that hold no whole record, commit log offsets [begin, end) of one file.

    Attributes:
        data_bytes: those of them that were not zero; all, where the file is missing.
        timestamp, with_crc: of stand-ins: store time (ms), and whether they carry a CRC of themselves.
    """

    path: str
    begin: int
    end: int
    reason: str
    stand_in: StandIn
    data_bytes: int
    timestamp: int = 0
    with_crc: bool = False


@dataclass(frozen=True, slots=True)
class FileScan:
    """What one file has: `messages` whole records up to commit log offset `end`, but for `losses` between them.

    Attributes:
        is_ended: whether a blank record follows them.
        last_timestamp: store time (ms) of the last one.
        rest_bytes: bytes behind them that are not zero.
    """

    file: LogFile
    messages: int
    log_bytes: int
    end: int
    is_ended: bool
    last_timestamp: int
    rest_bytes: int
    losses: tuple[Loss, ...]


def scan_file(file: LogFile, *, log_end: int = END_OF_LOG) -> FileScan:
    """The task for one file, whatever the others are: its records that begin before the log's end."""
    losses: list[Loss] = []
    messages = log_bytes = timestamp = seen = 0
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
        for damage in (*scan.damages[seen:], *faulty):
            _add(losses, damage, timestamp, has_crc, int(columns["store_size"][0]))
        seen = len(scan.damages)
        messages += columns.rows - len(faulty)
        log_bytes += columns.consumed - sum(damage.end - damage.begin for damage in faulty)
        timestamp, has_crc = int(stamps[-1]), bool(carries[-1])
    end = file.start_offset if scan.end_offset is None else scan.end_offset
    is_ended = scan.stop is SplitStop.BLANK
    tail = None if is_ended else tail_of(file, end)
    rest = 0 if tail is None else tail.data_bytes
    return FileScan(file, messages, log_bytes, end, is_ended, timestamp, rest, tuple(losses))


def _add(losses: list[Loss], damage: Damage, timestamp: int, with_crc: bool, next_size: int) -> None:
    """Damage in front of a record of that size; where nothing fits in, that one goes, too: a body may forge one."""
    begin, end = damage.begin, damage.end
    if losses and begin <= losses[-1].end:
        last = losses.pop()
        begin, end = last.begin, max(end, last.end)
        damage, timestamp, with_crc = damage._replace(reason=last.reason), last.timestamp, last.with_crc
    if end - begin < _min_size(with_crc=False):
        end += next_size
    with_crc &= end - begin >= _min_size(with_crc=True)
    losses.append(Loss(damage.path, begin, end, damage.reason, StandIn.RECORDS, end - begin, timestamp, with_crc))


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of the new log.

    Attributes:
        source: the file that it is a copy of, up to commit log offset `end`; None for a file that is missing.
        losses: what is not copied.
    """

    source: str | None
    name: str
    start: int
    size: int
    end: int
    losses: tuple[Loss, ...]


def plan_log(scans: Sequence[FileScan], log_end: int = END_OF_LOG) -> tuple[LogPart, ...]:
    """The files of the new log: up to the last one with a record, and those that are missing between them.

    At `log_end` begins a batch that its sink has not committed.

    Raises StoreFormatError where there is no record, or files that nobody has been able to write are missing.
    """
    last = max((number for number, scan in enumerate(scans) if scan.messages), default=-1)
    if last < 0:
        raise StoreFormatError("nothing whole is in the log: there is nothing to salvage")
    parts: list[LogPart] = []
    for number, scan in enumerate(scans[: last + 1]):
        file, losses = scan.file, scan.losses
        if parts:
            parts += _missing_parts(parts[-1].start + parts[-1].size, file)
        if number < last and not scan.is_ended:
            reason = "no record proves itself from here on, and the log goes on in the next file"
            losses += (Loss(file.path, scan.end, file.end_offset, reason, StandIn.BLANK, scan.rest_bytes),)
        elif scan.rest_bytes:
            reason = "no record proves itself from here on"
            if scan.end >= log_end:
                reason = "a batch that was not committed when its sink was killed: the sink writes it again"
            losses += (Loss(file.path, scan.end, file.end_offset, reason, StandIn.ZEROS, scan.rest_bytes),)
        name = offset_to_file_name(file.start_offset)
        parts.append(LogPart(file.path, name, file.start_offset, file.size, scan.end, losses))
    return tuple(parts)


def _missing_parts(begin: int, following: LogFile) -> Iterator[LogPart]:
    size = following.size
    if (following.start_offset - begin) // size > _MOST_MISSING_FILES:
        raise StoreFormatError(
            f"{following.path}: its name says that it lies {following.start_offset - begin} bytes behind the other "
            "files; give it its own name back, or move it away"
        )
    for start in range(begin, following.start_offset, size):
        name = offset_to_file_name(start)
        path = os.path.join(os.path.dirname(following.path), name)
        loss = Loss(path, start, start + size, "the file is not there", StandIn.BLANK, size)
        yield LogPart(None, name, start, size, start, (loss,))


def copy_part(folder: str, part: LogPart) -> int:
    """The task that writes one file of the new log, its name and all durably; returns the bytes written."""
    written = 0
    with DISK.open(os.path.join(folder, part.name), writable=True, create=True, size=part.size) as target:
        if part.source is not None:
            with DISK.open(part.source) as source:
                for begin in range(0, part.end - part.start, _BLOCK_BYTES):
                    block = source.read(begin, min(_BLOCK_BYTES, part.end - part.start - begin))
                    target.write(begin, block)
                    written += len(block)
        for loss in part.losses:
            position = loss.begin - part.start
            for data in _stand_ins(loss):
                target.write(position, data)
                position += len(data)
        target.sync()
    DISK.sync_directory(folder)  # before the task counts as done: a start after a power cut does not do it again
    return written


def _stand_ins(loss: Loss) -> Iterator[bytes]:
    if loss.stand_in is StandIn.BLANK:
        yield encode_blank(loss.end - loss.begin)
    if loss.stand_in is not StandIn.RECORDS:
        return
    offset, least = loss.begin, _min_size(with_crc=loss.with_crc)
    while offset < loss.end:
        left = loss.end - offset
        size = left if left <= _STAND_IN_BYTES else min(_STAND_IN_BYTES, left - least)
        yield _rolled_back(offset, size, loss)
        offset += size


def _rolled_back(offset: int, size: int, loss: Loss) -> bytes:
    """A rolled back message of this size."""
    room = size - _min_size(with_crc=loss.with_crc) + 1
    topic = STAND_IN_TOPIC[:room]
    message = Message(topic, bytes(room - len(topic)), sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    return encode_record(
        message, queue_id=0, queue_offset=0, commit_log_offset=offset, store_timestamp=loss.timestamp,
        store_host=_HOST, born_timestamp=loss.timestamp, born_host=_HOST, property_crc=loss.with_crc,
    )  # fmt: skip


def _min_size(*, with_crc: bool) -> int:
    """Of a record whose topic has one letter."""
    return MIN_RECORD_SIZE + 1 + (PROPERTY_CRC_SIZE if with_crc else 0)
