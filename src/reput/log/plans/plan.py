"""Plan of a read: which parts of a log are read, cut so that tasks can share them, and why the rest is not read.

A plan fixes the log's end: its rows are a prefix of the log, less what is pruned, even while the store is written. No
border is found by the bytes, which content can forge. A border is the start of a file, or the start of a record that a
walk from there has met or the consume queues prove.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import FileLayer
from reput.formats.record import decode_record
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.log.clean_exit_check import lost_end
from reput.log.directory import LogFile, StoreDirectory, open_listed
from reput.log.plans.header_walk import BEGIN, END, Walk, splits_of_zones, walk
from reput.log.plans.plan_parts import Part, part_before, part_bytes, part_range
from reput.log.plans.pruning import (
    Locations,
    Range,
    Wanted,
    points_of,
    wanted_by,
    wanted_files,
    wanted_locations,
    wanted_zones,
)
from reput.log.plans.queue_records import NotProven
from reput.log.plans.statistics import ZONE_BYTES, kept_walk
from reput.log.plans.time_span import Span, time_span
from reput.log.scan import OnDamage
from reput.log.selection import Selection
from reput.log.sink_commits import SinkWatch, committed_end
from reput.log.splits import Split

T = TypeVar("T")
R = TypeVar("R")

#: The smallest range that is worth a task.
MIN_TASK_BYTES = 8 << 20

logger = logging.getLogger("reput.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of a planned read.

    Attributes:
        processors: the smallest number of tasks that is wanted.
        split_bytes: log bytes of a task; None: as many as make one task for each processor.
        flushed_ms: a record with a later store timestamp ends the log; None: no record does.
        statistics: the folder in which the results of walks are kept; None: they are not kept.
        clock_margin_ms: how far store timestamps ever go back, by the user's word; None: unknown.
        prune: whether anything is pruned.
    """

    processors: int
    split_bytes: int | None = None
    flushed_ms: int | None = None
    statistics: str | None = None
    clock_margin_ms: int | None = None
    prune: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of the read of one store.

    Attributes:
        parts: what is read, in log order.
        log_bytes: size of the log files that have records.
        reasons: what was pruned and by what, and what was not pruned and why.
    """

    parts: tuple[Part, ...]
    log_bytes: int
    reasons: tuple[str, ...]

    @property
    def read_bytes(self) -> int:
        """Log bytes that the plan reads."""
        return sum(part_bytes(part) for part in self.parts)


def one_by_one(task: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Runner of walks that runs them one after the other."""
    return [task(item) for item in items]


def plan_read(
    directory: StoreDirectory,
    selection: Selection,
    options: PlanOptions,
    wanted: Wanted | None = None,
    run: Callable[[Callable[[LogFile], Walk], Sequence[LogFile]], list[Walk]] = one_by_one,
) -> Plan:
    """Plan the read of a store; its parts have the same wanted rows as a full scan.

    Args:
        wanted: the conditions of wanted rows, at least as narrow as the selection. None: the selection's.
        run: runs walks, if possible at the same time.

    Raises CorruptRecordError for damage in the files that are walked, unless the selection skips damage.
    """
    try:
        return _Planner(directory, selection, options, wanted or wanted_by(selection), run).plan()
    except CorruptRecordError as error:
        raise selection.named_modes(error) from None


def plan_points(directory: StoreDirectory, selection: Selection) -> Plan | None:
    """Plan of a read by consume queues and index; None if the log is better read in full. Raises as `plan_read`."""
    wanted = wanted_by(selection)
    if not wanted.is_queued:
        return None
    try:
        return _Planner(directory, selection, PlanOptions(processors=1), wanted, one_by_one).plan_points()
    except CorruptRecordError as error:
        raise selection.named_modes(error) from None


@dataclass(frozen=True, slots=True)
class ProvenRange:
    """Records of a range of the log that consume queues and index prove.

    Attributes:
        begin, end: log offsets between which it is asked; up to the end of the files a live log may grow meanwhile.
        last: offset of the last record that any queue names.
    """

    begin: int
    end: int
    last: int
    _files: Sequence[LogFile]
    _locations: Locations

    def parts(self, begin: int, end: int) -> list[Part]:
        """Parts with the wanted records between the offsets of two records of the range, or the log's end."""
        splits = [
            Split(file, max(begin, file.start_offset), min(end, file.end_offset), True)
            for file in self._files
            if file.end_offset > begin and file.start_offset < end
        ]
        return _parts_within(self._locations, splits, self._files)


def prove_range(directory: StoreDirectory, selection: Selection, begin: int, end: int) -> ProvenRange | None:
    """Proof of a range by consume queues and index; None if it is better read in full.

    Args:
        begin, end: log offsets of two records, or ends of the log or of a file; no record between them is cut
            meanwhile, and those that are added are in a gap.
    """
    wanted = replace(wanted_by(selection), commit_log_offset=Range(begin, end - 1))
    files = [file for file in directory.log_files() if file.end_offset > begin and file.start_offset < end]
    if not files or not wanted.is_queued or files[0].start_offset > begin or files[-1].end_offset < end:
        return None
    try:
        locations = wanted_locations(directory, files, wanted, end - begin)
    except NotProven as reason:
        logger.info("%s: all bytes from %d to %d: %s", directory.path, begin, end, reason)
        return None
    logger.info("%s: from %d to %d: %s", directory.path, begin, end, locations.reason)
    return ProvenRange(begin, end, locations.last, files, locations)


def plan_range(directory: StoreDirectory, selection: Selection, begin: int, end: int) -> list[Part] | None:
    """Parts with the wanted records of a range, by consume queues and index; None if it is better read in full.

    Args:
        begin, end: log offsets of two records, or the log's end; no record between them is added or cut meanwhile.
    """
    proven = prove_range(directory, selection, begin, end)
    return None if proven is None else proven.parts(begin, end)


def _parts_within(locations: Locations, splits: Sequence[Split], log_files: Sequence[LogFile]) -> list[Part]:
    """Parts of the locations within splits, in log order."""
    begins = np.array([split.begin for split in splits], np.int64)
    ends = np.array([split.end for split in splits], np.int64)
    at = np.searchsorted(begins, locations.records.offsets, "right") - 1
    records = locations.records.rows((at >= 0) & (locations.records.offsets < ends[at]))
    gaps = []
    for gap in locations.gaps:
        inside = [(max(gap.begin, split.begin), min(gap.end, split.end)) for split in splits]
        gaps += [Split(gap.file, begin, end, True) for begin, end in inside if begin < end]
    return _in_log_order([*gaps, *points_of(records, log_files, [gap.begin for gap in gaps])])


def _in_log_order(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: part_range(part)[0])


class _Planner:
    def __init__(
        self,
        directory: StoreDirectory,
        selection: Selection,
        options: PlanOptions,
        wanted: Wanted,
        run: Callable[[Callable[[LogFile], Walk], Sequence[LogFile]], list[Walk]],
    ) -> None:
        self.directory, self.options, self.wanted, self.run = directory, options, wanted, run
        self.on_damage = selection.on_damage
        self.reasons: list[str] = []
        self.log_files: list[LogFile] = []
        self.started = self.log_end = 0
        self.end_offset: int | None = None

    def plan(self) -> Plan:
        """Plan by all that prunes."""
        plan = self._plan(self._parts)
        assert plan is not None, "a log can be walked"
        return plan

    def plan_points(self) -> Plan | None:
        """Plan by queues and index alone; None: they do not help."""
        return self._plan(self._points)

    def _plan(self, find: Callable[[], list[Part] | None]) -> Plan | None:
        directory = self.directory
        watch = SinkWatch(directory.files, directory.path)
        self.end_offset = watch.begin_offset  # bytes after it that a power cut left are no damage
        parts = find()
        end = watch.committed(self.log_end)
        if end is None:  # a batch was begun and ended: plan again, up to an end that no start changes any more
            end = committed_end(directory, self.log_files)
            parts = find()
        if parts is None:
            return None
        if end < self.log_end:
            parts = [cut for part in parts for cut in part_before(part, end)]
        if self.options.flushed_ms is None and (lost := lost_end(directory, self.log_end)) is not None:
            if self.on_damage is OnDamage.RAISE:
                raise lost.error()
            logger.warning("%s", lost.error())
        log_bytes = sum(file.size for file in self.log_files[: self.started])
        plan = Plan(tuple(parts), log_bytes, tuple(self.reasons))
        logger.info("%s: %d of %d bytes: %s", directory.path, plan.read_bytes, plan.log_bytes, plan.reasons)
        return plan

    def _begun(self) -> list[LogFile]:
        """The files with records, before anything is planned."""
        self.reasons = []
        limit = self.end_offset
        self.log_files = [file for file in self.directory.log_files() if limit is None or file.start_offset < limit]
        self.started = _started_files(self.log_files, self.directory.files)
        self.log_end = 0
        return self.log_files[: self.started]

    def _points(self) -> list[Part] | None:
        """Parts up to `log_end`, which is found here, by queues and index."""
        begun = self._begun()
        locations = self._locations(begun, None)
        return None if locations is None else self._located_parts(locations, None, begun)

    def _parts(self) -> list[Part]:
        """Parts to read up to `log_end`, which is found here, committed or not."""
        begun = self._begun()
        keep = np.ones(len(begun), np.bool_)
        if self.options.prune and begun:
            keep = wanted_files(begun, self.wanted, self.options.clock_margin_ms, self.directory.files)
            if not keep.all():
                self.reasons.append(f"{np.count_nonzero(~keep)} of {keep.size} files left out by offset or by time")
            keep[-1] = True  # where the log ends is found in it
        splits = None
        if self.options.statistics is not None or not self._asks_queues():
            splits = self._walked(keep)
        locations = self._locations(begun, splits)
        if locations is None:
            return list[Part](self._walked(keep) if splits is None else splits)
        return self._located_parts(locations, splits, begun)

    def _asks_queues(self) -> bool:
        return self.options.prune and self.wanted.is_queued and self.options.flushed_ms is None and self.started > 0

    # -- walks --------------------------------------------------------------------------------------------------------

    def _walked(self, keep: npt.NDArray[np.bool_]) -> list[Split]:
        """Splits of the zones that pruning by walks leaves, up to the log's end."""
        options = self.options
        span = self._span()
        if span is not None:
            return self._span_splits(span, keep)
        unwalked = self._whole_files(keep)
        zone_bytes = options.split_bytes or MIN_TASK_BYTES
        if options.statistics is not None:
            zone_bytes = min(zone_bytes, ZONE_BYTES)
        walk_file = partial(self._walk, zone_bytes=zone_bytes)
        begun = [file for file, kept in zip(self.log_files[: self.started], keep, strict=True) if kept]
        walks = self.run(walk_file, begun[unwalked:])
        for file in self.log_files[self.started :]:
            if walks and not walks[-1].goes_on:
                break
            walks.append(walk_file(file))
        splits = [Split(file, file.start_offset, file.end_offset, True) for file in begun[:unwalked]]
        if unwalked and options.prune and self.wanted.is_timed:
            self.reasons.append(f"{unwalked} files read whole: clocks jump, and no statistics bound their times")
        walked = sum(found.end - found.file.start_offset for found in walks)
        size = options.split_bytes or max(-(-walked // options.processors), MIN_TASK_BYTES)
        pruned = 0
        for found in walks:
            zones = found.zones
            if options.prune and zones.size:
                wanted = wanted_zones(zones, self.wanted)
                pruned += int((zones[~wanted, END] - zones[~wanted, BEGIN]).sum())
                zones = zones[wanted]
            splits += splits_of_zones(found.file, zones, size)
            self.log_end = found.end
            if not found.goes_on:
                break
        if pruned:
            self.reasons.append(f"{pruned} bytes left out by the times and offsets of their zones")
        return splits

    def _span(self) -> Span | None:
        """The span of the wanted times if one task reads it; its parts are not cut, since nothing is walked."""
        options = self.options
        if options.clock_margin_ms is None or not self.wanted.store_ms.is_bounded or not self.started:
            return None
        if not options.prune or options.processors > 1 or (options.split_bytes, options.statistics) != (None, None):
            return None
        if options.flushed_ms is not None or self.end_offset is not None:
            return None
        try:
            return time_span(
                self.directory.queues(), self.log_files[: self.started], self.wanted.store_ms,
                options.clock_margin_ms, self.directory.files,
            )  # fmt: skip
        except NotProven as reason:
            self.reasons.append(f"no use of a consume queue for times: {reason}")
            return None

    def _span_splits(self, span: Span, keep: npt.NDArray[np.bool_]) -> list[Split]:
        """Splits of a span in the kept files; the log's end is found by a walk from its last known record."""
        begin = self.log_files[0].start_offset if span.begin is None else span.begin
        known = span.last if span.end is not None else begin
        splits = []
        for file, kept in zip(self.log_files[: self.started], keep, strict=True):
            low = max(begin, file.start_offset)
            high = file.end_offset if span.end is None else min(span.end, file.end_offset)
            if file is self.log_files[self.started - 1] and span.end is None:
                break  # walked below
            if kept and low < high:
                splits.append(Split(file, low, high, True))
        for file in self.log_files[self.started - 1 :]:
            found = self._walk(file, zone_bytes=MIN_TASK_BYTES, begin=max(known, file.start_offset))
            self.log_end = found.end
            if span.end is None:
                splits += splits_of_zones(file, found.zones, MIN_TASK_BYTES)
            if not found.goes_on:
                break
        self.reasons.append(f"times: offsets {begin} to {self.log_end if span.end is None else span.end}")
        return splits

    def _whole_files(self, keep: npt.NDArray[np.bool_]) -> int:
        """Number of kept files, from the first on, that need no walk: they end with a blank record."""
        options, wanted = self.options, self.wanted
        count = int(np.count_nonzero(keep))
        if options.split_bytes is not None or options.flushed_ms is not None or options.statistics is not None:
            return 0
        if options.prune and wanted.commit_log_offset.is_bounded:
            return 0
        return count - 1 if count > options.processors else 0

    def _walk(self, file: LogFile, *, zone_bytes: int, begin: int | None = None) -> Walk:
        files, folder = self.directory.files, self.options.statistics
        if folder is None or self.options.flushed_ms is not None:
            return walk(
                file, zone_bytes, begin=begin, end_offset=self.end_offset, flushed_ms=self.options.flushed_ms,
                on_damage=self.on_damage, files=files,
            )  # fmt: skip
        return kept_walk(folder, file, zone_bytes, end_offset=self.end_offset, on_damage=self.on_damage, files=files)

    # -- queues and index ---------------------------------------------------------------------------------------------

    def _locations(self, begun: Sequence[LogFile], splits: Sequence[Split] | None) -> Locations | None:
        """Locations by queues and index; None if the log is read in full."""
        if not self._asks_queues() or (splits is not None and not splits):
            return None
        log_bytes = sum(file.size for file in begun)
        scan_bytes = log_bytes if splits is None else sum(split.end - split.begin for split in splits)
        try:
            locations = wanted_locations(self.directory, begun, self.wanted, scan_bytes)
        except NotProven as reason:
            self.reasons.append(f"no use of consume queues and index: {reason}")
            return None
        self.reasons.append(locations.reason)
        return locations

    def _located_parts(
        self, locations: Locations, splits: Sequence[Split] | None, begun: Sequence[LogFile]
    ) -> list[Part]:
        """Parts of the locations in log order, within `splits`; without splits up to the log's end, which is found."""
        if splits is not None:
            return _parts_within(locations, splits, begun)
        gaps = self._gap_splits(locations)
        return _in_log_order([*gaps, *points_of(locations.records, begun, [gap.begin for gap in gaps])])

    def _gap_splits(self, locations: Locations) -> list[Split]:
        """Splits of the gaps; after the last record of the queues they end at the log's end, found by a walk."""
        splits = [Split(gap.file, gap.begin, gap.end, True) for gap in locations.gaps if gap.begin < locations.end]
        self.log_end = locations.end
        tail = [(gap.file, gap.begin) for gap in locations.gaps if gap.begin >= locations.end]
        tail += [(file, file.start_offset) for file in self.log_files[self.started :]]
        for file, begin in tail:
            found = walk(
                file, MIN_TASK_BYTES, begin=begin, end_offset=self.end_offset, on_damage=self.on_damage,
                files=self.directory.files,
            )  # fmt: skip
            splits += splits_of_zones(file, found.zones, MIN_TASK_BYTES)
            self.log_end = max(self.log_end, found.end)
            if not found.goes_on:
                break
        return splits


def _started_files(log_files: Sequence[LogFile], files: FileLayer) -> int:
    """Number of files with records; the files after them were only made in advance."""
    for count in range(len(log_files), 0, -1):
        if _starts_with_record(log_files[count - 1], files):
            return count
    return 0


def _starts_with_record(file: LogFile, files: FileLayer) -> bool:
    with open_listed(files, file.path) as opened:
        size = int.from_bytes(opened.read(0, 4), "big", signed=True)
        if not MIN_RECORD_SIZE <= size <= file.size:
            return False
        try:
            return decode_record(opened.read(0, size)).commit_log_offset == file.start_offset
        except CorruptRecordError:
            return False
