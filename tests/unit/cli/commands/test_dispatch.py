"""reput dispatch: its answer, what it refuses, and how `reput info` shows who dispatches."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import reput
from reput.spark.dispatch import DispatchResult
from tests.support.commands import Run, content_of


def test_queues_and_index_of_a_log_come_back_and_the_next_run_finds_nothing_new(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run
) -> None:
    path, output = golden("clean"), tmp_path / "out"
    command = ("dispatch", path, "--output", output, "--once", "--runner", "local", "--json")
    answer = run_reput(*command)
    assert answer.status == 0, answer.err
    assert answer.object()["messages"] == 1000
    assert '"dispatched_to": ' in answer.err
    built, stored = content_of(output / "consumequeue"), content_of(path / "consumequeue")
    assert {name: data for name, (data, _) in built.items()} == {name: data for name, (data, _) in stored.items()}
    assert run_reput(*command).object()["messages"] == 0


@pytest.mark.parametrize(
    ("options", "runs_on"),
    [
        (["--once"], None),
        (["--once", "--runner", "local"], None),
        (["--once", "--runner", "spark"], "local[*]"),
        (["--once", "--master", "local[2]"], "local[2]"),
        ([], "local[*]"),
        (["--runner", "local"], None),
    ],
)
def test_spark_is_started_for_a_query_that_goes_on_or_where_it_is_asked_for(
    store: Path,
    tmp_path: Path,
    run_reput: Run,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    runs_on: str | None,
) -> None:
    sessions: list[object] = []

    def dispatch(*_: object, session: object, **__: object) -> DispatchResult:
        sessions.append(session)
        return DispatchResult(0)

    monkeypatch.setattr(import_module("reput.spark.session"), "session", lambda master: master)
    monkeypatch.setattr(import_module("reput.spark.dispatch"), "dispatch", dispatch)
    assert run_reput("dispatch", store, "--output", tmp_path / "out", *options).status == 0
    assert sessions == [runs_on]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), 'the store dispatches by itself; open it with dispatch="external" first, or give an output folder'),
        (("--output", "OUT", "--set", "flushDiskType=ASYNC_FLUSH"), "dispatch takes mappedFileSizeConsumeQueue, "),
        (("--output", "OUT", "--set", "maxIndexNum=x"), "maxIndexNum"),
        (("--output", "INSIDE"), "lies inside the store"),
        (("--output", "FULL"), "the folder is not empty (there is file)"),
        (("--output", "DISPATCHED", "--set", "maxIndexNum=7"), "begun with other options: max_index_num was null"),
    ],
)
def test_what_is_refused_is_one_line_and_changes_nothing(
    golden: Callable[[str], Path], tmp_path: Path, run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    store, full, dispatched = golden("clean"), tmp_path / "full", tmp_path / "dispatched"
    full.mkdir()
    (full / "file").touch()
    run = ("--once", "--runner", "local")
    assert run_reput("dispatch", store, "--output", dispatched, *run).status == 0
    before = content_of(tmp_path)
    places = {"OUT": tmp_path / "out", "FULL": full, "INSIDE": store / "out", "DISPATCHED": dispatched}
    answer = run_reput("dispatch", store, *run, *(places.get(argument, argument) for argument in arguments))
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err
    assert answer.err.count("\n") == 1
    assert content_of(tmp_path) == before


def test_info_says_who_dispatches_and_with_what_lag(tmp_path: Path, run_reput: Run) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, dispatch="external", mapped_file_size_commit_log=65536) as store:
        end = store.put_message(reput.Message("orders", b"1")).commit_log_offset
        store.put_message(reput.Message("orders", b"2"))
        info = run_reput("info", path, "--json").object()
        assert (info["dispatched_to"], info["dispatched_by_process"]) == (end, None)
        assert "by nobody now; start `reput dispatch`" in run_reput("info", path).out
        answer = run_reput("dispatch", path, "--once", "--runner", "local", "--json")
        assert answer.object()["messages"] == 2
        store.wait_dispatched()
        assert store.get_message("orders", 0, 0).messages()[1].body == b"2"
        assert "lag 0 bytes" in run_reput("info", path).out
