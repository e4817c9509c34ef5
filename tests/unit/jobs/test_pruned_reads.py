"""Readers of a topic, a queue or a key leave the other records alone: damage in one of those does not meet them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import reput
from reput.errors import CorruptRecordError
from reput.formats.message import Message
from reput.jobs.query.kept_reads import kept_reads
from reput.jobs.query.query_job import find_messages
from reput.jobs.query.sql_job import Source, query_sql
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.log.directory import StoreDirectory
from reput.log.plans import pruning
from reput.log.plans.plan import plan_points, plan_range
from reput.log.selection import make_selection
from reput.store.sinks.replay import replay
from tests.support.damage import at, flip

RARE = 7


@pytest.fixture
def undamaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log with a rare topic."""
    monkeypatch.setattr(pruning, "SEEK_BYTES", 100)  # else a small log is read in one piece
    path = tmp_path / "store"
    with reput.MessageStore.open(path) as opened:
        for n in range(50 * RARE):
            topic = "rare" if n % 50 == 25 else f"often-{n % 3}"
            opened.put_message(Message(topic, json.dumps({"n": n}).encode(), keys=[f"k{n}"], unique_key=f"id-{n}"))
    return path


@pytest.fixture
def store(undamaged: Path) -> Path:
    """A log with a rare topic, and damage in the middle of one of the others."""
    path, table = undamaged, reput.read_log(undamaged).read_all()
    assert pc.sum(pc.equal(table["topic"], "rare")).as_py() == RARE
    flip(*at(path, table["commit_log_offset"][100].as_py() + 30))
    with pytest.raises(CorruptRecordError):
        reput.read_log(path).read_all()
    return path


def sql(path: Path, text: str) -> pa.Table:
    return query_sql(Source(path=path), text).reader.read_all()


def replayed(path: Path) -> pa.Table:
    replay(path, path.parent / "replayed", topics=["rare"])
    return reput.read_log(path.parent / "replayed").read_all()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "read_log": lambda path: reput.read_log(path, topics=["rare"]).read_all(),
    "read_log, keys": lambda path: reput.read_log(path, keys=[f"k{n}" for n in range(25, 50 * RARE, 50)]).read_all(),
    "log_dataset": lambda path: reput.log_dataset(path, topics=["rare"]).to_table(),
    "log_dataset, filter": lambda path: reput.log_dataset(path).to_table(filter=pc.field("topic") == "rare"),
    "find_messages": lambda path: find_messages(path, topics=["rare"]).read_all(),
    "SQL, table of a topic": lambda path: sql(path, "from rare"),
    "SQL, condition": lambda path: sql(path, "from messages where topic = 'rare'"),
    "replay": replayed,
    "stats": lambda path: statistics(path, runner=LocalRunner(1), topics=["rare"], largest=100).largest,
    "SQL, list": lambda path: sql(path, "from messages where topic in ('rare', 'nothing')"),
}


@pytest.mark.parametrize("reader", READERS)
def test_damage_among_the_records_of_others_is_not_met(reader: str, store: Path) -> None:
    assert READERS[reader](store).num_rows == RARE


def test_a_unique_key_in_sql_is_looked_up_in_the_index(store: Path) -> None:
    assert sql(store, "select n from rare where unique_key = 'id-25'").num_rows == 1
    assert sql(store, "select topic from messages where unique_key in ('id-25', 'id-26')").num_rows == 2


def test_a_statement_plans_a_topic_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    plan_read = reput.jobs.query.query_job.plan_read  # type: ignore[attr-defined]
    monkeypatch.setattr("reput.jobs.query.query_job.plan_read", lambda *args: plans.append(args) or plan_read(*args))
    assert sql(store, "select a.n from rare a join rare b on a.n = b.n").num_rows == RARE
    assert len(plans) == 1


# What is derived from the log may be damaged in any way: the log has all records, and is then read in full.


def _foreign_file(path: Path) -> None:
    (path / "consumequeue/often-1/0/notes").touch()


def _file_of_another_size(path: Path) -> None:
    (path / f"consumequeue/often-1/0/{0:020d}").write_bytes(bytes(10))


def _folder_in_place_of_a_file(path: Path) -> None:
    file = path / f"consumequeue/often-1/0/{0:020d}"
    file.unlink()
    file.mkdir()


def _name_that_is_no_utf8(path: Path) -> None:
    folder = path / "consumequeue"
    shutil.copytree(folder / "often-1", folder / os.fsdecode(b"z\xff"))


def _foreign_name_in_index(path: Path) -> None:
    (path / "index/notes").touch()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "damage",
    [_foreign_file, _file_of_another_size, _folder_in_place_of_a_file, _name_that_is_no_utf8, _foreign_name_in_index],
)
def test_damage_of_queues_and_index_costs_no_row(reader: str, damage: Callable[[Path], None], undamaged: Path) -> None:
    damage(undamaged)
    assert READERS[reader](undamaged).num_rows == RARE


def test_very_many_ranges_that_no_queue_covers_are_not_collected(
    undamaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "SEEK_BYTES", -1000)
    shutil.rmtree(undamaged / "consumequeue/often-1")
    directory, selection = StoreDirectory(undamaged), make_selection(topics=["rare"], store="")
    assert plan_points(directory, selection) is not None
    monkeypatch.setattr(pruning, "MOST_GAPS", 10)
    assert plan_points(directory, selection) is None
    assert reput.read_log(undamaged, topics=["rare"]).read_all().num_rows == RARE


def test_a_range_whose_first_file_is_gone_is_not_planned(undamaged: Path) -> None:
    selection = make_selection(topics=["rare"], store="")
    (file,) = StoreDirectory(undamaged).log_files()
    end = reput.read_log(undamaged, ["commit_log_offset"]).read_all()[0][-1].as_py()
    assert plan_range(StoreDirectory(undamaged), selection, 0, end)
    assert plan_range(StoreDirectory(undamaged), selection, 0, file.end_offset + 1) is None
    assert plan_range(StoreDirectory(undamaged), selection, -1, end) is None


def test_kept_reads_of_long_lists_that_are_alike_at_both_ends_are_two(undamaged: Path, tmp_path: Path) -> None:
    """Arrow prints ten texts from each end of a list."""
    ends = [f"a{n}" for n in range(10)], [f"z{n}" for n in range(10)]
    statement = " union all ".join(
        f"select topic from messages where topic in ({', '.join(map(repr, [*ends[0], topic, 'b', *ends[1]]))})"
        for topic in ("rare", "often-1")
    )
    with kept_reads(LocalRunner(), str(tmp_path / "work"), {"sql": statement}) as kept:
        rows = query_sql(Source(path=undamaged, kept=kept), statement).reader.read_all()
    topics = reput.read_log(undamaged, ["topic"]).read_all()["topic"].to_pylist()
    assert sorted(rows["topic"].to_pylist()) == sorted(one for one in topics if one in ("rare", "often-1"))
