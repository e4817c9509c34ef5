"""`salvage`: all that is whole in a damaged store, as a new store; the damaged one is not changed.

Every whole record keeps its commit log offset and its bytes, so that message ids, prepared offsets and the commits of
sinks stay true. Queues and index are built anew; each message keeps its queue offset, too, and fillers stand for units
of those that are lost. What is built gets its name when all of it is on the disk, and then a repair looks at it: groups
that have consumed what is lost at the end of a queue stand behind that end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from reput.config.dispatch_rules import DispatchRules
from reput.errors import CorruptMetadataError, StoreFormatError
from reput.files import DISK
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.paths import CHECKPOINT, COMMIT_LOG
from reput.jobs.audit.files import StoreListing, list_store
from reput.jobs.findings import Finding, FindingClass
from reput.jobs.job_folder import JOB_FILE, STATE, JobFolder, Option
from reput.jobs.rebuild.emptied_queues import keep_emptied_queues
from reput.jobs.rebuild.geometry import find_sizes
from reput.jobs.rebuild.job import rebuild
from reput.jobs.repair.look import is_linked, known_messages, must_stay, with_own_name
from reput.jobs.repair.plan import is_of_log
from reput.jobs.repair.repair_job import OF_AUDIT, RepairResult, repair
from reput.jobs.repair.salvage_config import config_notes, copy_config
from reput.jobs.repair.salvage_log import END_OF_LOG, FileScan, LogPart, Loss, copy_part, plan_log, scan_file
from reput.jobs.resuming import ResumingRunner
from reput.jobs.runner import Progress, Runner
from reput.log.directory import StoreDirectory, check_replaceable
from reput.log.sink_commits import SinkWatch

_UNFINISHED = ".unfinished"
_STORE = "store"
#: A file that says that what was built is about to get its name.
_BUILT = "built"


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """What is in the new store, or would be.

    Attributes:
        path: of the new store.
        is_applied: whether it was written.
        messages: whole records, `log_bytes` of them; in `log_files` files.
        losses: what of the log is not in it, in order.
        lost_bytes: those of them that were not zero.
        lost_messages: messages that the queues of the damaged store know there, or behind the log's last record.
        config: what became of each file below config/ that is not a plain copy.
        findings: of the new store.
        seconds: of everything.
    """

    path: str
    is_applied: bool
    messages: int
    log_bytes: int
    log_files: int
    losses: tuple[Loss, ...]
    lost_bytes: int
    lost_messages: int
    config: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_fine(self) -> bool:
        """Whether the new store is there, and nothing is wrong with it that is worse than harmless."""
        return self.is_applied and all(finding.kind.finding_class is FindingClass.HARMLESS for finding in self.findings)


def salvage(
    store_path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    apply: bool = False,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    message_index_enable: bool = True,
    rules: DispatchRules = DispatchRules.V5_3_3,
    progress: Progress | None = None,
    **settings: Any,
) -> SalvageResult:
    """Write all that is whole in a store to the new directory `target`; without `apply` only say what that is.

    Lost are bytes that hold no whole record: where one begins does not prove itself by size, magic code, own offset,
    inner lengths and the CRC of its body, or contradicts the CRC that it carries of itself. Records that nobody gets
    stand in for them (`reput.jobs.repair.salvage_log`).

    Everything is built in `<target>.unfinished`. Killed and called again it goes on there, unless the log has changed.

    Args:
        message_index_enable, rules, settings: as `reput.jobs.repair.repair_job.repair` takes them.

    Raises:
        StoreFormatError: no store, nothing whole in its log, or a file that may be of it is none by its name or length;
            or `target` exists and is not an empty folder.
        ConfigError: `target` inside the store; the log, or the arguments, are not those of the salvage that was killed.
        StoreLockedError: another process works there.
        StoreFullError: no space.
    """
    started = time.perf_counter()
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    path = os.path.abspath(target)
    unfinished = path + _UNFINISHED
    check_replaceable(path)
    directory.check_output(path)
    _check_target(path, unfinished)
    log_end = _log_end(directory)
    listing = list_store(directory)
    for finding in listing.findings:
        if finding.code == "foreign-file" and is_of_log(finding, directory.commit_log_folders):
            _check_foreign_file(listing, finding)
    scan = partial(scan_file, log_end=log_end)
    log_files = [file for file in listing.log_files if file.start_offset < log_end]
    if not apply:
        scans = runner.run(scan, log_files, description="read the log", progress=progress)
        return _result(path, listing, scans, plan_log(scans, log_end), None, started)
    geometry = _geometry(directory, settings, index=message_index_enable)
    options: dict[str, Option] = {
        "store": directory.path, "log": [f"{file.path} {DISK.modified_ms(file.path)}" for file in listing.log_files],
        "logEnd": log_end, "index": message_index_enable, "rules": rules.value, **settings,
    }  # fmt: skip
    with JobFolder(unfinished, "salvage", options) as folder:
        resuming = ResumingRunner(runner, folder)
        scans = resuming.run(scan, log_files, description="read the log", progress=progress)
        parts = plan_log(scans, log_end)
        if not _is_filled(path):  # else a kill came between the last steps
            built = os.path.join(unfinished, _STORE)
            _write_log(os.path.join(built, COMMIT_LOG), parts, resuming, progress)
            copy_config(directory, listing, built)
            last_ms = max(scan.last_timestamp for scan in scans)
            DISK.write_atomically(os.path.join(built, CHECKPOINT), encode_checkpoint(Checkpoint(last_ms, 0, 0)))
            rebuild(built, None, runner=runner, index=message_index_enable, rules=rules, progress=progress, **geometry)
            keep_emptied_queues(directory, built, parts[0].start)
            DISK.write_atomically(os.path.join(folder.state_folder(), _BUILT), b"")
            DISK.rename(built, path)
        given = {name: geometry[name] for name in OF_AUDIT if name in geometry}
        mended = repair(
            path, apply=True, runner=runner, message_index_enable=message_index_enable, rules=rules, progress=progress,
            **given,
        )  # fmt: skip
        folder.finish()  # last: killed before it, the same call goes on
    DISK.remove_tree(unfinished)
    return _result(path, listing, scans, parts, mended, started)


def _check_foreign_file(listing: StoreListing, finding: Finding) -> None:
    """Raises StoreFormatError where messages may be in it that the new store would be without."""
    path = finding.path
    if not DISK.exists(path):
        raise StoreFormatError(f"{path}: {finding.text}; mount the disk, or remove the link")
    if must_stay(listing, path) and not is_linked(listing, path):
        told = with_own_name(finding)
        advice = ", but it has records: give it its own name back, or those beside it their length"
        raise StoreFormatError(f"{path}: {told.text}{advice if told is finding else ''}")


def _log_end(directory: StoreDirectory) -> int:
    """Where a batch begins that its sink has not committed, as a kill leaves it; else behind any log.

    What its sink does not know to be there it writes again; in the new store nothing would tell a part of it from a
    batch that is committed.
    """
    with suppress(CorruptMetadataError):  # left out, and told
        begin = SinkWatch(directory.files, directory.path).begin_offset
        if begin is not None:
            return begin
    return END_OF_LOG


def _check_target(path: str, unfinished: str) -> None:
    """Raises StoreFormatError where something is there that no salvage has put there."""
    state = os.path.join(unfinished, STATE)
    was_built = DISK.exists(os.path.join(state, _BUILT)) or not DISK.exists(os.path.join(state, JOB_FILE))
    is_named = DISK.exists(unfinished) and was_built and not DISK.exists(os.path.join(unfinished, _STORE))
    if _is_filled(path) and not is_named:
        raise StoreFormatError(f"{path}: exists already and is not an empty folder; give the name of a new one")


def _is_filled(path: str) -> bool:
    return DISK.exists(path) and not (DISK.is_directory(path) and not DISK.list_directory(path))


def _geometry(directory: StoreDirectory, settings: Mapping[str, Any], *, index: bool) -> dict[str, Any]:
    """Sizes of queue and index files as the damaged store has them, for a rebuild that cannot see these."""
    config, _ = find_sizes(directory, settings, index=index)
    names = [
        "mapped_file_size_consume_queue", "mapper_file_size_batch_consume_queue", "max_hash_slot_num", "max_index_num",
        "message_delay_level", "enable_lmq", "enable_consume_queue_ext",
    ]  # fmt: skip
    if config.enable_consume_queue_ext:
        names.append("mapped_file_size_consume_queue_ext")
    return {name: getattr(config, name) for name in names}


def _write_log(folder: str, parts: Sequence[LogPart], runner: Runner, progress: Progress | None) -> None:
    DISK.make_directories(folder)
    runner.run(partial(copy_part, folder), parts, description="write the log", progress=progress)


def _result(
    path: str,
    listing: StoreListing,
    scans: Sequence[FileScan],
    parts: Sequence[LogPart],
    mended: RepairResult | None,
    started: float,
) -> SalvageResult:
    losses = tuple(loss for part in parts for loss in part.losses)
    lost = [(loss.begin, loss.end) for loss in losses]
    lost.append((max([parts[-1].end, *(loss.end for loss in losses)]), END_OF_LOG))
    return SalvageResult(
        path=path,
        is_applied=mended is not None,
        messages=sum(scan.messages for scan in scans),
        log_bytes=sum(scan.log_bytes for scan in scans),
        log_files=len(parts),
        losses=losses,
        lost_bytes=sum(loss.data_bytes for loss in losses),
        lost_messages=known_messages(listing, lost),
        config=config_notes(listing),
        findings=() if mended is None else mended.findings,
        seconds=time.perf_counter() - started,
    )
