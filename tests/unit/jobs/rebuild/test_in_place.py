"""A rebuild in place: the store's queues and index are exchanged, and a kill between any two steps does no harm."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ConfigError, StoreFormatError, StoreLockedError
from reput.formats.checkpoint import POSITIONS, decode_checkpoint
from reput.jobs.rebuild.job import RebuildResult, rebuild
from reput.jobs.rebuild.swap import Swap
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput
from tests.support.damage import overwrite
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import contents
from tests.support.kills import killed
from tests.support.rocketmq import workload
from tests.support.rocketmq.stores import DERIVED, SMALL, retained, spoil
from tests.support.rocketmq.witness import Told, check_queries, told_by_reput
from tests.support.runners import CountingRunner

OPTIONS = SMALL | {"max_index_num": 60}


def in_place(store: Path, **options: Any) -> RebuildResult:
    return rebuild(store, None, **({"runner": LocalRunner(1)} | options))


def told(store: Path) -> Told:
    """What the store has, by itself and by its index."""
    with reput.MessageStore.open(store, files=FaultyFiles(), **OPTIONS) as opened:
        answer = told_by_reput(opened)
        check_queries(opened, answer)
    return answer


def derived(store: Path) -> dict[str, str]:
    """The files of queues, by their paths, and of the index, by their order."""
    files = {name: digest for part in DERIVED[:2] for name, digest in contents(store, part).items()}
    return files | {f"index/{number}": digest for number, digest in enumerate(contents(store, "index").values())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """A store with both types of queues, several files of each, and several index files."""
    path = tmp_path_factory.mktemp("whole") / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        store.update_topic(workload.BATCH_TOPIC)
        workload.put(store, workload.inner_batches(60))
    return path, told(path)


@pytest.fixture
def store(whole: tuple[Path, Told], tmp_path: Path) -> Path:
    """The same, spoiled."""
    path = shutil.copytree(whole[0], tmp_path / "store")
    spoil(path)
    return path


def test_queues_and_index_are_those_of_live_dispatch_again(whole: tuple[Path, Told], store: Path) -> None:
    before = {name for name in os.listdir(store) if name != "lock"}
    result = in_place(store)
    assert derived(store) == derived(whole[0])
    assert {name for name in os.listdir(store) if name != "lock"} == before
    assert result.kept_queues == ()
    with reput.MessageStore.open(store, files=FaultyFiles(), **OPTIONS) as opened:
        assert not opened.recovery.was_killed
    assert told(store) == whole[1]


def test_the_checkpoint_says_what_is_on_the_disk(whole: tuple[Path, Told], store: Path) -> None:
    overwrite(store / "checkpoint", POSITIONS["logicsPhysicalOffset"], (1 << 20).to_bytes(8, "big"))  # as 5.5.0 does
    result = in_place(store)
    old, new = (decode_checkpoint((path / "checkpoint").read_bytes()) for path in (whole[0], store))
    assert new.physic_msg_timestamp == old.physic_msg_timestamp == result.last_timestamp == new.logics_msg_timestamp
    assert new.index_msg_timestamp == old.index_msg_timestamp > 0
    assert new.logics_physical_offset == 0


@pytest.mark.slow
def test_killed_between_any_two_steps_of_the_swap_an_open_and_a_second_run_find_all(
    whole: tuple[Path, Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):  # no power is cut here, and they take most of the time
        monkeypatch.setattr(os, name, lambda descriptor: None)
    mixtures = set()
    for changes in range(1, 1000):
        path = shutil.copytree(whole[0], tmp_path / str(changes))
        spoil(path)
        if not killed(partial(in_place, path), changes, begin=(Swap, "run")):
            break
        opened = shutil.copytree(path, tmp_path / f"opened-{changes}")
        left = tuple(sorted({*DERIVED} & {*os.listdir(opened)}))
        built = {*os.listdir(next(opened.glob("rebuild.unfinished/_reput/build/*/built"), opened))} & {*DERIVED}
        mixtures.add(left)
        if not ({*left} & built):  # else old ones are there still, which are no worse than they were
            assert told(opened) == whole[1], left
        was_going = (path / "rebuild.unfinished/_reput/job.json").exists()  # else all but the last of the rubbish
        runner = CountingRunner()
        result = in_place(path, runner=runner)
        if was_going:
            assert (result.resumed, sum(runner.ran.values())) == (True, 0)
        assert derived(path) == derived(whole[0])
        assert not {"abort", "rebuild.unfinished"} & {*os.listdir(path)}
    assert changes > 25
    assert {(), ("consumequeue",), ("batchconsumequeue", "consumequeue"), tuple(sorted(DERIVED))} <= mixtures


def test_a_store_that_goes_on_after_a_kill_is_rebuilt_with_what_it_wrote(store: Path, tmp_path: Path) -> None:
    assert killed(partial(in_place, store), 20, begin=(Swap, "run"))
    with reput.MessageStore.open(store, files=FaultyFiles(), **OPTIONS) as opened:
        workload.put(opened, workload.messages(20, seed=5))
    after = told(store)
    result = in_place(store)
    assert not result.resumed
    assert told(store) == after


def test_a_killed_store_stays_one_that_recovers(whole: tuple[Path, Told], store: Path) -> None:
    (store / "abort").write_bytes(b"4711")
    in_place(store)
    assert (store / "abort").read_bytes() == b"4711"
    assert told(store) == whole[1]


def test_a_queue_without_a_message_keeps_the_offset_of_its_next_one(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as opened:
        for _ in range(5):
            opened.put_message(reput.Message("early", b"x"), queue_id=3)
    retained(workload.messages)(path, OPTIONS)
    before = told(path)
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as opened:
        assert opened.min_offset("early", 3) == opened.max_offset("early", 3) == 5
    result = in_place(path)
    assert "early/3" in result.kept_queues
    assert told(path) == before
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as opened:
        assert opened.put_message(reput.Message("early", b"x"), queue_id=3).queue_offset == 5


def test_a_store_that_another_process_dispatches_keeps_its_sizes_before_it_has_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(
        path, dispatch="external", mapped_file_size_consume_queue=400, enable_lmq=True
    ) as store:
        for n in range(30):
            store.put_message(reput.Message("orders", b"%d" % n))
    assert not list(path.glob("consumequeue/*/*/*"))
    result = in_place(path)
    assert (result.messages, result.findings) == (30, ())
    assert [file.stat().st_size for file in path.glob("consumequeue/orders/0/*")] == [400, 400]
    marks = path / "config" / "reputDispatch.json"
    marks.write_text("{")
    assert any("reputDispatch.json" in finding for finding in in_place(path).findings)


def test_an_open_store_is_refused(store: Path) -> None:
    with (
        reput.MessageStore.open(store, files=FaultyFiles(), **OPTIONS),
        pytest.raises(StoreLockedError, match="has the store open"),
    ):
        in_place(store)
    assert "rebuild.unfinished" not in os.listdir(store)


def test_what_cannot_be_swapped_is_refused_and_nothing_changes(store: Path, tmp_path: Path) -> None:
    (store / "index").rename(tmp_path / "index")
    (store / "index").symlink_to(tmp_path / "index")
    before = contents(store)
    with pytest.raises(StoreFormatError, match=r"index: leads to another disk or folder.*--output"):
        in_place(store)
    with pytest.raises(ConfigError, match="damaged is not rebuilt in place"):
        in_place(store, damaged="skip")
    assert contents(store) == before


def test_the_command_takes_an_output_or_in_place(whole: tuple[Path, Told], store: Path, tmp_path: Path) -> None:
    for wrong in ((), ("--in-place", "--output", tmp_path / "out")):
        answer = run_reput("rebuild", store, *wrong)
        assert (answer.status, answer.err.count("\n")) == (2, 1)
        assert "--in-place" in answer.err
    assert run_reput("rebuild", store, "--in-place", "--runner", "local").status == 0
    assert derived(store) == derived(whole[0])


def test_who_goes_on_says_whether_the_old_folders_are_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `reput repair`, which keeps them, after a rebuild in place that had no space."""

    def refuse(*_: object) -> None:
        raise StoreFormatError("no space")

    with monkeypatch.context() as broken:
        broken.setattr("reput.jobs.rebuild.job.check_reachable", refuse)
        with pytest.raises(StoreFormatError, match="no space"):
            in_place(store)
    result = in_place(store, keep_old=True)
    assert result.resumed
    assert f"{store}/consumequeue.broken" in result.kept_folders
