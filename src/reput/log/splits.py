"""Splits: byte ranges of the commit log that are read independently, and the proof that together they miss nothing.

A split owns the records that *start* in it. A split that begins inside a file finds its first record by the bytes
(`reput.kernels.records.record_search.find_record`), and content can forge bytes. So no result is trusted before it is
compared with its neighbour: a file's start is a true record start, and where one split ended, the next one must have
begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from reput.log.directory import LogFile


@dataclass(frozen=True, slots=True)
class Split:
    """The records that start in [begin, end), commit log offsets within `file`.

    `is_record_start` says that a record is known to start at `begin`; otherwise the first record is searched.
    """

    file: LogFile
    begin: int
    end: int
    is_record_start: bool


class SplitStop(Enum):
    """Reason why the reading of a split ended."""

    #: The next record starts at or after the split's end.
    SPLIT_END = "split end"
    #: A blank record fills the end of the file: the log goes on in the next file.
    BLANK = "blank"
    #: The end of the log: no further record proves itself.
    LOG_END = "log end"


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Result of reading a split, for the comparison with its neighbours.

    `begin_offset` is where the split's first record starts, or its blank record, or where the log ends. `end_offset` is
    where the next record must start: the file's end after a blank record. Both are None if nothing starts in the split.
    """

    split: Split
    begin_offset: int | None
    end_offset: int | None
    stop: SplitStop


def plan_splits(log_files: Sequence[LogFile], split_bytes: int) -> list[Split]:
    """Splits of equal size, at most `split_bytes`, for each file, in log order."""
    splits = []
    for file in log_files:
        count = -(-file.size // split_bytes)
        borders = [file.start_offset + file.size * i // count for i in range(count + 1)]
        splits += [Split(file, begin, end, begin == file.start_offset) for begin, end in pairwise(borders)]
    return splits


def check_stitches(results: Sequence[SplitResult]) -> dict[int, Split]:
    """Compare neighbours; returns the splits that must be read again, by their index in `results`.

    Read them, put their results in place of the old ones, and check again until the result is empty. A split begins at
    a wrong offset if a body forges a record. If the split at the log's end was read before a live store appended more,
    and a later split after that, the later records are given up: the later split is returned as an empty one.

    Args:
        results: the results of all planned splits, in log order. The first split begins at a known record start or at
            the start of a file.
    """
    again: dict[int, Split] = {}
    expected: int | None = None
    log_has_ended = False
    for i, result in enumerate(results):
        split = result.split
        if split.begin == split.file.start_offset or (i == 0 and split.is_record_start):
            expected = split.begin
        if log_has_ended:
            if result.begin_offset != result.end_offset:
                again[i] = replace(split, begin=split.end, is_record_start=True)
        elif expected is not None:
            if result.begin_offset != (expected if expected < split.end else None):
                again[i] = replace(split, begin=min(expected, split.end), is_record_start=True)
                expected = None
            elif result.end_offset is not None:
                expected = result.end_offset
                log_has_ended = result.stop is SplitStop.LOG_END
    return again
