"""`export`: write a commit log to Parquet files by topic and day, or to a Delta table. Each run exports what is new.

The log is exported in batches, each of them one commit (`reput.jobs.lake.commits`): a kill costs at most one batch, and
the next run continues after the last commit. The end of a batch depends on the log alone, and so do the files.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pyarrow as pa

from reput.errors import ConfigError, CorruptRecordError, DataLossError, ReputError
from reput.extras import require
from reput.files import DISK, FileLayer
from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.jobs.decoding import BodyDecoder, JsonDecoder, RawDecoder, make_decoder
from reput.jobs.job_folder import JobFolder
from reput.jobs.lake.commits import LakeCommit, LakeCommits
from reput.jobs.lake.delta_table import DeltaTable
from reput.jobs.lake.files import LakeFile, LakeRows, Staging, groups_to_merge, merge_files, stage_split
from reput.jobs.runner import Runner
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
#: Version of the files' layout: a later reput with the same layout continues an export.
_LAYOUT = "export 1"


@dataclass(frozen=True, slots=True)
class TopicSum:
    """Sums of a topic's export; `bytes` are the sizes of its files."""

    topic: str
    messages: int
    undecoded: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Export:
    """Result of one run of an export.

    Attributes:
        begin_offset, end_offset: the exported range of the commit log.
        messages: rows of messages.
        undecoded: rows put aside, as their bodies could not be decoded.
        commits: count of commits.
        topics: sums, sorted by topic.
        body_schema: schema of JSON bodies, as text; None for other bodies.
        lost: ranges of offsets that were deleted or cut before they were exported, where that was allowed.
        damages: ranges of the log that hold no whole records and were passed over, where that was allowed.
        seconds: time of the run.
    """

    begin_offset: int
    end_offset: int
    messages: int
    undecoded: int
    commits: int
    topics: tuple[TopicSum, ...]
    body_schema: str | None
    lost: tuple[tuple[int, int], ...]
    damages: tuple[Damage, ...]
    seconds: float

    @property
    def findings(self) -> list[str]:
        """Texts of lost ranges, of damage that was passed over, and of undecoded bodies."""
        findings = [f"offsets {begin} to {end} were lost before they were exported" for begin, end in self.lost]
        findings += [f"{damage.error()}; passed over {damage.end - damage.begin} bytes" for damage in self.damages]
        if self.undecoded:
            findings.append(f"{self.undecoded} bodies could not be decoded: they are in undecoded/, with the reason")
        return findings


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export. The first five must be the same in every run to one folder.

    Attributes:
        topics: of the messages; None: all topics, future ones included.
        columns: of `read_log`; None: all. The lineage columns always come first; the topic is a folder's name.
        decode: raw, utf8 or json; see `reput.jobs.decoding`.
        schema: of JSON bodies; None: inferred from the first messages, and kept.
        format: parquet; or delta, which also makes the folder of messages a Delta table.
        commit_log_path: as for `read_log`.
        split_bytes: log bytes of a task.
        commit_bytes: log bytes of a commit, rounded up to whole files of the log.
        target_file_bytes: smaller files of a commit are merged.
        fail_on_data_loss: whether it is an error that retention has deleted records that were not exported yet, or
            that the log is another one now; False: the export continues with the log as it is.
        damaged: treatment of damage in the log: "refuse" ends the run before the batch with the damage; "skip" exports
            all whole records before and after it, and reports the ranges that were passed over.
    """

    topics: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    decode: str = "raw"
    schema: pa.Schema | str | None = None
    format: Format = "parquet"
    commit_log_path: str | os.PathLike[str] | None = None
    split_bytes: int = SPLIT_BYTES
    commit_bytes: int = COMMIT_BYTES
    target_file_bytes: int = TARGET_FILE_BYTES
    fail_on_data_loss: bool = True
    damaged: Literal["refuse", "skip"] = "refuse"


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
    `undecoded/`, and the job's state in `_reput/`. Dates are of the store timestamp, in UTC.

    Raises:
        ConfigError: a wrong option, or another value than in earlier runs; a schema that fits no body of a sample.
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
    schema = options.schema
    kept = {
        "reput": _LAYOUT,  # in place of the version: a later reput with the same layout continues
        "store": directory.path,
        "topics": None if options.topics is None else sorted(set(options.topics)),
        "columns": None if options.columns is None else list(options.columns),
        "decode": options.decode,
        "schema": body_schema_text(schema) if isinstance(schema, pa.Schema) else schema,
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
    make_decoder(options.decode, options.schema, lambda: ()) if options.schema or options.decode != "json" else None


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
        self._rows = LakeRows(selection, shown, RawDecoder())
        self._rows = replace(self._rows, decoder=self._decoder())
        publish: Callable[[LakeCommit], None] = _nothing
        if options.format == "delta":
            publish = DeltaTable(folder.path, self._rows.schema("messages"), directory.path, files).publish
        self._commits = LakeCommits(folder, files, publish)
        self._commits.recover()

    def run(self, progress: Progress | None) -> Export:
        """Export new messages."""
        started = time.perf_counter()
        first, lost = self._begin()
        begin, end = first, self._tail.advance(first)
        commits: list[LakeCommit] = []
        while begin.offset < end.offset:
            stop = self._commit_end(begin, end)
            commits.append(self._commit(begin.offset, stop, progress))
            begin = stop
            if begin.offset == end.offset:  # damage looks like the end of the log until a read begins at it
                end = self._tail.advance(begin)
        lake_files = [one for commit in commits for one in commit.lake_files]
        topics = _sums(lake_files)
        decoder = self._rows.decoder
        return Export(
            begin_offset=first.offset,
            end_offset=begin.offset,
            messages=sum(topic.messages for topic in topics),
            undecoded=sum(topic.undecoded for topic in topics),
            commits=len(commits),
            topics=topics,
            body_schema=body_schema_text(decoder.schema) if isinstance(decoder, JsonDecoder) else None,
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
        splits = _splits(self._directory, begin, end.offset, self._options.split_bytes)
        outcomes, _ = run_over_splits(
            self._runner, partial(stage_split, self._rows, staging), splits,
            description="export the log", progress=progress,
        )  # fmt: skip
        cut = [outcome.read for outcome in outcomes if outcome.read.stop is SplitStop.LOG_END]
        if cut:
            raise DataLossError(
                f"{self._directory.path}: the log was to be exported up to offset {end.offset}, and ends at "
                f"{cut[0].end_offset} now: it was cut meanwhile, as a start after a kill does. Export again"
            )
        staged = [one for outcome in outcomes for one in outcome.lake_files]
        groups = groups_to_merge(staged, self._options.target_file_bytes)
        small = [group for group in groups if len(group) > 1]
        merged = self._runner.run(
            partial(merge_files, self._rows, staging), small, description="merge small files", progress=progress
        ) if small else []  # fmt: skip
        alone = [group[0] for group in groups if len(group) == 1]
        lake_files = sorted([*alone, *merged], key=lambda one: (one.first_offset, one.path))
        return self._commits.commit(begin, end, lake_files, [one for outcome in outcomes for one in outcome.damages])

    def _decoder(self) -> BodyDecoder:
        """Make the decoder. An inferred schema is kept for later runs."""
        options = self._options
        if options.decode != "json":
            return make_decoder(options.decode)
        path = os.path.join(self._folder.state_folder(), "schema")
        if self._files.exists(path):
            return JsonDecoder(parse_body_schema(self._files.read_bytes(path).decode()))
        decoder = make_decoder("json", options.schema, self._sample)
        assert isinstance(decoder, JsonDecoder)
        if options.schema is not None:
            self._check_fit(decoder)
        self._files.write_atomically(path, body_schema_text(decoder.schema).encode())
        return decoder

    def _check_fit(self, decoder: BodyDecoder) -> None:
        """Raise ConfigError where no body of the sample can be decoded."""
        reasons = [reason for bodies in self._sample() for reason in decoder.decode(bodies).reasons.to_pylist()]
        if reasons and None not in reasons:
            raise ConfigError(
                f"schema: it fits none of the first {len(reasons)} bodies; the reason for the first: {reasons[0]}. "
                "Give another schema, or none to have one inferred"
            )

    def _sample(self) -> Iterator[pa.Array]:
        """Read the first bodies of the log."""
        left = _SAMPLE_ROWS
        selection = replace(self._rows.selection, columns=("body",))
        begin = self._tail.earliest()
        end = self._tail.advance(begin).offset
        for split in _splits(self._directory, begin.offset, end, COMMIT_BYTES):
            for batch in read_split(split, selection, files=self._files):
                yield batch["body"].slice(0, left)
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
    messages, undecoded, count, size = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in lake_files:
        (messages if one.kind == "messages" else undecoded)[one.topic] += one.rows
        count[one.topic] += 1
        size[one.topic] += one.size
    return tuple(TopicSum(t, messages[t], undecoded[t], count[t], size[t]) for t in sorted(count))


def _nothing(commit: LakeCommit) -> None:
    """Publish nothing: an export to Parquet has no table."""
