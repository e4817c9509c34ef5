"""LogDataset: what DuckDB, polars and Arrow read of a log for a query, and the rows that they get."""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyarrow.acero import Declaration, ScanNodeOptions

import reput
from reput.errors import ConfigError, StoreFormatError
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record_layout import STORE_TIMESTAMP
from reput.log.datasets.dataset import LogDataset
from reput.log.datasets.polars_filters import arrow_filter
from reput.log.reads import bodies
from reput.log.scan import WINDOW_BYTES
from tests.support.counted_reads import CountedReads
from tests.support.damage import overwrite
from tests.support.damaged_copy import damaged_copy
from tests.support.fixtures import LogWriter

CLEAN = Path(__file__).parents[3] / "golden" / "5.3.3" / "clean" / "store"
FILE_SIZE = 8 << 20
MIB = 1 << 20


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@pytest.fixture
def table() -> pa.Table:
    return reput.read_log(CLEAN).read_all()


class TestArrow:
    def test_its_rows_are_those_of_the_log(self, table: pa.Table) -> None:
        dataset = reput.log_dataset(CLEAN)
        assert dataset.schema == table.schema
        assert dataset.to_table() == table
        assert dataset.count_rows() == table.num_rows
        assert dataset.scanner().to_reader().read_all() == table
        assert dataset.head(7) == table[:7]
        assert dataset.head(0).num_rows == 0
        assert dataset.take(pa.array([500, 3])) == table.take([500, 3])

    def test_columns_come_in_the_wanted_order_and_may_be_computed(self, table: pa.Table) -> None:
        dataset = reput.log_dataset(CLEAN)
        wanted = pc.field("queue_id") == 1
        assert dataset.to_table(["tags", "topic"], filter=wanted) == table.filter(wanted).select(["tags", "topic"])
        computed = dataset.to_table(columns={"next": pc.field("queue_offset") + 1}, filter=wanted)
        assert computed["next"] == pc.add(table.filter(wanted)["queue_offset"], 1)
        assert dataset.count_rows(filter=wanted) == computed.num_rows

    def test_topics_and_keys_are_those_of_read_log(self, table: pa.Table) -> None:
        topic, key = table["topic"][500].as_py(), table["unique_key"][500].as_py() or table["keys"][500].as_py()[0]
        for chosen in ({"topics": [topic]}, {"keys": [key]}, {"topics": [topic], "keys": [key]}):
            dataset = reput.log_dataset(CLEAN, **chosen)
            assert dataset.to_table() == reput.read_log(CLEAN, **chosen).read_all()
            wanted = pc.field("topic") == topic
            assert dataset.to_table(filter=wanted) == reput.read_log(CLEAN, **chosen).read_all().filter(wanted)

    def test_it_can_be_pickled(self, table: pa.Table) -> None:
        assert pickle.loads(pickle.dumps(reput.log_dataset(CLEAN))).to_table() == table

    def test_damage_is_an_error_as_in_read_log(self, tmp_path: Path) -> None:
        path, _, offset = damaged_copy(tmp_path / "store", 0)
        with pytest.raises(reput.CorruptRecordError, match=f"offset {offset}"):
            reput.log_dataset(path).to_table()

    def test_a_wrong_argument_is_an_error_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(StoreFormatError, match="no such directory"):
            reput.log_dataset(tmp_path / "nothing")
        with pytest.raises(ConfigError, match="is no text"):
            reput.log_dataset(CLEAN, topics=[1])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="not one text"):
            reput.log_dataset(CLEAN, topics="orders")
        with pytest.raises(ConfigError, match="lies inside"):
            reput.log_dataset(CLEAN, statistics=CLEAN / "times")
        with pytest.raises(pa.ArrowInvalid, match="No match"):
            reput.log_dataset(CLEAN).to_table(columns=["nothing"])

    @pytest.mark.parametrize(
        "use",
        [
            lambda dataset: dataset.filter(pc.field("queue_id") == 1),
            lambda dataset: dataset.sort_by("topic"),
            lambda dataset: dataset.join(dataset, ["topic"]),
            lambda dataset: dataset.join_asof(dataset, "queue_offset", "topic", 1),
            lambda dataset: dataset.replace_schema(dataset.schema),
            lambda dataset: list(dataset.get_fragments()),
            lambda dataset: dataset.scanner().scan_batches(),
        ],
    )
    def test_what_needs_files_of_arrow_is_refused(self, use: Callable[[LogDataset], Any]) -> None:
        with pytest.raises(ConfigError, match="use to_"):
            use(reput.log_dataset(CLEAN))

    def test_arrow_writes_it_to_files(self, table: pa.Table, tmp_path: Path) -> None:
        dataset = reput.log_dataset(CLEAN)
        ds.write_dataset(dataset, tmp_path / "all", format="parquet", partitioning=["queue_id"], preserve_order=True)
        written = ds.dataset(tmp_path / "all", partitioning=["queue_id"]).to_table(table.schema.names)
        assert written.sort_by("commit_log_offset")["body"] == table["body"]
        some = dataset.scanner(["topic"], filter=pc.field("queue_id") == 1)
        with pytest.raises(ValueError, match="RecordBatchReader"):
            ds.write_dataset(some, tmp_path / "some", format="parquet")
        ds.write_dataset(some.to_reader(), tmp_path / "some", format="parquet")
        assert ds.dataset(tmp_path / "some").count_rows() == some.count_rows()

    @pytest.mark.parametrize(
        "use",
        [
            lambda dataset: ds.UnionDataset(dataset.schema, [dataset]).to_table(),
            lambda dataset: ds.Scanner.from_dataset(dataset).to_table(),
            lambda dataset: Declaration("scan", ScanNodeOptions(dataset)).to_table(),
        ],
    )
    def test_code_of_c_that_takes_a_dataset_gets_an_error(self, use: Callable[[LogDataset], Any]) -> None:
        with pytest.raises(FileNotFoundError, match="use to_"):
            use(reput.log_dataset(CLEAN))

    def test_nothing_is_known_of_all_rows(self) -> None:
        assert reput.log_dataset(CLEAN).partition_expression.equals(pc.scalar(True))


def test_polars_shows_the_rows_of_the_log_in_order(table: pa.Table) -> None:
    frame = reput.log_dataset(CLEAN).to_polars()
    assert frame.collect_schema() == pl.DataFrame(table).schema
    assert frame.collect().equals(pl.DataFrame(table))
    assert frame.select(pl.len()).collect().item() == table.num_rows
    assert frame.select("tags", "topic").collect().equals(pl.DataFrame(table.select(["tags", "topic"])))


class TestReads:
    """What is read of a log of 64 MiB in eight files, whose record at offset n has the store timestamp n ms."""

    @pytest.fixture
    def files(self) -> CountedReads:
        return CountedReads()

    @pytest.fixture
    def dataset(self, tmp_path: Path, write_log: LogWriter, files: CountedReads) -> LogDataset:
        self.offsets = write_log([Message("orders", bytes(65_000))] * 8 * (FILE_SIZE // 65_200), FILE_SIZE)
        assert 8 * FILE_SIZE - self.offsets[-1] < MIB  # nothing is read to find the log's end in a hole
        dataset = reput.log_dataset(tmp_path / "store", statistics=tmp_path / "times", files=files)
        assert dataset.count_rows(filter=pc.field("store_timestamp") > at(0)) == len(self.offsets) - 1
        assert files.log_bytes() > 64 * MIB  # a first read finds the times
        return dataset

    def test_a_bound_of_time_reads_the_zones_that_may_have_it(self, dataset: LogDataset, files: CountedReads) -> None:
        low, high = 30 * MIB, 31 * MIB
        expected = sum(low < offset <= high for offset in self.offsets)
        table = dataset.to_table(
            ["topic"], filter=(pc.field("store_timestamp") > at(low)) & (pc.field("store_timestamp") <= at(high))
        )
        assert table.num_rows == expected
        few_zones = 2 * WINDOW_BYTES  # a zone with what follows it in its window, and the log's end
        assert files.log_bytes() < few_zones
        count = "select count(*) from dataset where store_timestamp > $low and store_timestamp <= $high"
        assert duckdb.execute(count, {"low": at(low), "high": at(high)}).fetchall() == [(expected,)]
        assert files.log_bytes() < few_zones
        frame = dataset.to_polars().filter(pl.col("store_timestamp") > at(low), pl.col("store_timestamp") <= at(high))
        assert frame.select(pl.len()).collect().item() == expected
        assert files.log_bytes() < few_zones

    def test_a_limit_reads_one_batch(self, dataset: LogDataset, files: CountedReads, tmp_path: Path) -> None:
        dataset = reput.log_dataset(tmp_path / "store", files=files)  # without statistics a plan would walk a file
        assert dataset.head(5).num_rows == 5
        assert files.log_bytes() < WINDOW_BYTES + MIB
        assert len(duckdb.sql("select body from dataset limit 5").fetchall()) == 5
        assert files.log_bytes() < WINDOW_BYTES + MIB
        assert dataset.to_polars().head(5).collect().height == 5
        assert files.log_bytes() < WINDOW_BYTES + MIB
        assert len(duckdb.sql("select body from dataset where queue_id >= 1 limit 5").fetchall()) == 5


class TestFirstReads:
    """What a first scan reads of 32 MiB in eight files with a consume queue, by the promise that no clock went back."""

    @pytest.fixture
    def offsets(self, tmp_path: Path) -> list[int]:
        with reput.MessageStore.open(tmp_path / "store", mapped_file_size_commit_log=4 * MIB) as store:
            store.put_messages([Message("orders", bytes(65_000))] * 500, queue_id=0)
        offsets = reput.read_log(tmp_path / "store", ["commit_log_offset"]).read_all()[0].to_pylist()
        for offset in offsets:  # its store timestamp is in no CRC
            file = tmp_path / "store" / "commitlog" / offset_to_file_name(offset - offset % (4 * MIB))
            overwrite(file, offset % (4 * MIB) + STORE_TIMESTAMP, offset.to_bytes(8, "big"))
        return offsets

    @pytest.mark.parametrize(
        ("low", "high", "most"), [(9, 10, 10), (0, 3, 10), (13, 17, 14), (30.5, 40, 9), (50, 60, 7), (-5, -1, 7)]
    )
    def test_they_read_the_span_of_the_times(
        self, offsets: list[int], tmp_path: Path, low: float, high: float, most: int
    ) -> None:
        files = CountedReads()
        dataset = reput.log_dataset(tmp_path / "store", clock_margin_ms=1000, files=files)
        begin, end = at(int(low * MIB)), at(int(high * MIB))
        between = (pc.field("store_timestamp") >= begin) & (pc.field("store_timestamp") < end)
        found = dataset.to_table(["commit_log_offset"], filter=between)[0].to_pylist()
        assert found == [offset for offset in offsets if low * MIB <= offset < high * MIB]
        assert files.log_bytes() < most * MIB  # with two MiB of a bisection, and the last file for the log's end

    @pytest.mark.parametrize(
        "spoil", [shutil.rmtree, lambda queues: zero_units(queues, 0, 1), lambda queues: zero_units(queues, 8, 4)]
    )
    def test_queues_that_prove_nothing_lose_nothing(
        self, offsets: list[int], tmp_path: Path, spoil: Callable[[Path], None]
    ) -> None:
        spoil(tmp_path / "store" / "consumequeue")
        late = pc.field("store_timestamp") >= at(20 * MIB)
        dataset = reput.log_dataset(tmp_path / "store", clock_margin_ms=0)
        assert dataset.count_rows(filter=late) == sum(offset >= 20 * MIB for offset in offsets)


def zero_units(queues: Path, position: int, size: int) -> None:
    """Bytes of each second unit become zeros."""
    (file,) = (queues / "orders" / "0").iterdir()
    for unit in range(0, 500, 2):
        overwrite(file, unit * 20 + position, bytes(size))


def test_a_column_that_is_not_asked_for_is_not_made(
    tmp_path: Path, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log([Message("orders", zlib.compress(b"one"), sys_flag=0x301)] * 3, 4096)
    decompressed: list[bytes] = []
    decompress = bodies.decompress
    monkeypatch.setattr(
        bodies, "decompress", lambda body, *flags: decompressed.append(body) or decompress(body, *flags)
    )
    dataset = reput.log_dataset(tmp_path / "store")
    assert duckdb.sql("select topic, queue_offset from dataset").fetchall() == [("orders", n) for n in range(3)]
    assert dataset.to_polars().select("topic").collect().height == 3
    assert decompressed == []
    assert duckdb.sql("select body from dataset").fetchall() == [(b"one",)] * 3
    assert len(decompressed) == 3


T = pl.col("store_timestamp")
EARLY, LATE = at(1_000), at(2_000)


@pytest.mark.parametrize(
    ("polars", "arrow"),
    [
        (T > EARLY, pc.field("store_timestamp") > EARLY),
        (pl.lit(EARLY) <= T, pc.field("store_timestamp") >= EARLY),
        (T.is_between(EARLY, LATE), (pc.field("store_timestamp") >= EARLY) & (pc.field("store_timestamp") <= LATE)),
        ((pl.col("topic") == "a") & (T > EARLY), (pc.field("topic") == "a") & (pc.field("store_timestamp") > EARLY)),
        (
            (pl.col("queue_id") == 1) | (pl.col("queue_id") == 2),
            (pc.field("queue_id") == pa.scalar(1)) | (pc.field("queue_id") == pa.scalar(2)),
        ),
        (pl.col("topic").is_in(["a", "b"]), pc.field("topic").isin(["a", "b"])),
        ((pl.col("tags").str.len_bytes() > 3) & (pl.col("topic") == "a"), pc.field("topic") == "a"),
        ((pl.col("tags").str.len_bytes() > 3) & (pl.col("keys").list.len() > 3), None),
        ((pl.col("tags").str.len_bytes() > 3) | (pl.col("topic") == "a"), None),
        (pl.lit(EARLY.replace(tzinfo=None), pl.Datetime("ns", "UTC")) < T, None),
        (T.dt.year() == 2020, None),
        (pl.col("topic") != "a", None),
        (~(T > EARLY), None),
        (T.is_between(EARLY, LATE, closed="left"), None),
        (pl.col("queue_id") > 1.5, None),
        (pl.col("queue_offset") > pl.col("queue_id"), None),
        (pl.col("topic").is_in(pl.col("tags")), None),
        (pl.col("topic").is_null(), None),
        (pl.lit(True), None),
    ],
    ids=str,
)
def test_a_filter_of_polars_is_arrows_where_that_is_certain(polars: pl.Expr, arrow: pc.Expression | None) -> None:
    assert str(arrow_filter(polars)) == str(arrow)


def test_a_dataset_shows_its_store_what_is_chosen_and_its_columns(tmp_path: Path) -> None:
    shown = repr(reput.log_dataset(CLEAN))
    assert shown.startswith(f"LogDataset('{CLEAN}', columns=['store', 'topic', ")
    assert shown.endswith("])")
    assert "'body'" in shown
    chosen = repr(reput.log_dataset(CLEAN, topics={"b", "a"}, keys=["k"]))
    assert chosen.startswith(f"LogDataset('{CLEAN}', topics=['a', 'b'], keys=['k'], columns=[")
