"""Run a task over the splits of a commit log, with proof that the splits together read every record once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from reput.errors import CorruptRecordError
from reput.jobs.runner import AT_ONCE, Runner, run_in_turns
from reput.log.splits import Split, SplitResult, check_stitches
from reput.progress import Progress


class SplitOutcome(Protocol):
    """Protocol of what a task returns for a split, beside its own results."""

    @property
    def read(self) -> SplitResult:
        """Range that was read, to be compared with the neighbour splits."""
        ...

    @property
    def fault(self) -> CorruptRecordError | None:
        """Damage that ended the reading. It is no fault if the split began in a body that forges records."""
        ...


O = TypeVar("O", bound=SplitOutcome)  # noqa: E741


def run_over_splits(
    runner: Runner,
    task: Callable[[Split], O],
    splits: Sequence[Split],
    *,
    description: str,
    progress: Progress | None = None,
) -> tuple[list[O], list[O]]:
    """Run `task(split)` for each split, and again for splits that turn out to have begun or ended at a wrong offset.

    Returns:
        The outcome of each split, in order, and the outcomes that were replaced because their split began at a wrong
        offset. The caller must undo what the tasks of replaced outcomes have written elsewhere.

    Raises:
        CorruptRecordError: the first fault of the log.
    """
    outcomes = runner.run(task, splits, description=description, progress=progress)
    return outcomes, _settle(runner, task, [], outcomes, description, progress)


def run_over_splits_in_turns(
    runner: Runner,
    task: Callable[[Split], O],
    splits: Sequence[Split],
    *,
    description: str,
    progress: Progress | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[list[O]]:
    """Run as `run_over_splits`, and yield the outcomes of the next `at_once` splits: for a job that merges outcomes.

    Each outcome is proven when it comes. Tasks must not write: outcomes that were replaced are not told.
    """
    before: list[SplitResult] = []
    for outcomes in run_in_turns(runner, task, splits, description=description, progress=progress, at_once=at_once):
        _settle(runner, task, before, outcomes, description, progress)
        before += [outcome.read for outcome in outcomes]
        yield outcomes


def _settle(
    runner: Runner,
    task: Callable[[Split], O],
    before: Sequence[SplitResult],
    outcomes: list[O],
    description: str,
    progress: Progress | None,
) -> list[O]:
    """Replace outcomes until they join with those before them and with each other; returns the misled ones."""
    misled = []
    while again := check_stitches([*before, *(outcome.read for outcome in outcomes)]):
        redone = runner.run(task, list(again.values()), description=f"{description} again", progress=progress)
        for (i, split), outcome in zip(again.items(), redone, strict=True):
            number = i - len(before)  # those before are settled
            if outcomes[number].read.begin_offset not in (None, split.begin):
                misled.append(outcomes[number])
            outcomes[number] = outcome
    for outcome in outcomes:
        if outcome.fault:
            raise outcome.fault
    return misled
