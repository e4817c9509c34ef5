"""Plan of a repair: the steps for the findings of an audit, made without changing anything.

A log is mended in place only if no whole record comes after the damage: then its tail is cut, and queues and index
follow. Whole records after damage are never cut off; for these there is `reput.jobs.repair.salvage_job`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from reput.counts import counted
from reput.formats.paths import CONFIG
from reput.formats.shutdown import SHUTDOWN_FILE
from reput.jobs.findings import FILE_CODES, LOG_CODES, Finding, FindingClass, is_of_log


class StepAction(StrEnum):
    """Action of a step."""

    #: Replace a file below config/ by its backup.
    RESTORE_BACKUP = "restore-backup"
    #: Restore the recorded settings of topics in topics.json.
    RESTORE_TOPICS = "restore-topics"
    #: Move a file below config/ aside whose backup cannot be used either.
    SET_ASIDE = "set-aside"
    #: Make topics.json anew from recorded topics and from the queues that are there.
    MAKE_TOPICS = "make-topics"
    #: Move a file of a foreign name out of the log's folder.
    MOVE_AWAY = "move-away"
    #: Lengthen the log's last file to its size, by zeros.
    GROW = "grow"
    #: Write zeros over the bytes after the log's last whole record.
    CUT_TAIL = "cut-tail"
    #: Set the times of the checkpoint to 0: the next start trusts no file, and reads the whole log.
    RESET_CHECKPOINT = "reset-checkpoint"
    #: Lower consumer offsets after the end of their queue to that end.
    LOWER_OFFSETS = "lower-offsets"
    #: Build queues and index again, and swap them.
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One step of a repair.

    Attributes:
        path: the file or folder that changes.
        text: what is done, and why.
        codes: codes of the findings that the step mends.
        position: cut-tail: position of the first zero; grow: the new length of the file.
        lost_bytes: bytes that afterwards only the original has, which is kept beside.
    """

    action: StepAction
    path: str
    text: str
    codes: tuple[str, ...] = ()
    position: int = 0
    lost_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Steps of a repair in place.

    Attributes:
        steps: in the order in which they are taken.
        remaining: findings worse than harmless that no step mends.
        needs_salvage: whether some of the remaining findings are about the log. Then log, queues and index stay as
            they are.
        lost_messages: messages that the queues know, and that have no whole record; 0 if a salvage counts them.
    """

    steps: tuple[RepairStep, ...]
    remaining: tuple[Finding, ...]
    needs_salvage: bool
    lost_messages: int = 0


@dataclass(frozen=True, slots=True)
class LogRemainder:
    """Bytes of a log file after the log's last whole record: from `position` on, `data_bytes` that are not zero."""

    path: str
    position: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class LogState:
    """Findings about the log, sorted by what can be mended in place.

    Attributes:
        folders: of the log.
        tails: tails of files with data after the log's end.
        short: (path, length that it must have) of files that are too short, with no whole record after them.
        foreign: files without whole records that do not belong to the log.
        broken: findings that cannot be mended in place.
        lost_messages: messages after the log's end, or before a late begin, that queues know.
        checkpoint: findings of a checkpoint that speaks of records that are cut.
        claims_more: whether a clean exit, or queues, say that the log had later records: a start refuses.
    """

    folders: tuple[str, ...]
    tails: tuple[LogRemainder, ...] = ()
    short: tuple[tuple[str, int], ...] = ()
    foreign: tuple[str, ...] = ()
    broken: tuple[Finding, ...] = ()
    lost_messages: int = 0
    checkpoint: tuple[Finding, ...] = ()
    claims_more: bool = False


#: Findings that a rebuild of queues and index mends.
_DERIVED = frozenset(
    {
        "queue-file-missing", "queue-type", "unit-missing", "unit-wrong", "ext-unit-wrong", "index-entry-missing",
        "index-entry-wrong", "index-chain-broken", "index-header-wrong", "index-order", "log-begins-late",
        "log-ends-early", "queue-offset-lost",
    }
)  # fmt: skip
_CHECKPOINT = frozenset({"checkpoint-ahead", "checkpoint-wrong", "checkpoint-short"})
_OFFSETS = "consumer-offset-ahead"
_CHANGED = "config-changed"
_INDEX_SIZES = "index-geometry"


def make_plan(
    store: str,
    findings: Sequence[Finding],
    log: LogState,
    *,
    was_killed: bool,
    rebuilding: bool,
    index_sizes_given: bool,
) -> RepairPlan:
    """Make the steps for the findings of an audit.

    Args:
        store: path of the store.
        findings: of the audit.
        log: the sorted findings about the log.
        was_killed: whether a start searches for the log's end anyway.
        rebuilding: whether a rebuild in place was killed, and must be continued.
        index_sizes_given: whether an index can be built although its files do not tell their count of slots.
    """
    steps = [*config_steps(findings), *_log_steps(findings, log)]
    wrong = [finding for finding in findings if finding.code in _CHECKPOINT] or log.checkpoint
    if wrong and not log.broken:
        text = f"set its times to 0: the next start reads the whole log ({wrong[0].text})"
        codes = tuple(sorted({finding.code for finding in wrong}))
        steps.append(RepairStep(StepAction.RESET_CHECKPOINT, wrong[0].path, text, codes))
    ahead = [finding for finding in findings if finding.code == _OFFSETS]
    if ahead and not log.broken:
        text = f"lower {counted(len(ahead), 'offset')} of groups to the ends of their queues ({ahead[0].text})"
        steps.append(RepairStep(StepAction.LOWER_OFFSETS, ahead[0].path, text, (_OFFSETS,)))
    derived = {finding.code for finding in findings if _is_derived(finding, log.folders)}
    unknown_sizes = {finding.code for finding in findings if finding.code == _INDEX_SIZES}
    if index_sizes_given:
        derived |= unknown_sizes
    was_cut = any(step.action is StepAction.CUT_TAIL for step in steps) and not was_killed
    if (derived or was_cut or rebuilding or log.claims_more) and not log.broken:
        why = "as the log has it" if derived or rebuilding else "since they lead to records that the log lacks"
        text = f"build queues and index again, {why}"
        if (
            "unit-wrong" in derived
            and not log.lost_messages
            and not any(is_of_log(one, log.folders) for one in findings)
        ):
            text += "; if units contradict the log, its records are whole, so no message is lost"
        if unknown_sizes and not index_sizes_given:
            text += (
                "; index files have no sizes any more: --set maxHashSlotNum=N --set maxIndexNum=N gives the broker's"
            )
        # a rebuild for another reason makes the index, too, and refuses before where it finds no sizes
        steps.append(RepairStep(StepAction.REBUILD, store, text, tuple(sorted(derived | unknown_sizes))))
    answered = {code for step in steps for code in step.codes}
    remaining = tuple(
        finding
        for finding in findings
        if finding.kind.finding_class is not FindingClass.HARMLESS
        and (finding in log.broken or finding.code not in answered)
    )
    return RepairPlan(tuple(steps), remaining, bool(log.broken), 0 if log.broken else log.lost_messages)


def config_steps(findings: Sequence[Finding]) -> list[RepairStep]:
    """Steps for files below config/, which do not depend on the log."""
    steps = []
    for finding in findings:
        name = os.path.basename(finding.path)
        if name == SHUTDOWN_FILE:
            text = "move it aside: it only spares the next start some work"
            steps.append(RepairStep(StepAction.SET_ASIDE, finding.path, text, (finding.code,)))
        elif finding.code == "config-backup":
            text = f"put {name}.bak in its place: {finding.text}"
            steps.append(RepairStep(StepAction.RESTORE_BACKUP, finding.path, text, (finding.code,)))
        elif finding.code == "config-damaged" and name == "topics.json":
            text = f"make it anew from what reput recorded, and from the queues that are there: {finding.text}"
            steps.append(RepairStep(StepAction.MAKE_TOPICS, finding.path, text, (finding.code,)))
        elif finding.code == "config-damaged":
            text = f"move it aside, and its backup; what it said is lost, and RocketMQ begins without: {finding.text}"
            steps.append(RepairStep(StepAction.SET_ASIDE, finding.path, text, (finding.code,)))
    changed = [finding for finding in findings if finding.code == _CHANGED]
    if changed:
        text = f"put back {counted(len(changed), 'topic')} as reput recorded them ({changed[0].text})"
        steps.append(RepairStep(StepAction.RESTORE_TOPICS, changed[0].path, text, (_CHANGED,)))
    return steps


def _log_steps(findings: Sequence[Finding], log: LogState) -> list[RepairStep]:
    codes = tuple(sorted({finding.code for finding in findings if is_of_log(finding, log.folders)}))
    steps = [
        RepairStep(
            StepAction.MOVE_AWAY, path, "move it out of the log's folder: RocketMQ does not start", ("foreign-file",)
        )
        for path in log.foreign
    ]
    if log.broken:
        return steps
    for path, size in log.short:
        steps.append(
            RepairStep(StepAction.GROW, path, f"make it {size} bytes long again, by zeros", ("file-size",), size)
        )
    for tail in reversed(log.tails):  # as every cut of a log goes: `reput.files.truncate`
        text = f"zeros for {tail.data_bytes} bytes that no record proves, with no whole record after them"
        answers = tuple(code for code in codes if code in LOG_CODES)
        steps.append(RepairStep(StepAction.CUT_TAIL, tail.path, text, answers, tail.position, tail.data_bytes))
    return steps


def _is_derived(finding: Finding, folders: Sequence[str]) -> bool:
    if finding.code in FILE_CODES:
        return not is_of_log(finding, folders) and os.path.basename(os.path.dirname(finding.path)) != CONFIG
    return finding.code in _DERIVED
