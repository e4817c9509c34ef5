"""A runner that is killed in the middle of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reput.jobs.runner import LocalRunner, Progress


class DyingRunner(LocalRunner):
    """Is killed when so many tasks have run."""

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
