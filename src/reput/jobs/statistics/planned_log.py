"""Log of a job of statistics: its files, its end, and for some topics the parts that are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from reput.jobs.log_bounds import fixed_log_end
from reput.log.directory import LogFile, StoreDirectory
from reput.log.plans.plan import plan_range
from reput.log.plans.plan_parts import Part, part_groups, part_range
from reput.log.selection import Selection
from reput.log.splits import Split, SplitResult, SplitStop


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """Log as it was at the job's start.

    Attributes:
        log_files: all files, oldest first.
        log_end: its end if it may grow; None: the end of the files.
        parts: what has all records of the wanted topics, in log order; None: the log is read in full.
    """

    log_files: Sequence[LogFile]
    log_end: int | None
    parts: Sequence[Part] | None

    def proven_end(self) -> list[SplitResult]:
        """The end of the files as the result of a read, if it is proven and no part reads up to it."""
        if self.parts is None or self.log_end is not None:
            return []
        file = self.log_files[-1]
        end = file.end_offset
        if self.parts and isinstance(self.parts[-1], Split) and part_range(self.parts[-1])[1] == end:
            return []
        return [SplitResult(Split(file, end, end, True), end, end, SplitStop.SPLIT_END)]


@dataclass(frozen=True, slots=True)
class PartGroup:
    """Parts of one log file, in log order, for one task; known by its number among the groups of a plan."""

    number: int
    parts: tuple[Part, ...] = field(repr=False)


def plan_log(directory: StoreDirectory, selection: Selection | None, _: str) -> PlannedLog:
    """Task: list the log's files and plan the read of a selection's topics; None: of all records."""
    log_files = directory.log_files()
    log_end = fixed_log_end(directory, log_files)
    parts = None
    if selection is not None and log_files:
        end = log_files[-1].end_offset if log_end is None else log_end
        parts = plan_range(directory, selection, log_files[0].start_offset, end)
    return PlannedLog(log_files, log_end, parts)


def part_groups_of_files(parts: Sequence[Part], size: int) -> list[PartGroup]:
    """Parts in groups of up to `size` bytes, each of one file."""
    groups = []
    for _, of_file in groupby(parts, key=lambda part: part.file.start_offset):
        groups += part_groups([(None, part) for part in of_file], size)
    return [PartGroup(number, tuple(part for _, part in group)) for number, group in enumerate(groups)]
