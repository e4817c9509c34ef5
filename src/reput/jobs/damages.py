"""`find_damages`: search a log for damage, bytes that are no whole records. Messages may be missing there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from reput.jobs.log_bounds import bounded_splits, fixed_log_end, lost_ends
from reput.jobs.runner import Runner
from reput.jobs.split_tasks import run_over_splits
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import Damages, joined
from reput.log.directory import StoreDirectory
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitResult
from reput.progress import Progress

SPLIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Looked:
    """Outcome of one split, a `SplitOutcome`. Damage is passed over, so there is no fault."""

    read: SplitResult
    damages: Damages
    fault: None = None


def find_damages(
    store_path: str | os.PathLike[str],
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
) -> Damages:
    """Find the damage of a log by record headers and the CRCs of bodies. The result is in the order of the log.

    The log of a live store is read up to where it ends now. That of a closed store reaches as far as it did then, else
    its lost end is damage, too.

    Raises StoreFormatError if there is no store.
    """
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    log_files = directory.log_files()
    splits = bounded_splits(log_files, split_bytes, fixed_log_end(directory, log_files))
    outcomes, _ = run_over_splits(runner, _look, splits, description="look for damage", progress=progress)
    damages = joined(outcome.damages for outcome in outcomes)
    return damages.followed_by(lost_ends(directory, [outcome.read for outcome in outcomes]))


def _look(split: Split) -> _Looked:
    """Task: search one split."""
    scan = scan_split(split, level=ScanLevel.HEADER, on_damage=OnDamage.SKIP)
    for _ in scan:
        pass
    return _Looked(scan.result, scan.damages)
