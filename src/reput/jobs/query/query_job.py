"""`find_messages`: find messages by keys, topics and time range, exactly and without a limit.

Ranges of the log that files, queues and index prove to hold no wanted message are not read (`reput.log.plans.pruning`).
All other ranges are read, so the result has every message that `read_log` finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from reput.files import DISK, FileLayer
from reput.jobs.arguments import check_arguments
from reput.jobs.query.kept_reads import READING, KeptReads, check_kept
from reput.log.directory import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import Part, part_bytes, read_part
from reput.log.plans.pruning import Wanted
from reput.log.reads.open_batches import batch_reader
from reput.log.selection import Selection, make_selection
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.progress import Progress


@dataclass(frozen=True, slots=True)
class LogRows:
    """Wanted rows of one store, not read yet; picklable.

    Attributes:
        wanted: conditions at least as narrow as the selection; None: the selection's.
    """

    directory: StoreDirectory
    selection: Selection
    clock_margin_ms: int | None = None
    wanted: Wanted | None = None

    def plan(self, split_bytes: int | None = None) -> Sequence[Part]:
        """Plan the parts to read of the log as it is now, in its order. Splits have about `split_bytes` bytes."""
        options = PlanOptions(processors=1, split_bytes=split_bytes, clock_margin_ms=self.clock_margin_ms)
        return plan_read(self.directory, self.selection, options, self.wanted).parts

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Read the rows of a part."""
        return read_part(part, self.selection, self.directory.files)

    def batches(self, parts: Sequence[Part], progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a plan, batch by batch on demand. Progress is in log bytes."""
        done, total = 0, sum(map(part_bytes, parts))
        for part in parts:
            if progress is not None:
                progress(done, total, READING)
            yield from self.read(part)
            done += part_bytes(part)
        if progress is not None:
            progress(total, total, READING)


def find_messages(
    path: str | os.PathLike[str],
    columns: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    begin: datetime | int | None = None,
    end: datetime | int | None = None,
    *,
    commit_log_path: str | os.PathLike[str] | None = None,
    clock_margin_ms: int | None = None,
    kept: KeptReads | None = None,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> pa.RecordBatchReader:
    """Find messages in log order, read on demand: the rows of `reput.read_log`, and its errors.

    Args:
        path: the store directory.
        columns, topics, keys, begin, end: as for `read_log`. A message has a key if the key is among its keys, or is
            its unique key; with several topics and keys a message is wanted if it has one of each.
        commit_log_path: as for `read_log`.
        clock_margin_ms: the caller's promise that no store timestamp is earlier than a timestamp before it by more than
            this. Then files before and after the wanted time are not read.
        kept: reads by tasks, and keeps their rows: a killed query does not read them again.
        progress: called with the progress in log bytes; unused with `kept`, which has its own.
    """
    check_arguments(**locals())
    check_kept("kept", kept)
    directory = StoreDirectory(path, commit_log_path=commit_log_path, files=files)
    selection = make_selection(columns=columns, topics=topics, keys=keys, begin=begin, end=end, store=directory.name)
    warn_of_unknown_topics(selection.topics, directory)
    rows, schema = LogRows(directory, selection, clock_margin_ms), selection.schema
    if kept is None:
        return batch_reader(schema, rows.batches(rows.plan(), progress))
    name = f"messages: {', '.join(schema.names)}"
    return batch_reader(schema, kept.read(name, rows.plan, rows.read, schema))
