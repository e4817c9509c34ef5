"""`repair`: mend a store in place from the findings of an audit. Every original is kept beside it.

A look (an audit, and a search for whole records after damage) gives a plan. The plan's steps are taken under the
store's lock. Then the repair looks again, until there is no step any more. So a repair keeps no state between starts, a
kill at any moment leaves a store that the next look understands, and the last look is the proof.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

from reput.config.dispatch_rules import DispatchRules
from reput.errors import CorruptMetadataError
from reput.files import DISK, FileLayer
from reput.jobs.arguments import check_arguments
from reput.jobs.audit.files import StoreListing, list_store
from reput.jobs.audit.job import audit
from reput.jobs.findings import COMMANDS, Commands, Finding, FindingClass
from reput.jobs.rebuild.job import is_unfinished, rebuild, remove_rest
from reput.jobs.rebuild.options import RebuildOptions
from reput.jobs.rebuild.plan import find_geometry
from reput.jobs.rebuild.swap import check_folders, locked
from reput.jobs.repair.log_diagnosis import look_at_log, with_own_name
from reput.jobs.repair.plan import RepairPlan, RepairStep, StepAction, config_steps, make_plan
from reput.jobs.repair.steps import Seen, take_step
from reput.jobs.runner import Runner
from reput.log.directory import StoreDirectory
from reput.log.failed_sync import watched
from reput.log.geometry.build_sizes import find_sizes
from reput.progress import Progress

#: Limit of looks: a step may uncover new findings, whose steps may uncover more.
_MOST_LOOKS = 5
#: Settings of a rebuild that an audit takes, too.
OF_AUDIT = ("max_hash_slot_num", "max_index_num", "message_delay_level")


@dataclass(frozen=True, slots=True)
class RepairResult:
    """Result of a repair: what it would do, or has done.

    Attributes:
        is_applied: whether the steps were taken.
        steps: in order.
        findings: of the last look, the worst first.
        remaining: findings worse than harmless that no step mends.
        needs_salvage: whether findings about the log remain (`reput.jobs.repair.salvage_job`).
        was_killed: whether the store was not closed: it is open now, or its writer was killed.
        lost_messages: messages that the queues know, or knew, and that have no whole record; 0 if a salvage counts
            them.
        kept: paths of originals.
        commands: the commands that the advice of the findings names.
        seconds: time of the whole job.
    """

    is_applied: bool
    steps: tuple[RepairStep, ...]
    findings: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    needs_salvage: bool
    was_killed: bool
    lost_messages: int
    kept: tuple[str, ...]
    commands: Commands
    seconds: float

    @property
    def is_fine(self) -> bool:
        """Whether no step is left to be taken, and no finding is worse than harmless."""
        if self.steps and not self.is_applied:
            return False
        return all(finding.kind.finding_class is FindingClass.HARMLESS for finding in self.findings)


def repair(
    store_path: str | os.PathLike[str],
    *,
    apply: bool = False,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    message_index_enable: bool = True,
    file_reserved_time: int | None = None,
    rules: DispatchRules = DispatchRules.V5_3_3,
    progress: Progress | None = None,
    files: FileLayer = DISK,
    **settings: Any,
) -> RepairResult:
    """Plan the steps for the findings of an audit, and with `apply` take them.

    Without `apply` nothing is changed, and the store may be open. With `apply` the store's lock is taken; whatever a
    step changes or removes is first kept beside, as `NAME.broken`, durably. A repair that was killed at any point, and
    is called again, ends the same.

    Mended in place are: torn tails, and damage without whole records after it; the last log file's length; names that
    do not belong to the log; files below `config/`; the checkpoint; and queues and index, by a rebuild. A log with
    damage before whole records, or with a missing file, stays as it is, and so do queues and index.

    Args:
        message_index_enable: whether the broker had an index; False: the index is neither compared nor built.
        file_reserved_time: as for `audit`.
        rules: the RocketMQ version whose queues and index are built (`rebuild`).
        settings: file sizes and delay levels as `rebuild` takes them, if the store's files do not have them.

    Raises:
        StoreFormatError: no store; or its queues cannot be swapped, or the sizes of its files are unknown.
        StoreLockedError: with `apply`: another process has the store open.
        ConfigError: settings that RocketMQ does not allow, or other settings than a killed rebuild had.
        StoreFullError: no space. Other errors as `audit` and `rebuild`.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    options = RebuildOptions(
        commit_log_path=commit_log_path, index=message_index_enable, rules=rules, keep_old=True, **settings
    )
    job = _Repair(directory, runner, options, file_reserved_time, progress, files)
    steps, kept = job.run() if apply else (job.look().steps, ())
    plan = job.plan
    return RepairResult(
        apply, tuple(steps), job.findings, plan.remaining, plan.needs_salvage, directory.was_killed,
        job.lost_messages, tuple(kept), job.commands, time.perf_counter() - started,
    )  # fmt: skip


class _Repair:
    """One repair. `lost_messages` is the greatest count of all looks; the other attributes are of the last look."""

    def __init__(
        self,
        directory: StoreDirectory,
        runner: Runner,
        options: RebuildOptions,
        file_reserved_time: int | None,
        progress: Progress | None,
        files: FileLayer,
    ) -> None:
        self._directory = directory
        self._runner = runner
        self._options = options
        self._file_reserved_time = file_reserved_time
        self._progress = progress
        self._files = files
        self._listing: StoreListing
        self.findings: tuple[Finding, ...] = ()
        self.commands: Commands = COMMANDS
        self.plan = RepairPlan((), (), needs_salvage=False)
        self.lost_messages = 0

    def run(self) -> tuple[list[RepairStep], list[str]]:
        """Look and take steps by turns; returns the steps, and the paths of originals."""
        done: list[RepairStep] = []
        kept: dict[str, None] = {}
        for _ in range(_MOST_LOOKS):
            with locked(self._directory.path), watched(self._directory.path, self._files):
                remove_rest(self._directory.path)
                steps = self.look().steps
                for step in steps:
                    if step.action is not StepAction.REBUILD:
                        kept |= dict.fromkeys(take_step(self._files, step, Seen(self._listing, self.findings)))
            if not steps or all(step in done for step in steps):
                break
            if any(step.action is StepAction.REBUILD for step in steps):
                kept |= dict.fromkeys(self._rebuild())
            done += [step for step in steps if step not in done]
        else:
            self.look()
        return done, list(kept)

    def look(self) -> RepairPlan:
        """Audit and plan, without changing anything."""
        directory = self._directory
        self._listing = list_store(directory)
        given = {name: value for name, value in self._options.config.items() if name in OF_AUDIT}
        try:
            audited = audit(
                directory.path, runner=self._runner, commit_log_path=self._options.commit_log_path,
                progress=self._progress, message_index_enable=self._options.index,
                file_reserved_time=self._file_reserved_time, **given,
            )  # fmt: skip
        except CorruptMetadataError:  # other findings show after this is mended
            self.findings = self._listing.findings
            self.plan = RepairPlan(tuple(config_steps(self.findings)), (), needs_salvage=False)
            return self.plan
        audited = replace(audited, findings=tuple(with_own_name(finding) for finding in audited.findings))
        self.findings, self.commands = audited.findings, audited.commands
        self.plan = make_plan(
            directory.path,
            audited.findings,
            look_at_log(directory, self._listing, audited),
            was_killed=directory.was_killed,
            rebuilding=is_unfinished(directory.path),
            index_sizes_given={"max_hash_slot_num", "max_index_num"} <= self._options.config.keys(),
        )
        self.lost_messages = max(self.lost_messages, self.plan.lost_messages)
        if any(step.action is StepAction.REBUILD for step in self.plan.steps):
            sizes = self._check_rebuild()
            steps = [
                replace(step, text=f"{step.text}, {sizes}") if step.action is StepAction.REBUILD else step
                for step in self.plan.steps
            ]
            self.plan = replace(self.plan, steps=tuple(steps))
        return self.plan

    def _check_rebuild(self) -> str:
        """Text of the sizes of rebuilt files. Raises if a rebuild would refuse, before anything changes."""
        check_folders(self._directory)
        config, _ = find_sizes(self._directory, self._options.config, index=self._options.index)
        index = f" and index files of {config.max_hash_slot_num} slots and {config.max_index_num} entries"
        if not any(step.action in (StepAction.MAKE_TOPICS, StepAction.SET_ASIDE) for step in self.plan.steps):
            find_geometry(self._directory, self._options)
        return f"in queue files of {config.mapped_file_size_consume_queue} bytes{index if self._options.index else ''}"

    def _rebuild(self) -> list[str]:
        result = rebuild(
            self._directory.path, None, runner=self._runner, options=self._options, progress=self._progress
        )
        return list(result.kept_folders)
