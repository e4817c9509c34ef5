"""reput delete-expired, and what info says about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.files import FileLayer
from tests.support.commands import Run, content_of
from tests.support.retained import age, files_in

#: The sizes of the golden store `retention`, and no pauses.
SETTINGS = (
    *("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=400"),
    *("--set", "maxHashSlotNum=500", "--set", "maxIndexNum=300"),
    *("--set", "deleteCommitLogFilesInterval=0", "--set", "deleteConsumeQueueFilesInterval=0"),
)


@pytest.fixture
def expired(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of two log files, the first of which was written to a week ago, on a disk with space."""
    monkeypatch.setattr(FileLayer, "disk_used_percent", lambda self, path: 20)
    path = golden("retention")
    for file in (path / "commitlog").iterdir():
        os.utime(file)
    age(path, 1)
    return path


def test_a_dry_run_shows_what_would_go_and_why_and_changes_nothing(expired: Path, run_reput: Run) -> None:
    before = content_of(expired)
    answer = run_reput("delete-expired", expired, "--dry-run")
    assert answer.status == 0
    assert "00000000000000262144" in answer.out
    assert "older than fileReservedTime" in answer.out
    report = run_reput("delete-expired", expired, "--dry-run", "--json").object()
    assert (report["dry_run"], report["bytes_freed"], report["disk_used_percent"]) == (True, 65536, 20)
    (file,) = report["commit_log_files"]
    assert file["path"] == str(expired / "commitlog/00000000000000262144")
    assert file["reason"] == "older than fileReservedTime"
    info = run_reput("info", expired, "--json").object()
    assert info["retention"] == {
        "disk_used_percent": 20, "expired_files": 1, "expired_bytes": 65536, "delete_when": "04",
        "file_reserved_time_h": 72,
    }  # fmt: skip
    assert "1 log file has expired" in run_reput("info", expired).out
    assert run_reput("delete-expired", expired, "--dry-run", "--set", "fileReservedTime=200").status == 0
    assert content_of(expired) == before


def test_files_are_deleted_and_told(expired: Path, run_reput: Run) -> None:
    before = files_in(expired)
    assert run_reput("delete-expired", expired, *SETTINGS, "--set", "fileReservedTime=200").status == 0
    assert files_in(expired) == before
    report = run_reput("delete-expired", expired, *SETTINGS, "--json").object()
    gone = [file["path"] for file in report["commit_log_files"]]
    gone += report["consume_queue_files"] + report["index_files"]
    assert len(report["commit_log_files"]) == 1
    assert files_in(expired) == before - {Path(name) for name in gone}
    assert "0 commit log files" in run_reput("delete-expired", expired, *SETTINGS).out
    assert run_reput("info", expired, "--json").object()["min_commit_log_offset"] == 327680


def test_where_no_store_is_none_is_made(tmp_path: Path, run_reput: Run) -> None:
    for dry_run in ((), ("--dry-run",)):
        answer = run_reput("delete-expired", tmp_path / "nothing", *dry_run)
        assert answer.status == 2
        assert "no such directory" in answer.err
    assert not (tmp_path / "nothing").exists()
