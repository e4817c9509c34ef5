"""`import`: Parquet files or a Delta table into a store, each row once.

The rows are read, checked and encoded by tasks, which may run side by side; what is left for the store's writer is to
give each record its place. He does so with one batch while the tasks are at the next one. A job does not know the
store: it is handed a `MessageSink` (`reput.store.sinks.import_sink`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from reput.jobs.lake.source import LakeSource, SourcePart
from reput.jobs.runner import Progress, Runner


class StagedRows(Protocol):
    """What a sink has made of a part."""

    @property
    def rows_aside(self) -> int:
        """Rows that are no messages."""
        ...


S = TypeVar("S", bound=StagedRows)
#: (name of the part, its rows, number of the first one in the file, the file) -> what was staged. Picklable.
Stage = Callable[[str, Iterator[pa.RecordBatch], int, str], S]


class MessageSink(Protocol[S]):
    """Where messages go: numbered batches, each once."""

    @property
    def stage(self) -> Stage[S]:
        """Makes one part of a batch ready; called in tasks."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Raises MessageIllegalError for columns of which no message can be made."""
        ...

    def committed(self, source: str) -> int:
        """How many batches of a source it has."""
        ...

    def commit(self, source: str, number: int, staged: Sequence[S]) -> int:
        """Take in a batch, durably; returns how many messages it has. The next one is being staged meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class Import:
    """What one run imported.

    Attributes:
        messages: that are in the store now and were not before.
        aside: rows that RocketMQ would refuse.
        skipped: rows that runs before have imported, or put aside.
        batches: that were committed.
        seconds: of the run.
    """

    messages: int
    aside: int
    skipped: int
    batches: int
    seconds: float


def import_messages(
    source: LakeSource,
    sink: MessageSink[S],
    *,
    runner: Runner,
    progress: Progress | None = None,
    on_batch: Callable[[int], None] = lambda messages: None,
) -> Import:
    """Import the batches that the sink does not have yet, in their order; `on_batch` is told the messages of each.

    Raises:
        MessageIllegalError: columns of which no message can be made; or a row, unless the sink puts such rows aside.
            What was committed before it stays, and the next run goes on behind that.
        ConfigError: the sink has batches of another source.
        StoreError: as of the sink.
    """
    started = time.perf_counter()
    sink.check(source.schema)
    done = sink.committed(source.identity)
    messages = aside = 0
    behind, parts_left = 0, sum(map(len, source.batches[done:]))

    def report(done: int, total: int, description: str) -> None:
        if progress is not None:
            progress(behind + done, parts_left, description)

    with ThreadPoolExecutor(1, thread_name_prefix="reput-import-commit") as pool:
        committing: Future[int] | None = None
        for number in range(done, len(source.batches)):
            parts = source.batches[number]
            staged = runner.run(
                partial(_stage, sink.stage),
                [(f"{number}-{i}", part) for i, part in enumerate(parts)],
                description="read and encode",
                progress=report,
            )
            behind += len(parts)
            messages += _committed(committing, on_batch)
            committing = pool.submit(sink.commit, source.identity, number, staged)
            aside += sum(one.rows_aside for one in staged)
        messages += _committed(committing, on_batch)
    skipped = sum(part.rows for batch in source.batches[:done] for part in batch)
    return Import(messages, aside, skipped, len(source.batches) - done, time.perf_counter() - started)


def _stage(stage: Stage[S], item: tuple[str, SourcePart]) -> S:
    """The task: one part -> staged records."""
    name, part = item
    return stage(name, part.batches(), part.first_row, part.path)


def _committed(commit: Future[int] | None, on_batch: Callable[[int], None]) -> int:
    """Wait for a commit and tell of it; returns its messages, 0 where there is none."""
    if commit is None:
        return 0
    messages = commit.result()
    on_batch(messages)
    return messages
