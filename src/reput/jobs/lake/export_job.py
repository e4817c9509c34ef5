"""`export`: write a commit log to files by topic and day, or to tables over them. Each run exports what is new.

The log is exported in batches, each of them one commit (`reput.jobs.lake.commits`): a kill costs at most one batch, and
the next run continues after the last commit. The end of a batch depends on the log alone, and so do the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from reput.config.arguments import check_path
from reput.errors import ConfigError, CorruptRecordError, DataLossError, ReputError, StoreFormatError
from reput.files import DISK, FileLayer
from reput.jobs.arguments import check_arguments, chosen_options
from reput.jobs.job_folder import JobFolder
from reput.jobs.lake.commits import LakeCommit, LakeCommits
from reput.jobs.lake.export_options import ExportOptions
from reput.jobs.lake.export_result import Export, RunSums
from reput.jobs.lake.export_task import SAMPLE_COLUMNS, StagedSplit, finish_files, stage_parts, stage_split
from reput.jobs.lake.exported_log import ExportedLog
from reput.jobs.lake.files import Kind, LakeFile, groups_to_merge
from reput.jobs.lake.inferred_schemas import InferredSchemas
from reput.jobs.lake.rejects import Reject, first_rejects
from reput.jobs.lake.rows import LakeRows, make_rows
from reput.jobs.lake.staging import Staging
from reput.jobs.lake.tables import open_tables
from reput.jobs.lake.topic_schemas import (
    TopicSamples,
    check_fit,
    inferred_texts,
    new_fields,
    with_inferred,
    with_kept,
    with_new_fields,
)
from reput.jobs.runner import Runner
from reput.jobs.sampled_fields import no_schema
from reput.jobs.split_tasks import run_over_splits
from reput.log.damages import NO_DAMAGES, joined
from reput.log.directory import StoreDirectory
from reput.log.plans.plan_parts import part_groups
from reput.log.resume_points import ResumePoint
from reput.log.splits import SplitStop
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.progress import Progress

__all__ = ["Export", "ExportOptions", "export", "follow"]

#: Rows whose bodies a given schema is tried on.
_FIT_ROWS = 10_000


def export(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    runner: Runner,
    options: ExportOptions | None = None,
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
    check_arguments(**locals())
    check_path("output", output)
    with _opened(store_path, output, runner, chosen_options(options, ExportOptions), files) as job:
        return job.run(progress)


def follow(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    runner: Runner,
    wait: Callable[[], bool],
    options: ExportOptions | None = None,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Iterator[Export]:
    """Export repeatedly. After each run `wait()` is called: it returns True when the next run is due, False to end.

    Each run is as a call of `export`, with its errors; a run without new messages commits nothing.
    """
    check_arguments(**locals())
    check_path("output", output)
    opened = _opened(store_path, output, runner, chosen_options(options, ExportOptions), files)
    return _followed(opened, wait, progress)


def _followed(
    opened: AbstractContextManager[_ExportJob], wait: Callable[[], bool], progress: Progress | None
) -> Iterator[Export]:
    with opened as job:
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
    """Lock the output, and open the job."""
    directory = StoreDirectory(store_path, commit_log_path=options.commit_log_path, files=files)
    directory.check_output(output)
    with JobFolder(output, "export", options.kept(directory.path), layout=options.layout, files=files) as folder:
        try:
            job = _ExportJob(directory, folder, runner, options, files)
        except ReputError:
            if not folder.resumed:  # leave no state: the next try may have other options
                folder.finish()
            raise
        try:
            yield job
        except (ConfigError, StoreFormatError):
            if not job.has_commits:
                folder.finish()
            raise
        except CorruptRecordError as error:
            advice = "or export all whole records, with a report of the rest, by --damaged skip (damaged='skip')"
            raise CorruptRecordError(error.path, error.offset, f"{error.reason}; {advice}") from None


class _ExportJob:
    """An export in an output folder that this process has locked."""

    def __init__(
        self, directory: StoreDirectory, folder: JobFolder, runner: Runner, options: ExportOptions, files: FileLayer
    ) -> None:
        self._path, self._state = directory.path, folder.state_folder()
        self._runner, self._options, self._files = runner, options, files
        rows = make_rows(directory.name, options)
        warn_of_unknown_topics(rows.selection.topics, directory)
        self._kept = InferredSchemas(self._state, files)
        self._rows = replace(rows, decoders=with_kept(rows.decoders, dict(self._kept.texts)))
        self._log = ExportedLog(directory, rows.selection.on_damage)
        if not folder.resumed and options.schema:
            bodies = replace(rows.selection, columns=("topic", "body"))
            check_fit(rows.decoders, self._log.first_rows(bodies, _FIT_ROWS))
        self._tables = open_tables(options, folder.path, self._schema, directory.path, files)
        self._commits = LakeCommits(folder, files, self._tables.publish, skip_gone=not options.fail_on_data_loss)
        self._tables.check_place(self._commits.tables)
        self._tables.sweep()
        self._commits.recover()
        self._tables.sweep()

    def _schema(self, kind: Kind, topic: str) -> pa.Schema:
        """Schema of the files of a kind and a topic, as it is now."""
        return self._rows.schema(kind, topic)

    @property
    def has_commits(self) -> bool:
        """Whether anything was exported, by this run or an earlier one."""
        return self._commits.last is not None

    def run(self, progress: Progress | None) -> Export:
        """Export new messages."""
        started = time.perf_counter()
        last = None if self._commits.last is None else self._commits.last.end
        first, lost = self._log.begin(last, fail_on_data_loss=self._options.fail_on_data_loss)
        begin, end = first, self._log.end(first, self._rows.selection)
        log_end = end
        sums, rejects, damages = RunSums(), dict[str, Reject](), NO_DAMAGES
        while begin.offset < end.offset:
            stop = self._log.commit_end(begin, end, self._options.commit_bytes, self._rows.selection)
            commit = self._commit(begin.offset, stop, rejects, progress)
            sums.add(commit.lake_files)  # and not the commit: a run may have a million files
            damages = joined([damages, commit.damages])
            begin = stop
            if begin.offset == end.offset:  # damage looks like the end of the log until a read begins at it
                log_end = self._log.end(begin, self._rows.selection)
                if self._options.damaged == "skip":  # else a run would follow a live store without end
                    end = log_end
        lost_end = self._log.lost_end(log_end) if begin.offset == log_end.offset else ()
        newest = None if self._commits.last is None else self._commits.last.newest_ms
        age_seconds = None if newest is None else max(0.0, time.time() - newest / 1000)
        if self._options.compact and sums.tables:
            staging = Staging(self._commits.stage(), self._files)
            self._tables.tidy({one: of for one, of in sums.tables.items() if one not in self._tables.left_out}, staging)
            self._files.remove_tree(staging.folder)
        topics = sums.topics
        schemas = {one.topic: self._rows.decoders.schema_text(one.topic) for one in topics}
        return Export(
            begin_offset=first.offset,
            end_offset=begin.offset,
            messages=sum(topic.messages for topic in topics),
            rejected=sum(topic.rejected for topic in topics),
            commits=sums.commits,
            topics=topics,
            first_rejects=tuple(rejects[topic] for topic in sorted(rejects)),
            body_schemas={topic: text for topic, text in schemas.items() if text is not None},
            lost=lost,
            damages=damages.followed_by(lost_end),
            table_faults=self._take_table_faults(),
            newest_ms=newest,
            age_seconds=age_seconds,
            lag_bytes=log_end.offset - begin.offset,
            seconds=time.perf_counter() - started,
        )

    def _take_table_faults(self) -> dict[str, str]:
        """Take the reasons why tables do not have all rows, of this run, or of the start before it."""
        faults = self._commits.losses | self._tables.left_out
        self._commits.losses.clear()
        self._tables.left_out.clear()
        return faults

    def _commit(
        self, begin: int, end: ResumePoint, rejects: dict[str, Reject], progress: Progress | None
    ) -> LakeCommit:
        """Export a range of the log as one commit; adds the first reject of each topic to `rejects`."""
        staging = Staging(self._commits.stage(), self._files)
        self._rows = replace(self._rows, decoders=self._rows.decoders.with_fields())
        if not self._rows.field_ids:
            self._take_ids(self._commits.tables.values())
        rows, description = self._rows, "export the log"
        if rows.decoders.common is None and not rows.decoders.by_topic:  # no row can be written yet
            rows = replace(rows, selection=replace(rows.selection, columns=SAMPLE_COLUMNS))
            description = "look at bodies"
        outcomes = self._stage(rows, staging, begin, end, description, progress)
        damages = joined(outcome.damages for outcome in outcomes)
        staged = [one for outcome in outcomes for one in outcome.lake_files]
        samples = TopicSamples()
        for outcome in outcomes:
            samples.merge(outcome.samples)
        if samples.by_topic:
            self._infer(samples)
            staged += self._stage_topics(samples.by_topic, staging, begin, end, progress)
        grown = self._add_fields(staged, staging) if self._options.new_fields == "add" else ()
        if grown:
            staged = [one for one in staged if one.topic not in grown]
            staged += self._stage_topics(grown, staging, begin, end, progress)
        for reject in self._first_rejects(staged, staging):
            rejects.setdefault(reject.topic, reject)
        if others := self._with_other_ids(staged):
            staged = [one for one in staged if one.topic not in others]
            staged += self._stage_topics(others, staging, begin, end, progress)
        groups = groups_to_merge(staged, self._options.target_file_bytes)
        text = self._options.text
        unfinished = [group for group in groups if text is not None or len(group) > 1]
        description = "merge small files" if text is None else "write text"
        finished = self._runner.run(
            partial(finish_files, self._rows, staging, text), unfinished, description=description, progress=progress
        ) if unfinished else []  # fmt: skip
        alone = [group[0] for group in groups if text is None and len(group) == 1]
        lake_files = sorted([*alone, *finished], key=lambda one: (one.first_offset, one.path))
        return self._commits.commit(begin, end, lake_files, damages)

    def _stage_topics(
        self, topics: Iterable[str], staging: Staging, begin: int, end: ResumePoint, progress: Progress | None
    ) -> list[LakeFile]:
        """Write rows of some topics by their schemas of now."""
        rows = replace(self._rows, selection=replace(self._rows.selection, topics=frozenset(topics)))
        outcomes = self._stage(rows, staging, begin, end, "export the log", progress)
        return [one for outcome in outcomes for one in outcome.lake_files]

    def _stage(
        self, rows: LakeRows, staging: Staging, begin: int, end: ResumePoint, description: str,
        progress: Progress | None,
    ) -> list[StagedSplit]:  # fmt: skip
        """Write rows of a range of the log to staged files."""
        size, parts = self._options.split_bytes, self._log.parts(begin, end.offset, rows.selection)
        if parts is None:
            splits = self._log.splits(begin, end.offset, size)
            outcomes, _ = run_over_splits(
                self._runner, partial(stage_split, rows, staging), splits, description=description, progress=progress
            )
        else:
            groups = [[part for _, part in group] for group in part_groups([(None, part) for part in parts], size)]
            outcomes = self._runner.run(
                partial(stage_parts, rows, staging), groups, description=description, progress=progress
            )
            if faults := [outcome.fault for outcome in outcomes if outcome.fault is not None]:
                raise faults[0]
        cut = [outcome.read for outcome in outcomes if outcome.read.stop is SplitStop.LOG_END]
        if cut:
            raise DataLossError(
                f"{self._path}: the log was to be exported up to offset {end.offset}, and ends at "
                f"{cut[0].end_offset} now: it was cut meanwhile, as a start after a kill does. Export again"
            )
        return outcomes

    def _infer(self, samples: TopicSamples) -> None:
        """Infer the schemas of new topics, and keep them for later runs, before a row is written by them.

        Raises ConfigError if no topic has JSON bodies at all: then JSON is a wrong option.
        """
        decoders = with_inferred(self._rows.decoders, samples)
        if not self.has_commits and not any(decoder.type.num_fields for decoder in decoders.by_topic.values()):
            raise no_schema(next(iter(samples.by_topic.values())))
        self._kept.keep(inferred_texts(decoders, samples.by_topic))
        self._rows = replace(self._rows, decoders=decoders)

    def _add_fields(self, staged: Sequence[LakeFile], staging: Staging) -> list[str]:
        """Let schemas grow by the fields for which staged rows were rejected, and keep them; returns the topics."""
        before = self._rows.decoders
        samples = new_fields(staged, staging)
        decoders = with_new_fields(before, samples)
        grown = [topic for topic in samples.by_topic if decoders.by_topic[topic] != before.by_topic[topic]]
        if grown:
            self._kept.keep(inferred_texts(decoders, grown))
            self._rows = replace(self._rows, decoders=decoders)
            if self.has_commits:
                self._take_ids(("messages", topic) for topic in grown)
        return grown

    def _with_other_ids(self, staged: Sequence[LakeFile]) -> set[str]:
        """Take the ids of the tables of staged files; returns topics of files whose fields have other ids."""
        if self._rows.field_ids is None:
            return set()
        before, tables = self._rows, {one.table: (one.kind, one.topic) for one in staged}
        self._take_ids(tables.values())
        others = {
            table
            for table, (kind, topic) in tables.items()
            if not before.file_schema(kind, topic).equals(self._rows.file_schema(kind, topic), check_metadata=True)
        }
        return {one.topic for one in staged if one.table in others}

    def _take_ids(self, kinds_and_topics: Iterable[tuple[Kind, str]]) -> None:
        """Let files have the ids that the tables of kinds and topics give their fields."""
        tables = {self._rows.table(kind, topic): (kind, topic) for kind, topic in kinds_and_topics}
        if tables and self._rows.field_ids is not None:
            ids = self._tables.field_ids(tables, self._commits.check_new)
            self._rows = replace(self._rows, field_ids={**self._rows.field_ids, **ids})

    def _first_rejects(self, staged: Sequence[LakeFile], staging: Staging) -> list[Reject]:
        """First reject of each topic; raises ConfigError for the first one if none is allowed."""
        rejects = first_rejects(staged, staging)
        if rejects and self._options.strict:
            raise ConfigError(
                f"{self._path}: topic {rejects[0].topic}, {rejects[0]}. Nothing of this batch is exported. Give a "
                "schema that the body fits, or leave --strict (strict=True) out, and such rows go to rejects/"
            )
        return rejects
