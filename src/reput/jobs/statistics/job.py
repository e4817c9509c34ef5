"""`statistics`: count messages and bytes of a log by topic, queue, tag, key, producer and time.

The same pass over the headers gives latencies, the largest bodies, disk use and damage. Each task reduces its split to
small tables; the merge adds them up, so neither the runner nor the splits change the result. Headers and properties are
read; bodies are read only to check CRCs. A stored record counts: an inner batch is one message, and a compressed body
counts with its stored size. For some topics only the parts of the log are read that may have their records.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.config.arguments import check_text, check_texts, optional
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, CorruptRecordError
from reput.jobs.arguments import check_arguments
from reput.jobs.job_folder import JobFolder, Option
from reput.jobs.log_bounds import bounded_splits, lost_ends
from reput.jobs.resuming import ResumingRunner
from reput.jobs.runner import Runner, run_in_turns
from reput.jobs.split_tasks import run_over_splits_in_turns
from reput.jobs.statistics.counting import LATENCY, SUMS, Grouping, add_up, count, queues_of_points, queues_of_selected
from reput.jobs.statistics.disk_use import DiskUse, disk_use
from reput.jobs.statistics.latency import quantiles
from reput.jobs.statistics.planned_log import PartGroup, PlannedLog, part_groups_of_files, plan_log
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.placeholders import without_placeholders
from reput.kernels.records.record_batch import SCHEMA, record_batch
from reput.log.damages import NO_DAMAGES, Damages, joined
from reput.log.directory import StoreDirectory
from reput.log.plans.plan_parts import Part, part_range
from reput.log.point_reads import Points, read_records
from reput.log.scan import OnDamage, SplitScan, scan_split, with_rows
from reput.log.selection import Selection, make_selection
from reput.log.splits import Split, SplitResult, SplitStop
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.progress import Progress

Dimension = Literal["topic", "queue", "tag", "key", "host"]

SPLIT_BYTES = 64 << 20
_COLUMN_OF = {"topic": "topic", "queue": "queue_id", "tag": "tags", "key": "key", "host": "born_host"}
_BUCKET = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LARGEST_COLUMNS = ("topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp")
_LARGEST_SCHEMA = pa.schema([("body_bytes", pa.int64()), *(SCHEMA.field(name) for name in _LARGEST_COLUMNS)])
_BY_TOPIC = Grouping(("topic",))
_BY_FILE_SCHEMA = pa.schema([("start_offset", pa.int64()), *_BY_TOPIC.schema])


@dataclass(frozen=True, slots=True)
class Statistics:
    """Result of `statistics`.

    Attributes:
        table: a row a group: the columns of `by` in their order (topic string, queue_id int32, tags string, key string,
            born_host string, the address without the port; null for messages that have none), `store_timestamp` or
            `born_timestamp` (timestamp[us, UTC], the bucket's start, null for a start outside the years 1 to 9999),
            then messages, bytes (whole records) and body_bytes, int64, and with `latency` the columns of
            `reput.jobs.statistics.latency.QUANTILES`. Sorted by the group's columns, null last. A message with
            several keys is counted for each of them.
        largest: the largest bodies as stored, largest first, the older first among equal ones: body_bytes, topic,
            queue_id, queue_offset, commit_log_offset, store_timestamp.
        disk: disk use, and when retention deletes what.
        damages: ranges of the log that are no whole records; they are counted nowhere. With topics: all that may be of
            these topics, and others only if they were read.
        messages: count of messages of the whole log, or of the topics.
        log_bytes: bytes of their records.
        seconds: time that the job took.
    """

    table: pa.Table
    largest: pa.Table
    disk: DiskUse
    damages: Damages
    messages: int
    log_bytes: int
    seconds: float

    @property
    def findings(self) -> list[str]:
        """Sentences about the damage."""
        return self.damages.texts()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Outcome of one task, a `SplitOutcome`. Damage is passed over, so there is no fault."""

    read: SplitResult
    table: pa.Table
    by_topic: pa.Table
    largest: pa.Table
    damages: Damages
    fault: CorruptRecordError | None = None


def statistics(
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    topics: Iterable[str] | None = None,
    by: Sequence[Dimension] = ("topic", "queue", "tag"),
    bucket: str | None = "1h",
    time_of: Literal["store", "born"] = "store",
    latency: bool = False,
    largest: int = 10,
    check_crc: bool = False,
    config: MessageStoreConfig | None = None,
    commit_log_path: str | os.PathLike[str] | None = None,
    split_bytes: int = SPLIT_BYTES,
    work_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Count the messages of a log by some of topic, queue, tag, key and producer host, and by time.

    The log of an open store is counted up to its end at the job's start.

    A task keeps its groups in memory, and the merge keeps the groups of the log, with those of some thousand tasks at
    once: about 100 bytes each, so 10 million different keys take a gigabyte in this process.

    Args:
        topics: only messages of these topics count; what consume queues prove to have none of them is not read.
        by: dimensions that make a group, beside the time.
        bucket: width of a time bucket: a number and s, m, h or d (`15m`), aligned to 1970 UTC; None for no time.
        time_of: whether buckets are of the store timestamp or of the born timestamp.
        latency: also count quantiles of the time from birth to store for each group.
        largest: how many of the largest bodies are listed.
        check_crc: a record whose body does not agree with its CRC is damage. Without it a record proves itself by its
            size, its magic code, its own offset and its inner lengths, and its body is not read.
        config: gives `fileReservedTime` and `deleteWhen`, for the times of deletion; None: RocketMQ's defaults.
        work_dir: a folder for outcomes of tasks: a job that was killed continues there.

    Raises:
        ConfigError: an unknown name in `by` or `time_of`, a `bucket` that is no width, or one text as `topics`; or
            `work_dir` belongs to a job with other options.
        StoreFormatError: no store, or a foreign file in its log; or `work_dir` is not empty and belongs to no such job.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    grouping = grouping_of(by, bucket, time_of, latency=latency)
    if largest < 0:
        raise ConfigError(f"largest={largest}: expected 0 or more")
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    selection = None if topics is None else make_selection(topics=topics, store=directory.name)
    warn_of_unknown_topics(None if selection is None else selection.topics, directory)
    job = partial(
        _count, directory, _Reducing(grouping, largest, check_crc, selection), config or MessageStoreConfig(),
        split_bytes, progress,
    )  # fmt: skip
    if work_dir is None:
        result = job(runner)
    else:
        directory.check_output(work_dir)
        options: dict[str, Option] = {
            "store": directory.path, "topics": None if selection is None else sorted(selection.topics or ()),
            "by": list(by), "bucket": bucket, "time_of": time_of, "latency": latency,
            "largest": largest, "check_crc": check_crc, "split_bytes": split_bytes,
            "commitLogPath": list(directory.commit_log_folders),
        }  # fmt: skip
        with JobFolder(work_dir, "stats", options) as folder:
            result = job(ResumingRunner(runner, folder))
            folder.finish()
    return replace(result, seconds=time.perf_counter() - started)


def _count(
    directory: StoreDirectory,
    task: _Reducing,
    config: MessageStoreConfig,
    split_bytes: int,
    progress: Progress | None,
    runner: Runner,
) -> Statistics:
    """Run all phases of the job."""
    listing = partial(plan_log, directory, task.selection)
    (log,) = runner.run(listing, [directory.path], description="list the store", progress=progress)
    merged = _Merged(task)
    for outcomes in _outcomes(runner, task, log, split_bytes, progress):
        merged.add(outcomes)
    disk = disk_use(log.log_files, merged.by_file, config)
    messages, log_bytes = (sum(disk.topics[name].to_pylist()) for name in ("messages", "bytes"))
    return Statistics(
        table=_table(merged.table, task.grouping),
        largest=merged.largest,
        disk=disk,
        damages=merged.damages.followed_by(lost_ends(directory, [*merged.reads, *log.proven_end()])),
        messages=messages,
        log_bytes=log_bytes,
        seconds=0.0,
    )


def _outcomes(
    runner: Runner, task: _Reducing, log: PlannedLog, split_bytes: int, progress: Progress | None
) -> Iterator[list[_Outcome]]:
    """Run the tasks, over the planned parts or over all splits; yields some thousand outcomes at once."""
    if log.parts is not None:
        groups = part_groups_of_files(log.parts, split_bytes)
        return run_in_turns(runner, task.parts, groups, description="read the log", progress=progress)
    splits = bounded_splits(log.log_files, split_bytes, log.log_end)
    return run_over_splits_in_turns(runner, task.split, splits, description="read the log", progress=progress)


def grouping_of(by: Sequence[str], bucket: str | None, time_of: str, *, latency: bool = False) -> Grouping:
    """Grouping from the arguments of `statistics`; raises ConfigError for unknown words."""
    check_texts("by", by)
    unknown = [name for name in by if name not in _COLUMN_OF]
    if unknown or len(set(by)) != len(by):
        raise ConfigError(
            f"by={','.join(by)}: expected each of topic, queue, tag, key and host at most once; by time: bucket, as 1h"
        )
    if time_of not in ("store", "born"):
        raise ConfigError(f"time_of={time_of}: expected store or born")
    optional(check_text)("bucket", bucket)
    match = _BUCKET.fullmatch(bucket) if bucket is not None else None
    if bucket is not None and match is None:
        raise ConfigError(f"bucket={bucket}: expected a number and s, m, h or d: 15m, 1h, 1d")
    bucket_ms = int(match[1]) * _UNIT_MS[match[2]] if match else 0
    return Grouping(tuple(_COLUMN_OF[name] for name in by), f"{time_of}_timestamp", bucket_ms, latency)


@dataclass(frozen=True, slots=True)
class _Reducing:
    """Tasks that reduce a part of the log to a table by group, a table by topic, and its largest bodies.

    Attributes:
        selection: with the topics that count; None: all messages.
    """

    grouping: Grouping
    largest: int
    check_crc: bool
    selection: Selection | None

    def split(self, split: Split) -> _Outcome:
        """Task: reduce one split."""
        scans: list[SplitScan] = []
        tables = self._reduced(self._columns([split], scans))
        return _Outcome(scans[0].result, *tables, scans[0].damages)

    def parts(self, group: PartGroup) -> _Outcome:
        """Task: reduce planned parts."""
        scans: list[SplitScan] = []
        tables = self._reduced(self._columns(group.parts, scans))
        first, last = group.parts[0], group.parts[-1]
        begin, end = part_range(first)[0], part_range(last)[1]
        read_end = scans[-1].end_offset if isinstance(last, Split) else end
        read = SplitResult(Split(first.file, begin, end, True), begin, read_end, SplitStop.SPLIT_END)
        return _Outcome(read, *tables, joined(scan.damages for scan in scans))

    def _columns(self, parts: Sequence[Part], scans: list[SplitScan]) -> Iterator[RecordColumns]:
        """The records that count; adds the scans of splits to `scans`."""
        for part in parts:
            if isinstance(part, Points):
                yield from map(queues_of_points, read_records(part))  # all are of the topics, as the plan has proven
                continue
            scan = scan_split(part, level=self.grouping.level, check_crc=self.check_crc, on_damage=OnDamage.SKIP)
            scans.append(scan)
            for columns in scan:
                if self.selection is None:
                    yield without_placeholders(columns)
                else:
                    yield queues_of_selected(self.selection.select(columns))

    def _reduced(self, batches: Iterator[RecordColumns]) -> tuple[pa.Table, pa.Table, pa.Table]:
        """The three tables of the records."""
        grouping, largest = self.grouping, self.largest
        tables, by_topic = [], []
        bodies, floor = _LARGEST_SCHEMA.empty_table(), -1 if largest else np.iinfo(np.int32).max
        derived = "topic" in grouping.columns and not grouping.counts_twice
        for columns in batches:
            if not columns.rows:
                continue
            tables.append(count(columns, grouping))
            if not derived:
                by_topic.append(count(columns, _BY_TOPIC))
            if columns["body_size"].max() > floor:  # an equal one is younger than the body that is listed already
                bodies = _largest([bodies, _large(columns, largest, floor)], largest)
                floor = bodies["body_bytes"][-1].as_py() if bodies.num_rows == largest else -1
        table = add_up([grouping.schema.empty_table(), *tables], grouping.fine_names)
        topics = add_up(
            [_BY_TOPIC.schema.empty_table(), *([table.select(["topic", *SUMS])] if derived else by_topic)], ["topic"]
        )
        return table, topics, bodies


def _large(columns: RecordColumns, count: int, floor: int) -> pa.Table:
    """The `count` rows of a scan with the largest bodies above `floor` bytes."""
    rows = np.flatnonzero(columns["body_size"] > floor)
    rows = rows[np.argsort(-columns["body_size"][rows], kind="stable")[:count]]
    chosen = with_rows(columns, columns.wide[:, rows], columns.narrow[:, rows])
    batch = record_batch(chosen, _LARGEST_COLUMNS)
    body_bytes = pa.array(chosen["body_size"].astype(np.int64))
    return pa.Table.from_arrays([body_bytes, *batch.columns], schema=_LARGEST_SCHEMA)


def _largest(tables: Sequence[pa.Table], count: int) -> pa.Table:
    order = [("body_bytes", "descending"), ("commit_log_offset", "ascending")]
    return pa.concat_tables([_LARGEST_SCHEMA.empty_table(), *tables]).sort_by(order).slice(0, count).combine_chunks()


class _Merged:
    """Outcomes added up, as they come: what they have by group is kept once, not once for each of them.

    Attributes:
        reads: the ranges that were read, in log order.
        table: a row a group, as `_Outcome.table`.
        by_file: a row a file and topic, as `DiskUse.parts`.
        largest: the largest bodies.
        damages: of all outcomes, in log order.
    """

    def __init__(self, task: _Reducing) -> None:
        self._task = task
        self.reads: list[SplitResult] = []
        self.table, self.by_file = task.grouping.schema.empty_table(), _BY_FILE_SCHEMA.empty_table()
        self.largest, self.damages = _LARGEST_SCHEMA.empty_table(), NO_DAMAGES

    def add(self, outcomes: Sequence[_Outcome]) -> None:
        """Add the next outcomes of the log."""
        self.reads += [outcome.read for outcome in outcomes]
        self.table = add_up([self.table, *(outcome.table for outcome in outcomes)], self._task.grouping.fine_names)
        by_file = []
        for outcome in outcomes:
            offsets = pa.repeat(outcome.read.split.file.start_offset, outcome.by_topic.num_rows)
            by_file.append(outcome.by_topic.add_column(0, "start_offset", offsets))
        self.by_file = add_up([self.by_file, *by_file], ["start_offset", "topic"])
        self.largest = _largest([self.largest, *(outcome.largest for outcome in outcomes)], self._task.largest)
        self.damages = joined([self.damages, *(outcome.damages for outcome in outcomes)])


def _table(fine: pa.Table, grouping: Grouping) -> pa.Table:
    """Sorted table of all groups, with latencies as quantiles."""
    if grouping.fine_names:
        fine = fine.sort_by([(name, "ascending") for name in grouping.fine_names])
    if not grouping.latency:
        return fine
    fine = fine.append_column("all", pa.repeat(0, fine.num_rows))  # a group where no other column makes one
    names = [*grouping.names, "all"]
    sums = [(name, "sum") for name in SUMS]
    grouped = fine.group_by(names, use_threads=False).aggregate([*sums, (LATENCY, "list"), ("messages", "list")])
    grouped = grouped.combine_chunks()
    latencies = quantiles(
        *(pc.cast(grouped[f"{name}_list"].combine_chunks(), pa.list_(pa.int64())) for name in (LATENCY, "messages"))
    )
    columns = {name: grouped[name] for name in grouping.names} | {name: grouped[f"{name}_sum"] for name in SUMS}
    return pa.table(columns | latencies)
