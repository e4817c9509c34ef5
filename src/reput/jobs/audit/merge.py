"""Merge what the tasks of an audit returned for queues and index: findings, and what is still to be compared."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reput.counts import counted
from reput.formats.index_file import entry_position
from reput.jobs.audit.ascending_runs import Int64s
from reput.jobs.audit.consume_queues import DIFFERENT, EXT_DIFFERENT, SlotRanges
from reput.jobs.audit.files import ListedQueues
from reput.jobs.audit.index import AuditedIndexFile
from reput.jobs.audit.index_entries import REPEATED, WRONG_TIME, KeyAudit, MissingKeys
from reput.jobs.audit.range_tables import RangeTable, adjacent, gaps, union
from reput.jobs.audit.unmatched import ComparedIndexFile, ComparedQueue, repeated_offset
from reput.jobs.findings import Finding, Findings
from reput.log.directory import LogFile

#: Columns of the ranges of one queue: first slot, count of slots, begin and end in the log, state.
_FIRST, _COUNT, _OFFSET, _END, _STATE = range(5)


@dataclass(slots=True)
class MergedUnits:
    """Result of `merge_units`: findings, the queues with what is still to be compared, and the count of right units.

    `reached` is the commit log offset of the end of the last record that has its unit; 0 without units.
    """

    findings: Findings = field(default_factory=Findings)
    compared: list[ComparedQueue] = field(default_factory=list)
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
    merged, layer, databases = MergedUnits(), folder.file_layer(), folder.databases
    listed = {(queue.topic, queue.queue_id): queue.starts for queue in folder.queues}
    first_waiting, waiting = -1, 0
    for key, ranges in _by_queue(results).items():
        different = ranges[:, _STATE] == DIFFERENT
        if undispatched is not None:
            late = different & (ranges[:, _OFFSET] >= undispatched)
            if late.any():
                begin = int(ranges[late, _OFFSET].min())
                first_waiting = begin if first_waiting < 0 else min(first_waiting, begin)
                waiting += int(ranges[late, _COUNT].sum())
            ranges, different = ranges[~late], different[~late]
        merged.units += int(ranges[~different, _COUNT].sum())
        merged.reached = max(merged.reached, int(ranges[~different, _END].max(initial=0)))
        verified = union(_slots(ranges[~different]))
        wrong_ext = ranges[ranges[:, _STATE] == EXT_DIFFERENT]
        queue = ComparedQueue(
            folder.path, *key, is_batch, folder.file_size, listed.pop(key, ()), RangeTable(verified),
            (int(verified[0, 0]), int(verified[-1, 1])) if len(verified) else (0, 0),
            ext_different=RangeTable(np.stack(adjacent(wrong_ext[:, _FIRST], wrong_ext[:, _COUNT])[1:], axis=1)),
            files=layer, database=databases,
        )  # fmt: skip
        merged.compared.append(_with_different(queue, ranges[different], merged.findings))
    for (topic, queue_id), starts in listed.items():  # queues whose records retention has deleted, or that had none
        queue = ComparedQueue(
            folder.path, topic, queue_id, is_batch, folder.file_size, starts, files=layer, database=databases
        )  # fmt: skip
        merged.compared.append(queue)
    if waiting:
        text = f"{counted(waiting, 'unit')}, of records from commit log offset {first_waiting} on"
        path = databases or folder.path
        finding = Finding("not-dispatched", path, text, commit_log_offset=first_waiting, count=waiting)
        merged.findings.add([finding])
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


def _slots(ranges: Int64s) -> Int64s:
    """int64[n, 2], begin and end of ranges of slots."""
    return np.stack([ranges[:, _FIRST], ranges[:, _FIRST] + ranges[:, _COUNT]], axis=1)


def _with_different(queue: ComparedQueue, different: Int64s, findings: Findings) -> ComparedQueue:
    """The queue with the slots whose units differ. Records whose slot belongs to another record become findings."""
    if not len(different):
        return queue
    remaining = different = _side_by_side(different)
    known, repeated = queue.known.rows, []
    if not queue.is_batch:
        firsts, ends = different[:, _FIRST], different[:, _FIRST] + different[:, _COUNT]
        lows, highs = np.searchsorted(known[:, 1], firsts, "right"), np.searchsorted(known[:, 0], ends)
        parts = [different[lows == highs, :_STATE]]
        for row in np.flatnonzero(lows < highs).tolist():  # records of taken slots
            first, count, offset, end = different[row, :_STATE].tolist()
            taken = np.clip(known[lows[row] : highs[row]], first, first + count)
            if count == 1:
                repeated.append((first, offset, end))
            else:
                findings.add(repeated_offset(queue, begin, stop - begin, offset) for begin, stop in taken.tolist())
                left = gaps(taken, first, first + count)
                sizes = left[:, 1] - left[:, 0]
                parts.append(np.stack([left[:, 0], sizes, *np.full((2, len(left)), [[offset], [end]])], axis=1))
        remaining = np.concatenate(parts)
        remaining = remaining[np.argsort(remaining[:, _FIRST], kind="stable")]
        known = union(np.concatenate([known, _slots(remaining)]))
    return replace(
        queue, known=RangeTable(known), different=RangeTable(remaining[:, :_STATE]),
        repeated=RangeTable(np.array(repeated, np.int64).reshape(-1, 3)),
    )  # fmt: skip


def _side_by_side(different: Int64s) -> Int64s:
    """The ranges, with adjacent ones joined: a split may end anywhere."""
    goes_on = different[:-1, _FIRST] + different[:-1, _COUNT] == different[1:, _FIRST]
    goes_on &= different[:-1, _END] <= different[1:, _OFFSET]
    starts = np.flatnonzero(np.append(True, ~goes_on))
    joined = different[starts]
    joined[:, _COUNT] = np.add.reduceat(different[:, _COUNT], starts)
    joined[:, _END] = different[np.append(starts[1:], len(different)) - 1, _END]
    return joined


def merge_keys(
    files: Sequence[AuditedIndexFile],
    slots: int,
    folder: str,
    results: Sequence[KeyAudit],
    log_files: Sequence[LogFile],
    undispatched: int | None,
) -> tuple[Findings, list[ComparedIndexFile]]:
    """Merge the entries and keys of all tasks: findings, and the files with what is still to be compared.

    Args:
        folder: of the index.
        results: of all tasks, in log order.
        undispatched: keys of records from this commit log offset on need no entry yet; None: all keys need one.
    """
    findings = Findings()
    wrong_begins = set()
    for number, position, expected in (wrong for result in results for wrong in result.wrong_times):
        header, name = files[number].header, "ENDTIMESTAMP" if position else "BEGINTIMESTAMP"
        found = header.end_timestamp if position else header.begin_timestamp
        wrong_begins |= set() if position else {number}
        text = f"{name} is {found}, the record was stored at {expected}"
        findings.add([Finding("index-header-wrong", files[number].path, text, position)])
    compared = []
    entries = np.concatenate([np.empty((0, 4), np.int64), *(np.stack(result.entries, axis=1) for result in results)])
    entries = entries[np.lexsort((entries[:, 1], entries[:, 0]))]
    borders = np.searchsorted(entries[:, 0], np.arange(len(files) + 1))
    for number, file in enumerate(files):
        of_file = entries[borders[number] : borders[number + 1]]
        odd = of_file[of_file[:, 3] != 0]
        if number in wrong_begins:
            odd = odd[odd[:, 3] != WRONG_TIME]
        starts, firsts, counts = adjacent(odd[:, 1], odd[:, 2], odd[:, 3])
        _add_entries(findings, file.path, slots, np.stack([firsts, counts, odd[starts, 3]], axis=1))
        known = union(np.stack([of_file[:, 1], of_file[:, 1] + of_file[:, 2]], axis=1))
        compared.append(
            ComparedIndexFile(file.path, slots, file.header.begin_timestamp, file.header.index_count, RangeTable(known))
        )
    findings.add(_missing_findings(folder, results, log_files, undispatched))
    return findings, compared


def _add_entries(findings: Findings, path: str, slots: int, ranges: Int64s) -> None:
    """Add ranges of entries that have their record, and are not right: first entry, count, and state."""
    for state, code, fault in (
        (REPEATED, "index-entry-repeated", "its record has another entry for the key"),
        (WRONG_TIME, "index-entry-wrong", "TIMEDIFF is not its record's"),
    ):
        some = ranges[ranges[:, 2] == state]

        def finding(row: int, some: Int64s = some, code: str = code, fault: str = fault) -> Finding:
            first, count, _ = some[row].tolist()
            return Finding(code, path, f"entry {first}: {fault}", entry_position(slots, first), count=count)

        findings.add_many(code, len(some), int(some[:, 1].sum()), finding)


def _missing_findings(
    folder: str, results: Sequence[KeyAudit], log_files: Sequence[LogFile], undispatched: int | None
) -> Iterator[Finding]:
    waiting = []
    starts = [file.start_offset for file in log_files]
    for missing in _joined_missing(results):
        offset, to, count = missing.first, missing.last, missing.count
        if undispatched is not None and offset >= undispatched:
            waiting.append((offset, count))
            continue
        file = log_files[bisect_right(starts, offset) - 1]
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
