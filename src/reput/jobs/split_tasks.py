"""Run a task over the splits of a commit log, with proof that the splits together read every record once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from reput.errors import CorruptRecordError
from reput.jobs.runner import Runner
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
