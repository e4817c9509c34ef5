"""Order of calls to a stream reader below Spark 4.2, by `MicroBatchExecution` and `AvailableNowDataStreamWrapper`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from reput.spark.compat import StartlessReader, StreamReader


class StartlessQuery:
    """A query with its checkpoint: ends of batches are written before a batch runs, and its commit afterwards.

    Attributes:
        rows: of each batch, by its number; a batch that runs again has to have the same.
    """

    def __init__(self, make: Callable[[], StreamReader]) -> None:
        self.make = make
        self.ends: list[Any] = []
        self.commits = 0
        self.rows: dict[int, list[str]] = {}

    @property
    def all_rows(self) -> list[str]:
        return [row for number in sorted(self.rows) for row in self.rows[number]]

    def run(self, *, available_now: bool, batches: int | None = None, dies: bool = False) -> None:
        """Start from the checkpoint, and run batches until nothing is new.

        Args:
            batches: the most batches; None: no limit.
            dies: whether the query ends when the last of them has run, and before its commit.
        """
        reader = StartlessReader(self.make())
        target = stored(reader.latestOffset()) if available_now else None
        if self.ends:
            reader.partitions(self.ends[-1], self.ends[-1])
        count = 0
        while batches is None or count < batches:
            if self.commits == len(self.ends):
                end = stored(reader.latestOffset()) if target is None else target
                if self.ends and end == self.ends[-1]:
                    return
                self.ends.append(end)
            start = self.ends[self.commits - 1] if self.commits else stored(reader.initialOffset())
            found = [
                body.as_py().decode()
                for partition in reader.partitions(start, self.ends[self.commits])
                for batch in reader.read(partition)
                for body in batch["body"]
            ]
            assert self.rows.setdefault(self.commits, found) == found, "a batch that runs again has the same rows"
            count += 1
            if dies and count == batches:
                return
            self.commits += 1


def stored(offset: Any) -> Any:
    """An offset as it comes back from the checkpoint."""
    return json.loads(json.dumps(offset))
