"""Range of the log that a job reads. A log that is being written is read up to its end at the job's start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reput.log.clean_exit_check import lost_end
from reput.log.damages import Damage
from reput.log.directory import LogFile, StoreDirectory
from reput.log.sink_commits import committed_end
from reput.log.splits import Split, SplitResult, plan_splits


def fixed_log_end(directory: StoreDirectory, log_files: Sequence[LogFile]) -> int | None:
    """End of a log that may grow, as it is now: a writer has the store open, or was killed. None: the end is final."""
    if not directory.was_killed:
        return None
    return max(committed_end(directory, log_files), log_files[0].start_offset if log_files else 0)


def bounded_splits(log_files: Sequence[LogFile], split_bytes: int, log_end: int | None) -> list[Split]:
    """Splits of `plan_splits` up to a fixed end of the log; None: up to the end of the files."""
    splits = plan_splits(log_files, split_bytes)
    if log_end is None:
        return splits
    return [replace(split, end=min(split.end, log_end)) for split in splits if split.begin < log_end]


def lost_ends(directory: StoreDirectory, reads: Sequence[SplitResult]) -> tuple[Damage, ...]:
    """The lost end of a log whose splits were all read, as damage; none if it reaches as far as it did."""
    end = max((read.end_offset for read in reads if read.end_offset is not None), default=None)
    lost = None if end is None else lost_end(directory, end)
    return () if lost is None else (lost,)


def proven_split(read: SplitResult) -> Split:
    """Split from its first record on, once the split was read and proven with its neighbours (`check_stitches`)."""
    begin = read.split.end if read.begin_offset is None else read.begin_offset
    return replace(read.split, begin=min(begin, read.split.end), is_record_start=True)
