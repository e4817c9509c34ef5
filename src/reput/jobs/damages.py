"""`find_damages`: what of a log no record proves. Who reads past it is told that messages may be missing there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from reput.jobs.log_bounds import bounded_splits, fixed_log_end
from reput.jobs.runner import Progress, Runner
from reput.jobs.split_tasks import run_over_splits
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.scan import Damage, OnDamage, scan_split
from reput.log.splits import Split, SplitResult

SPLIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a task tells of its split: as `SplitOutcome`, but that damage is passed over, so there is no fault."""

    read: SplitResult
    damages: tuple[Damage, ...]
    fault: None = None


def find_damages(
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
) -> tuple[Damage, ...]:
    """The damage of a log, in its order, by headers and the CRCs of bodies; of a live store as it is now.

    Raises StoreFormatError where there is no store.
    """
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    log_files = directory.log_files()
    splits = bounded_splits(log_files, split_bytes, fixed_log_end(directory, log_files))
    outcomes, _ = run_over_splits(runner, _look, splits, description="look for damage", progress=progress)
    return tuple(damage for outcome in outcomes for damage in outcome.damages)


def _look(split: Split) -> _Looked:
    """The task for one split."""
    scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.SKIP)
    for _ in scan:
        pass
    return _Looked(scan.result, tuple(scan.damages))
