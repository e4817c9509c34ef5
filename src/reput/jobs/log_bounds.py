"""The part of a log that a job looks at: of a store that is written meanwhile, up to where its log ends now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reput.log.directory import LogFile, StoreDirectory
from reput.log.sink_commits import committed_end
from reput.log.splits import Split, SplitResult, plan_splits


def fixed_log_end(directory: StoreDirectory, log_files: Sequence[LogFile]) -> int | None:
    """Where the log ends now, if it may grow: its writer has it open, or was killed. None: its end is final."""
    if not directory.was_killed:
        return None
    return max(committed_end(directory, log_files), log_files[0].start_offset if log_files else 0)


def bounded_splits(log_files: Sequence[LogFile], split_bytes: int, log_end: int | None) -> list[Split]:
    """As `plan_splits`, up to a fixed end of the log."""
    splits = plan_splits(log_files, split_bytes)
    if log_end is None:
        return splits
    return [replace(split, end=min(split.end, log_end)) for split in splits if split.begin < log_end]


def proven_split(read: SplitResult) -> Split:
    """A split that was read once, and whose begin was proven with its neighbours (`check_stitches`): from there on."""
    begin = read.split.end if read.begin_offset is None else read.begin_offset
    return replace(read.split, begin=min(begin, read.split.end), is_record_start=True)
