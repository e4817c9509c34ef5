"""An export holds the rows that `read_log` gives, whatever the splits, the commits and the runs were."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from reput.errors import ConfigError, StoreFormatError
from reput.jobs.lake import ExportOptions, follow
from reput.jobs.runner import LocalRunner
from tests.support.iceberg import table_of
from tests.support.lake import NAMES, check_files, log_rows, put, rows_of, run
from tests.support.shares import sampled

CORPORA = Path(__file__).parents[3] / "golden/5.3.3"


@sampled(3)
@pytest.mark.parametrize("corpus", ["clean", "batch", "bcq", "ipv6", "killed", "retention", "transactions"])
@pytest.mark.parametrize(
    "options", [{}, {"split_bytes": 50_000, "target_file_bytes": 1}, {"split_bytes": 30_000, "commit_bytes": 1}]
)
def test_the_rows_are_those_of_read_log(corpus: str, options: dict[str, Any], tmp_path: Path) -> None:
    store = CORPORA / corpus / "store"
    result = run(store, tmp_path / "out", **options)
    expected = log_rows(store)
    assert rows_of(tmp_path / "out") == expected
    assert result.messages == len(expected) == sum(topic.messages for topic in result.topics)
    paths = check_files(tmp_path / "out")
    assert sum(topic.files for topic in result.topics) == len(paths)
    assert sum(topic.bytes for topic in result.topics) == sum(path.stat().st_size for path in paths)


def test_a_second_run_exports_only_what_is_new(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 300)
    first = run(store, output)
    before = {path: path.read_bytes() for path in check_files(output)}
    assert run(store, output).messages == 0
    put(store, 300, 200)
    second = run(store, output)
    assert (first.messages, second.messages, second.begin_offset) == (300, 200, first.end_offset)
    assert rows_of(output) == log_rows(store)
    assert all(path.read_bytes() == data for path, data in before.items())
    assert len(check_files(output)) > len(before)


def test_following_exports_what_comes_meanwhile(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    left = [20, 0, 30]

    def wait() -> bool:
        if left and (count := left.pop(0)):
            put(store, 100 - count, count)
        return bool(left)

    runs = follow(store, output, runner=LocalRunner(1), wait=wait)
    assert [one.messages for one in runs] == [10, 20, 0]
    assert rows_of(output) == log_rows(store)[:30]


class Busy(LocalRunner):
    """Runner during whose first works a store gets messages."""

    def __init__(self, store: Path) -> None:
        super().__init__(1)
        self._store, self._left = store, 4

    def run(self, task: Any, items: Any, **named: Any) -> Any:
        if self._left:
            self._left -= 1
            put(self._store, 0, 5)
        return super().run(task, items, **named)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_run_under_writes_ends_and_tells_age_and_lag(form: Any, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    began = time.time()
    waits = iter([True, False])
    first, second = follow(
        store, output, runner=Busy(store), wait=lambda: next(waits), options=ExportOptions(format=form)
    )
    rows = log_rows(store)
    assert (first.messages, second.messages) == (10, 5)
    assert first.lag_bytes == second.lag_bytes == rows[15]["commit_log_offset"] - second.begin_offset
    newest = int(rows[14]["store_timestamp"].timestamp() * 1000)
    assert second.newest_ms == newest
    assert second.age_seconds is not None
    assert 0 <= second.age_seconds <= time.time() - began
    if form == "delta":
        [facts, *_] = DeltaTable(output / "messages").history()
    else:
        facts = table_of(output, "messages").properties
    assert facts["reput.newestStoreTimestamp"] == str(newest)
    assert facts["reput.endOffset"] == str(second.end_offset)


def test_topics_and_columns_are_those_asked_for(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 100)
    run(store, output, topics=[NAMES[1], NAMES[2]], columns=["keys", "topic"])
    names = ["store", "commit_log_offset", "queue_id", "queue_offset", "keys", "topic", "date"]
    expected = [{name: row[name] for name in names} for row in log_rows(store, [NAMES[1], NAMES[2]])]
    assert [{name: row[name] for name in names} for row in rows_of(output)] == expected
    assert list(rows_of(output)[0]) == names


def test_small_files_are_put_together_up_to_the_target_size(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 0, 800)
    counts = []
    for target in (1, 8_000, 1 << 30):
        run(store, tmp_path / str(target), split_bytes=10_000, target_file_bytes=target)
        assert rows_of(tmp_path / str(target)) == log_rows(store)
        counts.append(len(check_files(tmp_path / str(target))))
    assert counts[0] > counts[1] > counts[2] == len(NAMES)


def test_an_output_that_is_not_the_exports_own_is_refused(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    with pytest.raises(ConfigError, match="inside the store"):
        run(store, store / "lake")
    output.mkdir()
    (output / "mine").touch()
    with pytest.raises(StoreFormatError, match="not empty"):
        run(store, output)
    assert [path.name for path in output.iterdir()] == ["mine"]


def test_an_empty_store_exports_nothing(tmp_path: Path) -> None:
    (tmp_path / "store/commitlog").mkdir(parents=True)
    result = run(tmp_path / "store", tmp_path / "out")
    assert (result.messages, result.commits, result.topics) == (0, 0, ())


def test_a_first_run_over_a_refused_log_leaves_no_state_and_another_store_may_follow(tmp_path: Path) -> None:
    (tmp_path / "wrong/commitlog").mkdir(parents=True)
    (tmp_path / "wrong/commitlog/notes.txt").write_bytes(b"no log")
    with pytest.raises(StoreFormatError, match=r"notes\.txt"):
        run(tmp_path / "wrong", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []

    put(tmp_path / "store", 0, 3)
    assert run(tmp_path / "store", tmp_path / "out").messages == 3
