"""`find_messages`: the messages with some keys, of some topics, of a stretch of time; exact, and without a limit.

What the log's files, queues and index prove to hold no wanted message is not read (`reput.log.pruning`); what they do
not prove is read, so that nothing is missing that `read_log` finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime

import pyarrow as pa

from reput.files import DISK, FileLayer
from reput.log.directory import StoreDirectory
from reput.log.plan import Plan, PlanOptions, plan_read, read_part
from reput.log.selection import Selection, make_selection


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
    mode: str = "FAILFAST",
    files: FileLayer = DISK,
) -> pa.RecordBatchReader:
    """The wanted messages in log order, read as they are asked for: the rows of `reput.read_log`, and its errors.

    Args:
        path: the store directory.
        columns, topics, keys, begin, end: as of `read_log`. A message has a key if it is among its keys, or its unique
            key; with many topics and keys a message is wanted if it has one of each.
        commit_log_path: as of `read_log`.
        clock_margin_ms: your word that no store timestamp lies further behind one before it; then files before and
            behind the wanted time are not read.
        mode: what becomes of damage, as of `read_log`.
    """
    directory = StoreDirectory(path, commit_log_path=commit_log_path, files=files)
    selection = make_selection(
        columns=columns, topics=topics, keys=keys, begin=begin, end=end, store=directory.name, mode=mode
    )
    plan = plan_read(directory, selection, PlanOptions(processors=1, clock_margin_ms=clock_margin_ms))
    return pa.RecordBatchReader.from_batches(selection.schema, _rows(plan, selection, files))


def _rows(plan: Plan, selection: Selection, files: FileLayer) -> Iterator[pa.RecordBatch]:
    for part in plan.parts:
        yield from read_part(part, selection, files)
