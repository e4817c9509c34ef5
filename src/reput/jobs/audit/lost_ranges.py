"""Losses of a log, as damage or missing files, and what leads into them: it is counted, and no finding of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.jobs.audit.ascending_runs import Int64s
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.range_tables import NO_RANGES, is_inside, union
from reput.jobs.findings import Finding, Findings

#: Numbers [begin, end) of units or entries.
Range = tuple[int, int]
NO_WITNESSES: Int64s = np.zeros((0, 3), np.int64)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Range of the log that was read. A unit that leads to before `begin` has expired; a unit of a loss is excused.

    Attributes:
        told: damage and missing files of which there are findings.
        lost: int64[n, 2], all damage and missing files.
    """

    begin: int
    end: int
    told: tuple[Range, ...] = ()
    lost: Int64s = field(default_factory=lambda: NO_RANGES)

    def is_lost(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n], whether an offset is within a loss."""
        return is_inside(union(self.lost), offsets)

    def counts(self, offsets: Int64s) -> Int64s:
        """int64[len(told)], how many of the offsets are within each loss that has a finding."""
        ranges = np.array(self.told, np.int64).reshape(-1, 2)
        return np.diff(np.searchsorted(np.sort(offsets), ranges), axis=1)[:, 0]

    @property
    def lost_end(self) -> int:
        """Commit log offset of the end of the last loss; 0 without one."""
        return int(self.lost[:, 1].max(initial=0))


class Unmatched(NamedTuple):
    """Remains of some queues or of an index file.

    Attributes:
        counts: int64[len(told)], units or entries that lead into each loss that has a finding.
        witnesses: int64[n, 3], commit log offset, end and messages of units of records that the log has lost, perhaps
            (`Witnesses`). An index file has none.
        expired_messages: count of messages of queues before the log.
        expired_ms: store time of the newest message before the log that an entry has, in whole seconds after the time
            of the index file; 0 without such entries.
    """

    findings: Findings
    counts: Int64s
    expired_ms: int = 0
    witnesses: Int64s = NO_WITNESSES
    expired_messages: int = 0


def lost_range(finding: Finding, listing: StoreListing) -> tuple[int, int] | None:
    """Commit log offsets [begin, end) that a finding says are lost; None for another finding."""
    begin = finding.commit_log_offset
    if begin is None or finding.code not in ("record-damaged", "log-file-missing"):
        return None
    return begin, begin + finding.count * (listing.log_files[0].size if finding.code == "log-file-missing" else 1)


class Witnesses(NamedTuple):
    """Lost messages that units prove.

    A unit is a witness if no record of the log has its queue offset, and its record lies in a loss, or behind the log's
    end where a record can follow. So the bytes of a damaged unit prove nothing, wherever they lead.

    Attributes:
        messages: count of lost messages that queues have.
        is_known: bool[len(lost)], whether queues tell the messages of each loss.
        end: commit log offset of the end of the last record that a unit proves.
    """

    messages: int
    is_known: npt.NDArray[np.bool_]
    end: int


def weigh(log: LogBounds, witnesses: Int64s, reached: int, reach: int) -> Witnesses:
    """Count the messages of units that may be witnesses.

    Args:
        witnesses: as `Unmatched` has them.
        reached: commit log offset of the end of the last record that has its unit.
        reach: size of a log file.
    """
    witnesses = witnesses[np.argsort(witnesses[:, 0], kind="stable")]
    lost = log.is_lost(witnesses[:, 0])
    behind = witnesses[~lost]
    behind = behind[follow(max(log.end, log.lost_end), behind[:, 0], behind[:, 1], reach)]
    inside = witnesses[lost]
    reached = int(np.append(inside[:, 1], behind[:, 1]).max(initial=reached))
    begins, ends = log.lost[:, 0], log.lost[:, 1]
    is_known = (reached >= ends) | ((ends > log.end) & (begins <= inside[:, 0].max(initial=-1)))
    return Witnesses(int(inside[:, 2].sum() + behind[:, 2].sum()), is_known, reached)


def follow(end: int, offsets: Int64s, ends: Int64s, reach: int) -> npt.NDArray[np.bool_]:
    """bool[n], whether records at ascending commit log offsets can follow a log's end.

    A log has no gaps. Units are missing for some records, but not for a whole file of them.
    """
    before = np.maximum.accumulate(np.append(end, ends))[:-1]
    is_near = offsets - before < reach
    return np.logical_and.accumulate(is_near)
