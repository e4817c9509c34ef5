"""reput archive and its --verify: what they print, and their exit statuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
import reput.cli.commands.archive
from tests.support.archives import FILE_SIZE, OPTIONS, log_files, store_with_sealed_files
from tests.support.commands import Run
from tests.support.damage import flip
from tests.support.faulty_files import FaultyFiles


def test_sealed_files_go_to_a_folder_are_proven_and_come_back(tmp_path: Path, run_reput: Run) -> None:
    store, target = store_with_sealed_files(tmp_path / "store"), tmp_path / "archive"
    answer = run_reput("archive", store, target, "--json")
    assert answer.status == 0
    first = answer.object()
    assert (first["new_files"], first["findings"]) == (len(log_files(store)) - 1, [])
    answer = run_reput("archive", store, target)
    assert answer.status == 0
    assert "new files" in answer.out
    answer = run_reput("archive", "--verify", target, "--json")
    assert (answer.status, answer.object()["files"]) == (0, first["files"])
    assert "log bytes" in run_reput("archive", "--verify", target).out
    answer = run_reput("restore", target, tmp_path / "restored", "--json")
    assert (answer.status, answer.object()["messages"]) == (0, first["new_messages"])
    restored = log_files(tmp_path / "restored")
    assert {name: restored[name] for name in list(log_files(store))[:-1]} == dict(list(log_files(store).items())[:-1])
    assert answer.object()["backup"] in run_reput("backups", target).out


def test_what_only_the_store_has_is_told(tmp_path: Path, run_reput: Run) -> None:
    """The first try of most is a store of one log file: nothing is archived, and that is no success without a word."""
    with reput.MessageStore.open(tmp_path / "small", **OPTIONS) as small:
        small.put_message(reput.Message("orders", b"one"))
    answer = run_reput("archive", tmp_path / "small", tmp_path / "of-small")
    assert (answer.status, "not archived" in answer.out, "from offset 0 on" in answer.out) == (0, True, True)
    store = store_with_sealed_files(tmp_path / "store")
    answer = run_reput("archive", store, tmp_path / "archive", "--json")
    assert answer.object()["unsealed_offset"] == answer.object()["end_offset"] == int(list(log_files(store))[-1])


def test_a_damaged_file_of_an_archive_is_status_1_with_its_name(tmp_path: Path, run_reput: Run) -> None:
    store, target = store_with_sealed_files(tmp_path / "store"), tmp_path / "archive"
    assert run_reput("archive", store, target).status == 0
    path = target / f"{FILE_SIZE:020}.parquet"
    flip(path, 1000)
    answer = run_reput("archive", "--verify", target)
    assert answer.status == 1
    assert str(path) in answer.out
    answer = run_reput("restore", target, tmp_path / "restored")
    assert (answer.status, str(path) in answer.err) == (2, True)
    assert not (tmp_path / "restored").exists()


def test_following_tells_each_time_what_was_archived(
    tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = store_with_sealed_files(tmp_path / "store"), tmp_path / "archive"

    def pauses(seconds: float) -> Iterator[bool]:
        assert seconds == 3
        yield True
        with reput.MessageStore.open(store, files=FaultyFiles(), **OPTIONS) as opened:
            for _ in range(40):
                opened.put_message(reput.Message("orders", bytes(300)))
        yield True
        yield False

    monkeypatch.setattr(reput.cli.commands.archive, "pauses", pauses)
    answer = run_reput("archive", store, target, "--follow", "--interval", 3)
    assert (answer.status, answer.err) == (0, "")
    first, second = answer.out.splitlines()
    assert "new_files=" in first
    assert f"end_offset={FILE_SIZE * (len(log_files(store)) - 1)} " in second
    monkeypatch.setattr(reput.cli.commands.archive, "pauses", lambda _: iter([False]))
    answer = run_reput("archive", store, tmp_path / "other", "--follow", "--json")
    assert [line["new_files"] for line in answer.lines()] == [len(log_files(store)) - 1]


def test_wrong_usage_is_one_line(tmp_path: Path, run_reput: Run) -> None:
    for arguments in ((), (tmp_path,), (tmp_path, "--verify", tmp_path)):
        answer = run_reput("archive", *arguments)
        assert answer.status == 2
        assert answer.err.count("\n") == 1
        assert "--verify TARGET" in answer.err
    assert run_reput("archive", "--verify", tmp_path).status == 2
