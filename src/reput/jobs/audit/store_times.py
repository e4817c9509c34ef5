"""Store times that contradict the records before and after them: no CRC covers the store time of a record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from reput.counts import counted
from reput.jobs.audit.ascending_runs import Int64s
from reput.jobs.findings import Finding
from reput.kernels.records.columns import RecordColumns
from reput.log.directory import LogFile

_NONE = np.empty((0, 2), np.int64)


class StoreTimes(NamedTuple):
    """Store times of a range of the log.

    Attributes:
        first, last: int64[up to 2, 2], commit log offset and store time (ms) of the first and the last two records.
        wrong: int64[n], commit log offsets of records within whose time contradicts their neighbours'.
    """

    first: Int64s = _NONE
    last: Int64s = _NONE
    wrong: Int64s = _NONE[:, 0]

    def followed_by(self, columns: RecordColumns) -> StoreTimes:
        """The times with the times of the records that follow."""
        rows = np.stack([columns["commit_log_offset"], columns["store_timestamp"]], axis=1)
        rows = np.concatenate([self.last, rows])
        first = self.first if len(self.first) == 2 else rows[:2]
        wrong = _wrong(rows)
        return StoreTimes(
            first.copy(), rows[-2:].copy(), np.concatenate([self.wrong, wrong]) if wrong.size else self.wrong
        )


def _wrong(rows: Int64s) -> Int64s:
    """Offsets of records whose time is not between their neighbours' times, though these do not fall themselves.

    If these fall, too, the clock was set back: all later records say so.
    """
    times = rows[:, 1]
    before, own, after = times[:-2], times[1:-1], times[2:]
    return rows[1:-1, 0][(before <= after) & ((own < before) | (own > after))]


def time_findings(times: Sequence[StoreTimes], log_files: Sequence[LogFile]) -> Iterator[Finding]:
    """Findings of wrong store times, one for each log file; `times` come from all tasks, in log order."""
    borders = [_wrong(np.concatenate([before.last, after.first])) for before, after in pairwise(times)]
    offsets = np.unique(np.concatenate([_NONE[:, 0], *(one.wrong for one in times), *borders]))
    for file in log_files:
        inside = offsets[(offsets >= file.start_offset) & (offsets < file.end_offset)]
        if inside.size:
            first = int(inside[0])
            text = f"{counted(inside.size, 'record')}, the first one at commit log offset {first}"
            yield Finding("store-time-wrong", file.path, text, first - file.start_offset, first, count=inside.size)
