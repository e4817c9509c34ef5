"""A power cut that leaves some sectors and some names of what was not synced, at operations drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_files import Crash, FaultyFiles, Operation, crash_at, no_objection
from tests.support.scenarios import SCENARIOS, Scenario
from tests.support.shares import Share, in_shares, sampled

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

#: Each scenario, so many times, at operations and with remains of their own.
SEEDS = range(25)


@sampled(3)
@in_shares(3)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_torn_and_reordered_writes_lose_nothing_acknowledged(tmp_path: Path, scenario: Scenario, share: Share) -> None:
    operations = scenario.count(tmp_path / "healthy")
    for seed in share.of(SEEDS):
        chance = random.Random(seed)
        path, left = tmp_path / str(seed), tmp_path / f"{seed}-left"
        files, check = scenario.live(path, crash_at(chance.randrange(operations)))
        files.cut_power(path, left, chance)
        check(left)


class TestTheModel:
    """What `cut_power` may leave, told for one file and one folder."""

    @pytest.fixture
    def remains(self, tmp_path: Path) -> list[dict[str, bytes]]:
        """What hundred power cuts leave of a file that was synced, written to, and replaced."""
        files, path = FaultyFiles(), tmp_path / "folder"
        files.make_directories(str(path))
        with files.open(str(path / "log"), writable=True, create=True, size=8192) as log:
            log.write(0, b"a" * 8192)
            log.sync()
            files.write_atomically(str(path / "config"), b"old")
            log.write(0, b"b" * 8192)
        with files.open(str(path / "config.tmp"), writable=True, create=True) as config:
            config.write(0, b"new")
            config.sync()
        (path / "config.tmp").rename(path / "config")  # and no sync of the folder
        left = []
        for seed in range(100):
            files.cut_power(path, tmp_path / str(seed), random.Random(seed))
            left.append({file.name: file.read_bytes() for file in (tmp_path / str(seed)).iterdir()})
        return left

    def test_sectors_are_new_or_old_each_by_itself(self, remains: list[dict[str, bytes]]) -> None:
        logs = [found["log"] for found in remains]
        sectors = {log[begin : begin + 512] for log in logs for begin in range(0, 8192, 512)}
        assert sectors == {b"a" * 512, b"b" * 512}
        assert any(log[:512] == b"a" * 512 and log[-512:] == b"b" * 512 for log in logs), "later writes come first"

    def test_a_name_that_was_replaced_is_the_old_or_the_new_one(self, remains: list[dict[str, bytes]]) -> None:
        assert {found["config"] for found in remains} == {b"old", b"new"}
        assert all(set(found) == {"log", "config"} for found in remains)

    @pytest.mark.parametrize(
        "remove",
        [
            lambda files, path: files.unlink(str(path / "file")),
            lambda files, path: files.rename(str(path / "other"), str(path / "file")),
        ],
        ids=["unlink", "rename"],
    )
    def test_a_removed_file_is_left_whole_whatever_has_its_inode_now(
        self, tmp_path: Path, remove: Callable[[FaultyFiles, Path], None]
    ) -> None:
        """File systems like ext4 give an inode away at once, and the disk knows the removed file until a sync."""
        files, path = FaultyFiles(), tmp_path / "folder"
        files.make_directories(str(path))
        files.write_atomically(str(path / "file"), b"before")
        (path / "other").write_bytes(b"other")
        inode = (path / "file").stat().st_ino

        def another_thread_makes_files(operation: Operation) -> None:
            if operation.kind == "sync_directory":
                files.judge = no_objection
                for number in range(50):
                    with files.open(str(path / f"new{number}"), writable=True, create=True) as new:
                        new.write(0, b"new")
                        new.sync()
                    if (path / f"new{number}").stat().st_ino == inode:
                        break
                raise Crash

        files.judge = another_thread_makes_files
        with pytest.raises(Crash):
            remove(files, path)
        files.cut_power(path, tmp_path / "left")
        assert {file.name: file.read_bytes() for file in (tmp_path / "left").iterdir()} == {"file": b"before"}


def test_a_folder_that_was_removed_is_a_folder_again_where_the_power_is_cut_before_the_sync(tmp_path: Path) -> None:
    files, disk = FaultyFiles(), tmp_path / "disk"
    files.make_directories(str(disk / "folder"))
    files.sync_directory(str(disk))
    files.judge = crash_at(len(files.operations))
    with pytest.raises(Crash):
        files.remove_tree(str(disk / "folder"))
    assert not (disk / "folder").exists()
    files.cut_power(disk, tmp_path / "left")
    assert (tmp_path / "left" / "folder").is_dir()
