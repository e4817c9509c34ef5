"""Spark's older minors, without them: what they do not tell a stream's reader, and what is refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import ConfigError, DataLossError
from reput.spark import compat
from reput.spark.compat import LIMITS, StartlessReader, require_minor
from reput.spark.schema import spark_schema
from reput.spark.stream_reader import LogStreamReader
from tests.support.hand_log import HandLog
from tests.support.startless_query import StartlessQuery, stored


def query(*logs: HandLog, **options: str) -> StartlessQuery:
    given = {"paths": ",".join(str(log.path) for log in logs), **options}
    return StartlessQuery(lambda: LogStreamReader(given, spark_schema(["body"])))


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    return HandLog(tmp_path / "store")


class Model:
    """A query over a log, against a list of what it must have."""

    def __init__(self, folder: Path, begin: str) -> None:
        self.log = HandLog(folder / "store")
        self.query = query(self.log, startingOffsets=begin)
        self.expected: list[str] = []

    def append(self, data: st.DataObject) -> None:
        self.expected += self.log.append(data.draw(st.integers(0, 15)))

    def run(self, data: st.DataObject) -> None:
        batches = data.draw(st.sampled_from([None, 1, 2]))
        dies = batches is not None and data.draw(st.booleans())
        self.query.run(available_now=data.draw(st.booleans()), batches=batches, dies=dies)

    def delete_what_was_read(self, data: st.DataObject) -> None:
        if self.query.commits and self.query.commits == len(self.query.ends):
            read = self.query.ends[-1][str(self.log.path)]["offset"]
            _, *others = sorted(self.log.folder.iterdir())
            if others and read >= int(others[0].name):
                self.log.delete_first_file()


STEPS = [Model.append, Model.run, Model.run, Model.delete_what_was_read]


@given(
    data=st.data(),
    steps=st.lists(st.sampled_from(STEPS), max_size=15),
    begin=st.sampled_from(["earliest", "latest"]),
)
def test_each_row_comes_once_although_no_start_is_told(
    data: st.DataObject, steps: list[Callable[[Model, st.DataObject], None]], begin: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder), begin)
        before = model.log.append(5)
        if begin == "earliest":
            model.expected += before
        else:
            model.query.run(available_now=data.draw(st.booleans()))
        for step in steps:
            step(model, data)
        model.query.run(available_now=data.draw(st.booleans()))
        assert model.query.all_rows == model.expected


def test_where_a_query_begins_is_no_matter_once_it_has_begun(log: HandLog) -> None:
    """Retention has deleted the record that the options name."""
    log.append(9)
    offset = sorted(log.bodies)[4]
    found = query(log, startingOffsets=str(offset))
    found.run(available_now=True)
    log.append(40)
    log.delete_first_file()
    last = len(found.all_rows)
    begun = StartlessReader(found.make())
    end = stored(begun.latestOffset())
    assert end[str(log.path)]["first"] is None
    with pytest.raises(ConfigError, match=f"no file has the offset {offset}"):
        begun.partitions({}, end)
    assert last == 5


def test_a_log_that_was_cut_is_told_by_a_query_that_ends_by_itself(log: HandLog) -> None:
    log.append(20)
    found = query(log)
    found.run(available_now=True)
    log.cut(3)
    log.append(5)
    with pytest.raises(DataLossError, match="is not the one that was read there"):
        found.run(available_now=True)


def test_without_failing_on_loss_what_follows_the_cut_comes(log: HandLog) -> None:
    bodies = log.append(20)
    found = query(log, failOnDataLoss="false")
    found.run(available_now=True)
    log.cut(3)
    bodies += log.append(5)
    for available_now in (True, False):
        found.run(available_now=available_now)
        assert found.all_rows == bodies


def test_a_store_that_is_missing_is_told_before_its_offset_is_forgotten(tmp_path: Path) -> None:
    one, other = HandLog(tmp_path / "a"), HandLog(tmp_path / "b")
    one.append(3)
    other.append(4)
    found = query(one, other)
    found.run(available_now=True)
    kept = query(one)
    kept.ends, kept.commits = list(found.ends), found.commits
    for available_now in (True, False):
        with pytest.raises(ConfigError, match=f"the checkpoint has the store {other.path}"):
            kept.run(available_now=available_now)
    assert kept.ends == found.ends


@pytest.mark.parametrize("option", ["maxRowsPerTrigger", "maxBytesPerTrigger"])
def test_limits_of_batches_are_refused_by_the_name_of_the_minor_that_has_them(
    log: HandLog, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "MINOR", (4, 1))
    monkeypatch.setattr(compat, "__version__", "4.1.9")
    log.append(3)
    with pytest.raises(ConfigError, match=rf"{option}.*: needs Spark 4\.2 or newer, and this is Spark 4\.1\.9; leave"):
        query(log, **{option: "5"}).run(available_now=False)


@pytest.mark.parametrize(("minor", "refused"), [((4, 1), True), ((4, 2), False), ((4, 10), False), ((5, 0), False)])
def test_a_minor_is_newer_by_its_numbers(
    minor: tuple[int, int], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "MINOR", minor)
    if refused:
        with pytest.raises(ConfigError, match=r"the thing: needs Spark 4\.2 or newer"):
            require_minor(LIMITS, "the thing", "take another one")
    else:
        require_minor(LIMITS, "the thing", "take another one")
