"""A process or a machine that ends at any moment of a repair: run again it ends the same, and no original is lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import reput
from reput.errors import StoreSyncError
from reput.jobs.audit.files import list_store
from reput.jobs.repair.plan import StepAction
from reput.jobs.repair.repair_job import RepairResult, repair
from reput.jobs.repair.steps import Seen, take_step
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from reput.log.failed_sync import failed_sync_path
from tests.support.damaged_orders import (
    checkpoint_ahead,
    last_file_cut,
    last_record_broken,
    offsets_ahead,
    offsets_broken,
    several,
    strange_file,
    topics_gone,
    topics_with_backup,
    torn_tail,
)
from tests.support.faulty_files import Crash, FaultyFiles, crash_at, fail_next, no_objection
from tests.support.invariants import contents, everything_of
from tests.support.kills import count_changes, killed
from tests.support.orders import SIZES, closed_orders
from tests.support.shares import Share, in_shares, sampled

#: A kill at each n-th change of a whole repair: as fine as a test may take.
STRIDE = 17


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return closed_orders(tmp_path_factory.mktemp("repair") / "store")


@pytest.fixture
def closed_store(orders: Path, tmp_path: Path) -> Path:
    """A copy of its own for each test."""
    return Path(shutil.copytree(orders, tmp_path / "orders"))


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """`FaultyFiles` knows what is synced, and for the rest they take most of the time."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)


def fix(path: Path) -> RepairResult:
    return repair(path, apply=True, runner=LocalRunner(1))


@in_shares(3)
def test_killed_before_any_change_of_the_disk_it_ends_the_same_when_it_is_run_again(
    closed_store: Path, tmp_path: Path, share: Share
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(closed_store, damaged)
    several(damaged)
    for number in range(8):
        (damaged / "commitlog" / f"strange-{number}").write_bytes(b"x")
    whole = Path(shutil.copytree(damaged, tmp_path / "whole"))
    last = count_changes(partial(fix, whole))
    assert last > 200
    expected = {name: digest for name, digest in everything_of(whole).items() if name != "lock"}
    assert len([name for name in expected if ".broken" in name]) > 10
    # At the end it is each change, as a rebuild removes its folder.
    for changes in share.of(sorted({*range(1, last, STRIDE), *range(last - STRIDE, last + 1)})):
        path = Path(shutil.copytree(damaged, tmp_path / str(changes)))
        assert killed(partial(fix, path), changes)
        originals = set(contents(damaged).values()) - set(contents(damaged, "commitlog").values())
        assert originals <= set(contents(path).values()), changes
        assert fix(path).is_fine
        assert {name: digest for name, digest in everything_of(path).items() if name != "lock"} == expected, changes
        shutil.rmtree(path)


STEPS: dict[Callable[[Path], None], StepAction] = {
    torn_tail: StepAction.CUT_TAIL,
    last_record_broken: StepAction.CUT_TAIL,
    last_file_cut: StepAction.GROW,
    strange_file: StepAction.MOVE_AWAY,
    topics_with_backup: StepAction.RESTORE_BACKUP,
    topics_gone: StepAction.MAKE_TOPICS,
    offsets_broken: StepAction.SET_ASIDE,
    offsets_ahead: StepAction.LOWER_OFFSETS,
    checkpoint_ahead: StepAction.RESET_CHECKPOINT,
}


@sampled(3)
@in_shares(3)
@pytest.mark.parametrize("damage", STEPS, ids=lambda damage: damage.__name__)
def test_a_power_cut_at_any_operation_of_a_step_loses_no_original(
    damage: Callable[[Path], None], closed_store: Path, tmp_path: Path, share: Share
) -> None:
    damaged = Path(shutil.copytree(closed_store, tmp_path / "damaged"))
    damage(damaged)
    before = contents(damaged)
    tail = tail_of(damaged) if STEPS[damage] is StepAction.CUT_TAIL else b""
    for number in share.of(range(100)):
        path = Path(shutil.copytree(damaged, tmp_path / f"{number}"))
        files = FaultyFiles(crash_at(number))
        files.all_is_durable(tmp_path)
        planned = repair(path, runner=LocalRunner(1))
        (step,) = [step for step in planned.steps if step.action is STEPS[damage]]
        seen = Seen(list_store(StoreDirectory(path)), planned.findings)
        ended = True
        try:
            take_step(files, step, seen)
        except Crash:
            ended = False
        files.judge = no_objection
        for chance in (None, random.Random(number), random.Random(number + 1000)):
            left = tmp_path / "left"
            files.cut_power(path, left, chance)
            kept = set(contents(left).values())
            for name, digest in before.items():
                assert digest in kept or name.startswith("commitlog/"), (number, name)
            if tail:
                copies = [*left.glob("commitlog*/*")]
                assert any(tail in file.read_bytes() for file in copies), number
            result = fix(left)
            assert result.is_fine, (number, result.findings)
            with reput.MessageStore.open(left, files=FaultyFiles(), **SIZES):
                pass
            shutil.rmtree(left)
        shutil.rmtree(path)
        if ended:
            break
    assert ended
    assert number >= 1


def tail_of(store: Path) -> bytes:
    """What a repair cuts off."""
    (step,) = [step for step in repair(store, runner=LocalRunner(1)).steps if step.action is StepAction.CUT_TAIL]
    return Path(step.path).read_bytes()[step.position :].rstrip(b"\0")


def test_a_failed_sync_of_the_log_is_told_to_the_next_start(closed_store: Path) -> None:
    """The system may tell by it what an earlier process has written, and tells it once."""
    torn_tail(closed_store)
    files = FaultyFiles(fail_next("sync", errno.EIO, part=f"{closed_store}/commitlog/"))
    with pytest.raises(StoreSyncError, match="commitlog"):
        repair(closed_store, apply=True, runner=LocalRunner(1), files=files)
    assert Path(failed_sync_path(str(closed_store))).exists()
    reput.MessageStore.open(closed_store, **SIZES).close()
    assert not Path(failed_sync_path(str(closed_store))).exists()
