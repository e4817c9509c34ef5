"""`audit`: compare queues, extensions and index with the log, file by file, and report every difference as a finding.

The comparison is exact in both directions: each record has its unit and each key its entry; each unit and entry has its
record. Tasks are independent: first a task for each index file and batch queue; then a task for each split of the log,
whose result is ranges of units and entries; then tasks for units and entries that belong to no record. What RocketMQ
leaves by its own rules is a harmless finding, or none.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from reput.config.message_store import MessageStoreConfig
from reput.counts import counted
from reput.errors import StoreFormatError
from reput.files import DISK
from reput.formats.java import INT64_MAX
from reput.formats.paths import INDEX
from reput.jobs.arguments import check_arguments
from reput.jobs.audit.batch_consume_queues import BatchQueueItem, BatchQueueRuns, find_batch_runs
from reput.jobs.audit.consumer_offsets import lost_offset_findings, offset_findings, unused_offset_findings
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.index import IndexFileItem, check_index_file, order_findings
from reput.jobs.audit.index_entries import KeyTarget
from reput.jobs.audit.log_findings import (
    checkpoint_findings,
    damage_findings,
    early_end_finding,
    has_grown,
    late_begin_finding,
)
from reput.jobs.audit.lost_ranges import NO_WITNESSES, LogBounds, Range, Unmatched, lost_range, weigh
from reput.jobs.audit.merge import MergedUnits, merge_keys, merge_units
from reput.jobs.audit.plan import AuditPlan, list_extensions, make_plan
from reput.jobs.audit.property_crcs import crc_findings, joined
from reput.jobs.audit.repair_commands import commands_for
from reput.jobs.audit.scan_task import AuditTarget, SplitAudit, audit_split, dispatched_end, lacks_units
from reput.jobs.audit.store_times import time_findings
from reput.jobs.audit.unmatched import ComparedIndexFile, ComparedQueue, look_at_index_file, look_at_queues
from reput.jobs.findings import (
    MOST_OF_A_CODE,
    Commands,
    Finding,
    FindingClass,
    Findings,
    findings_table,
    sorted_findings,
)
from reput.jobs.job_folder import JobFolder, Option
from reput.jobs.log_bounds import proven_split
from reput.jobs.resuming import ResumingRunner
from reput.jobs.runner import Runner
from reput.jobs.split_tasks import run_over_splits
from reput.log.directory import IndexFilePath, StoreDirectory, in_log_order
from reput.log.geometry.index_geometry import index_geometry
from reput.log.splits import Split
from reput.progress import Progress

SPLIT_BYTES = 64 << 20
_QUEUES_OF_A_TASK = 64
#: Consume queues and batch consume queues, which come before those in databases.
_KINDS_OF_FILES = 2
_EXPIRED = ("unit-expired", "index-entry-expired")
_BEHIND_END = ("unit-behind-end", "index-entry-behind-end")


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Result of an audit.

    Attributes:
        findings: the worst first; `table` has them with `reput.jobs.findings.SCHEMA`. Of a code with very many findings
            only the first are there (`reput.jobs.findings.MOST_OF_A_CODE`).
        counts: count of all findings, by code.
        commands: the commands that the advice of the findings names.
        messages: count of messages that were read (`reput.kernels.records.placeholders`).
        lost_messages: count of messages that queues know, and the log has not (`lost_ranges.Witnesses`).
        uncounted_bytes: bytes of the losses whose number of messages no queue has.
        log_bytes: bytes of the records that were read.
        log_end: commit log offset of the end of the last record.
        newest_ms: store timestamp of the newest record, 0 without records.
        units: count of right units in consume queues and batch consume queues.
        expired_units: count of units of messages before the log's first file.
        queues: count of queues.
        index_entries: count of index entries in all index files.
        index_files: count of index files.
        seconds: time of the whole job.
        phase_seconds: time of each phase.
    """

    findings: tuple[Finding, ...]
    counts: dict[str, int]
    commands: Commands
    messages: int
    lost_messages: int
    uncounted_bytes: int
    log_bytes: int
    log_end: int
    newest_ms: int
    units: int
    expired_units: int
    queues: int
    index_entries: int
    index_files: int
    seconds: float
    phase_seconds: dict[str, float]

    @property
    def table(self) -> pa.Table:
        """Findings as a table, one row a finding."""
        return findings_table(self.findings, self.commands)

    @property
    def is_clean(self) -> bool:
        """Whether no finding is worse than harmless."""
        return all(finding.kind.finding_class is FindingClass.HARMLESS for finding in self.findings)


def audit(
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    message_index_enable: bool = True,
    message_delay_level: str | None = None,
    max_hash_slot_num: int | None = None,
    max_index_num: int | None = None,
    force_verify_prop_crc: bool = False,
    file_reserved_time: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    work_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Compare all files derived from a log with the log. The store is not changed, and may be open.

    Args:
        message_index_enable: whether the broker had an index; False: the index is not compared.
        message_delay_level: the broker's delay levels, if they are not RocketMQ's defaults.
        max_hash_slot_num, max_index_num: geometry of the index files, if the files do not have it.
        force_verify_prop_crc: whether each record must carry a property CRC; False: only records between such records.
        file_reserved_time: hours for which the broker keeps a log file; None: 48 or more.
        work_dir: a folder for outcomes of tasks: an audit that was killed continues there.

    Raises:
        StoreFormatError: no store; or `work_dir` is not empty and belongs to no audit.
        ConfigError: `work_dir` belongs to an audit with other options; delay levels that RocketMQ does not allow.
        StoreError: a file cannot be read, or retention has deleted it meanwhile.
    """
    check_arguments(**locals())
    given = {"message_delay_level": message_delay_level, "max_hash_slot_num": max_hash_slot_num}
    given |= {"max_index_num": max_index_num, "file_reserved_time": file_reserved_time}
    config = MessageStoreConfig.from_mapping({name: value for name, value in given.items() if value is not None})
    config = replace(config, message_index_enable=message_index_enable, force_verify_prop_crc=force_verify_prop_crc)
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    if work_dir is None:
        return _Audit(directory, config, file_reserved_time, runner, split_bytes, progress).run()
    directory.check_output(work_dir)
    options: dict[str, Option] = {
        "store": directory.path, "commitLogPath": list(directory.commit_log_folders), "split_bytes": split_bytes,
        "messageIndexEnable": message_index_enable, "messageDelayLevel": config.message_delay_level,
        "maxHashSlotNum": config.max_hash_slot_num, "maxIndexNum": config.max_index_num,
        "forceVerifyPropCRC": force_verify_prop_crc, "fileReservedTime": file_reserved_time,
    }  # fmt: skip
    with JobFolder(work_dir, "audit", options) as folder:
        runner = ResumingRunner(runner, folder)
        result = _Audit(directory, config, file_reserved_time, runner, split_bytes, progress).run()
        folder.finish()
    return result


class _Audit:
    """Phases of one audit, with the arguments that they share."""

    def __init__(
        self,
        directory: StoreDirectory,
        config: MessageStoreConfig,
        file_reserved_time: int | None,
        runner: Runner,
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._file_reserved_time = file_reserved_time
        self._runner = runner
        self._split_bytes = split_bytes
        self._progress = progress
        self._findings = Findings()
        self._losses: dict[Range, Finding] = {}
        self._expired_units = self._untold = 0
        self._lost_messages = self._uncounted_bytes = 0

    def run(self) -> AuditResult:
        """Run all phases."""
        started = time.perf_counter()
        task = partial(make_plan, self._directory)
        (plan,) = self._runner.run(task, [self._directory.path], description="list the store", progress=self._progress)
        listing = plan.listing
        keys = self._check_index(plan)
        index = () if keys is None else keys.files
        batches = self._find_batch_runs(listing)
        checked = time.perf_counter()
        plan, outcomes = self._scan(plan, keys, batches)
        scanned = time.perf_counter()
        log = self._bounds(plan, outcomes)
        merged = self._merge_units(plan, log, batches, outcomes)
        compared_index = self._merge_keys(plan, keys, outcomes)
        compared = [queue for of_kind in merged for queue in of_kind.compared]
        told = merged[:_KINDS_OF_FILES] if plan.has_queues else merged  # no message counts twice
        queues = [queue for of_kind in told for queue in of_kind.compared]
        self._findings.add(offset_findings(self._directory.path, plan.consumer_offsets, queues))
        if plan.has_queues or plan.database is not None:
            self._findings.add(unused_offset_findings(self._directory.path, plan.consumer_offsets, log.begin, queues))
        if plan.has_queues:
            self._findings.add(lost_offset_findings(self._directory.path, log.begin, listing.batch_topics, queues))
        self._look_at_unmatched(log, plan, compared, compared_index, max(of_kind.reached for of_kind in merged))
        findings = tuple(sorted_findings(self._findings.kept))
        kept = Counter(finding.code for finding in findings)
        finished = time.perf_counter()
        return AuditResult(
            findings=findings,
            counts={
                code: kept[code] if count <= MOST_OF_A_CODE else count for code, count in self._findings.counts.items()
            },
            commands=commands_for(self._directory, self._config, listing, findings, log.end),
            messages=sum(outcome.messages for outcome in outcomes),
            lost_messages=self._lost_messages,
            uncounted_bytes=self._uncounted_bytes,
            log_bytes=sum(outcome.log_bytes for outcome in outcomes),
            log_end=log.end,
            newest_ms=_newest_ms(outcomes),
            units=sum(of_kind.units for of_kind in told),
            expired_units=self._expired_units,
            queues=len(queues),
            index_entries=sum(file.header.entry_count for file in index),
            index_files=len(index),
            seconds=finished - started,
            phase_seconds={
                "index and batch queues": checked - started, "log": scanned - checked, "rest": finished - scanned,
            },
        )  # fmt: skip

    def _check_index(self, plan: AuditPlan) -> KeyTarget | None:
        """Check each index file by itself. None: keys are not compared, by option or for lack of the geometry."""
        config, listing = self._config, plan.listing
        if not config.message_index_enable or plan.hides_index:
            return None
        if not listing.index_files:
            return KeyTarget((), config.max_hash_slot_num, may_follow=False)
        listed = [IndexFilePath(path, listing.index_file_size) for path in listing.index_files]
        files = in_log_order(listed, DISK)
        try:
            slots, entries = index_geometry(files, config.max_hash_slot_num, config.max_index_num)
        except StoreFormatError as error:
            self._findings.add([Finding("index-geometry", listing.index_files[0], str(error))])
            return None
        last = len(files) - 1
        items = [
            IndexFileItem(number, file.path, slots, entries, plan.may_be_written and number == last)
            for number, file in enumerate(files)
        ]
        checked = self._runner.run(check_index_file, items, description="check the index", progress=self._progress)
        self._findings.add(finding for file in checked for finding in file.findings)
        self._findings.add(order_findings(checked))
        starts = [file.start_offset for file in listing.log_files[:1]]
        return KeyTarget(tuple(checked), slots, may_follow=starts != [0])

    def _find_batch_runs(self, listing: StoreListing) -> tuple[BatchQueueRuns, ...]:
        folder = listing.batch_queues
        items = [BatchQueueItem(folder.path, folder.file_size, queue) for queue in folder.queues]
        if not items:
            return ()
        description = "check the batch consume queues"
        return tuple(self._runner.run(find_batch_runs, items, description=description, progress=self._progress))

    def _scan(
        self, plan: AuditPlan, keys: KeyTarget | None, batches: tuple[BatchQueueRuns, ...]
    ) -> tuple[AuditPlan, list[SplitAudit]]:
        target, groups = plan.target(keys, batches, self._config.delay_levels_ms), plan.groups(self._split_bytes)
        outcomes = self._run(target, groups)
        undeclared = frozenset[str]().union(*(outcome.undeclared for outcome in outcomes))
        if undeclared and target.has_queues:  # topics of inner batches have batch queues
            target = target.with_batch_topics(target.batch_topics | undeclared)
            outcomes = self._run(target, groups, "read the log once more")
        if plan.was_killed:
            if plan.may_get_extensions and (later := self._list_extensions(plan)) is not plan:
                plan, target = later, later.with_extensions(target)
                outcomes = self._run(target, groups, "read the log once more")
            self._look_again(target, outcomes)
        return plan, outcomes

    def _list_extensions(self, plan: AuditPlan) -> AuditPlan:
        """Plan with the extensions that an open store has made meanwhile: the first ext units make the files."""
        description = "list the extensions"
        (extensions,) = self._runner.run(
            list_extensions, [self._directory.path], description=description, progress=self._progress
        )
        return replace(plan, listing=replace(plan.listing, extensions=extensions)) if extensions.file_size else plan

    def _look_again(self, target: AuditTarget, outcomes: list[SplitAudit]) -> None:
        """Audit splits of an open store again if units were missing although units of later records were there.

        Dispatch writes the units of many records queue by queue: the missing units may be there by now.
        """
        last = dispatched_end(outcomes)
        again = [
            number
            for number, outcome in enumerate(outcomes)
            if any(lacks_units(ranges, last) for ranges in outcome.of_queues)
        ]
        splits = [proven_split(outcomes[number].read) for number in again]
        redone = self._runner.run(
            partial(audit_split, target), splits, description="look at the latest units again", progress=self._progress
        )
        for number, outcome in zip(again, redone, strict=True):
            outcomes[number] = replace(outcome, read=outcomes[number].read)

    def _run(
        self, target: AuditTarget, groups: list[list[Split]], description: str = "read the log"
    ) -> list[SplitAudit]:
        task = partial(audit_split, target)
        outcomes: list[SplitAudit] = []
        for splits in groups:
            outcomes += run_over_splits(self._runner, task, splits, description=description, progress=self._progress)[0]
        return outcomes

    def _bounds(self, plan: AuditPlan, outcomes: Sequence[SplitAudit]) -> LogBounds:
        log_files = plan.listing.log_files
        begin = log_files[0].start_offset if log_files else 0
        ends = [outcome.read.end_offset for outcome in outcomes if outcome.read.begin_offset != outcome.read.end_offset]
        end = max((end for end in ends if end is not None), default=begin)  # later files may be all zeros
        for finding in (*plan.listing.findings, *damage_findings(plan.listing, plan.was_killed, outcomes)):
            if (lost := lost_range(finding, plan.listing)) is None:
                self._findings.add([finding])
            else:
                self._losses[lost] = finding
        told = np.array(list(self._losses), np.int64).reshape(-1, 2)
        losses = np.unique(np.concatenate([told, *(outcome.lost for outcome in outcomes)]), axis=0)
        self._untold = len(losses) - len(told)
        log = LogBounds(begin, end, tuple(self._losses), losses)
        if not self._findings.counts["log-missing"] and log.lost_end <= end:  # else the newest is not known
            self._findings.add(checkpoint_findings(plan.listing, _newest_ms(outcomes)))
        self._findings.add(time_findings([outcome.times for outcome in outcomes], log_files))
        crcs, is_required = joined([outcome.crcs for outcome in outcomes]), self._config.force_verify_prop_crc
        self._findings.add(crc_findings(crcs, log_files, is_required=is_required))
        return log

    def _merge_units(
        self,
        plan: AuditPlan,
        log: LogBounds,
        batches: Sequence[BatchQueueRuns],
        outcomes: Sequence[SplitAudit],
    ) -> list[MergedUnits]:
        listing = plan.listing
        of_units = [outcome.units for outcome in outcomes if outcome.units is not None]
        of_batches = [outcome.batches for outcome in outcomes]
        undispatched = plan.dispatched_end
        if plan.was_killed and undispatched is None:
            last = dispatched_end(outcomes)
            # Files are made before their first units are written.
            has_units = any(outcome.found_units for outcome in outcomes) or any(queue.runs for queue in batches)
            if last >= 0 or not has_units:
                undispatched = max(last, log.begin)
        merged = [
            merge_units(listing.queues, False, of_units, undispatched),
            merge_units(listing.batch_queues, True, of_batches, undispatched),
        ]
        if plan.database is not None:
            of_database = [outcome.database_units for outcome in outcomes if outcome.database_units is not None]
            merged.append(merge_units(plan.database, False, of_database, undispatched))
        for of_kind in merged:
            self._findings.merge(of_kind.findings)
        return merged

    def _merge_keys(
        self, plan: AuditPlan, keys: KeyTarget | None, outcomes: Sequence[SplitAudit]
    ) -> list[ComparedIndexFile]:
        if keys is None:
            return []
        results = [outcome.keys for outcome in outcomes if outcome.keys is not None]
        undispatched = plan.dispatched_end
        if plan.was_killed and undispatched is None:
            last = max((result.last for result in results), default=-1)
            undispatched = last if last >= 0 or not keys.files else None
        folder = os.path.join(self._directory.path, INDEX)
        log_files = plan.listing.log_files
        findings, compared = merge_keys(keys.files, keys.slots, folder, results, log_files, undispatched)
        self._findings.merge(findings)
        return compared

    def _look_at_unmatched(
        self, log: LogBounds, plan: AuditPlan, queues: list[ComparedQueue], index: list[ComparedIndexFile], reached: int
    ) -> None:
        description, listing = "look at the rest", plan.listing
        groups = [tuple(queues[i : i + _QUEUES_OF_A_TASK]) for i in range(0, len(queues), _QUEUES_OF_A_TASK)]
        of_queues = self._runner.run(
            partial(look_at_queues, log, listing.extensions),
            groups,
            description=f"{description} of the queues",
            progress=self._progress,
        )
        of_index = self._runner.run(
            partial(look_at_index_file, log), index, description=f"{description} of the index", progress=self._progress
        )
        self._findings.add(self._counted_losses(of_queues, of_index))
        self._findings.counts["record-damaged"] += self._untold
        findings = Findings()
        for found in (*of_queues, *of_index):
            findings.merge(found.findings)
        witnesses = np.concatenate([NO_WITNESSES, *(found.witnesses for found in of_queues)])
        if any(findings.counts[code] for code in _BEHIND_END) and has_grown(self._directory, log.end):
            findings = findings.without(_BEHIND_END)
            witnesses = witnesses[log.is_lost(witnesses[:, 0])]
        weighed = weigh(log, witnesses, reached, listing.log_files[0].size if listing.log_files else INT64_MAX)
        self._lost_messages = weighed.messages
        self._uncounted_bytes = int((log.lost[:, 1] - log.lost[:, 0])[~weighed.is_known].sum())
        if not plan.was_killed and listing.log_files:
            found_end = max(log.end, log.lost_end)
            early = early_end_finding(listing, found_end, weighed.end, plan.clean_end)
            findings.add([early] if early else [])
        units, entries = (findings.sizes[code] for code in _EXPIRED)
        self._expired_units = units
        newest_ms = max((found.expired_ms for found in of_index), default=0)
        if late := late_begin_finding(listing, units, entries, newest_ms, self._file_reserved_time):
            findings = findings.without(_EXPIRED)
            findings.add([late])
            self._lost_messages += sum(found.expired_messages for found in of_queues)
        self._findings.merge(findings)

    def _counted_losses(self, of_queues: Sequence[Unmatched], of_index: Sequence[Unmatched]) -> Iterator[Finding]:
        """Findings of losses, with the units and entries that lead there: these are no findings of their own."""
        for number, finding in enumerate(self._losses.values()):
            units, entries = (sum(int(found.counts[number]) for found in part) for part in (of_queues, of_index))
            lead = f"{counted(units, 'unit')} of queues and {counted(entries, 'entry')} of the index lead there"
            yield replace(finding, text=f"{finding.text}; {lead}" if units or entries else finding.text)


def _newest_ms(outcomes: Sequence[SplitAudit]) -> int:
    return max((outcome.newest_ms for outcome in outcomes), default=0)
