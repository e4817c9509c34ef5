"""reput info: the state of a store."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.files import FileLayer
from tests.support.commands import Run, content_of, truth
from tests.support.damage import flip
from tests.support.terminal import shown_on_a_terminal


def test_a_narrow_terminal_cuts_neither_path_nor_time(store: Path) -> None:
    assert "…" not in shown_on_a_terminal(["info", str(store)], 40)


@pytest.mark.parametrize("case", ["clean", "killed", "ipv6", "lmq"])
def test_queues_and_offsets_are_those_of_rocketmq(golden: Callable[[str], Path], run_reput: Run, case: str) -> None:
    info = run_reput("info", golden(case), "--json").object()
    assert sorted(
        [q["topic"], str(q["queue_id"]), str(q["min_offset"]), str(q["max_offset"])] for q in info["queues"]
    ) == sorted(truth(case, "queue"))
    records = truth(case, "log")
    assert (info["earliest_timestamp"], info["latest_timestamp"]) == (int(records[0][-1]), int(records[-1][-1]))
    assert [str(info["min_commit_log_offset"]), str(info["max_commit_log_offset"])] == truth(case, "phy")[0]
    assert info["was_killed"] == (case == "killed")
    assert info["findings"] == []


def test_sizes_count_what_is_on_the_disk_and_what_is_not(store: Path, run_reput: Run) -> None:
    info = run_reput("info", store, "--json").object()
    files = [path for path in store.rglob("*") if path.is_file()]
    assert info["apparent_bytes"] == sum(path.stat().st_size for path in files)
    assert info["allocated_bytes"] == sum(path.stat().st_blocks * 512 for path in files)
    assert (info["commit_log_file_size"], info["index_files"]) == (65536, 1)


def test_an_open_store_is_locked_and_was_not_killed(tmp_path: Path, run_reput: Run) -> None:
    with reput.MessageStore.open(tmp_path / "s", mapped_file_size_commit_log=65536) as opened:
        opened.put_message(reput.Message("t", b"x"))
        opened.wait_dispatched()
        info = run_reput("info", tmp_path / "s", "--json").object()
        text = run_reput("info", tmp_path / "s").out
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        after = run_reput("info", tmp_path / "s", "--json").object()
        assert (after["locked_by_process"], after["was_killed"]) == (-1, False)  # its copy has opened the lock file
        assert "open for writing" in run_reput("info", tmp_path / "s").out
    assert (info["locked_by_process"], info["was_killed"]) == (os.getpid(), False)
    assert f"open for writing by process {os.getpid()}" in text
    killed = run_reput("info", tmp_path / "copy", "--json").object()
    assert (killed["locked_by_process"], killed["was_killed"]) == (None, True)
    assert "its writer was killed" in run_reput("info", tmp_path / "copy").out
    assert "closed cleanly" in run_reput("info", tmp_path / "s").out


def test_text_fits_on_a_screen_however_many_queues_there_are(tmp_path: Path, run_reput: Run) -> None:
    with reput.MessageStore.open(tmp_path / "s", mapped_file_size_commit_log=65536) as opened:
        for queue_id in range(100):
            opened.put_message(reput.Message("t", b"x", wait_store_msg_ok=False), queue_id)
    answer = run_reput("info", tmp_path / "s")
    assert len(answer.out.splitlines()) <= 40
    assert "and 84 more queues: see --json" in answer.out
    assert len(run_reput("info", tmp_path / "s", "--json").object()["queues"]) == 100


def test_an_index_that_the_checkpoint_does_not_know_yet_is_no_finding(store: Path, run_reput: Run) -> None:
    (line,) = [line for line in run_reput("info", store).out.splitlines() if line.startswith("flushed index")]
    assert line.split(maxsplit=2)[2].rstrip() == "no index file is full yet"


def test_an_empty_store_has_no_times_and_no_offsets(golden: Callable[[str], Path], run_reput: Run) -> None:
    path = golden("empty")
    info = run_reput("info", path, "--json").object()
    assert (info["queues"], info["earliest_timestamp"], info["latest_timestamp"]) == ([], None, None)
    answer = run_reput("info", path)
    assert answer.status == 0
    assert re.search(r"^stored +nothing yet$", answer.out, re.MULTILINE)
    assert "commit log file bytes" not in answer.out


def test_a_commit_log_elsewhere_is_found_by_option(
    store: Path, tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("disk_used_percent", "disk_free"):  # others write to the disk, too
        monkeypatch.setattr(FileLayer, name, lambda self, path: 20)
    before = run_reput("info", store, "--json").object()
    shutil.move(store / "commitlog", tmp_path / "log")
    after = run_reput("info", store, "--commit-log-path", tmp_path / "log", "--json").object()
    for answer, log in ((before, store / "commitlog"), (after, tmp_path / "log")):
        del answer["runtime_info"][f"commitLogDiskRatio_{log}"]
    assert after == before
    assert run_reput("info", store).status == 2


def test_damage_that_keeps_the_store_closed_is_a_finding(store: Path, run_reput: Run) -> None:
    path = store / "commitlog" / ("0" * 20)
    (store / "abort").touch()
    flip(path, 4)
    answer = run_reput("info", store, "--json")
    assert answer.status == 1
    (finding,) = answer.object()["findings"]
    assert str(path) in finding
    assert answer.err == f"reput: {finding}\n"


def test_damage_in_a_cleanly_closed_store_is_told_by_every_command_that_looks(
    golden: Callable[[str], Path], run_reput: Run
) -> None:
    store = golden("clean")
    last = max((store / "commitlog").iterdir())
    flip(last, 4)  # the magic code of the file's first record
    for command in (["info"], ["get", "--topic", "topic-0"], ["query", "--commit-log-offset", "0"]):
        answer = run_reput(command[0], store, *command[1:])
        assert answer.status == 1
        assert last.name in answer.err


@pytest.mark.parametrize(
    "command",
    [
        ["get", "--topic", "topic-0", "--raw"],
        ["stats", "--report"],
        ["rebuild", "--runner", "local", "--output"],
    ],
)
@pytest.mark.parametrize("inside", ["checkpoint", "commitlog/00000000000000000000", "new/folder"])
def test_an_output_among_the_files_of_the_store_is_refused(
    golden: Callable[[str], Path], run_reput: Run, command: list[str], inside: str
) -> None:
    store = golden("clean")
    before = content_of(store)
    answer = run_reput(command[0], store, *command[1:], store / inside)
    assert (answer.status, len(answer.err.splitlines())) == (2, 1)
    exists_already = command[0] == "rebuild" and inside != "new/folder"
    assert ("exists already" if exists_already else "inside the store") in answer.err
    assert content_of(store) == before
