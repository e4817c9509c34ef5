"""What a rebuild takes from a store whose files were cut: the sizes of the others, and a finding."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import StoreFormatError
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.oracles.index_file import IndexFile
from tests.support.commands import run_reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import contents

QUEUE_FILE_SIZE = 20 * 8
OPTIONS: dict[str, Any] = {
    "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": QUEUE_FILE_SIZE,
    "max_hash_slot_num": 60,
    "max_index_num": 30,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three queues of several files each, and three index files."""
    path = tmp_path_factory.mktemp("whole") / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        for number in range(60):
            store.put_message(reput.Message("orders", b"x", keys=[f"k{number}"]), queue_id=number % 3)
    rebuild(path, path.parent / "rebuilt", runner=LocalRunner(1))
    return path


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def cut(store: Path, pattern: str, size: int) -> Path:
    path = sorted(store.glob(pattern))[0]
    with open(path, "r+b") as file:
        file.truncate(size)
    return path


def add_queue_file(store: Path, name: str) -> None:
    (store / "consumequeue/orders/1" / name).write_bytes(b"x" * 50)


def add_index_file(store: Path) -> None:
    (store / "index/notes.txt").write_bytes(b"x")


def make_gap(store: Path) -> None:
    sorted((store / "consumequeue/orders/2").iterdir())[0].unlink()


CUTS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a queue file to whole units": (
        lambda store: cut(store, "consumequeue/orders/0/*", 60),
        [r"orders/0/0{20}: 60 bytes long: it was cut.* files of 160 bytes.* --set mappedFileSizeConsumeQueue=N "],
    ),
    "a queue file inside a unit": (
        lambda store: cut(store, "consumequeue/orders/1/*", 61),
        [r"orders/1/0{20}: 61 bytes long: it was cut.* files of 160 bytes, as most of the others are"],
    ),
    "a queue file to nothing": (lambda store: cut(store, "consumequeue/orders/2/*", 0), []),
    "a foreign file among queue files": (lambda store: add_queue_file(store, "notes.txt"), []),
    "a gap": (make_gap, []),
    "an index file": (
        lambda store: cut(store, "index/*", 300),
        [r"index/\d{17}: 300 bytes long: it was cut or damaged.* 60 slots and 30 entries a file, as in \d{17};"],
    ),
    "an index file to less than its header": (lambda store: cut(store, "index/*", 10), [r"\d{17}: 10 bytes long"]),
    "a foreign file among index files": (add_index_file, []),
}


@pytest.mark.parametrize(("damage", "findings"), CUTS.values(), ids=CUTS.keys())
def test_what_was_cut_is_told_and_the_others_say_the_sizes(
    whole: Path, store: Path, tmp_path: Path, damage: Callable[[Path], object], findings: list[str]
) -> None:
    damage(store)
    result = rebuild(store, tmp_path / "out", runner=LocalRunner(1))
    assert contents(tmp_path / "out") == contents(whole.parent / "rebuilt")
    assert len(result.findings) == len(findings)
    for finding, expected in zip(result.findings, findings, strict=True):
        assert re.search(expected, finding), finding


def test_a_lone_index_file_that_was_cut_is_built_with_the_defaults(store: Path, tmp_path: Path) -> None:
    first, *others = sorted((store / "index").iterdir())
    for path in others:
        path.unlink()
    cut(store, "index/*", 301)
    answer = run_reput("rebuild", store, "--output", tmp_path / "out", "--runner", "local", "--json")
    (finding,) = answer.object()["findings"]
    assert answer.status == 1
    assert finding.startswith(f"{first}: 301 bytes long")
    assert "5000000 slots and 20000000 entries a file, RocketMQ's defaults; --set maxHashSlotNum=N" in finding
    assert [path.stat().st_size for path in (tmp_path / "out/index").iterdir()] == [
        40 + 4 * 5_000_000 + 20 * 20_000_000
    ]


def test_as_many_files_of_each_of_two_sizes_are_asked_about(store: Path, tmp_path: Path) -> None:
    for queue in "01":
        shutil.rmtree(store / "consumequeue/orders" / queue)
    first, second, *others = sorted((store / "consumequeue/orders/2").iterdir())
    for path in others:
        path.unlink()
    cut(store, "consumequeue/orders/2/*", 80)
    with pytest.raises(StoreFormatError) as caught:
        rebuild(store, tmp_path / "out", runner=LocalRunner(1))
    assert str(caught.value) == (
        f"{first}: 80 bytes long and {second}: 160 bytes long, and there are as many files of each size: give the "
        "broker's own with --set mappedFileSizeConsumeQueue=N (mapped_file_size_consume_queue)"
    )
    assert not (tmp_path / "out").exists()
    answer = run_reput("rebuild", store, "--output", tmp_path / "out", "--set", "mappedFileSizeConsumeQueue=160")
    assert answer.status == 0


def test_an_index_that_several_numbers_explain_is_asked_about_in_the_user_s_words(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "index")
    (store / "index").mkdir()
    index = IndexFile(20, 50)
    assert index.put_key(0, 0, 1_700_000_000_000)  # twenty zero bytes, in slot 0
    (store / "index/20231114101320000").write_bytes(index.data)
    with pytest.raises(StoreFormatError, match="--set maxHashSlotNum=N --set maxIndexNum=N") as caught:
        rebuild(store, tmp_path / "out", runner=LocalRunner(1))
    assert "(max_hash_slot_num, max_index_num)" in str(caught.value)
