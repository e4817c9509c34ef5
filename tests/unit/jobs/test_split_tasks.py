"""Splits that are proven to join: in turns the outcomes are those of all splits at once."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass

import pytest

from reput.errors import CorruptRecordError
from reput.jobs.runner import LocalRunner, run_in_turns
from reput.jobs.split_tasks import run_over_splits, run_over_splits_in_turns
from reput.log.directory import LogFile
from reput.log.splits import Split, SplitResult, SplitStop, plan_splits

FILES = [LogFile(str(start), start, 1000) for start in range(0, 4000, 1000)]
SPLITS = plan_splits(FILES, 50)


@dataclass(frozen=True)
class Outcome:
    read: SplitResult
    fault: CorruptRecordError | None = None


class Log:
    """Records of 10 to 200 bytes; a search for the first record of a split finds a forged one in every third split."""

    def __init__(self, seed: int, fault_at: int = -1) -> None:
        drawn = random.Random(seed)
        self.starts: list[int] = []
        for file in FILES:
            start = file.start_offset
            while start < file.end_offset:
                self.starts.append(start)
                start += drawn.randrange(10, 200)
        self.forged = {split.begin: drawn.randrange(1, 50) for split in SPLITS if drawn.random() < 0.3}
        self.fault_at = fault_at

    def read(self, split: Split) -> Outcome:
        begin, end = (self._next(offset, split.file.end_offset) for offset in (split.begin, split.end))
        if not split.is_record_start and split.begin in self.forged:
            begin = split.begin + self.forged[split.begin]
        fault = CorruptRecordError("0", begin, "damage") if split.begin <= self.fault_at < split.end else None
        if begin >= split.end:
            return Outcome(SplitResult(split, None, None, SplitStop.SPLIT_END), fault)
        return Outcome(SplitResult(split, begin, end, SplitStop.SPLIT_END), fault)

    def _next(self, offset: int, file_end: int) -> int:
        number = bisect_left(self.starts, offset)
        return min(self.starts[number] if number < len(self.starts) else file_end, file_end)


@pytest.mark.parametrize("at_once", [1, 2, 7, 20, 79, 80, 1000])
@pytest.mark.parametrize("seed", [1, 2])
def test_outcomes_in_turns_are_those_of_all_splits_at_once(seed: int, at_once: int) -> None:
    log, runner = Log(seed), LocalRunner(2)
    together, misled = run_over_splits(runner, log.read, SPLITS, description="read")
    assert misled
    turns = list(run_over_splits_in_turns(runner, log.read, SPLITS, description="read", at_once=at_once))
    assert [outcome for turn in turns for outcome in turn] == together
    assert {len(turn) for turn in turns[:-1]} <= {at_once}


def test_a_fault_is_raised_in_its_turn() -> None:
    turns = run_over_splits_in_turns(LocalRunner(2), Log(1, fault_at=130).read, SPLITS, description="read", at_once=2)
    assert len(next(turns)) == 2
    with pytest.raises(CorruptRecordError, match="damage"):
        next(turns)


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_progress_of_turns_starts_at_zero_and_counts_every_task(count: int) -> None:
    seen: list[tuple[int, int, str]] = []
    turns = run_in_turns(
        LocalRunner(2), str, range(count), description="text", progress=lambda *shown: seen.append(shown), at_once=2
    )
    assert [text for turn in turns for text in turn] == [str(number) for number in range(count)]
    assert seen == [(done, count, "text") for done in range(count + 1)]
