"""read_log: the messages of a store directory as Arrow record batches, in log order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

import pyarrow as pa

from reput.errors import ConfigError
from reput.files import DISK, FileLayer
from reput.log.directory import LogFile, StoreDirectory
from reput.log.object_storage import files_of
from reput.log.plans.plan import plan_points
from reput.log.plans.plan_parts import read_part
from reput.log.reads.open_batches import batch_reader
from reput.log.reads.whole_log import read_whole_log
from reput.log.selection import Selection, make_selection
from reput.log.unknown_topics import warn_of_unknown_topics


def read_log(
    path: str | os.PathLike[str],
    columns: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    begin: datetime | int | None = None,
    end: datetime | int | None = None,
    until: Literal["proven", "flushed"] = "proven",
    *,
    raw_body: bool = False,
    commit_log_path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    mode: Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"] = "FAILFAST",
    files: FileLayer = DISK,
) -> pa.RecordBatchReader:
    """Read the messages of a store as Arrow record batches; the store is not opened or locked, and no byte is changed.

    Batches hold at most 32 768 rows and about 32 MiB, and are read on demand. Of a store that is open for writing,
    messages put after the first batch was asked for are not read: a loop that puts what it reads ends. Columns that are
    not asked for cost nothing, nor do records that consume queues and index prove to be none of the wanted ones.

    Args:
        path: the store directory, or its URL on object storage (`s3://bucket/store`), by fsspec (the extra `lake`).
        columns: names of `reput.kernels.records.record_batch.SCHEMA`, in any order; None: all.
        topics: only rows of these topics; the log `reput.topics` names one that the store has no queue of.
        keys: only rows that have one of these as unique key or among their keys.
        begin, end: bounds of the store timestamp, both included: a datetime with a time zone, or ms since 1970.
        until: "proven": up to the last record that proves itself; "flushed": only up to the checkpoint's
            physicMsgTimestamp, which is on the disk; no row without a checkpoint.
        raw_body: True: bodies as stored, an inner batch as one row; False: decompressed and unfolded.
        commit_log_path: the commit log's folder if it is not below `path`; several are separated by commas.
        store: the value of the column `store`; None: the directory's name.
        mode: what happens at a record that does not prove itself although a later record does. "FAILFAST": an error.
            "PERMISSIVE": the read goes on at the next record that proves itself, and one row reports what is lost: its
            status is `DAMAGED: <reason>`, its commit_log_offset and store_size are of the skipped bytes, and its
            other columns are null, so that it is left out if topics, keys or times are given. "DROPMALFORMED": as
            PERMISSIVE, without that row.
        files: the file layer.

    Raises ConfigError for a wrong argument and StoreFormatError for a directory that is no store. During the read
    raises CorruptRecordError under FAILFAST for damage, before the log's end, of what is read, and StoreError for a
    file that cannot be read, or that retention has deleted since the call.
    """
    if until not in ("proven", "flushed"):
        raise ConfigError(f'until: {until!r} is neither "proven" nor "flushed"')
    directory = StoreDirectory(path, commit_log_path=commit_log_path, files=files_of(path, files))
    selection = make_selection(
        columns=columns, topics=topics, keys=keys, begin=begin, end=end, raw_body=raw_body,
        store=directory.name if store is None else store, mode=mode,
    )  # fmt: skip
    warn_of_unknown_topics(selection.topics, directory)
    return batch_reader(selection.schema, _batches(directory, directory.log_files(), selection, until == "flushed"))


def _batches(
    directory: StoreDirectory, log_files: Sequence[LogFile], selection: Selection, flushed: bool
) -> Iterator[pa.RecordBatch]:
    plan = None if flushed else plan_points(directory, selection)
    if plan is None:
        yield from read_whole_log(directory, log_files, selection, flushed=flushed)
        return
    for part in plan.parts:
        yield from read_part(part, selection, directory.files)
