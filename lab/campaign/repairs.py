"""Damage of every kind, then a repair: it loses nothing whole, keeps every original, and ends with a clean audit."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import reput
from lab.campaign.cases import Part
from lab.campaign.damage import contents, damaged_store
from reput.errors import CorruptConsumeQueueError, ReputError, StoreFormatError
from reput.formats.paths import file_name_to_offset
from reput.formats.record import decode_record
from reput.jobs.findings import Finding, FindingClass
from reput.jobs.record_faults import faulty_records
from reput.jobs.repair.repair_job import RepairResult, repair
from reput.jobs.repair.salvage_job import salvage
from reput.jobs.runner import LocalRunner
from reput.kernels.records.placeholders import PLACEHOLDER_TOPIC
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL

_FILE_SIZE = int(str(SMALL["mapped_file_size_commit_log"]))
_OPTIONS: dict[str, Any] = {
    "runner": LocalRunner(1), "max_hash_slot_num": SMALL["max_hash_slot_num"], "max_index_num": SMALL["max_index_num"],
}  # fmt: skip
#: A checkpoint that says nothing, which nobody wants back.
_NO_TIMES = hashlib.sha256(bytes(4096)).hexdigest()
#: Commit log offset -> the bytes of a whole record.
_Records = dict[int, bytes]

#: Findings of values in records that no repair may change.
_UNMENDED = {"queue-offset-repeated", "queue-offset-wrong", "store-time-wrong"}


def run(folder: Path, seed: int) -> Counter[str]:
    """One store, damaged and mended."""
    path, _, counts = damaged_store(folder, random.Random(seed))
    before, whole = contents(path), whole_records(path)
    try:
        planned = repair(path, **_OPTIONS)
    except ReputError:
        assert contents(path) == before, "a dry run has changed a file"
        counts["refused"] += 1
        return counts
    assert contents(path) == before, "a dry run has changed a file"
    try:
        done = repair(path, apply=True, **_OPTIONS)
    except CorruptConsumeQueueError as error:  # rebuilt queues would reach fewer records, and nobody has allowed that
        if "--allow-fewer" not in str(error):
            raise
        assert whole.items() <= whole_records(path).items()
        counts["fewer refused"] += 1
        return counts
    counts[f"{len(done.steps)} steps"] += 1
    counts["in place"] += done.is_fine
    _check_originals(path, before, done)
    assert done.steps[: len(planned.steps)] == planned.steps  # a step may bring to light what it hid
    assert done.needs_salvage == planned.needs_salvage
    if done.needs_salvage:
        target = folder / "salvaged"
        try:
            result = salvage(path, target, apply=True, **_OPTIONS)
        except StoreFormatError:  # a link to a disk that may come back
            counts["salvage refused"] += 1
            return counts
        _check_findings(result.findings)
        counts["salvaged"] += 1
        path = target
    else:
        _check_findings(done.findings)
    left = whole_records(path)
    assert whole.items() <= left.items(), f"lost: {sorted(whole.keys() - left.keys())}"
    _check_opens(path, whole)
    return counts


def whole_records(path: Path, file_size: int = _FILE_SIZE) -> _Records:
    """Records that a scan of each log file by itself can read, wherever damage is."""
    found: _Records = {}
    for file in sorted((path / "commitlog").iterdir()):
        start = file_name_to_offset(file.name)
        if start is None or start % file_size or not file.is_file():
            continue
        log_file = LogFile(str(file), start, file_size)
        split = Split(log_file, start, log_file.end_offset, is_record_start=True)
        try:
            data = file.read_bytes()
        except OSError:  # a link to what is no file
            continue
        for columns in scan_split(split, level=ScanLevel.PROPERTIES, on_damage=OnDamage.SKIP):
            faulty = {damage.begin for damage in faulty_records(str(file), columns)}
            for offset, size in zip(columns["commit_log_offset"].tolist(), columns["store_size"].tolist(), strict=True):
                if offset not in faulty:
                    found[offset] = data[offset - start : offset - start + size]
    return found


def _check_findings(findings: tuple[Finding, ...]) -> None:
    """All is mended, but for a record whose queue offset or store time is wrong: only those around it can tell."""
    wrong = {finding for finding in findings if finding.kind.finding_class is not FindingClass.HARMLESS}
    assert {finding.code for finding in wrong} <= _UNMENDED, wrong


def _check_originals(path: Path, before: dict[str, str], done: RepairResult) -> None:
    """Check that a missing original is kept beside, or is the log that only lost bytes which nobody can read."""
    after = contents(path)
    kept = set(after.values())
    for name, digest in before.items():
        if digest not in kept | {_NO_TIMES} and not name.startswith("commitlog/"):
            raise AssertionError(f"{name} is gone")
    for original in done.kept:
        assert os.path.lexists(original), original


def _check_opens(path: Path, whole: _Records) -> None:
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
        for offset, record in whole.items():
            message = store.look_message_by_offset(offset)
            assert message is not None
            assert (message.store_size, message.body) == (len(record), decode_record(record).body)
        store.put_message(reput.Message("later", b"x"))
        assert not any(queue.topic == PLACEHOLDER_TOPIC for queue in store.queues())


PART = Part("repairs", "damaged files, and a repair of them", 4_000, run, ("damages", "in place", "salvaged"))
