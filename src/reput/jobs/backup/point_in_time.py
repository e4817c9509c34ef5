"""Restore to a point in time: the log of a restored store is cut there, and the JSON files are made to fit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from reput.errors import ConfigError, CorruptMetadataError
from reput.files import FileLayer
from reput.files.truncate import truncate_files
from reput.formats.backup import EmptiedQueue, LastBackedUp, Manifest
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    LmqConsumerOffsets,
    Topics,
    decode_metadata,
    encode_metadata,
    split_topic_group,
)
from reput.formats.paths import CONFIG
from reput.formats.pop_messages import greatest_offset
from reput.formats.sink_commit import SINKS_FILE, Sinks, encode_sinks
from reput.jobs.backup.own_work import undelivered_from, unended_from
from reput.jobs.backup.source import backed_up
from reput.jobs.rebuild.emptied_queues import queue_ends, queues_without_a_record_before, write_emptied_queue
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.metadata import decode_file, metadata_path
from reput.log.scan import first_rows, scan_split
from reput.log.sink_commits import read_sinks
from reput.log.splits import Split
from reput.log.tail import LogTail
from reput.remoting.topic_validator import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC


@dataclass(frozen=True, slots=True)
class Until:
    """Point in time: messages that were stored at or before `time_ms`, or that begin before the log's `offset`."""

    time_ms: int | None = None
    offset: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """The point as options of a job's folder."""
        pairs = (("until_ms", self.time_ms), ("until_offset", self.offset))
        return {name: value for name, value in pairs if value is not None}

    def is_reached_by(self, manifest: Manifest) -> bool:
        """Whether the log of a backup goes as far."""
        if self.offset is not None:
            return manifest.end_offset >= self.offset
        return manifest.last is not None and manifest.last.store_timestamp >= (self.time_ms or 0)

    def rows_of(self, columns: RecordColumns) -> int:
        """Count of rows up to the last one that belongs to it."""
        if self.offset is not None:
            is_before = columns.base_offset + columns["position"].astype(np.int64) < self.offset
        else:
            is_before = columns["store_timestamp"] <= self.time_ms
        rows = np.flatnonzero(is_before)
        return int(rows[-1]) + 1 if rows.size else 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut of a log.

    Attributes:
        end: commit log offset at which the log ends then.
        last: the record before it.
        emptied: queues that have lost all their messages by the cut, but had others before, which the log lacks.
        is_done: whether the store has it.
    """

    end: int
    last: LastBackedUp | None
    emptied: tuple[EmptiedQueue, ...] = ()
    is_done: bool = False

    def run(self, directory: StoreDirectory) -> None:
        """Cut the log; doing it again changes nothing. Queues and index are to be built anew."""
        files = directory.files
        truncate_files(files, [(file.path, file.start_offset) for file in directory.log_files()], self.end)
        for queue in self.emptied:
            files.remove_tree(os.path.join(directory.path, queue.path))
            write_emptied_queue(queue, directory.path, files)


def find_cut(directory: StoreDirectory, until: Until, manifest: Manifest) -> Cut:
    """Find the end of the log at a point in time: the files are read from the last one backwards, up to a record.

    Raises ConfigError if no record is as early.
    """
    tail = LogTail(directory)
    for file in reversed(directory.log_files()):
        split = Split(file, file.start_offset, min(file.end_offset, manifest.end_offset), is_record_start=True)
        end, last = 0, None
        for columns in scan_split(split, level=ScanLevel.HEADER, files=directory.files):
            if rows := until.rows_of(columns):
                kept = first_rows(columns, rows)
                end, last = kept.next_offset, backed_up(tail.last_record(file, kept))
        if last is not None:
            if last == manifest.last:
                return Cut(manifest.end_offset, last)
            return Cut(end, last, tuple(queues_without_a_record_before(directory, end)))
    what = f"offset {until.offset}" if until.offset is not None else f"{np.datetime64(until.time_ms or 0, 'ms')}Z"
    raise ConfigError(
        f"{manifest.store}: the backup {manifest.name} has no message before {what}: its log begins at offset "
        f"{manifest.begin_offset}; choose a later point, or an earlier backup (--backup)"
    )


def fit_config(directory: StoreDirectory, cut: Cut, *, is_earlier: bool) -> tuple[str, ...]:
    """Lower offsets of consumers and of the broker's own work to what the log has, and forget sinks' later batches.

    `is_earlier`: the log was cut, so topics that were deleted later have their messages again.

    Returns the ids of these sinks. Files that are damaged stay as they are; an audit reports them.
    """
    ends = queue_ends(directory)
    last_ms = cut.last.store_timestamp if cut.last is not None else 0

    def fit(key: str, offsets: Mapping[int, int]) -> dict[int, int]:
        topic, group = split_topic_group(key)
        return {
            queue_id: min(offset, greatest_offset(group, ends.get((topic, queue_id), 0)))
            for queue_id, offset in offsets.items()
        }

    for kind in (ConsumerOffsets, LmqConsumerOffsets, DelayOffsets):
        path = metadata_path(directory.path, kind)
        content: Any = None
        with suppress(CorruptMetadataError):
            content = decode_file(path, partial(decode_metadata, kind), directory.files)
        if content is None:
            continue
        if isinstance(content, DelayOffsets):
            levels = {level - 1: offset for level, offset in content.offset_table.items()}
            table = {queue_id + 1: offset for queue_id, offset in fit(SCHEDULE_TOPIC, levels).items()}
            fitted: Any = replace(content, offset_table=undelivered_from(directory, table, ends, last_ms))
        else:
            tables = {key: fit(key, offsets) for key, offsets in content.offset_table.items()}
            fitted = replace(content, offset_table=tables)
            if isinstance(content, LmqConsumerOffsets):
                light = {key: fit(key, {0: offset})[0] for key, offset in content.lmq_offset_table.items()}
                fitted = replace(fitted, lmq_offset_table=light)
            else:
                _fit_transactions(directory, tables, ends)
        if fitted != content:
            directory.files.write_atomically(path, encode_metadata(fitted))
    if is_earlier:
        _fit_begins(directory.path, cut.end, directory.files)
    return _fit_sinks(directory.path, cut.end, directory.files)


def _fit_begins(root: str, end: int, files: FileLayer) -> None:
    """Forget deletions of topics at the end of the log or after it: they are not in it.

    A start would lower their begins to the end, and hide all messages of these topics.
    """
    path, topics = metadata_path(root, Topics), None
    with suppress(CorruptMetadataError):
        topics = decode_file(path, partial(decode_metadata, Topics), files)
    if topics is None or not topics.begin_offset_table:
        return
    begins = {topic: begin for topic, begin in topics.begin_offset_table.items() if begin < end}
    if len(begins) < len(topics.begin_offset_table):
        files.write_atomically(path, encode_metadata(replace(topics, begin_offset_table=begins or None)))


def _fit_transactions(
    directory: StoreDirectory, tables: Mapping[str, dict[int, int]], ends: Mapping[tuple[str, int], int]
) -> None:
    """Lower the offsets of judged half messages, and of the op messages that end them."""
    halves, ops = (tables.get(f"{topic}@{TRANS_GROUP}", {}) for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC))
    for queue_id, half in halves.items():
        halves[queue_id], op = unended_from(directory, queue_id, half, ops.get(queue_id, 0), ends)
        if queue_id in ops:
            ops[queue_id] = op


def _fit_sinks(root: str, end: int, files: FileLayer) -> tuple[str, ...]:
    sinks = read_sinks(files, root)
    commits = {name: commit for name, commit in sinks.commits.items() if commit.end_offset <= end}
    broken = {name: batch for name, batch in sinks.broken.items() if batch.intent.begin_offset < end}
    forgotten = tuple(sorted({*sinks.commits} - {*commits}))
    fitted: Sinks = replace(sinks, commits=commits, broken=broken)
    if fitted != sinks:
        files.write_atomically(os.path.join(root, CONFIG, SINKS_FILE), encode_sinks(fitted))
    return forgotten
