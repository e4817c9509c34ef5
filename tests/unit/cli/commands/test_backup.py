"""reput backup, backups, prune and restore: what they print, and their exit statuses."""

from __future__ import annotations

import re
from pathlib import Path

import reput
from reput.formats.java import index_hash
from tests.support.commands import Run, content_of


def test_a_store_goes_to_a_target_and_comes_back(store: Path, tmp_path: Path, run_reput: Run) -> None:
    target, restored = tmp_path / "target", tmp_path / "restored"
    before = content_of(store)
    answer = run_reput("backup", store, target, "--json")
    assert (answer.status, content_of(store)) == (0, before)
    first = answer.object()
    assert (first["messages"], first["reused_bytes"], first["findings"]) == (5, 0, [])
    answer = run_reput("backup", store, target)
    assert answer.status == 0
    assert "reused bytes" in answer.out
    listed = run_reput("backups", target, "--json").object()
    assert listed["backups"][0]["name"] == first["name"]
    assert len(listed["backups"]) == 2
    assert first["name"] in run_reput("backups", target).out
    answer = run_reput("restore", target, restored, "--backup", first["name"], "--json")
    assert answer.status == 0
    assert (answer.object()["messages"], answer.object()["findings"]) == (5, [])
    assert run_reput("diff", store, restored).status == 0
    answers = [
        run_reput("get", path, "--topic", "orders", "--queue-id", 0, "--offset", 0) for path in (store, restored)
    ]
    assert answers[0] == answers[1]
    assert answers[0].status == 0


def test_what_no_backup_has_is_listed_with_the_reason(store: Path, tmp_path: Path, run_reput: Run) -> None:
    for name in ("timerwheel", "config/timercheck", "config/transactionMetrics", "mine"):
        (store / name).touch()
    answer = run_reput("backup", store, tmp_path / "target")
    rows = dict(re.findall(r"^(\S*(?:timer|Metrics|mine)\S*) +(.+?) *$", answer.out, re.MULTILINE))
    unknown = rows.pop("mine")
    assert unknown == "reput does not know it"
    assert rows == dict.fromkeys(
        ("timerwheel", "config/timercheck", "config/transactionMetrics"), "a broker makes it anew"
    )


def test_restored_files_have_the_sizes_of_the_store_or_those_that_are_given(
    store: Path, tmp_path: Path, run_reput: Run
) -> None:
    assert run_reput("backup", store, tmp_path / "target").status == 0
    for options, size in (((), 2000), (("--set", "mappedFileSizeConsumeQueue=4000"), 4000)):
        restored = tmp_path / str(size)
        assert run_reput("restore", tmp_path / "target", restored, *options).status == 0
        assert (restored / "consumequeue/orders/0" / f"{0:020}").stat().st_size == size


def test_sizes_that_the_files_do_not_tell_are_asked_for(tmp_path: Path, run_reput: Run) -> None:
    store = tmp_path / "store"
    with reput.MessageStore.open(store, max_hash_slot_num=7, max_index_num=20) as opened:
        # One key of slot 0, of the log's first message, looks like the zeros after it: several pairs explain the file.
        key = next(f"f-{n}" for n in range(1000) if index_hash(f"orders#f-{n}") % 7 == 0)
        opened.put_message(reput.Message("orders", bytes(250), keys=(key,)))
    sizes = ("--set", "maxHashSlotNum=7", "--set", "maxIndexNum=20")
    assert run_reput("backup", store, tmp_path / "target").status == 0
    answer = run_reput("restore", tmp_path / "target", tmp_path / "restored")
    assert answer.status == 2
    assert "did not tell maxHashSlotNum, maxIndexNum" in answer.err
    assert "--set maxHashSlotNum=N" in answer.err
    assert not list(tmp_path.glob("restored*"))
    assert run_reput("restore", tmp_path / "target", tmp_path / "restored", *sizes).status == 0


def test_a_json_file_that_cannot_be_read_is_status_1(store: Path, tmp_path: Path, run_reput: Run) -> None:
    (store / "config/topics.json").write_text("{")
    answer = run_reput("backup", store, tmp_path / "target")
    assert answer.status == 1
    assert "config/topics.json" in answer.out


def test_damage_is_one_line_and_a_status(store: Path, tmp_path: Path, run_reput: Run) -> None:
    target = tmp_path / "target"
    assert run_reput("backup", store, target).status == 0
    (piece,) = (target / "log").iterdir()
    piece.write_bytes(piece.read_bytes()[:-1] + b"?")
    answer = run_reput("restore", target, tmp_path / "restored")
    assert answer.status == 2
    assert answer.err.count("\n") == 1
    assert str(piece) in answer.err
    assert not (tmp_path / "restored").exists()
    (manifest,) = (target / "backups").iterdir()
    manifest.write_text("{}")
    answer = run_reput("backups", target)
    assert answer.status == 1
    assert str(manifest) in answer.err


def test_a_restore_ends_at_a_time_or_at_an_offset(store: Path, tmp_path: Path, run_reput: Run) -> None:
    target = tmp_path / "target"
    assert run_reput("backup", store, target).status == 0
    lines = run_reput("dump", store, "--json").lines()
    point = lines[2]["commit_log_offset"]
    answer = run_reput("restore", target, tmp_path / "first", "--until-offset", point, "--json")
    assert (answer.status, answer.object()["end_offset"], answer.object()["messages"]) == (0, point, 2)
    answer = run_reput("restore", target, tmp_path / "all", "--until", "2100-01-01")
    assert answer.status == 0
    assert re.search(r"last store timestamp +20\d\d-\d\d-\d\dT", answer.out)
    answer = run_reput("restore", target, tmp_path / "none", "--until", "2001-01-01")
    assert answer.status == 2
    assert "no message before 2001-01-01T00:00:00.000Z" in answer.err


def test_a_prune_shows_what_it_would_remove_and_then_removes_it(store: Path, tmp_path: Path, run_reput: Run) -> None:
    target = tmp_path / "target"
    first, second = (run_reput("backup", store, target, "--json").object()["name"] for _ in range(2))
    answer = run_reput("prune", target, "--keep-last", 1, "--dry-run")
    assert answer.status == 0
    assert [line.split() for line in answer.out.splitlines() if first in line] == [[first, "would", "be", "removed"]]
    assert [line.split() for line in answer.out.splitlines() if second in line] == [[second, "kept", "last"]]
    assert len(run_reput("backups", target, "--json").object()["backups"]) == 2
    answer = run_reput("prune", target, "--keep-daily", 3, "--keep-weekly", 1, "--json")
    assert answer.object()["kept"] == {second: ["daily", "weekly"]}
    assert answer.object()["removed"] == [first]
    assert [backup["name"] for backup in run_reput("backups", target, "--json").object()["backups"]] == [second]
    answer = run_reput("prune", target)
    assert answer.status == 2
    assert "--keep-last 7" in answer.err


def test_what_is_no_target_is_told(tmp_path: Path, run_reput: Run) -> None:
    for arguments in (
        ("backups", tmp_path),
        ("prune", tmp_path, "--keep-last", 1),
        ("restore", tmp_path, tmp_path / "new"),
    ):
        answer = run_reput(*arguments)
        assert answer.status == 2
        assert "no target of backups" in answer.err
