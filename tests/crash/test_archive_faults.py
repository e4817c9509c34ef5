"""A process or a machine that ends at every operation of an archive, or of a restore of one.

A file counts when its manifest is there, and then comes back byte for byte; the same command, called again, completes
what was begun, and leaves nothing else."""

from __future__ import annotations

import errno
import shutil
from functools import partial
from pathlib import Path

import pytest

from reput.errors import ReputError
from reput.files import DISK, FileLayer
from reput.jobs.archive import Archived, archive, verify
from reput.jobs.archived_files import archived_offsets, read_archived_file, restore_file
from reput.jobs.backup import restore
from reput.jobs.runner import LocalRunner
from tests.support.archives import FILE_SIZE, log_files, store_with_sealed_files
from tests.support.faulty_files import Crash, FaultyFiles, crash_at, fail_at
from tests.support.left_targets import left_targets
from tests.support.shares import Share, in_shares


def take(store: Path, target: Path, files: FileLayer = DISK) -> Archived:
    return archive(store, target, runner=LocalRunner(1), files=files)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A store of few sealed files, the same later, and an archive of the first."""
    folder = tmp_path_factory.mktemp("archive")
    store_with_sealed_files(folder / "second", 100)
    first = Path(shutil.copytree(folder / "second", folder / "first"))
    kept = sorted((first / "commitlog").iterdir())
    for path in kept[2:]:
        path.unlink()
    take(first, folder / "target")
    assert len(archived_offsets(str(folder / "target"), DISK)) == 1
    return first, folder / "second", folder / "target"


def check(target: Path, store: Path) -> None:
    """Each file that counts comes back."""
    expected = log_files(store)
    if not (target / "archive.json").exists():
        return
    for begin in archived_offsets(str(target), DISK):
        archived = read_archived_file(str(target), begin, DISK)
        restored = target.parent / "restored-file"
        restore_file(str(target), archived, str(restored), DISK)
        assert restored.read_bytes() == expected[archived.name]
        restored.unlink()


def check_completed(target: Path, store: Path) -> None:
    """The next run archives all, and leaves nothing of the one that was killed."""
    result = take(store, target)
    assert result.files == len(log_files(store)) - 1
    check(target, store)
    assert verify(target, runner=LocalRunner(1)).findings == ()
    names = {path.name for path in target.iterdir() if not path.is_dir()} - {"archive.json", "lock"}
    wanted = {f"{n * FILE_SIZE:020}{ending}" for n in range(result.files) for ending in (".json", ".parquet")}
    assert {name for name in names if not name.endswith(".rest.parquet")} == wanted
    assert not list(target.rglob("*.tmp"))


@in_shares(8)
@pytest.mark.parametrize("begins", ["anew", "again"])
def test_a_crash_or_a_power_cut_at_any_operation_of_an_archive_leaves_whole_files_and_the_next_run_completes(
    stores: tuple[Path, Path, Path], begins: str, tmp_path: Path, share: Share
) -> None:
    _, live, earlier = stores
    begin = earlier if begins == "again" else None
    for target in left_targets(partial(take, live), live, begin, tmp_path, share):
        check(target, live)
        check_completed(target, live)


@in_shares(8)
def test_a_disk_that_fails_once_is_an_error_and_the_next_run_completes(
    stores: tuple[Path, Path, Path], tmp_path: Path, share: Share
) -> None:
    _, live, _ = stores
    counting = FaultyFiles()
    take(live, tmp_path / "counted", counting)
    for number in share.of(range(len(counting.operations))):
        target = tmp_path / str(number) / "target"
        target.parent.mkdir()
        files = FaultyFiles(fail_at(number, errno.ENOSPC))
        with pytest.raises(ReputError):
            take(live, target, files)
        files.abandon()
        check_completed(target, live)
        shutil.rmtree(target.parent)


@in_shares(8)
def test_a_restore_that_ends_at_any_operation_has_no_store_or_a_whole_one_and_goes_on(
    stores: tuple[Path, Path, Path], tmp_path: Path, share: Share
) -> None:
    _, live, _ = stores
    take(live, tmp_path / "target")
    expected = log_files(live)

    def make(path: Path, files: FileLayer = DISK) -> None:
        restore(tmp_path / "target", path, runner=LocalRunner(1), files=files)

    counting = FaultyFiles()
    make(tmp_path / "expected", counting)
    for number in share.of(range(0, len(counting.operations), 3)):
        path = tmp_path / f"{number}/store"
        path.parent.mkdir()
        files = FaultyFiles(crash_at(number))
        with pytest.raises(Crash):
            make(path, files)
        files.abandon()
        if not path.exists() or (path.parent / "store.unfinished/_reput/job.json").exists():
            make(path)
        assert log_files(path).items() <= expected.items()
        assert len(log_files(path)) == len(expected) - 1
        shutil.rmtree(path.parent)


def test_log_files_of_a_restored_store_are_there_after_a_power_cut(
    stores: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    _, live, _ = stores
    take(live, tmp_path / "target")
    files = FaultyFiles()
    (tmp_path / "machine").mkdir()
    restore(tmp_path / "target", tmp_path / "machine/store", runner=LocalRunner(1), files=files)
    files.cut_power(tmp_path / "machine/store/commitlog", tmp_path / "left")
    expected = log_files(live)
    left = {path.name: path.read_bytes() for path in (tmp_path / "left").iterdir()}
    assert left == {name: expected[name] for name in list(expected)[:-1]}
