"""Runs a task over the splits of a commit log until it is proven that together they read every record once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from reput.errors import CorruptRecordError
from reput.jobs.runner import Progress, Runner
from reput.log.splits import Split, SplitResult, check_stitches


class SplitOutcome(Protocol):
    """What a task returns for a split, beside its own results."""

    @property
    def read(self) -> SplitResult:
        """What the neighbours need to know."""
        ...

    @property
    def fault(self) -> CorruptRecordError | None:
        """The damage at which the reading ended. It is none where the split had begun in a body that forges records."""
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
    """Run `task(split)` for each split, and again for those that turn out to have begun or ended at a wrong place.

    Returns:
        The outcome of each split, in order, and the outcomes that were replaced because their split began wrongly.
        What such a task has written elsewhere is the caller's to undo.

    Raises:
        CorruptRecordError: the first fault of the log.
    """
    outcomes = runner.run(task, splits, description=description, progress=progress)
    misled = []
    while again := check_stitches([outcome.read for outcome in outcomes]):
        redone = runner.run(task, list(again.values()), description=f"{description} again", progress=progress)
        for (i, split), outcome in zip(again.items(), redone, strict=True):
            if outcomes[i].read.begin_offset not in (None, split.begin):
                misled.append(outcomes[i])
            outcomes[i] = outcome
    for outcome in outcomes:
        if outcome.fault:
            raise outcome.fault
    return outcomes, misled
