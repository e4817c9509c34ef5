"""`salvage`: make a new store of all whole records of a damaged store. The damaged store is not changed.

Every whole record keeps its commit log offset and its bytes, so that message ids, prepared offsets and the commits of
sinks stay valid. Queues and index are built anew; each message keeps its queue offset, too, and fillers replace units
of lost messages. The new store gets its name when all of it is on the disk. Then it is repaired: groups that have
consumed lost messages at the end of a queue have offsets after that end.
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
from reput.jobs.arguments import check_arguments
from reput.jobs.audit.files import StoreListing, list_store
from reput.jobs.findings import Finding, FindingClass, is_of_log
from reput.jobs.job_folder import JOB_FILE, STATE, JobFolder, Option
from reput.jobs.rebuild.emptied_queues import keep_emptied_queues
from reput.jobs.rebuild.job import rebuild
from reput.jobs.repair.log_diagnosis import is_linked, must_stay, with_own_name
from reput.jobs.repair.repair_job import OF_AUDIT, RepairResult, repair
from reput.jobs.repair.salvage_config import config_notes, copy_config
from reput.jobs.repair.salvage_log import (
    END_OF_LOG,
    FileScan,
    Loss,
    NewLogFile,
    counted_losses,
    plan_log,
    scan_file,
    write_log_file,
)
from reput.jobs.resuming import ResumingRunner
from reput.jobs.runner import Runner
from reput.log.directory import StoreDirectory, check_replaceable
from reput.log.geometry.build_sizes import find_sizes
from reput.log.geometry.file_sizes import BATCH, SIMPLE, queue_files
from reput.log.object_storage import absolute
from reput.log.queue_types import find_queue_types
from reput.log.sink_commits import SinkWatch
from reput.progress import Progress

_UNFINISHED = ".unfinished"
_STORE = "store"
#: A file that says that the new store is complete, and about to get its name.
_BUILT = "built"


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """Result of a salvage: what is in the new store, or would be.

    Attributes:
        path: of the new store.
        is_applied: whether it was written.
        messages: count of whole records, without those that stand in for bytes that an earlier salvage lost.
        log_bytes: bytes of whole records.
        log_files: count of log files.
        losses: ranges of the log that are not in the new store, in order.
        config: sentences about files below config/ that are no plain copies.
        findings: of the new store.
        seconds: time of the whole job.
    """

    path: str
    is_applied: bool
    messages: int
    log_bytes: int
    log_files: int
    losses: tuple[Loss, ...]
    config: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def lost_bytes(self) -> int:
        """Bytes of all losses."""
        return sum(loss.size for loss in self.losses)

    @property
    def lost_messages(self) -> int:
        """Messages of all losses whose messages are known."""
        return sum(loss.messages or 0 for loss in self.losses)

    @property
    def uncounted_bytes(self) -> int:
        """Bytes of the losses whose messages are not known."""
        return sum(loss.size for loss in self.losses if loss.messages is None)

    @property
    def is_fine(self) -> bool:
        """Whether the new store was written, and none of its findings is worse than harmless."""
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
    """Write all whole records of a store to the new directory `target`; without `apply` only report them.

    Lost are bytes that hold no whole record. A whole record proves itself by size, magic code, own offset, inner
    lengths and the CRC of its body, and does not contradict its property CRC. Records that no consumer gets stand in
    for lost bytes (`reput.jobs.repair.salvage_log`).

    Everything is built in `<target>.unfinished`. A salvage that was killed, and is called again, continues there,
    unless the log has changed.

    Args:
        message_index_enable, rules, settings: as for `reput.jobs.repair.repair_job.repair`.

    Raises:
        StoreFormatError: no store, no whole record in its log, or a file that may belong to the log has a foreign name
            or length; or `target` exists and is not an empty folder.
        ConfigError: `target` inside the store; the salvage that was killed had another log, or other arguments.
        StoreLockedError: another process works in `<target>.unfinished`.
        StoreFullError: no space.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    path = absolute(target)
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
        return _result(path, listing, scans, log_end, None, started)
    geometry = _geometry(directory, settings, index=message_index_enable)
    options: dict[str, Option] = {
        "store": directory.path, "log": [f"{file.path} {DISK.modified_ms(file.path)}" for file in listing.log_files],
        "logEnd": log_end, "index": message_index_enable, "rules": rules.value, **settings,
    }  # fmt: skip
    with JobFolder(unfinished, "salvage", options) as folder:
        resuming = ResumingRunner(runner, folder)
        scans = resuming.run(scan, log_files, description="read the log", progress=progress)
        new_files = plan_log(scans)
        if not _is_filled(path):  # else a killed start has done all up to the repair
            built = os.path.join(unfinished, _STORE)
            _write_log(os.path.join(built, COMMIT_LOG), new_files, resuming, progress)
            copy_config(directory, listing, built)
            last_ms = max(scan.last_timestamp for scan in scans)
            DISK.write_atomically(os.path.join(built, CHECKPOINT), encode_checkpoint(Checkpoint(last_ms, 0, 0)))
            # before the rebuild, which would make emptied queues by what groups say, and keeps those that are there
            sizes = {kind.folder: geometry[kind.key] for kind in (SIMPLE, BATCH)}
            types = find_queue_types(StoreDirectory(built), {queue.topic for queue in queue_files(directory, BATCH)})
            keep_emptied_queues(directory, built, new_files[0].start, sizes, types)
            rebuild(built, None, runner=runner, index=message_index_enable, rules=rules, progress=progress, **geometry)
            DISK.write_atomically(os.path.join(folder.state_folder(), _BUILT), b"")
            DISK.rename(built, path)
        given = {name: geometry[name] for name in OF_AUDIT if name in geometry}
        mended = repair(
            path, apply=True, runner=runner, message_index_enable=message_index_enable, rules=rules, progress=progress,
            **given,
        )  # fmt: skip
        folder.finish()  # last: after a kill before it, the same call continues
    DISK.remove_tree(unfinished)
    return _result(path, listing, scans, log_end, mended, started)


def _check_foreign_file(listing: StoreListing, finding: Finding) -> None:
    """Raise StoreFormatError if a foreign file may hold messages that the new store would lack."""
    path = finding.path
    if not DISK.exists(path):
        raise StoreFormatError(f"{path}: {finding.text}; mount the disk, or remove the link")
    if must_stay(listing, path) and not is_linked(listing, path):
        named = with_own_name(finding)
        advice = ", but it has records: give it its own name back, or the files beside it their length"
        raise StoreFormatError(f"{path}: {named.text}{advice if named is finding else ''}")


def _log_end(directory: StoreDirectory) -> int:
    """Begin of a batch that a killed sink has not committed; else an offset after any log.

    The sink writes an uncommitted batch again, and in the new store nothing would tell its records from committed ones.
    """
    with suppress(CorruptMetadataError):  # `config_notes` reports that the file is left out
        begin = SinkWatch(directory.files, directory.path).begin_offset
        if begin is not None:
            return begin
    return END_OF_LOG


def _check_target(path: str, unfinished: str) -> None:
    """Raise StoreFormatError if the target has files that no salvage has written."""
    state = os.path.join(unfinished, STATE)
    was_built = DISK.exists(os.path.join(state, _BUILT)) or not DISK.exists(os.path.join(state, JOB_FILE))
    is_named = DISK.exists(unfinished) and was_built and not DISK.exists(os.path.join(unfinished, _STORE))
    if _is_filled(path) and not is_named:
        raise StoreFormatError(f"{path}: exists already and is not an empty folder; give the name of a new one")


def _is_filled(path: str) -> bool:
    return DISK.exists(path) and not DISK.is_empty(path)


def _geometry(directory: StoreDirectory, settings: Mapping[str, Any], *, index: bool) -> dict[str, Any]:
    """Sizes of queue and index files of the damaged store, for a rebuild of the new store, which has no such files."""
    config, _ = find_sizes(directory, settings, index=index)
    names = [
        "mapped_file_size_consume_queue", "mapper_file_size_batch_consume_queue", "max_hash_slot_num", "max_index_num",
        "message_delay_level", "enable_lmq", "enable_consume_queue_ext",
    ]  # fmt: skip
    if config.enable_consume_queue_ext:
        names.append("mapped_file_size_consume_queue_ext")
    return {name: getattr(config, name) for name in names}


def _write_log(folder: str, new_files: Sequence[NewLogFile], runner: Runner, progress: Progress | None) -> None:
    DISK.make_directories(folder)
    runner.run(partial(write_log_file, folder), new_files, description="write the log", progress=progress)


def _result(
    path: str,
    listing: StoreListing,
    scans: Sequence[FileScan],
    log_end: int,
    mended: RepairResult | None,
    started: float,
) -> SalvageResult:
    new_files = plan_log(scans)
    return SalvageResult(
        path=path,
        is_applied=mended is not None,
        messages=sum(scan.messages for scan in scans),
        log_bytes=sum(scan.log_bytes for scan in scans),
        log_files=len(new_files),
        losses=tuple(counted_losses(listing, scans, new_files, log_end)),
        config=config_notes(listing),
        findings=() if mended is None else mended.findings,
        seconds=time.perf_counter() - started,
    )
