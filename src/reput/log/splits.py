"""Splits: byte ranges of the commit log that can be read on their own, and the proof that together they miss nothing.

A split owns the records that *start* in it. One that begins inside a file looks for its first record by the bytes
(`reput.kernels.record_scan.find_record`), and content can forge bytes. So no result is trusted before neighbours met: a
file's start is a true record start, and where a split ended, the next one must have begun.
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

    `is_record_start` says that a record is known to start at `begin`; otherwise the first one is looked for.
    """

    file: LogFile
    begin: int
    end: int
    is_record_start: bool


class SplitStop(Enum):
    """Why the reading of a split ended."""

    #: The next record starts at or behind the split's end.
    SPLIT_END = "split end"
    #: The blank record that fills the end of a file: the log goes on in the next one.
    BLANK = "blank"
    #: The end of the log: no record that proves itself follows.
    LOG_END = "log end"


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What the reading of a split tells its neighbours.

    `begin_offset` is where its first record starts, or the blank record, or the log ends; `end_offset` is where the
    next record must start: the file's end after a blank record. Both are None where nothing starts in the split.
    """

    split: Split
    begin_offset: int | None
    end_offset: int | None
    stop: SplitStop


def plan_splits(log_files: Sequence[LogFile], split_bytes: int) -> list[Split]:
    """Cut each file into equal splits of at most `split_bytes`, in log order."""
    splits = []
    for file in log_files:
        count = -(-file.size // split_bytes)
        borders = [file.start_offset + file.size * i // count for i in range(count + 1)]
        splits += [Split(file, begin, end, begin == file.start_offset) for begin, end in pairwise(borders)]
    return splits


def check_stitches(results: Sequence[SplitResult]) -> dict[int, Split]:
    """Compare neighbours; returns what must be read again, and from where, by its index in `results`.

    Read those, put their results in place of the old ones, and check again until nothing comes back. A split begins at
    a wrong place where a body forges a record. What a live store appended between the reading of a split that met the
    log's end and that of a later one is given up: then the later one comes back as an empty split.

    Args:
        results: of all planned splits, in log order. The first one begins at a record by the caller's word, or at the
            start of a file.
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
