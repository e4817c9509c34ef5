"""A runner that is killed in the middle of a job."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from reput.jobs.runner import LocalRunner
from reput.progress import Progress


class DyingRunner(LocalRunner):
    """Runner that is killed after a number of tasks."""

    def __init__(self, tasks: int) -> None:
        super().__init__(1)
        self.left = tasks

    def run(
        self, task: Callable[[Any], Any], items: Sequence[Any], *, description: str, progress: Progress | None = None
    ) -> list[Any]:
        def counted(item: Any) -> Any:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return task(item)

        return super().run(counted, items, description=description, progress=progress)


class CountingRunner(LocalRunner):
    """Counts the tasks that were run, by their phase."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.ran: Counter[str] = Counter()

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        description: str,
        progress: Progress | None = None,
    ) -> list[Any]:
        self.ran[description] += len(items)
        return super().run(task, items, description=description, progress=progress)


class PicklingRunner(LocalRunner):
    """Hands tasks, items and results over as another process would get them."""

    def run(
        self, task: Callable[[Any], Any], items: Sequence[Any], *, description: str, progress: Progress | None = None
    ) -> list[Any]:
        task, items = pickle.loads(pickle.dumps((task, items)))
        return pickle.loads(pickle.dumps([task(item) for item in items]))
