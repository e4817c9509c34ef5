"""The stream's reader, driven as Spark drives it, and without Spark: batches, restarts, losses, options."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

import reput
from reput.errors import ConfigError, CorruptRecordError, DataLossError, StoreFormatError
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.kernels.records.record_batch import SCHEMA
from reput.spark.compat import LIMITS, ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from reput.spark.log_stream import bytes_behind_latest
from reput.spark.schema import spark_schema
from reput.spark.source import ReputDataSource
from reput.spark.stream_options import StreamOptions, parse_stream_options
from reput.spark.stream_reader import LogStreamReader
from tests.support.examples import examples
from tests.support.hand_log import HandLog
from tests.support.shares import sampled
from tests.support.spark_minors import needs

GOLDEN = Path(__file__).parents[1] / "golden"
STORES = sorted(path for version in ("4.9.7", "5.3.3", "5.5.0") for path in GOLDEN.glob(f"{version}/*/store"))
BODY = pa.schema([SCHEMA.field("body")])
UNLIMITED = ReadAllAvailable()


class Query:
    """What Spark does with a reader: it keeps the ends of planned and of finished batches, and makes readers anew."""

    def __init__(self, *paths: Path, **options: str) -> None:
        self.options = {"paths": json.dumps([str(path) for path in paths]), **options}
        self.columns: list[str] | None = ["body"]
        self.committed: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None
        self.rows: list[str] = []
        self.restart()

    def restart(self, **options: str) -> None:
        """Start from the checkpoint: JSON that has gone to the disk and back."""
        self.options |= options
        self.committed, self.planned = json.loads(json.dumps([self.committed, self.planned]))
        self.reader = LogStreamReader(self.options, spark_schema(self.columns))

    @property
    def start(self) -> dict[str, Any]:
        return self.reader.initialOffset() if self.committed is None else self.committed

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Fix the next batch's end, as in Spark's offset log; whether there is one."""
        if self.planned is None:
            end = self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())
            if json.dumps(end) != json.dumps(self.start):
                self.planned = end
        return self.planned is not None

    def batches(self) -> list[pa.RecordBatch]:
        """What the tasks of the planned batch give."""
        assert self.planned is not None
        return [batch for part in self.reader.partitions(self.start, self.planned) for batch in self.reader.read(part)]

    def finish(self) -> int:
        """Run the planned batch, and keep that it is done; returns its rows."""
        bodies = [body.as_py().decode() for batch in self.batches() for body in batch["body"]]
        self.rows += bodies
        self.committed, self.planned = self.planned, None
        return len(bodies)

    def drain(self) -> None:
        """Run batches until nothing is new."""
        while self.plan():
            self.finish()


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    return HandLog(tmp_path / "store")


class TestRows:
    @sampled(4)
    @pytest.mark.parametrize(
        "options",
        [{"splitBytes": "3000"}, {"maxRowsPerTrigger": "17"}],
        ids=str,
    )
    @pytest.mark.parametrize("store", STORES, ids=lambda path: "-".join(path.parts[-3:-1]))
    def test_the_batches_together_are_the_log_that_apache_wrote(self, store: Path, options: dict[str, str]) -> None:
        query, batches = Query(store, **options), []
        query.columns = None
        query.restart()
        while query.plan():
            batches += query.batches()
            query.committed, query.planned = query.planned, None
        assert pa.Table.from_batches(batches, SCHEMA) == reput.read_log(store).read_all()

    def test_topics_keys_and_the_store_s_name_are_those_of_the_batch_source(self) -> None:
        store = GOLDEN / "5.3.3" / "clean" / "store"
        table = reput.read_log(store, store="s").read_all()
        key = next(keys[0] for keys in table["keys"].to_pylist() if keys)
        topic = table["topic"][0].as_py()
        query = Query(store, topics=topic, keys=key, store="s")
        query.columns = None
        query.restart()
        assert query.plan()
        assert pa.Table.from_batches(query.batches(), SCHEMA) == reput.read_log(
            store, topics=[topic], keys=[key], store="s"
        ).read_all()  # fmt: skip

    def test_a_batch_ends_where_the_disk_is_known_to_have_the_log(self, log: HandLog) -> None:
        bodies = log.append(10)
        flushed_ms = 1_700_000_000_000 + 7 * 6
        (log.path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(flushed_ms, 0, 0)))
        query = Query(log.path, until="flushed")
        query.drain()
        assert query.rows == bodies[:6]
        query = Query(log.path, until="flushed")
        query.reader.prepareForTriggerAvailableNow()
        query.drain()
        assert query.rows == bodies[:6]

    def test_available_now_ends_where_the_log_ended(self, log: HandLog) -> None:
        bodies = log.append(30)
        query = Query(log.path, maxRowsPerTrigger="4")
        query.reader.prepareForTriggerAvailableNow()
        log.append(9)
        query.drain()
        assert query.rows == bodies


class Model:
    """A query over a log, against a list of what each must have."""

    def __init__(self, folder: Path, stores: int) -> None:
        self.logs = [HandLog(folder / f"store-{i}") for i in range(stores)]
        self.query = Query(*(log.path for log in self.logs), splitBytes="700")
        self.expected: list[str] = []
        self.last_planned: list[str] = []

    def append(self, data: st.DataObject) -> None:
        self.expected += data.draw(st.sampled_from(self.logs)).append(data.draw(st.integers(0, 25)))

    def plan(self, data: st.DataObject) -> None:
        limits = st.sampled_from([UNLIMITED, ReadMaxRows(3), ReadMaxRows(20), ReadMaxBytes(10), ReadMaxBytes(3000)])
        self.query.plan(data.draw(limits))

    def finish(self, data: st.DataObject) -> None:
        if self.query.planned is not None:
            self.query.finish()

    def fail_and_plan_again(self, data: st.DataObject) -> None:
        """A batch whose tasks have run is not known to be done: another reader gives the same rows."""
        if self.query.planned is not None:
            before = self.query.batches()
            self.append(data)
            self.query.restart()
            assert pa.Table.from_batches(self.query.batches(), BODY) == pa.Table.from_batches(before, BODY)

    def restart(self, data: st.DataObject) -> None:
        self.query.restart()

    def report(self, data: st.DataObject) -> None:
        latest = self.query.reader.reportLatestOffset()
        for log in self.logs:
            if (entry := latest.get(str(log.path))) is not None:
                assert entry["offset"] in (log.end, -(-log.end // log.file_size) * log.file_size)

    def delete_what_was_read(self, data: st.DataObject) -> None:
        for log in self.logs:
            files = sorted(log.folder.iterdir())
            entry = (self.query.committed or {}).get(str(log.path))
            if entry is not None and len(files) > 1 and entry["offset"] >= int(files[1].name):
                log.delete_first_file()


STEPS = [
    Model.append,
    Model.plan,
    Model.finish,
    Model.fail_and_plan_again,
    Model.restart,
    Model.report,
    Model.delete_what_was_read,
]


@given(data=st.data(), steps=st.lists(st.sampled_from(STEPS), max_size=25), stores=st.integers(1, 3))
def test_each_row_comes_once_whatever_happens_between(
    data: st.DataObject, steps: list[Callable[[Model, st.DataObject], None]], stores: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder), stores)
        for step in steps:
            step(model, data)
        model.query.drain()
        assert sorted(model.query.rows) == sorted(model.expected)
        for log in model.logs:
            own = [row for row in model.query.rows if row.startswith(f"{log.path.name} ")]
            assert own == [row for row in model.expected if row.startswith(f"{log.path.name} ")]


@given(
    steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 15), st.booleans(), st.booleans()), max_size=8),
    limit=st.sampled_from([None, 3, 11]),
)
def test_without_failing_on_loss_what_was_not_lost_comes_once(
    steps: list[tuple[int, int, bool, bool]], limit: int | None
) -> None:
    """The log loses records again and again, before and after they were read."""
    with tempfile.TemporaryDirectory() as folder:
        log = HandLog(Path(folder) / "store")
        query = Query(log.path, failOnDataLoss="false")
        for appended, lost, plans, finishes in steps:
            log.append(appended)
            if plans:
                query.plan(None if limit is None else ReadMaxRows(limit))
            log.cut(lost)
            query.restart()
            if finishes and query.planned is not None:
                query.finish()
        log.append(1)
        query.drain()
        assert len(query.rows) == len(set(query.rows)), "no row twice"
        assert set(log.bodies.values()) <= set(query.rows), "none left out that is there"


class TestBegin:
    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize(("offset", "first"), [("earliest", 0), ("latest", 9), ("OFFSET", 4)])
    def test_starting_offsets(self, log: HandLog, offset: str, first: int, named: bool) -> None:
        log.append(9)
        offset = str(sorted(log.bodies)[4]) if offset == "OFFSET" else offset
        query = Query(log.path, startingOffsets=json.dumps({str(log.path): offset}) if named else offset)
        query.drain()
        log.append(5)
        query.drain()
        assert query.rows == list(log.bodies.values())[first:]

    def test_latest_is_where_the_log_ended_when_the_query_first_started(self, log: HandLog) -> None:
        log.append(3)
        query = Query(log.path, startingOffsets="latest")
        assert query.plan()
        log.append(2)
        query.restart()
        assert query.finish() == 0
        query.drain()
        assert query.rows == list(log.bodies.values())[3:]

    @pytest.mark.parametrize("text", ["1700000000029", "2023-11-14T22:13:20.029Z"])
    def test_starting_timestamp(self, log: HandLog, text: str) -> None:
        log.append(9)
        query = Query(log.path, startingTimestamp=text)
        query.drain()
        assert query.rows == list(log.bodies.values())[4:]

    def test_an_offset_that_is_no_record_is_told(self, log: HandLog) -> None:
        log.append(3)
        with pytest.raises(ConfigError, match="no record starts at offset 5; the next is at"):
            Query(log.path, startingOffsets="5").plan()


class TestStores:
    def test_one_that_is_added_begins_at_its_starting_offsets(self, tmp_path: Path) -> None:
        one, other = HandLog(tmp_path / "a"), HandLog(tmp_path / "b")
        one.append(3)
        other.append(4)
        query = Query(one.path, startingOffsets="latest")
        query.drain()
        query.restart(paths=f"{one.path},{other.path}")
        query.drain()
        assert query.rows == []
        new = one.append(2) + other.append(2)
        query.drain()
        assert sorted(query.rows) == sorted(new)

    def test_their_names_are_in_the_column_store(self, tmp_path: Path) -> None:
        logs = [HandLog(tmp_path / name / "store") for name in "ab"]
        for log in logs:
            log.append(1)
        query = Query(tmp_path / "*" / "store")
        query.columns = ["store"]
        query.restart()
        assert query.plan()
        assert pa.Table.from_batches(query.batches())["store"].to_pylist() == ["a/store", "b/store"]
        query.restart(store="s")
        with pytest.raises(ConfigError, match="option store: 's' cannot name all of 2 stores"):
            query.batches()

    def test_one_that_is_missing_is_told(self, tmp_path: Path) -> None:
        one, other = HandLog(tmp_path / "a"), HandLog(tmp_path / "b")
        query = Query(one.path, other.path)
        query.drain()
        query.restart(paths=str(one.path))
        with pytest.raises(ConfigError, match=f"the checkpoint has the store {other.path}, and option path names"):
            query.plan()

    def test_one_that_is_missing_in_a_batch_that_is_planned_again_is_told(self, tmp_path: Path) -> None:
        one, other = HandLog(tmp_path / "a"), HandLog(tmp_path / "b")
        query = Query(one.path, other.path)
        assert query.plan()
        query.restart(paths=str(one.path))
        with pytest.raises(ConfigError, match=f"the checkpoint has the store {other.path}"):
            query.batches()

    def test_they_share_the_limit(self, tmp_path: Path) -> None:
        logs = [HandLog(tmp_path / name) for name in "abc"]
        for log in logs:
            log.append(10)
        query = Query(*(log.path for log in logs), maxRowsPerTrigger="7")
        assert query.plan()
        assert query.finish() == 6


class TestLoss:
    def test_a_log_that_grew_again_after_a_cut_is_told_at_a_restart(self, log: HandLog) -> None:
        log.append(20)
        query = Query(log.path)
        query.drain()
        read = max(log.bodies)
        log.cut(3)
        log.append(5)
        query.restart()
        with pytest.raises(DataLossError, match=f"{log.path_of(read)}: the record at offset {read} is not") as told:
            query.plan()
        assert "set failOnDataLoss=false to go on at offset" in str(told.value)

    def test_without_failing_the_records_that_replaced_the_lost_ones_come(
        self, log: HandLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        bodies = log.append(20)
        query = Query(log.path, failOnDataLoss="false")
        query.drain()
        log.cut(3)
        bodies += log.append(5)
        query.restart()
        with caplog.at_level(logging.WARNING, "reput.spark"):
            query.drain()
        assert query.rows == bodies
        assert "failOnDataLoss=false: go on at offset" in caplog.text

    def test_files_that_retention_took_before_they_were_read_are_told(self, log: HandLog) -> None:
        log.append(40)
        query = Query(log.path, maxRowsPerTrigger="3")
        assert query.plan()
        query.finish()
        log.delete_first_file()
        with pytest.raises(DataLossError, match=f"{log.path_of(0)}: the log was to be read on from .* no such file"):
            query.plan()
        query.restart(failOnDataLoss="false")
        query.drain()
        assert query.rows[3:] == list(log.bodies.values())

    def test_a_batch_of_which_retention_took_a_file_is_told_or_read_without_it(self, log: HandLog) -> None:
        log.append(40)
        query = Query(log.path)
        assert query.plan()
        (first, *others) = query.reader.partitions(query.start, query.planned)
        assert others
        log.delete_first_file()
        with pytest.raises(reput.errors.StoreError, match="retention"):
            list(query.reader.read(first))
        query.restart()
        with pytest.raises(DataLossError, match="no such file"):
            query.batches()
        query.restart(failOnDataLoss="false")
        assert list(query.reader.read(first)) == []
        query.finish()
        assert query.rows == list(log.bodies.values())

    def test_a_log_that_is_cut_while_a_task_reads_is_told(self, log: HandLog) -> None:
        log.append(5)
        query = Query(log.path)
        assert query.plan()
        (part,) = query.reader.partitions(query.start, query.planned)
        log.cut(2)
        with pytest.raises(DataLossError, match=f"they end at {log.end} now: the log was cut meanwhile"):
            list(query.reader.read(part))

    def test_the_checkpoint_of_another_store_in_its_place_is_told(self, tmp_path: Path) -> None:
        one = HandLog(tmp_path / "store")
        one.append(20)
        query = Query(one.path)
        query.drain()
        one.path.rename(tmp_path / "before")
        other = HandLog(tmp_path / "store", file_size=4096, time=1_800_000_000_000)
        other.append(30)
        query.restart()
        with pytest.raises(DataLossError, match="it is the log of another store"):
            query.plan()

    def test_the_checkpoint_of_another_source_is_told(self, log: HandLog) -> None:
        query = Query(log.path)
        query.committed = {str(log.path): 5}  # type: ignore[dict-item]
        with pytest.raises(ConfigError, match="the checkpoint is of another source than the format reput"):
            query.plan()


class TestDamage:
    def test_it_fails_the_query_and_the_error_names_what_else_can_be_done(self, log: HandLog) -> None:
        log.append(20)
        bad = sorted(log.bodies)[3]
        log.damage(bad)
        query = Query(log.path)
        assert query.plan()  # up to the damage
        with pytest.raises(CorruptRecordError, match=f"{log.path_of(bad)}.*offset {bad}: .*PERMISSIVE.*DROPMALFORMED"):
            query.drain()

    @settings(max_examples=examples(25))  # each damage is read again with pauses
    @given(
        bad=st.sets(st.integers(0, 58), max_size=6),
        limit=st.sampled_from([None, ReadMaxRows(1), ReadMaxRows(7), ReadMaxBytes(900)]),
        split_bytes=st.sampled_from([300, 5000]),
        mode=st.sampled_from(["PERMISSIVE", "DropMalformed"]),
    )
    def test_the_rows_and_bytes_passed_over_are_those_of_read_log(
        self, bad: set[int], limit: ReadLimit | None, split_bytes: int, mode: str
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = HandLog(Path(folder) / "store")
            log.append(60)  # the last one stays whole: else the log would end before it
            for number in bad:
                log.damage(sorted(log.bodies)[number])
            query, batches = Query(log.path, mode=mode, splitBytes=str(split_bytes)), []
            query.columns = None
            query.restart()
            while query.plan(limit):
                batches += query.batches()
                query.committed, query.planned = query.planned, None
                query.restart()
            found = pa.Table.from_batches(batches, SCHEMA)
            expected = reput.read_log(log.path, mode=mode.upper()).read_all()
            assert whole_rows(found) == whole_rows(expected)
            assert whole_rows(found).num_rows == 60 - len(bad)
            assert damaged_bytes(found) == damaged_bytes(expected)
            assert bool(damaged_bytes(found)) == (bool(bad) and mode == "PERMISSIVE")


def whole_rows(table: pa.Table) -> pa.Table:
    return table.filter(pc.is_valid(table["topic"]))


def damaged_bytes(table: pa.Table) -> list[int]:
    """The offset of each byte passed over, in the order of the rows that tell of it; some tell of neighbours apart."""
    rows = table.filter(pc.is_null(table["topic"])).select(["commit_log_offset", "store_size", "status"]).to_pylist()
    assert all(row["status"].startswith("DAMAGED: ") for row in rows)
    return [row["commit_log_offset"] + i for row in rows for i in range(row["store_size"])]


class TestProgress:
    @needs(LIMITS)
    def test_what_lies_behind_a_batch_is_its_lag(self, log: HandLog) -> None:
        log.append(30)
        query = Query(log.path, maxRowsPerTrigger="10")
        assert query.plan()
        latest = query.reader.reportLatestOffset()
        source = {"endOffset": json.dumps(query.planned), "latestOffset": json.dumps(latest)}
        others = {"endOffset": "5", "latestOffset": None}, {"endOffset": '{"t": {"0": 5}}', "latestOffset": "x"}
        lag = bytes_behind_latest({"sources": [source, *others]})
        assert lag == {str(log.path): log.end - sorted(log.bodies)[10]}
        assert bytes_behind_latest({"sources": [{"endOffset": query.planned, "latestOffset": latest}]}) == lag
        query.drain()
        assert query.reader.reportLatestOffset() == query.committed

    def test_a_report_of_a_log_that_was_cut_does_not_fail(self, log: HandLog) -> None:
        log.append(30)
        query = Query(log.path, maxRowsPerTrigger="10")
        assert query.plan()
        query.reader.reportLatestOffset()
        log.cut(5)
        assert query.reader.reportLatestOffset().keys() == {str(log.path)}


class TestOptions:
    def test_names_are_read_in_any_case_and_values_by_their_kind(self) -> None:
        assert parse_stream_options(
            {
                "paths": "/a,/b",
                "STARTINGOFFSETS": '{"/a": "Latest", "/b": 5}',
                "maxbytespertrigger": "100",
                "failOnDataLoss": "False",
                "until": "flushed",
            }
        ) == StreamOptions(
            path=("/a", "/b"),
            starting_offsets={"/a": "latest", "/b": 5},
            max_bytes_per_trigger=100,
            fail_on_data_loss=False,
            until="flushed",
        )
        assert parse_stream_options(
            {"path": "/a", "startingTimestamp": "2026-01-31T12:00:00Z", "maxRowsPerTrigger": "5"}
        ) == StreamOptions(
            path="/a", starting_timestamp=datetime(2026, 1, 31, 12, tzinfo=UTC), max_rows_per_trigger=5
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"begin": "5"}, "no option 'begin'; here it has .*startingTimestamp"),
            ({"startingOffset": "earliest"}, "no option 'startingOffset'; did you mean 'startingOffsets'"),
            ({"startingOffsets": "first"}, "option startingOffsets: 'first' is neither earliest, latest, a commit log"),
            ({"startingOffsets": "-1"}, "is neither earliest"),
            ({"startingOffsets": "{"}, "is no JSON object"),
            ({"startingOffsets": '{"/a": [1]}'}, "is neither earliest"),
            ({"maxRowsPerTrigger": "0"}, "is no number above 0"),
            ({"maxBytesPerTrigger": "1m"}, "is no number of bytes above 0"),
            ({"mode": "SKIP"}, "option mode: 'SKIP' is neither PERMISSIVE, DROPMALFORMED nor FAILFAST"),
            ({"startingTimestamp": "today"}, "is neither milliseconds"),
            (
                {"startingOffsets": "latest", "STARTINGTIMESTAMP": "5"},
                "startingOffsets and startingTimestamp: give one",
            ),
            ({"maxBytesPerTrigger": "5", "maxRowsPerTrigger": "5"}, "maxBytesPerTrigger and maxRowsPerTrigger: give"),
        ],
    )
    def test_what_is_wrong_is_named(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            parse_stream_options({"path": "/a", **options})

    def test_stores_may_be_named_by_uris(self) -> None:
        options = {"paths": '["file:/a", "/b"]', "startingOffsets": '{"file:///a": 7}'}
        parsed = parse_stream_options(options)
        assert (parsed.path, parsed.starting_offset("/a")) == (("/a", "/b"), 7)

    def test_a_store_that_starting_offsets_do_not_name_is_told(self, log: HandLog) -> None:
        with pytest.raises(ConfigError, match=f"startingOffsets: nothing about the store {log.path}; it names /other"):
            Query(log.path, startingOffsets='{"/other": "latest"}').plan()

    def test_a_path_that_is_no_store_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StoreFormatError, match="no store"):
            Query(tmp_path).plan()

    def test_a_column_that_is_none_is_told(self, log: HandLog) -> None:
        reader = ReputDataSource({"path": str(log.path)}).streamReader(StructType().add("topc", "string"))
        with pytest.raises(ConfigError, match="no column 'topc'; did you mean 'topic'"):
            reader.initialOffset()
