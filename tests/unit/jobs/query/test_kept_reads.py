"""A query with a work folder: the rows of one without, whoever reads and whatever is killed, and nothing read twice."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, StoreFormatError, StoreLockedError
from reput.formats.message import Message
from reput.jobs.query import kept_reads as job
from reput.jobs.query.kept_reads import kept_reads
from reput.jobs.query.query_job import find_messages
from reput.jobs.query.sql_job import Source, query_sql
from reput.jobs.runner import LocalRunner, Runner
from tests.support.commands import run_reput
from tests.support.kills import killed
from tests.support.runners import CountingRunner, DyingRunner
from tests.support.shares import Share, in_shares, sampled

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 4096, "max_message_size": 1024}
CASES: list[dict[str, Any]] = [{}, {"topics": ["a"]}, {"keys": ["k3", "k99"]}, {"topics": ["nobody"]}, {"end": 0}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 messages of three topics with JSON bodies, in some ten files."""
    path = tmp_path_factory.mktemp("kept") / "store"
    with reput.MessageStore.open(path, **SIZES) as opened:
        put_json(opened, range(300))
    return path


def put_json(opened: reput.MessageStore, numbers: Sequence[int]) -> None:
    for n in numbers:
        opened.put_message(Message("abc"[n % 3], json.dumps({"id": n, "total": n / 4}).encode(), keys=[f"k{n}"]))


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "PART_BYTES", 2000)


def rows(store: Path, work: Path, runner: Runner | None = None, **asked: Any) -> pa.Table:
    options = {"store": str(store), **{name: str(value) for name, value in asked.items()}}
    with kept_reads(runner or LocalRunner(2), str(work), options) as kept:
        return find_messages(store, kept=kept, **asked).read_all()


def answer(store: Path, work: Path, sql: str, runner: Runner | None = None) -> list[dict[str, Any]]:
    with kept_reads(runner or LocalRunner(2), str(work), {"sql": sql}) as kept:
        return query_sql(Source(path=store, kept=kept), sql).reader.read_all().to_pylist()


@sampled(3)
@pytest.mark.parametrize("asked", CASES)
@pytest.mark.parametrize("part_bytes", [300, 5000, 64 << 20])
def test_rows_are_those_of_a_plain_query_however_the_log_is_cut(
    store: Path, tmp_path: Path, asked: dict[str, Any], part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PART_BYTES", part_bytes)
    assert rows(store, tmp_path / "work", **asked) == find_messages(store, **asked).read_all()
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("asked", CASES[:3])
def test_a_query_that_was_killed_reads_only_what_is_missing(store: Path, tmp_path: Path, asked: dict[str, Any]) -> None:
    whole = CountingRunner()
    expected = rows(store, tmp_path / "whole", whole, **asked)
    total = whole.ran["read the log"]
    for tasks in range(0, total, max(total // 4, 1)):
        with pytest.raises(KeyboardInterrupt):
            rows(store, tmp_path / "work", DyingRunner(tasks), **asked)
        runner = CountingRunner()
        assert rows(store, tmp_path / "work", runner, **asked) == expected
        assert runner.ran["read the log"] == total - tasks
    assert total > 2


@in_shares(4)
def test_a_process_that_is_killed_before_any_change_of_the_disk_leaves_no_file_that_looks_whole(
    store: Path, tmp_path: Path, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):  # no power is cut here, and they take most of the time
        monkeypatch.setattr(os, name, lambda descriptor: None)
    monkeypatch.setattr(job, "PART_BYTES", 15_000)
    query = ("query", store, "--topics", "a,b", "--work-dir", tmp_path / "work", "--output")
    assert run_reput(*query, tmp_path / "whole.parquet").status == 0
    for changes in share.of(range(1, 10_000, 47)):
        output = tmp_path / f"{changes}.parquet"
        was_killed = killed(partial(run_reput, *query, output), changes)
        assert not output.exists() or output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
        assert run_reput(*query, output).status == 0
        assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
        assert list((tmp_path / "work").iterdir()) == []
        if not was_killed:
            break
    assert changes > 90


@pytest.mark.parametrize(
    "sql",
    [
        "select topic, count(*) n from messages group by 1 order by 1",
        "select id, total, queue_offset from b where id > 100 order by id",
        "select x.id from a x join b y on y.id = x.id + 1 where y.total > 20 order by 1",
    ],
)
def test_sql_over_what_is_kept_gives_the_same_answer_and_goes_on_where_it_failed(
    store: Path, tmp_path: Path, sql: str
) -> None:
    expected = query_sql(Source(path=store), sql).reader.read_all().to_pylist()
    assert expected
    whole = CountingRunner()
    assert answer(store, tmp_path / "whole", sql, whole) == expected
    failing = FailingRunner(5)
    with pytest.raises(StoreLockedError, match="gone"):
        answer(store, tmp_path / "work", sql, failing)
    runner = CountingRunner()
    assert answer(store, tmp_path / "work", sql, runner) == expected
    assert runner.ran["read the log"] == whole.ran["read the log"] - 5


class FailingRunner(DyingRunner):
    """Fails when so many tasks have run: DuckDB passes on an error, and no interrupt."""

    def run(self, *arguments: Any, **options: Any) -> list[Any]:
        try:
            return super().run(*arguments, **options)
        except KeyboardInterrupt:
            raise StoreLockedError("gone") from None


def test_what_comes_to_the_log_after_a_kill_is_for_the_next_query(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, **SIZES) as opened:
        put_json(opened, range(50))
        with pytest.raises(KeyboardInterrupt):
            rows(path, tmp_path / "work", DyingRunner(2))
        put_json(opened, range(50))
        assert rows(path, tmp_path / "work").num_rows == 50
        assert rows(path, tmp_path / "work").num_rows == 100


def test_a_folder_belongs_to_one_query(store: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        rows(store, tmp_path / "work", DyingRunner(1))
    with pytest.raises(ConfigError, match="begun with other options: topics was null"):
        rows(store, tmp_path / "work", topics=["a"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StoreFormatError, match="the folder is not empty"):
        rows(store, tmp_path / "full")


def test_progress_is_told_in_log_bytes_without_a_folder_and_in_parts_with_one(store: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    find_messages(store, progress=lambda *one: told.append(one)).read_all()
    size = told[0][1]
    assert (told[0], told[-1]) == ((0, size, "read the log"), (size, size, "read the log"))
    assert sum(path.stat().st_size for path in (store / "commitlog").iterdir()) >= size > 20_000
    told.clear()
    with kept_reads(LocalRunner(1), str(tmp_path / "work"), {}, lambda *one: told.append(one)) as kept:
        find_messages(store, kept=kept).read_all()
    assert told[-1][0] == told[-1][1] > 10


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("runner", (None, 5, LocalRunner)), ("work_dir", (None, 5, "", "a\0b", b"x")), ("options", (None, 5, "x", [1])),
        ("progress", (5, "x")),
    ],
)  # fmt: skip
def test_what_is_no_argument_makes_no_folder(tmp_path: Path, name: str, values: tuple[object, ...]) -> None:
    right = {"runner": LocalRunner(), "work_dir": str(tmp_path / "work"), "options": {}, "progress": None}
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name}"), kept_reads(**right | {name: value}):
            pass
    assert list(tmp_path.iterdir()) == []
