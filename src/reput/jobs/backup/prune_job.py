"""`prune`: remove old backups of a target, and the objects that only they need.

Manifests go first: from then on the backup is not there. Then go the objects that no manifest names any more. So a kill
between any two removals leaves whole backups, and objects that nobody needs, which the next prune removes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from reput.errors import ConfigError, CorruptBackupError
from reput.files import DISK, FileLayer
from reput.formats.backup import CONFIG, LOG, manifest_name, time_of_name
from reput.jobs.arguments import check_arguments
from reput.jobs.backup.backup_job import backup_names, read_manifest
from reput.jobs.backup.target import BackupTarget, find_target, held_target
from reput.progress import Progress


def _week(name: str) -> str:
    year, week, _ = datetime.fromtimestamp(time_of_name(name) / 1000, UTC).isocalendar()
    return f"{year}-{week}"


#: Period (UTC) in which a backup lies, from its name, by the rule that keeps the newest backup of each period.
_PERIODS: dict[str, Callable[[str], str]] = {
    "last": lambda name: name,
    "hourly": lambda name: name[:11],
    "daily": lambda name: name[:8],
    "weekly": _week,
    "monthly": lambda name: name[:6],
    "yearly": lambda name: name[:4],
}


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of a prune.

    Attributes:
        kept: names of the backups that stay, oldest first, with the rules that keep each.
        removed: names of the backups that were removed, oldest first.
        removed_objects: count of objects that no backup needed any more.
        freed_bytes: their size.
        seconds: time of the whole job.
    """

    kept: Mapping[str, tuple[str, ...]]
    removed: tuple[str, ...]
    removed_objects: int
    freed_bytes: int
    seconds: float


def prune(
    target: str | os.PathLike[str],
    *,
    keep_last: int = 0,
    keep_hourly: int = 0,
    keep_daily: int = 0,
    keep_weekly: int = 0,
    keep_monthly: int = 0,
    keep_yearly: int = 0,
    dry_run: bool = False,
    progress: Progress | None = None,
    files: FileLayer = DISK,
) -> Pruned:
    """Remove the backups that no rule keeps, and the objects that no kept backup needs.

    `keep_last` keeps the newest backups; `keep_daily` the newest backup of each of the last days that have one, and so
    on, by UTC; weeks begin on Monday. A backup may be kept by several rules. With `dry_run` nothing is removed.

    Raises:
        StoreFormatError: no target of backups.
        ConfigError: no rule keeps a backup.
        CorruptBackupError: a manifest is damaged, so what its backup needs is unknown; nothing was removed.
        StoreLockedError: a backup or a prune of this target runs.
        StoreError: an object cannot be removed; the same call removes the rest.
    """
    check_arguments(**locals())
    started = time.perf_counter()
    target = os.fspath(target)
    counts = dict(
        zip(_PERIODS, (keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly), strict=True)
    )
    if not any(count > 0 for count in counts.values()):
        raise ConfigError("a prune that keeps nothing would remove all backups; say what it keeps: --keep-last 7")
    looked_at = find_target(target, files)
    if dry_run:
        kept, removed, objects = _plan(looked_at, counts)
    else:
        with held_target(target, files, prunes=True) as held:
            kept, removed, objects = _plan(held, counts)
            _remove(held, (*(manifest_name(name) for name in removed), *objects), progress)
    return Pruned(kept, tuple(removed), len(objects), sum(objects.values()), time.perf_counter() - started)


def kept_backups(names: Iterable[str], counts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Names of the backups that are kept, oldest first, with the rules that keep each."""
    kept: dict[str, tuple[str, ...]] = {}
    newest_first = sorted(names, reverse=True)
    for rule, period_of in _PERIODS.items():
        newest_of: dict[str, str] = {}
        for name in newest_first:
            newest_of.setdefault(period_of(name), name)
        for name in list(newest_of.values())[: counts[rule]]:
            kept[name] = (*kept.get(name, ()), rule)
    return dict(sorted(kept.items()))


def _plan(
    target: BackupTarget, counts: Mapping[str, int]
) -> tuple[dict[str, tuple[str, ...]], list[str], dict[str, int]]:
    """Backups that stay, backups that go, and the objects that go with their sizes."""
    names = backup_names(target)
    kept = kept_backups(names, counts)
    needed = _needed_objects(target, names, kept)
    objects = {
        f"{folder}/{name}": size
        for folder in (LOG, CONFIG)
        for name, size in target.sizes(folder).items()
        if f"{folder}/{name}" not in needed
    }
    return kept, [name for name in names if name not in kept], objects


def _needed_objects(target: BackupTarget, names: Sequence[str], kept: Mapping[str, object]) -> set[str]:
    """Names of the objects of kept backups. Every manifest is read: none may be removed that is only damaged."""
    needed: set[str] = set()
    for name in names:
        try:
            manifest = read_manifest(target, name)
        except CorruptBackupError as error:
            raise CorruptBackupError(
                error.path, error.offset,
                "the manifest is damaged, so what its backup needs is not known, and nothing is removed; put the "
                "manifest back from a copy, or remove it to go without this backup",
            ) from None  # fmt: skip
        if name in kept:
            needed.update(part.name for part in manifest.log)
            needed.update(file.name for file in manifest.config)
    return needed


def _remove(target: BackupTarget, names: Sequence[str], progress: Progress | None) -> None:
    for number, name in enumerate(names, 1):
        target.remove(name)
        if progress is not None:
            progress(number, len(names), "removing")
