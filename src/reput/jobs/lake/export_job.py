"""`export`: write a commit log to Parquet files by topic and day, or to a Delta table. Each run exports what is new.

The log is exported in batches, each of them one commit (`reput.jobs.lake.commits`): a kill costs at most one batch, and
the next run continues after the last commit. The end of a batch depends on the log alone, and so do the files.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import ConfigError, CorruptRecordError, DataLossError, ReputError
from reput.extras import require
from reput.files import DISK, FileLayer
from reput.jobs.body_schema import body_schema_text
from reput.jobs.job_folder import JobFolder, Option
from reput.jobs.lake.body_decoders import BodySchema, keep_decoders, kept_decoders, make_decoders
from reput.jobs.lake.commits import LakeCommit, LakeCommits
from reput.jobs.lake.delta_table import DeltaTables, check_names
from reput.jobs.lake.export_task import SAMPLE_COLUMNS, StagedSplit, merge_files, stage_split
from reput.jobs.lake.files import LakeFile, groups_to_merge
from reput.jobs.lake.rows import LakeRows
from reput.jobs.lake.staging import Staging
from reput.jobs.runner import Runner
from reput.jobs.sampled_fields import SampledFields, no_schema
from reput.jobs.split_tasks import run_over_splits
from reput.log.directory import StoreDirectory
from reput.log.positions import LogPosition, TailLimit
from reput.log.reader import read_split
from reput.log.scan import Damage
from reput.log.selection import make_selection
from reput.log.splits import Split, SplitStop, plan_splits
from reput.log.tail import LogTail
from reput.progress import Progress

Format = Literal["parquet", "delta"]

SPLIT_BYTES = 64 << 20
#: Log bytes of a commit: the most that a kill costs, and that is staged on the disk before readers see it.
COMMIT_BYTES = 4 << 30
#: A smaller file takes longer to open than to read (Spark's default of spark.sql.files.openCostInBytes).
TARGET_FILE_BYTES = 4 << 20
#: Columns that every file has: the origin of a row.
LINEAGE = ("store", "commit_log_offset", "queue_id", "queue_offset")
_SAMPLE_ROWS = 10_000
#: Version of the files' layout: a later reput with the same layout continues an export. That of raw bodies is older.
_LAYOUT, _RAW_LAYOUT = "export 2", "export 1"


@dataclass(frozen=True, slots=True)
class TopicSum:
    """Sums of a topic's export; `bytes` are the sizes of its files."""

    topic: str
    messages: int
    rejected: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Reject:
    """The first rejected row of a topic in a commit: where it is, and why its body could not be decoded."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"queue {self.queue_id}, queue offset {self.queue_offset}, commit log offset {self.commit_log_offset}: "
            f"{self.reason}"
        )


@dataclass(frozen=True, slots=True)
class Export:
    """Result of one run of an export.

    Attributes:
        begin_offset, end_offset: the exported range of the commit log.
        messages: rows of messages.
        rejected: rows in `rejects/`, as their bodies could not be decoded.
        commits: count of commits.
        topics: sums, sorted by topic.
        first_rejects: the first rejected row of each topic, sorted by topic.
        body_schemas: schemas of JSON bodies by topic, as text, of the topics that this run has exported.
        lost: ranges of offsets that were deleted or cut before they were exported, where that was allowed.
        damages: ranges of the log that hold no whole records and were passed over, where that was allowed.
        seconds: time of the run.
    """

    begin_offset: int
    end_offset: int
    messages: int
    rejected: int
    commits: int
    topics: tuple[TopicSum, ...]
    first_rejects: tuple[Reject, ...]
    body_schemas: dict[str, str]
    lost: tuple[tuple[int, int], ...]
    damages: tuple[Damage, ...]
    seconds: float

    @property
    def findings(self) -> list[str]:
        """Texts of lost ranges, of damage that was passed over, and of rejected bodies."""
        findings = [f"offsets {begin} to {end} were lost before they were exported" for begin, end in self.lost]
        findings += [f"{damage.error()}; passed over {damage.end - damage.begin} bytes" for damage in self.damages]
        rejected = {one.topic: one.rejected for one in self.topics}
        findings += [
            f"topic {first.topic}: {rejected[first.topic]} bodies could not be decoded: they are in rejects/, with the "
            f"reason; the first is at {first}"
            for first in self.first_rejects
        ]
        return findings


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export. The first five must be the same in every run to one folder.

    Attributes:
        topics: of the messages; None: all topics, future ones included.
        columns: of `read_log`; None: all. The lineage columns always come first; the topic is a folder's name.
        decode: raw, utf8 or json; see `reput.jobs.decoding`.
        schema: of the JSON bodies of all topics, or by topic; else inferred when a topic first appears, and kept.
        format: parquet; or delta, which also makes the folders of messages and rejects Delta tables.
        commit_log_path: as for `read_log`.
        split_bytes: log bytes of a task.
        commit_bytes: log bytes of a commit, rounded up to whole files of the log.
        target_file_bytes: smaller files of a commit are merged.
        fail_on_data_loss: whether it is an error that retention has deleted records that were not exported yet, or
            that the log is another one now; False: the export continues with the log as it is.
        damaged: treatment of damage in the log: "refuse" ends the run before the batch with the damage; "skip" exports
            all whole records before and after it, and reports the ranges that were passed over.
        strict: whether a body that cannot be decoded ends the run before the batch with the body; False: its row is
            rejected.
    """

    topics: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    decode: str = "raw"
    schema: BodySchema | Mapping[str, BodySchema] | None = None
    format: Format = "parquet"
    commit_log_path: str | os.PathLike[str] | None = None
    split_bytes: int = SPLIT_BYTES
    commit_bytes: int = COMMIT_BYTES
    target_file_bytes: int = TARGET_FILE_BYTES
    fail_on_data_loss: bool = True
    damaged: Literal["refuse", "skip"] = "refuse"
    strict: bool = False


def export(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    runner: Runner,
    options: ExportOptions = ExportOptions(),
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Export:
    """Export the messages that are new since the last run to the same folder; in the first run, all messages.

    Below the output, messages lie in `messages/topic=<topic>/date=<date>/`, rows whose bodies could not be decoded in
    `rejects/topic=<topic>/date=<date>/`, and the job's state in `_reput/`. Dates are of the store timestamp, in UTC.
    With JSON bodies each topic is a table with a schema of its own, `messages/<topic>`, which has these folders.

    Raises:
        ConfigError: a wrong option, or another value than in earlier runs; a schema that fits no body of a sample; JSON
            without a schema, and no body of the first commit is such; with `strict`, a body that cannot be decoded,
            with its topic and offset. Earlier commits stay.
        StoreFormatError: no store, or an output that is not empty and belongs to no export.
        StoreLockedError: another process exports to this folder.
        DataLossError: the log does not have the records after the last run any more.
        CorruptRecordError: damage in the log that is not skipped; earlier commits stay.
    """
    with _opened(store_path, output, runner, options, files) as job:
        return job.run(progress)


def follow(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    runner: Runner,
    wait: Callable[[], bool],
    options: ExportOptions = ExportOptions(),
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Iterator[Export]:
    """Export repeatedly. After each run `wait()` is called: it returns True when the next run is due, False to end.

    Each run is as a call of `export`, with its errors; a run without new messages commits nothing.
    """
    with _opened(store_path, output, runner, options, files) as job:
        yield job.run(progress)
        while wait():
            yield job.run(progress)


@contextmanager
def _opened(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    runner: Runner,
    options: ExportOptions,
    files: FileLayer,
) -> Iterator[_ExportJob]:
    """Check the options, lock the output, and open the job."""
    directory = StoreDirectory(store_path, commit_log_path=options.commit_log_path, files=files)
    directory.check_output(output)
    _check(options)
    kept: dict[str, Option] = {
        # in place of the version: a later reput with the same layout continues
        "reput": _RAW_LAYOUT if options.decode == "raw" else _LAYOUT,
        "store": directory.path,
        "topics": None if options.topics is None else sorted(set(options.topics)),
        "columns": None if options.columns is None else list(options.columns),
        "decode": options.decode,
        "schema": _schema_option(options.schema),
        "format": options.format,
    }
    with JobFolder(output, "export", kept, files=files) as folder:
        try:
            job = _ExportJob(directory, folder, runner, options, files)
        except ReputError:
            if not folder.resumed:  # leave no state: the next try may have other options
                folder.finish()
            raise
        try:
            yield job
        except ConfigError:
            if not job.has_commits:
                folder.finish()
            raise
        except CorruptRecordError as error:
            advice = "or export all whole records, with a report of the rest, by --damaged skip (damaged='skip')"
            raise CorruptRecordError(error.path, error.offset, f"{error.reason}; {advice}") from None


def _check(options: ExportOptions) -> None:
    if options.format not in ("parquet", "delta"):
        raise ConfigError(f"format: {options.format!r} is neither parquet nor delta")
    if options.format == "delta":
        require("deltalake", "format delta")
    if options.decode != "raw" and options.columns is not None and "body" not in options.columns:
        raise ConfigError(f"decode: {options.decode} decodes bodies, and the columns leave them out")
    if options.damaged not in ("refuse", "skip"):
        raise ConfigError(f"damaged: {options.damaged!r} is neither refuse nor skip")
    for name in ("split_bytes", "commit_bytes", "target_file_bytes"):
        if getattr(options, name) < 1:
            raise ConfigError(f"{name}: {getattr(options, name)} is no size in bytes")
    decoders = make_decoders(options.decode, options.schema)
    if options.format == "delta":
        for decoder in (decoders.common, *decoders.by_topic.values()):
            if decoder is not None and pa.types.is_struct(decoder.type):
                check_names(decoder.type)


def _schema_option(schema: BodySchema | Mapping[str, BodySchema] | None) -> Option:
    """Value of the option as the job's folder keeps it."""
    if isinstance(schema, Mapping):
        return [f"{topic}={_schema_option(one)}" for topic, one in sorted(schema.items())]
    return body_schema_text(schema) if isinstance(schema, pa.Schema) else schema


class _ExportJob:
    """An export in an output folder that this process has locked."""

    def __init__(
        self, directory: StoreDirectory, folder: JobFolder, runner: Runner, options: ExportOptions, files: FileLayer
    ) -> None:
        self._directory, self._folder, self._runner = directory, folder, runner
        self._options, self._files = options, files
        mode = "DROPMALFORMED" if options.damaged == "skip" else "FAILFAST"
        selection = make_selection(topics=options.topics, store=directory.name, mode=mode)
        self._tail = LogTail(directory, on_damage=selection.on_damage)
        columns = options.columns if options.columns is not None else selection.columns
        make_selection(columns=columns, store="")
        shown = tuple(dict.fromkeys([*LINEAGE, *(name for name in columns if name != "topic")]))
        needed = ["topic", "store_timestamp", *(["body", "status"] if options.decode != "raw" else [])]
        selection = replace(selection, columns=tuple(dict.fromkeys([*shown, *needed])))
        decoders = make_decoders(options.decode, options.schema)
        self._rows = LakeRows(selection, shown, kept_decoders(decoders, folder.state_folder(), files))
        if not folder.resumed and options.schema:
            self._check_fit()
        publish: Callable[[LakeCommit], None] = _nothing
        if options.format == "delta":
            publish = DeltaTables(
                folder.path, lambda kind, topic: self._rows.schema(kind, topic), directory.path, files
            ).publish
        self._commits = LakeCommits(folder, files, publish)
        self._commits.recover()

    @property
    def has_commits(self) -> bool:
        """Whether anything was exported, by this run or an earlier one."""
        return self._commits.last is not None

    def run(self, progress: Progress | None) -> Export:
        """Export new messages."""
        started = time.perf_counter()
        first, lost = self._begin()
        begin, end = first, self._tail.advance(first)
        commits: list[LakeCommit] = []
        self._first_rejects: dict[str, Reject] = {}
        while begin.offset < end.offset:
            stop = self._commit_end(begin, end)
            commits.append(self._commit(begin.offset, stop, progress))
            begin = stop
            if begin.offset == end.offset:  # damage looks like the end of the log until a read begins at it
                end = self._tail.advance(begin)
        lake_files = [one for commit in commits for one in commit.lake_files]
        topics = _sums(lake_files)
        schemas = {one.topic: self._rows.decoders.schema_text(one.topic) for one in topics}
        return Export(
            begin_offset=first.offset,
            end_offset=begin.offset,
            messages=sum(topic.messages for topic in topics),
            rejected=sum(topic.rejected for topic in topics),
            commits=len(commits),
            topics=topics,
            first_rejects=tuple(first for _, first in sorted(self._first_rejects.items())),
            body_schemas={topic: text for topic, text in schemas.items() if text is not None},
            lost=lost,
            damages=tuple(damage for commit in commits for damage in commit.damages),
            seconds=time.perf_counter() - started,
        )

    def _begin(self) -> tuple[LogPosition, tuple[tuple[int, int], ...]]:
        """Position at which to continue, and the ranges that are lost before it."""
        last = self._commits.last
        if last is None:
            return self._tail.earliest(), ()
        try:
            self._tail.check(last.end)
        except DataLossError as error:
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{error}. Export to another folder, which then begins with the log as it is; or allow the loss, "
                    "and the export continues after it"
                ) from error
            position = self._tail.resume(last.end)
            return position, ((last.end.offset, position.offset),)
        return last.end, ()

    def _commit_end(self, begin: LogPosition, end: LogPosition) -> LogPosition:
        """End of a commit: after the last record of a log file, or at the end of the log."""
        for file in self._directory.log_files():
            if begin.offset + self._options.commit_bytes <= file.end_offset < end.offset:
                start = LogPosition(max(begin.offset, file.start_offset))
                stop = self._tail.advance(start, TailLimit(end_offset=file.end_offset))
                return stop if stop.offset > begin.offset else LogPosition(file.end_offset, begin.last)
        return end

    def _commit(self, begin: int, end: LogPosition, progress: Progress | None) -> LakeCommit:
        staging = Staging(self._commits.stage(), self._files)
        rows, description = self._rows, "export the log"
        if rows.decoders.common is None and not rows.decoders.by_topic:  # no row can be written yet
            rows = replace(rows, selection=replace(rows.selection, columns=SAMPLE_COLUMNS))
            description = "look at bodies"
        outcomes = self._stage(rows, staging, begin, end, description, progress)
        damages = [one for outcome in outcomes for one in outcome.damages]
        staged = [one for outcome in outcomes for one in outcome.lake_files]
        if samples := _merged(outcome.samples for outcome in outcomes):
            self._infer(samples)
            selection = replace(self._rows.selection, topics=frozenset(samples))
            rows = replace(self._rows, selection=selection)
            outcomes = self._stage(rows, staging, begin, end, "export the log", progress)
            staged += [one for outcome in outcomes for one in outcome.lake_files]
        self._look_at_rejects(staged, staging)
        groups = groups_to_merge(staged, self._options.target_file_bytes)
        small = [group for group in groups if len(group) > 1]
        merged = self._runner.run(
            partial(merge_files, self._rows, staging), small, description="merge small files", progress=progress
        ) if small else []  # fmt: skip
        alone = [group[0] for group in groups if len(group) == 1]
        lake_files = sorted([*alone, *merged], key=lambda one: (one.first_offset, one.path))
        return self._commits.commit(begin, end, lake_files, damages)

    def _stage(
        self, rows: LakeRows, staging: Staging, begin: int, end: LogPosition, description: str,
        progress: Progress | None,
    ) -> list[StagedSplit]:  # fmt: skip
        """Write rows of a range of the log to staged files."""
        splits = _splits(self._directory, begin, end.offset, self._options.split_bytes)
        outcomes, _ = run_over_splits(
            self._runner, partial(stage_split, rows, staging), splits, description=description, progress=progress
        )
        cut = [outcome.read for outcome in outcomes if outcome.read.stop is SplitStop.LOG_END]
        if cut:
            raise DataLossError(
                f"{self._directory.path}: the log was to be exported up to offset {end.offset}, and ends at "
                f"{cut[0].end_offset} now: it was cut meanwhile, as a start after a kill does. Export again"
            )
        return outcomes

    def _infer(self, samples: Mapping[str, SampledFields]) -> None:
        """Infer the schemas of new topics, and keep them for later runs, before a row is written by them.

        Raises ConfigError where no topic has JSON bodies at all: then JSON is a wrong option.
        """
        decoders = self._rows.decoders.inferred(samples)
        if not self.has_commits and not any(len(decoder.schema) for decoder in decoders.by_topic.values()):
            raise no_schema(next(iter(samples.values())))
        if self._options.format == "delta":
            for topic in samples:
                check_names(decoders.by_topic[topic].type, f"topic {topic}: ")
        keep_decoders(decoders, self._folder.state_folder(), self._files)
        self._rows = replace(self._rows, decoders=decoders)

    def _look_at_rejects(self, staged: Sequence[LakeFile], staging: Staging) -> None:
        """Note the first rejected row of each topic; raises ConfigError for the first one where none is allowed."""
        first: dict[str, LakeFile] = {}
        for one in sorted(staged, key=lambda one: one.first_offset):
            if one.kind == "rejects":
                first.setdefault(one.topic, one)
        for topic, one in first.items():
            names = ["queue_id", "queue_offset", "commit_log_offset", "reason"]
            row = staging.open(one.name).read_row_group(0, names).slice(0, 1).to_pylist()[0]
            reject = Reject(topic, **row)
            if self._options.strict:
                raise ConfigError(
                    f"{self._directory.path}: topic {topic}, {reject}. Nothing of this batch is exported. Give a "
                    "schema that the body fits, or leave --strict (strict=True) out, and such rows go to rejects/"
                )
            self._first_rejects.setdefault(topic, reject)

    def _check_fit(self) -> None:
        """Raise ConfigError where no body of the sample can be decoded by a given schema."""
        reasons: list[str | None] = []
        for batch in self._sample():
            for topic in batch["topic"].unique().to_pylist():
                decoder = self._rows.decoders.of(topic)
                if decoder is not None:
                    bodies = batch["body"].filter(pc.equal(batch["topic"], topic))
                    reasons += decoder.decode(bodies).reasons.to_pylist()
        if reasons and None not in reasons:
            raise ConfigError(
                f"schema: it fits none of the first {len(reasons)} bodies; the reason for the first: {reasons[0]}. "
                "Give another schema, or none to have one inferred"
            )

    def _sample(self) -> Iterator[pa.RecordBatch]:
        """Read the first bodies of the log, with their topics."""
        left = _SAMPLE_ROWS
        selection = replace(self._rows.selection, columns=("topic", "body"))
        begin = self._tail.earliest()
        end = self._tail.advance(begin).offset
        for split in _splits(self._directory, begin.offset, end, COMMIT_BYTES):
            for batch in read_split(split, selection, files=self._files):
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
                if not left:
                    return


def _splits(directory: StoreDirectory, begin: int, end: int, split_bytes: int) -> list[Split]:
    """Splits of the log from the offset of a record to an end offset, cut as those of whole files."""
    if begin >= end:
        return []
    splits = plan_splits(directory.log_files(), split_bytes)
    inside = [split for split in splits if split.end > begin and split.begin < end]
    if not inside or inside[0].begin > begin or inside[-1].end < end:
        raise DataLossError(
            f"{directory.path}: the log was to be exported from offset {begin} to {end}, and files of this range were "
            "deleted meanwhile: retention is faster than the export"
        )
    inside[0] = replace(inside[0], begin=begin, is_record_start=True)
    inside[-1] = replace(inside[-1], end=end)
    return inside


def _sums(lake_files: Sequence[LakeFile]) -> tuple[TopicSum, ...]:
    messages, rejected, count, size = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in lake_files:
        (messages if one.kind == "messages" else rejected)[one.topic] += one.rows
        count[one.topic] += 1
        size[one.topic] += one.size
    return tuple(TopicSum(t, messages[t], rejected[t], count[t], size[t]) for t in sorted(count))


def _merged(samples: Iterable[Mapping[str, SampledFields]]) -> dict[str, SampledFields]:
    """Samples of a commit by topic, out of those of its splits in log order."""
    merged: dict[str, SampledFields] = {}
    for of_split in samples:
        for topic, fields in of_split.items():
            merged.setdefault(topic, SampledFields()).merge(fields)
    return merged


def _nothing(commit: LakeCommit) -> None:
    """Publish nothing: an export to Parquet has no table."""
