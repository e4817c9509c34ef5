"""A process or a machine that ends at every operation of a backup, a prune or a restore.

A backup is there whole or not at all, and those before stay what they were; a store gets its name when it is whole; and
the same command, called again, completes what was begun."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ReputError
from reput.files import DISK, FileLayer
from reput.files.file import File
from reput.formats.backup import Manifest
from reput.jobs.backup.backup_job import backup, list_backups
from reput.jobs.backup.prune_job import prune
from reput.jobs.backup.restore_job import Restored, restore
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import Crash, FaultyFiles, crash_at, fail_at
from tests.support.invariants import SMALL, check_acknowledged, check_store
from tests.support.kills import killed
from tests.support.left_targets import left_targets
from tests.support.shares import Share, in_shares
from tests.support.writer import OPTIONS, ROOT, with_places

MESSAGES = 14
#: Of an index file that is too empty to tell.
INDEX = {name: SMALL[name] for name in ("max_hash_slot_num", "max_index_num")}


def take(store: Path, target: Path, files: FileLayer = DISK, link: bool = False) -> None:
    backup(store, str(target), runner=LocalRunner(1), split_bytes=4000, link=link, files=files)


def make(target: Path, store: Path, files: FileLayer = DISK, until_offset: int | None = None) -> Restored:
    return restore(str(target), store, runner=LocalRunner(1), files=files, sizes=INDEX, until_offset=until_offset)


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())).rstrip(b"\0")


def whole_backups(target: Path) -> list[bytes]:
    """The log of each backup that is there; every object that it names is there, and what it says."""
    logs = []
    for manifest in list_backups(str(target)):
        assert isinstance(manifest, Manifest), manifest
        parts = []
        for part in (*manifest.log, *manifest.config):
            data = (target / part.name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (part.size, part.sha256)
            parts.append(data if part in manifest.log else b"")
        logs.append(b"".join(parts))
    return logs


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A store, the same later, and a target with a backup of the first: known by its log, wherever it lies."""
    folder = tmp_path_factory.mktemp("backup")
    options: dict[str, Any] = SMALL
    for name in ("first", "second"):
        with reput.MessageStore.open(folder / "store", files=FaultyFiles(), **options) as store:
            store.update_topic(reput.TopicConfig("orders"))
            for n in range(MESSAGES):
                store.put_message(reput.Message("orders", bytes(250), keys=(f"{name}-{n}",)), queue_id=n % 2)
        shutil.copytree(folder / "store", folder / name)
    take(folder / "first", folder / "target")
    return folder / "first", folder / "second", folder / "target"


@in_shares(3)
@pytest.mark.parametrize(("link", "begins"), [(False, "anew"), (False, "again"), (True, "anew")])
def test_a_crash_or_a_power_cut_at_any_operation_of_a_backup_leaves_it_out_and_the_others_alone(
    stores: tuple[Path, Path, Path], link: bool, begins: str, tmp_path: Path, share: Share
) -> None:
    first, live, earlier = stores
    begin, expected = (earlier, [log_of(first)]) if begins == "again" else (None, [])
    for target in left_targets(partial(take, live, link=link), live, begin, tmp_path, share):
        found = whole_backups(target) if (target / "target.json").exists() else []
        assert found[: len(expected)] == expected
        assert found[len(expected) :] in ([], [log_of(live)])
        take(live, target, link=link)
        assert whole_backups(target)[-1] == log_of(live)
        assert not list(target.rglob("*.tmp"))


def test_a_disk_that_fails_once_is_an_error_and_the_next_backup_completes(
    stores: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    _, second, _ = stores
    counting = FaultyFiles()
    take(second, tmp_path / "counted", counting)
    for number in range(len(counting.operations)):
        target = tmp_path / str(number)
        files = FaultyFiles(fail_at(number, errno.ENOSPC))
        with pytest.raises(ReputError):
            take(second, target, files)
        files.abandon()
        take(second, target)
        assert {*whole_backups(target)} == {log_of(second)}


def test_a_crash_or_a_power_cut_between_any_two_removals_of_a_prune_leaves_whole_backups(
    stores: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    _, second, _ = stores
    target, live, logs = tmp_path / "target", tmp_path / "live", []
    options: dict[str, Any] = SMALL
    for place in ("empty", "full", "other"):  # the last log shares nothing with those before
        if place == "full":
            shutil.rmtree(live)
            shutil.copytree(second, live)
        else:
            if live.exists():
                live.rename(tmp_path / "former")
            with reput.MessageStore.open(live, files=FaultyFiles(), **options) as store:
                store.put_messages([reput.Message("orders", place.encode() * 50, keys=(place,))] * 20)
        take(live, target)
        logs.append(log_of(live))
    assert whole_backups(target) == logs

    def prune_in(folder: Path, files: FileLayer = DISK) -> None:
        prune(str(folder), keep_last=1, files=files)

    counting = FaultyFiles()
    prune_in(Path(shutil.copytree(target, tmp_path / "counting")), counting)
    operations = len(counting.operations)
    assert operations > 8
    for number in range(operations):
        folder = tmp_path / str(number)
        path = Path(shutil.copytree(target, folder / "target"))
        files = FaultyFiles(crash_at(number))
        files.all_is_durable(path)
        with pytest.raises(Crash):
            prune_in(path, files)
        files.abandon()
        for name, chance in (("synced", None), ("torn", random.Random(number))):
            files.cut_power(path, folder / name, chance)
        for left in folder.iterdir():
            found = whole_backups(left)
            assert found in (logs, logs[1:], logs[2:])
            prune_in(left)
            assert whole_backups(left) == logs[2:]
            assert len(list(left.glob("log/*"))) == len(list((tmp_path / "counting").glob("log/*")))
        shutil.rmtree(folder)


@in_shares(3)
def test_a_restore_that_ends_at_any_operation_has_no_store_or_a_whole_one_and_goes_on(
    stores: tuple[Path, Path, Path], tmp_path: Path, share: Share
) -> None:
    first, _, target = stores
    counting = FaultyFiles()
    expected = make(target, tmp_path / "expected", counting)
    operations = len(counting.operations)
    for number in share.of(range(0, operations, 3)):
        path = tmp_path / f"{number}/store"
        files = FaultyFiles(crash_at(number))
        with pytest.raises(Crash):
            make(target, path, files)
        files.abandon()
        if path.exists():
            assert log_of(path) == log_of(first)
        if (tmp_path / f"{number}/store.unfinished/_reput/job.json").exists() or not path.exists():
            again = make(target, path)
            assert (again.messages, again.findings) == (expected.messages, expected.findings)
        assert log_of(path) == log_of(first)
        check_store(path, SMALL)
        assert {entry.name for entry in path.parent.iterdir()} - {"store.unfinished"} == {"store"}


@in_shares(3)
def test_a_restore_to_a_point_in_time_that_ends_at_any_operation_goes_on(
    stores: tuple[Path, Path, Path], tmp_path: Path, share: Share
) -> None:
    first, _, target = stores
    point = len(log_of(first)) // 2
    counting = FaultyFiles()
    expected = make(target, tmp_path / "expected", counting, point)
    operations = len(counting.operations)
    assert operations > 50
    for number in share.of(range(0, operations, 3)):
        path = tmp_path / f"{number}/store"
        files = FaultyFiles(crash_at(number))
        with pytest.raises(Crash):
            make(target, path, files, point)
        files.abandon()
        if not path.exists():
            assert make(target, path, until_offset=point).messages == expected.messages
        assert log_of(path) == log_of(tmp_path / "expected")
        check_store(path, SMALL)


#: What shows in the folders: between two of them a kill is the same wherever it comes.
NAMES = ((FileLayer, ("rename", "unlink")), (File, ("sync",)))


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_restore_that_is_killed_while_it_builds_goes_on(
    stores: tuple[Path, Path, Path], is_whole: bool, tmp_path: Path
) -> None:
    first, _, target = stores
    point = None if is_whole else len(log_of(first)) // 2
    make(target, tmp_path / "expected", until_offset=point)
    for changes in range(12, 1000, 12):
        path = tmp_path / f"{changes}/store"
        path.parent.mkdir()
        if not killed(partial(make, target, path, until_offset=point), changes, kinds=NAMES):
            break
        if not path.exists():
            make(target, path, until_offset=point)
        assert log_of(path) == log_of(tmp_path / "expected")
        check_store(path, SMALL)
    assert changes > 24


def test_a_store_that_a_process_writes_is_backed_up_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    path, options = tmp_path / "store", OPTIONS | {"flush_disk_type": "SYNC_FLUSH"}
    command = [sys.executable, "-m", "tests.support.writer", str(path), "single", "7", json.dumps(options)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines: list[bytes] = []
        while not any((path / "consumequeue").glob("*/*/*")):  # which tell a restore how large they are
            lines.append(writer.stdout.readline())
        for _ in range(3):
            lines += [writer.stdout.readline() for _ in range(100)]
            take(path, tmp_path / "target")
        writer.kill()
        writer.stdout.read()
    make(tmp_path / "target", tmp_path / "restored")
    records = check_store(tmp_path / "restored", options)
    fields = [line.decode().split() for line in lines]
    acknowledged = [(topic, int(queue), int(offset), int(place), key) for topic, queue, offset, place, key in fields]
    with reput.MessageStore.open(tmp_path / "restored", files=FaultyFiles(), **options) as store:
        check_acknowledged(store, with_places(acknowledged, records))
