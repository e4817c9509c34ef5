"""reput dispatch: its answer, what it refuses, and how `reput info` shows who dispatches."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import reput
from reput.spark.dispatch import DispatchResult
from tests.support.commands import Answer, Run, content_of


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
        return DispatchResult({})

    monkeypatch.setattr(import_module("reput.spark.session"), "session", lambda master: master)
    monkeypatch.setattr(import_module("reput.spark.dispatch"), "dispatch", dispatch)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # also where there is no Spark
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


@pytest.mark.parametrize("has_output", [True, False])
def test_what_waits_for_a_dispatcher_is_a_lag_and_what_was_dispatched_and_is_gone_is_damage(
    tmp_path: Path, run_reput: Run, has_output: bool
) -> None:
    path = tmp_path / "store"
    queues, output, log = path, (), ()
    if has_output:
        queues = tmp_path / "replica"
        output, log = ("--output", queues), ("--commit-log-path", path / "commitlog")

    def put_and_close() -> None:
        with reput.MessageStore.open(path, small=True, dispatch="thread" if has_output else "external") as store:
            store.put_messages([reput.Message("orders", b"x", keys=[f"o-{n}"]) for n in range(300)])

    def looks() -> list[Answer]:
        get = ("get", queues, *log, "--topic", "orders", "--offset", "299")
        return [run_reput(*get), *(run_reput(name, queues, *log, "--json") for name in ("info", "audit"))]

    put_and_close()
    dispatched = run_reput("dispatch", path, *output, "--once", "--json").object()["end_offsets"][str(path)]
    put_and_close()
    get, info, audit = looks()
    assert [answer.status for answer in (get, info, audit)] == [0, 0, 0], (get, info, audit)
    facts, result = info.object(), audit.object()
    assert facts["runtime_info"]["dispatchBehindBytes"] == facts["max_commit_log_offset"] - dispatched > 0
    assert result["codes"] == {"not-dispatched": 2} | ({"checkpoint-short": 1} if has_output else {})
    assert has_output or run_reput("repair", path, "--json").object()["steps"] == []

    file = max((queues / "consumequeue/orders/0").iterdir())
    file.write_bytes(file.read_bytes()[: 100 * 20] + bytes(file.stat().st_size - 100 * 20))
    get, info, audit = looks()
    assert [answer.status for answer in (get, info, audit)] == [1, 1, 1]
    assert "lacks the unit of the record at commit log offset" in info.err
    assert audit.object()["codes"]["unit-missing"] > 0


def test_a_store_whose_first_units_wait_for_a_dispatcher_is_no_damaged_one(tmp_path: Path, run_reput: Run) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, small=True, dispatch="external") as store:
        store.put_message(reput.Message("orders", b"x"))
    assert [run_reput(name, path).status for name in ("info", "audit")] == [0, 0]
    get = run_reput("get", path, "--topic", "orders")
    assert (get.status, "`reput dispatch` goes on with them" in get.err) == (0, True)
    (path / "lock").write_text("lock")  # RocketMQ has opened the store since, and dispatches all of its log
    assert [run_reput(name, path).status for name in ("info", "audit")] == [1, 1]


@pytest.mark.parametrize(
    ("first", "then", "place"),
    [
        (["a/s", "b"], ["a/s", "b", "c/s"], "out/s"),
        (["a/s", "c/s"], ["a/s", "b"], "out/a/s"),
        (["a/s"], ["a/s", "b"], "out"),
        (["a/s", "b"], ["a/s"], "out/s"),
    ],
)
def test_an_output_in_which_a_store_would_get_another_folder_is_refused(
    tmp_path: Path, run_reput: Run, first: list[str], then: list[str], place: str
) -> None:
    for name in ("a/s", "b", "c/s"):
        with reput.MessageStore.open(tmp_path / name, small=True) as store:
            store.put_message(reput.Message("orders", b"x"))
    output = tmp_path / "out"
    assert run_reput("dispatch", *(tmp_path / name for name in first), "--output", output, "--once").status == 0
    before = content_of(output)
    answer = run_reput("dispatch", *(tmp_path / name for name in then), "--output", output, "--once")
    assert (answer.status, f"{tmp_path / place}: has queues of a run with other stores" in answer.err) == (2, True)
    assert content_of(output) == before
    assert run_reput("dispatch", *(tmp_path / name for name in first), "--output", output, "--once").status == 0
