"""reput archive and its --verify: what they print, and their exit statuses."""

from __future__ import annotations

from pathlib import Path

from tests.support.archives import FILE_SIZE, log_files, store_with_sealed_files
from tests.support.commands import Run
from tests.support.damage import flip


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


def test_wrong_usage_is_one_line(tmp_path: Path, run_reput: Run) -> None:
    for arguments in ((), (tmp_path,), (tmp_path, "--verify", tmp_path)):
        answer = run_reput("archive", *arguments)
        assert answer.status == 2
        assert answer.err.count("\n") == 1
        assert "--verify TARGET" in answer.err
    assert run_reput("archive", "--verify", tmp_path).status == 2
