"""`reput repair`: what it says, its exit status, and that only --apply changes anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.commands import Run, content_of
from tests.support.damage import overwrite


def spoil(store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_bytes(b"{")
    for path in store.glob("consumequeue/*/0/*"):
        path.write_bytes(bytes(path.stat().st_size))
    (store / "commitlog/notes.txt").write_text("mine")


def test_a_plan_is_shown_and_nothing_changed_without_apply(golden: Callable[[str], Path], run_reput: Run) -> None:
    store = golden("clean")
    spoil(store)
    before = content_of(store)
    answer = run_reput("repair", store)
    assert answer.status == 1
    for word in ("to be done", "make-topics", "move-away", "rebuild", "notes.txt"):
        assert word in answer.out
    assert content_of(store) == before
    told = run_reput("repair", store, "--json").object()
    assert (told["is_applied"], told["is_fine"], told["needs_salvage"]) == (False, False, False)
    assert [step["action"] for step in told["steps"]] == ["make-topics", "move-away", "rebuild"]
    assert {finding["code"] for finding in told["findings"]} >= {"config-damaged", "foreign-file"}


def test_with_apply_it_is_done_and_the_report_says_where_originals_are(
    golden: Callable[[str], Path], run_reput: Run, tmp_path: Path
) -> None:
    store = golden("clean")
    spoil(store)
    answer = run_reput("repair", store, "--apply", "--report", tmp_path / "repair.html")
    assert (answer.status, "topics.json.broken" in answer.out) == (0, True)
    assert "commitlog.broken" in (tmp_path / "repair.html").read_text()
    assert run_reput("audit", store).status == 0
    assert run_reput("repair", store, "--json").object()["steps"] == []


def test_a_log_that_is_not_mended_in_place_is_salvaged(
    golden: Callable[[str], Path], run_reput: Run, tmp_path: Path
) -> None:
    store, target = golden("clean"), tmp_path / "salvaged"
    file = sorted((store / "commitlog").iterdir())[0]
    overwrite(file, 20_000, bytes(500))
    before = content_of(store)
    answer = run_reput("repair", store, "--apply")
    assert (answer.status, f"--salvage {store}.salvaged" in answer.out) == (1, True)
    planned = run_reput("repair", store, "--salvage", target, "--json")
    assert (planned.status, planned.object()["is_applied"], target.exists()) == (1, False, False)
    done = run_reput("repair", store, "--salvage", target, "--apply", "--json")
    assert (done.status, done.object()["losses"]) == (0, planned.object()["losses"])
    assert done.object()["lost_bytes"] >= 500
    assert "rolled back records" in run_reput("repair", store, "--salvage", tmp_path / "again", "--apply").out
    assert run_reput("audit", target).status == 0
    before.pop("lock", None)
    assert {name: told for name, told in content_of(store).items() if name not in (".", "lock")} == {
        name: told for name, told in before.items() if name != "."
    }


def test_what_is_left_when_all_steps_are_done_is_not_told_as_steps_to_do(
    golden: Callable[[str], Path], run_reput: Run
) -> None:
    store = golden("clean")
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_bytes(b"{")
    file = sorted((store / "commitlog").iterdir())[0]
    file.write_bytes(file.read_bytes()[:20_000] + bytes(500) + file.read_bytes()[20_500:])
    for arguments, result in (((), "to be applied"), (("--apply",), "findings remain")):
        answer = run_reput("repair", store, *arguments)
        assert (answer.status, result in answer.out) == (1, True)


def test_what_it_does_not_take_is_refused(golden: Callable[[str], Path], run_reput: Run) -> None:
    answer = run_reput("repair", golden("clean"), "--set", "flushDiskType=ASYNC_FLUSH")
    assert (answer.status, "a repair takes" in answer.err) == (2, True)
