"""`import`: write Parquet files or a Delta table to a store, each row once.

Parallel tasks read, check and encode the rows; the store's writer only gives each record its location. It commits one
batch while the tasks stage the next batch. A job does not know the store: it is given a `MessageSink`
(`reput.store.sinks.import_sink`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from reput.config.arguments import able_to, an_object_of
from reput.counts import counted
from reput.errors import MessageIllegalError
from reput.jobs.arguments import check_arguments
from reput.jobs.lake.import_source import LakeSource, SourcePart
from reput.jobs.runner import Runner
from reput.progress import Progress


class SinkPart(Protocol):
    """Part that a sink has staged."""

    @property
    def rows_aside(self) -> int:
        """Rows that the sink has put aside, as RocketMQ would refuse them."""
        ...


S = TypeVar("S", bound=SinkPart)
#: (name of the part, its rows, number of its first row in the file, path of the file) -> staged rows. Picklable.
Stage = Callable[[str, Iterator[pa.RecordBatch], int, str], S]


class MessageSink(Protocol[S]):
    """Sink of messages: it commits numbered batches of a source, each once."""

    @property
    def stage(self) -> Stage[S]:
        """Function that stages one part of a batch; called in tasks."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Raise MessageIllegalError for columns of which no message can be made."""
        ...

    def committed(self, source: str) -> int:
        """Count of batches of a source that the sink has."""
        ...

    def commit(self, source: str, number: int, staged: Sequence[S]) -> int:
        """Commit a batch durably; returns its count of messages. The next batch may be staged meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class Import:
    """Result of one run of an import.

    Attributes:
        messages: messages that this run has put.
        aside: rows put aside, as RocketMQ would refuse them.
        skipped: rows that earlier runs have imported, or put aside.
        batches: batches that were committed.
        seconds: time of the run.
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
    on_batch: Callable[[int], None] | None = None,
) -> Import:
    """Import the batches that the sink does not have yet, in order. `on_batch` gets the count of messages of each.

    Raises:
        MessageIllegalError: columns of which no message can be made; or such a row, unless the sink puts rows aside.
            Committed batches stay, and the next run continues after them.
        ConfigError: the sink has batches of another source.
        StoreError: as of the sink.
    """
    check_arguments(**locals())
    an_object_of(LakeSource)("source", source)
    able_to("committed", "a sink of messages, as MessageSink is one")("sink", sink)
    started = time.perf_counter()
    try:
        sink.check(source.schema)
    except MessageIllegalError as error:
        paths = sorted({part.path for batch in source.batches for part in batch})
        more = f" and {counted(len(paths) - 1, 'other file')}" if paths[1:] else ""
        raise MessageIllegalError(f"{paths[0] if paths else source.path}{more}: {error}") from None
    done = sink.committed(source.identity)
    messages = aside = 0
    parts_done, parts_left = 0, sum(map(len, source.batches[done:]))

    def report(done: int, total: int, description: str) -> None:
        if progress is not None:
            progress(parts_done + done, parts_left, description)

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
            parts_done += len(parts)
            messages += _committed(committing, on_batch)
            committing = pool.submit(sink.commit, source.identity, number, staged)
            aside += sum(one.rows_aside for one in staged)
        messages += _committed(committing, on_batch)
    skipped = sum(part.rows for batch in source.batches[:done] for part in batch)
    return Import(messages, aside, skipped, len(source.batches) - done, time.perf_counter() - started)


def _stage(stage: Stage[S], item: tuple[str, SourcePart]) -> S:
    """Task: stage one part."""
    name, part = item
    return stage(name, part.batches(), part.first_row, part.path)


def _committed(commit: Future[int] | None, on_batch: Callable[[int], None] | None) -> int:
    """Wait for a commit, and report it; returns its count of messages, 0 without a commit."""
    if commit is None:
        return 0
    messages = commit.result()
    if on_batch is not None:
        on_batch(messages)
    return messages
