"""Statistics of some topics: the numbers of a full run filtered to them, of what queues prove to have their records."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ConfigError
from reput.formats.message import Message
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import Dimension, statistics
from reput.jobs.statistics.planned_log import PartGroup
from reput.log.plans import pruning
from tests.support.damage import at, flip
from tests.support.runners import DyingRunner
from tests.support.shares import sampled
from tests.support.topic_statistics import check_topics

GOLDEN = Path(__file__).parents[3] / "golden"
STORES = sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*.*.*/*/store"))
SIZES = {"mapped_file_size_commit_log": 1 << 14, "mapped_file_size_consume_queue": 2000}


@pytest.fixture(autouse=True)
def _seeks_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "SEEK_BYTES", 100)  # else a small log is read in one piece


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A log of several files; one message of 20 is of `rare`, and each has keys, some of them two."""
    path = tmp_path / "store"
    with reput.MessageStore.open(path, **SIZES) as opened:
        for n in range(400):
            topic = "rare" if n % 20 == 5 else f"often-{n % 3}"
            keys = [f"k{n % 9}", f"k{n % 4}"][: n % 3]
            opened.put_message(Message(topic, b"." * (n % 90), tags=("a", None)[n % 2], keys=keys))
    return path


class Watched(LocalRunner):
    """Keeps the items of the tasks that read."""

    def __init__(self) -> None:
        super().__init__(2)
        self.items: list[Any] = []

    def run(self, task: Any, items: Any, *, description: str, progress: Any = None) -> list[Any]:
        self.items += items if description == "read the log" else []
        return super().run(task, items, description=description, progress=progress)


@sampled(4)
@pytest.mark.parametrize("store", STORES)
def test_of_what_apache_wrote_the_numbers_are_those_of_a_full_run(store: str) -> None:
    topics = statistics(GOLDEN / store, runner=LocalRunner(2)).disk.topics["topic"].to_pylist()
    for some in (topics[:1], topics[-1:], topics[::2], ["nothing"]):
        check_topics(GOLDEN / store, some, split_bytes=20_000)


@pytest.mark.parametrize("by", [("topic", "queue", "tag"), ("queue",), ("tag", "host"), ("topic", "key"), ("key",)])
@pytest.mark.parametrize("split_bytes", [500, 64 << 20])
def test_only_records_of_the_topic_are_read(store: Path, by: tuple[Dimension, ...], split_bytes: int) -> None:
    runner = Watched()
    assert check_topics(store, ["rare"], by=by, runner=runner, split_bytes=split_bytes).messages == 20
    assert all(isinstance(item, PartGroup) for item in runner.items)
    assert len(runner.items) == len({str(item) for item in runner.items}) > 2  # by their texts they are known again


def test_a_topic_that_is_much_of_the_log_is_scanned(store: Path) -> None:
    runner = Watched()
    check_topics(store, ["often-0", "often-1"], runner=runner)
    assert runner.items
    assert not any(isinstance(item, PartGroup) for item in runner.items)


def test_without_queues_the_log_is_scanned(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    assert check_topics(store, ["rare"]).messages == 20


def test_damage_of_other_topics_is_not_met_and_of_the_topic_is_found(store: Path) -> None:
    rows = reput.read_log(store, ["topic", "commit_log_offset"]).read_all().to_pylist()
    often, rare = rows[110], rows[165]
    assert (often["topic"], rare["topic"]) == ("often-2", "rare")
    flip(*at(store, often["commit_log_offset"] + 4))
    assert check_topics(store, ["rare"]).findings == []
    flip(*at(store, rare["commit_log_offset"] + 4))
    found = check_topics(store, ["rare"])
    assert [damage.begin for damage in found.damages] == [row["commit_log_offset"] for row in (often, rare)]
    assert found.messages == 19


def test_a_body_that_does_not_fit_its_crc_counts_unless_crcs_are_checked(store: Path) -> None:
    rows = reput.read_log(store, ["topic", "commit_log_offset"]).read_all().to_pylist()
    rare = [row["commit_log_offset"] for row in rows if row["topic"] == "rare"]
    flip(*at(store, rare[-1] + 90))
    assert check_topics(store, ["rare"]).messages == 20
    assert check_topics(store, ["rare"], check_crc=True).messages == 19


@pytest.mark.parametrize("gone", ["the end of a file", "a file"])
def test_a_lost_end_of_the_log_is_found(store: Path, gone: str) -> None:
    last = max((store / "commitlog").iterdir())
    if gone == "a file":
        last.unlink()
    else:
        last.write_bytes(bytes(1 << 14))
    (found,) = check_topics(store, ["rare"]).findings
    assert "the last clean exit left records up to" in found


def test_a_store_that_is_written_counts_up_to_where_its_log_ended(store: Path) -> None:
    with reput.MessageStore.open(store, **SIZES) as opened:

        class Putting(Watched):
            def run(self, task: Any, items: Any, *, description: str, progress: Any = None) -> list[Any]:
                found = super().run(task, items, description=description, progress=progress)
                opened.put_messages([Message("rare", b"x"), Message("often-0", b"x" * 4000)] * 5)
                return found

        expected, runner = check_topics(store, ["rare"]), Putting()
        found = statistics(store, runner=runner, topics=["rare"], bucket="1s")
        assert (found.table, found.disk.parts) == (expected.table, expected.disk.parts)
        assert all(isinstance(item, PartGroup) for item in runner.items)
        assert statistics(store, runner=LocalRunner(1), topics=["rare"]).messages == 30


def test_topics_are_a_list() -> None:
    with pytest.raises(ConfigError, match="topics: give a list of texts, not one text"):
        statistics(GOLDEN / "5.3.3/clean/store", runner=LocalRunner(1), topics="topic-1")


def test_a_job_that_was_killed_goes_on_with_its_plan_and_with_no_other_topics(store: Path, tmp_path: Path) -> None:
    asked: Any = {"topics": ["rare", "nothing"], "bucket": "1s", "split_bytes": 500, "work_dir": tmp_path / "work"}
    with pytest.raises(KeyboardInterrupt):
        statistics(store, runner=DyingRunner(4), **asked)
    for topics in (None, ["rare"], ["rare", "often-1"]):
        with pytest.raises(ConfigError, match="begun with other options: topics was"):
            statistics(store, runner=LocalRunner(1), **{**asked, "topics": topics})
    expected = check_topics(store, ["rare"])
    shutil.rmtree(store / "consumequeue")  # the plan is there
    runner = Watched()
    found = statistics(store, runner=runner, **{**asked, "topics": ["nothing", "rare"]})
    assert all(isinstance(item, PartGroup) for item, _ in runner.items)
    assert (found.table, found.messages, found.disk.parts) == (expected.table, 20, expected.disk.parts)
