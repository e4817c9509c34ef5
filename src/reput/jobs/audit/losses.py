"""Losses of a log, as damage or missing files, and what leads into them: it is counted, and no finding of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.runs import Int64s
from reput.jobs.findings import Finding

#: Numbers [begin, end) of units or entries.
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Range of the log that was read. A unit that leads to before `begin` has expired; a unit of a loss is excused.

    `lost` are damage and missing files, of which there are findings.
    """

    begin: int
    end: int
    lost: tuple[Range, ...]

    def is_lost(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n], whether an offset is within a loss."""
        inside = np.zeros(offsets.size, np.bool_)
        for begin, end in self.lost:
            inside |= (offsets >= begin) & (offsets < end)
        return inside

    def counts(self, offsets: Int64s) -> Int64s:
        """int64[len(lost)], how many of the offsets are within each loss."""
        ranges = np.array(self.lost, np.int64).reshape(-1, 2)
        return np.diff(np.searchsorted(np.sort(offsets), ranges), axis=1)[:, 0]


class Rests(NamedTuple):
    """What is left of some queues or of an index file.

    Attributes:
        counts: int64[len(lost)], units or entries that lead into each loss.
        expired_ms: store time of the newest message before the log that an entry has, in whole seconds after the time
            of the index file; 0 without such entries.
    """

    findings: tuple[Finding, ...]
    counts: Int64s
    expired_ms: int = 0


def lost_range(finding: Finding, listing: StoreListing) -> tuple[int, int] | None:
    """Commit log offsets [begin, end) that a finding says are lost; None for another finding."""
    begin = finding.commit_log_offset
    if begin is None or finding.code not in ("record-damaged", "log-file-missing"):
        return None
    return begin, begin + finding.count * (listing.log_files[0].size if finding.code == "log-file-missing" else 1)
