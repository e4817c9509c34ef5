"""Merge what the tasks of an audit returned for queues and index: findings, and what is still to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reput.counts import counted
from reput.formats.index_file import entry_position
from reput.jobs.audit.files import ListedQueues
from reput.jobs.audit.index import AuditedIndexFile
from reput.jobs.audit.keys import REPEATED, WRONG_TIME, KeyAudit, MissingKeys
from reput.jobs.audit.losses import Range
from reput.jobs.audit.rest import IndexRest, QueueRest, repeated_offset
from reput.jobs.audit.runs import Int64s
from reput.jobs.audit.units import DIFFERENT, EXT_DIFFERENT, SlotRanges
from reput.jobs.findings import Finding
from reput.log.directory import LogFile

#: Columns of the ranges of one queue: first slot, count of slots, begin and end in the log, state.
_FIRST, _COUNT, _OFFSET, _END, _STATE = range(5)


@dataclass(slots=True)
class MergedUnits:
    """Result of `merge_units`: findings, the queues with what is still to be compared, and the count of right units.

    `reached` is the commit log offset of the end of the last record that has its unit; 0 without units.
    """

    findings: list[Finding] = field(default_factory=list)
    rests: list[QueueRest] = field(default_factory=list)
    units: int = 0
    reached: int = 0


def merge_units(
    folder: ListedQueues, is_batch: bool, results: Sequence[SlotRanges], undispatched: int | None
) -> MergedUnits:
    """Merge the ranges of all tasks by queue.

    Args:
        results: of all tasks, in log order.
        undispatched: records from this commit log offset on need no unit yet; None: all records need one.
    """
    merged = MergedUnits()
    listed = {(queue.topic, queue.queue_id): queue.starts for queue in folder.queues}
    waiting: list[tuple[int, int]] = []
    for key, ranges in _by_queue(results).items():
        different = ranges[:, _STATE] == DIFFERENT
        if undispatched is not None:
            late = different & (ranges[:, _OFFSET] >= undispatched)
            waiting += zip(ranges[late, _OFFSET].tolist(), ranges[late, _COUNT].tolist(), strict=True)
            ranges, different = ranges[~late], different[~late]
        merged.units += int(ranges[~different, _COUNT].sum())
        merged.reached = max(merged.reached, int(ranges[~different, _END].max(initial=0)))
        verified = _joined(ranges[~different])
        wrong_ext = ranges[ranges[:, _STATE] == EXT_DIFFERENT]
        rest = QueueRest(
            folder.path, *key, is_batch, folder.file_size, listed.pop(key, ()), verified,
            (verified[0][0], verified[-1][1]) if verified else (0, 0), (),
            tuple((first, count) for first, count, _ in _adjacent(wrong_ext[:, [_FIRST, _COUNT, _STATE]])),
        )  # fmt: skip
        merged.rests.append(_with_different(rest, ranges[different], merged.findings))
    for (topic, queue_id), starts in listed.items():  # queues whose records retention has deleted, or that had none
        merged.rests.append(
            QueueRest(folder.path, topic, queue_id, is_batch, folder.file_size, starts, (), (0, 0), (), ())
        )
    if waiting:
        count = sum(number for _, number in waiting)
        text = f"{counted(count, 'unit')}, of records from commit log offset {min(waiting)[0]} on"
        merged.findings.append(
            Finding("not-dispatched", folder.path, text, commit_log_offset=min(waiting)[0], count=count)
        )
    return merged


def _by_queue(results: Sequence[SlotRanges]) -> dict[tuple[str, int], Int64s]:
    """int64[n, 5] for each queue, its ranges by their first slots."""
    numbers: dict[tuple[str, int], int] = {}
    columns: list[Int64s] = [np.empty((0, 6), np.int64)]
    for result in results:
        queue_numbers = np.array([numbers.setdefault(name, len(numbers)) for name in result.names], np.int64)
        if result.queues.size:
            columns.append(np.stack([queue_numbers[result.queues], *result[2:]], axis=1))
    ranges = np.concatenate(columns)
    ranges = ranges[np.lexsort((ranges[:, 1 + _OFFSET], ranges[:, 1 + _FIRST], ranges[:, 0]))]
    borders = np.searchsorted(ranges[:, 0], np.arange(len(numbers) + 1))
    return {name: ranges[borders[i] : borders[i + 1], 1:] for name, i in numbers.items() if borders[i] < borders[i + 1]}


def _joined(ranges: Int64s) -> tuple[Range, ...]:
    """The union of ranges of slots, in order."""
    if not len(ranges):
        return ()
    ends = np.maximum.accumulate(ranges[:, _FIRST] + ranges[:, _COUNT])
    starts = np.flatnonzero(np.append(True, ranges[1:, _FIRST] > ends[:-1]))
    lasts = np.append(starts[1:], len(ranges)) - 1
    return tuple(zip(ranges[starts, _FIRST].tolist(), ends[lasts].tolist(), strict=True))


def _with_different(rest: QueueRest, different: Int64s, findings: list[Finding]) -> QueueRest:
    """The queue with the slots whose units differ. Records whose slot belongs to another record become findings."""
    if not len(different):
        return rest
    remaining, repeated = [], []
    for first, count, offset, end in _side_by_side(different):
        taken = () if rest.is_batch else tuple(_within(rest.known, first, first + count))
        for taken_begin, taken_end in taken:
            if count == 1:
                repeated.append((first, offset, end))
            else:
                findings.append(repeated_offset(rest, taken_begin, taken_end - taken_begin, offset))
        begin = first
        for taken_begin, taken_end in (*taken, (first + count, first + count)):
            if begin < taken_begin:
                remaining.append((begin, taken_begin - begin, offset, end))
            begin = taken_end
    known = rest.known
    if not rest.is_batch:
        slots = [(first, first + count) for first, count, *_ in remaining]
        known = _joined(np.array(sorted((a, b - a) for a, b in [*known, *slots]), np.int64).reshape(-1, 2))
    return replace(rest, known=known, different=tuple(remaining), repeated=tuple(repeated))


def _adjacent(ranges: Int64s) -> Iterator[tuple[int, int, int]]:
    """First, count and state of ranges in order. Adjacent ranges with the same state are joined."""
    before: tuple[int, int, int] | None = None
    for first, count, state in ranges.tolist():
        if before is not None and before[0] + before[1] == first and before[2] == state:
            before = before[0], before[1] + count, state
            continue
        if before is not None:
            yield before
        before = first, count, state
    if before is not None:
        yield before


def _side_by_side(different: Int64s) -> Iterator[tuple[int, int, int, int]]:
    """First slot, count, offset and end of ranges. Adjacent ranges are joined: a split may end anywhere."""
    before: tuple[int, int, int, int] | None = None
    for first, count, offset, end, _ in different.tolist():
        if before is not None and before[0] + before[1] == first and before[3] <= offset:
            before = before[0], before[1] + count, before[2], end
            continue
        if before is not None:
            yield before
        before = first, count, offset, end
    if before is not None:
        yield before


def _within(ranges: Iterable[Range], begin: int, end: int) -> Iterator[Range]:
    for range_begin, range_end in ranges:
        if range_begin < end and range_end > begin:
            yield max(range_begin, begin), min(range_end, end)


def merge_keys(
    files: Sequence[AuditedIndexFile],
    slots: int,
    folder: str,
    results: Sequence[KeyAudit],
    log_files: Sequence[LogFile],
    *,
    may_wait: bool,
) -> tuple[list[Finding], list[IndexRest]]:
    """Merge the entries and keys of all tasks: findings, and the files with what is still to be compared.

    Args:
        folder: of the index.
        results: of all tasks, in log order.
        may_wait: whether keys after the last record that has an entry need no entry yet.
    """
    findings: list[Finding] = []
    wrong_begins = set()
    for number, position, expected in (wrong for result in results for wrong in result.wrong_times):
        header, name = files[number].header, "ENDTIMESTAMP" if position else "BEGINTIMESTAMP"
        found = header.end_timestamp if position else header.begin_timestamp
        wrong_begins |= set() if position else {number}
        text = f"{name} is {found}, the record was stored at {expected}"
        findings.append(Finding("index-header-wrong", files[number].path, text, position))
    rests = []
    entries = np.concatenate([np.empty((0, 4), np.int64), *(np.stack(result.entries, axis=1) for result in results)])
    for number, file in enumerate(files):
        of_file = entries[entries[:, 0] == number]
        of_file = of_file[np.argsort(of_file[:, 1], kind="stable")]
        for first, count, state in _adjacent(of_file[of_file[:, 3] != 0, 1:]):
            position = entry_position(slots, first)
            if state == REPEATED:
                text = f"entry {first}: its record has another entry for the key"
                findings.append(Finding("index-entry-repeated", file.path, text, position, count=count))
            elif state == WRONG_TIME and number not in wrong_begins:
                text = f"entry {first}: TIMEDIFF is not its record's"
                findings.append(Finding("index-entry-wrong", file.path, text, position, count=count))
        known = _joined(of_file[:, 1:3])
        rests.append(IndexRest(file.path, slots, file.header.begin_timestamp, file.header.index_count, known))
    last = max((result.last for result in results), default=-1)
    findings += _missing_findings(folder, results, log_files, last if may_wait else None)
    return findings, rests


def _missing_findings(
    folder: str, results: Sequence[KeyAudit], log_files: Sequence[LogFile], last: int | None
) -> Iterator[Finding]:
    waiting = []
    for missing in _joined_missing(results):
        offset, to, count = missing.first, missing.last, missing.count
        if last is not None and offset >= last:
            waiting.append((offset, count))
            continue
        file = next(file for file in log_files if file.start_offset <= offset < file.end_offset)
        where = f"at commit log offset {offset}" if offset == to else f"from commit log offset {offset} to {to}"
        text = f"not in {folder}: {counted(count, 'key')} of {'the record' if offset == to else 'records'} {where}"
        yield Finding("index-entry-missing", file.path, text, offset - file.start_offset, offset, count=count)
    if waiting:
        count, offset = sum(number for _, number in waiting), min(waiting)[0]
        text = f"{counted(count, 'entry')}, of records from commit log offset {offset} on"
        yield Finding("not-dispatched", folder, text, commit_log_offset=offset, count=count)


def _joined_missing(results: Sequence[KeyAudit]) -> list[MissingKeys]:
    """Missing keys of all tasks. A range that goes on in the next task is joined."""
    missing: list[MissingKeys] = []
    goes_on = False
    for result in results:
        of_task = list(result.missing)
        if goes_on and of_task and result.begins_missing:
            of_task[0] = missing.pop().joined(of_task[0])
        missing += of_task
        if of_task or result.last >= 0:
            goes_on = result.ends_missing
    return missing
