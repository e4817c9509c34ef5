"""Prunes: which backups stay, that those are whole, and what runs at the same time."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ConfigError, CorruptBackupError, StoreError, StoreFormatError, StoreLockedError
from reput.files import DISK
from reput.formats.backup import Manifest, name_of_time
from reput.jobs.backup.backup_job import Backup, backup, list_backups
from reput.jobs.backup.prune_job import kept_backups, prune
from reput.jobs.backup.restore_job import restore
from reput.jobs.backup.target import ObjectTarget, held_target
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import FaultyFiles, fail_next
from tests.support.invariants import SMALL

DAY = 24 * 3_600_000
#: 2023-11-13T00:00Z, a Monday.
MONDAY = 1_699_833_600_000
NO_RULE = dict.fromkeys(("last", "hourly", "daily", "weekly", "monthly", "yearly"), 0)
INDEX = {name: SMALL[name] for name in ("max_hash_slot_num", "max_index_num")}


@pytest.fixture(params=["folder", "memory://"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield f"{tmp_path}/target"
        return
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield "memory://bucket/target"


def put_five(store: Path, name: str) -> None:
    options: dict[str, Any] = SMALL
    with reput.MessageStore.open(store, files=FaultyFiles(), **options) as opened:
        for n in range(5):
            opened.put_message(reput.Message("orders", bytes(250), keys=(f"{name}-{n}",)), queue_id=n % 2)


def take(store: Path, target: str, **options: Any) -> Backup:
    return backup(store, target, runner=LocalRunner(1), split_bytes=4000, **options)


def three_backups(tmp_path: Path, target: str) -> list[str]:
    """Names of three backups: the log grows after the first, and is another one after the second."""
    taken = []
    for name in ("first", "second"):
        put_five(tmp_path / "store", name)
        taken.append(take(tmp_path / "store", target).name)
    (tmp_path / "store").rename(tmp_path / "former")
    for name in ("other", "records"):
        put_five(tmp_path / "store", name)
    return [*taken, take(tmp_path / "store", target).name]


def objects(target: str) -> set[str]:
    if target.startswith("memory"):
        folder = ObjectTarget(target, DISK)
        return {f"{name}/{file}" for name in ("backups", "log", "config", "running") for file in folder.sizes(name)}
    return {f"{path.parent.name}/{path.name}" for path in Path(target).glob("*/*")}


def named(target: str) -> set[str]:
    """The objects that the backups of a target name, with their manifests."""
    names = set()
    for manifest in list_backups(target):
        assert isinstance(manifest, Manifest)
        names.add(f"backups/{manifest.name}.json")
        names.update(part.name for part in manifest.log)
        names.update(file.name for file in manifest.config)
    return names


def names_of(*times: int) -> list[str]:
    return [name_of_time(time) for time in times]


@pytest.mark.parametrize(
    ("rules", "times", "kept"),
    [
        ({"last": 2}, (0, 1, 2), {1: "last", 2: "last"}),
        ({"last": 9}, (0, 1), {0: "last", 1: "last"}),
        ({"hourly": 2}, (0, DAY - 1, DAY, DAY + 1), {DAY - 1: "hourly", DAY + 1: "hourly"}),
        ({"daily": 2}, (0, 1, DAY, DAY * 5, DAY * 5 + 1), {DAY: "daily", DAY * 5 + 1: "daily"}),
        ({"weekly": 2}, (-1, 0, 7 * DAY - 1, 7 * DAY), {7 * DAY - 1: "weekly", 7 * DAY: "weekly"}),
        ({"monthly": 2}, (0, 17 * DAY, 18 * DAY), {17 * DAY: "monthly", 18 * DAY: "monthly"}),
        ({"yearly": 1}, (-400 * DAY, 0), {0: "yearly"}),
        ({"last": 1, "daily": 2}, (0, 1, DAY), {1: "daily", DAY: "last daily"}),
    ],
)
def test_each_rule_keeps_the_newest_backup_of_its_periods(
    rules: dict[str, int], times: tuple[int, ...], kept: dict[int, str]
) -> None:
    names = names_of(*(MONDAY + time for time in times))
    assert kept_backups(names, NO_RULE | rules) == {
        name_of_time(MONDAY + time): tuple(texts.split()) for time, texts in kept.items()
    }


def test_what_no_kept_backup_needs_is_removed_and_the_kept_ones_are_restored(tmp_path: Path, target: str) -> None:
    first, second, third = three_backups(tmp_path, target)
    before = objects(target)
    planned = prune(target, keep_last=2, dry_run=True)
    assert objects(target) == before
    done = prune(target, keep_last=2)
    assert (planned.kept, planned.removed, planned.removed_objects, planned.freed_bytes) == (
        done.kept, done.removed, done.removed_objects, done.freed_bytes,
    )  # fmt: skip
    assert (list(done.kept), done.removed) == ([second, third], (first,))
    assert objects(target) == named(target)
    done = prune(target, keep_daily=1)
    assert (list(done.kept), done.removed) == ([third], (second,))
    assert objects(target) == named(target)
    assert done.removed_objects > 0
    assert done.freed_bytes > 2500
    made = restore(target, tmp_path / "restored", runner=LocalRunner(1), sizes=INDEX)
    assert (made.messages, made.is_clean) == (10, True)
    put_five(tmp_path / "store", "later")
    assert take(tmp_path / "store", target).reused_bytes > 0


def test_what_a_killed_backup_has_left_is_removed(tmp_path: Path, target: str) -> None:
    put_five(tmp_path / "store", "first")
    take(tmp_path / "store", target)
    ObjectTarget(target if "://" in target else f"file://{target}", DISK).write("config/" + "0" * 64, b"left")
    assert prune(target, keep_last=1).freed_bytes == 4
    assert objects(target) == named(target)


def test_a_damaged_manifest_ends_the_prune_before_it_removes_anything(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    first, _, _ = three_backups(tmp_path, target)
    (tmp_path / f"target/backups/{first}.json").write_text("{}")
    before = objects(target)
    with pytest.raises(CorruptBackupError, match="nothing is removed"):
        prune(target, keep_last=1)
    assert objects(target) == before


def test_a_prune_that_keeps_nothing_and_a_folder_without_backups_are_refused(tmp_path: Path) -> None:
    put_five(tmp_path / "store", "first")
    take(tmp_path / "store", str(tmp_path / "target"))
    with pytest.raises(ConfigError, match="--keep-last 7"):
        prune(str(tmp_path / "target"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreFormatError, match="no target of backups"):
        prune(str(tmp_path / "empty"), keep_last=1)
    assert not os.listdir(tmp_path / "empty")


def test_no_prune_runs_beside_a_backup_nor_a_backup_beside_a_prune(tmp_path: Path, target: str) -> None:
    put_five(tmp_path / "store", "first")
    take(tmp_path / "store", target)
    before = objects(target)
    with held_target(target, DISK), pytest.raises(StoreLockedError, match="wait until"):
        prune(target, keep_last=1)
    with held_target(target, DISK, prunes=True), pytest.raises(StoreLockedError, match="wait until"):
        take(tmp_path / "store", target)
    assert objects(target) == before


def test_a_mark_that_a_kill_has_left_in_an_object_storage_is_named(tmp_path: Path) -> None:
    target = "memory://bucket/killed"
    put_five(tmp_path / "store", "first")
    take(tmp_path / "store", target)
    storage = ObjectTarget(target, DISK)
    storage.write("running/prune-1", b"host 1")
    with pytest.raises(StoreLockedError, match="remove its mark running/prune-1"):
        take(tmp_path / "store", target)
    assert set(storage.sizes("running")) == {"prune-1"}
    storage.remove("running/prune-1")
    take(tmp_path / "store", target)


class PrunesOnce(FaultyFiles):
    """Files of a restore that a prune overtakes, before it makes its first log file."""

    def __init__(self, target: str, **rules: int) -> None:
        super().__init__()
        self._prune: tuple[str, dict[str, int]] | None = (target, rules)

    def make_directories(self, path: str) -> None:
        super().make_directories(path)
        if self._prune is not None and "commitlog" in path:
            (target, rules), self._prune = self._prune, None
            prune(target, **rules)


def test_a_restore_goes_on_while_other_backups_are_pruned(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    _, second, third = three_backups(tmp_path, target)
    made = restore(
        target, tmp_path / "restored", runner=LocalRunner(1), sizes=INDEX, files=PrunesOnce(target, keep_last=1)
    )
    assert (made.backup, made.is_clean) == (third, True)
    assert second not in {manifest.name for manifest in list_backups(target) if isinstance(manifest, Manifest)}


def test_a_restore_whose_backup_is_pruned_ends_without_a_store(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    first, _, _ = three_backups(tmp_path, target)
    files = PrunesOnce(target, keep_last=1)
    with pytest.raises(CorruptBackupError, match=f"{first} was pruned meanwhile"):
        restore(target, tmp_path / "restored", backup=first, runner=LocalRunner(1), sizes=INDEX, files=files)
    assert not (tmp_path / "restored").exists()


def test_a_disk_that_fails_once_is_an_error_and_the_next_prune_removes_the_rest(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    three_backups(tmp_path, target)
    files = FaultyFiles(fail_next("unlink", errno.EIO, after=1))
    with pytest.raises(StoreError, match="unlink"):
        prune(target, keep_last=1, files=files)
    files.abandon()
    prune(target, keep_last=1)
    assert objects(target) == named(target)
