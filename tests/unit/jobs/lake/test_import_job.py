"""An import puts each row of a source into a store once: what was exported, and what others have written."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

import reput
import reput.jobs.lake.import_source
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError, ReputError, StoreFormatError, StoreLockedError
from reput.files import DISK, FileLayer
from reput.formats.record_layout import SysFlag
from reput.jobs.lake.export_job import ExportOptions, export
from reput.jobs.lake.import_job import Import, import_messages
from reput.jobs.lake.import_source import open_source
from reput.jobs.runner import LocalRunner
from reput.store.sinks.import_sink import ImportSink
from tests.support.faulty_files import Crash, FaultyFiles, Operation, crash_at
from tests.support.shares import Share, in_shares, sampled

CORPORA = Path(__file__).parents[3] / "golden/5.3.3"
SMALL = {"mapped_file_size_commit_log": 64 << 10, "max_message_size": 4096}
CONFIG = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_consume_queue=20 * 100, **SMALL)  # type: ignore[arg-type]
#: What makes a message; the rest is the store's.
CONTENT = (
    *("topic", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times"),
    *("prepared_transaction_offset", "tags", "unique_key", "keys", "properties", "body"),
)


def run_import(
    source: Path | str, store: Path, bad_rows: Path | None = None, files: FileLayer = DISK, **options: Any
) -> Import:
    found = open_source(source, **options)
    aside = None if bad_rows is None else str(bad_rows)
    with ImportSink(store, CONFIG, "lake", bad_rows_path=aside, files=files) as sink:
        return import_messages(found, sink, runner=LocalRunner(2))


def messages_of(store: Path, columns: Sequence[str] = CONTENT) -> list[dict[str, Any]]:
    return reput.read_log(store, columns=columns).read_all().to_pylist()


def table_of(count: int, first: int = 0, **columns: Any) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "topic": ["orders"] * count,
            "queue_id": pa.array([n % 4 for n in numbers], pa.int32()),
            "keys": [[f"k-{n}"] for n in numbers],
            "body": [b"%d" % n for n in numbers],
            **columns,
        }
    )


def bodies_of(store: Path) -> list[bytes]:
    return [row["body"] for row in messages_of(store, ["body"])]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches of several parts out of a few hundred rows."""
    monkeypatch.setattr(reput.jobs.lake.import_source, "PART_BYTES", 1000)
    monkeypatch.setattr(reput.jobs.lake.import_source, "BATCH_BYTES", 3000)


@sampled(4)
@pytest.mark.parametrize("corpus", ["clean", "batch", "ipv6", "transactions"])
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_export_that_is_imported_gives_the_same_messages(
    corpus: str, form: Any, tmp_path: Path, small_parts: None
) -> None:
    store = CORPORA / corpus / "store"
    topics = {row["topic"] for row in messages_of(store, ["topic"])}
    export(store, tmp_path / "lake", runner=LocalRunner(2), options=ExportOptions(format=form))
    result = run_import(tmp_path / "lake", tmp_path / "copy")
    for topic in topics:
        expected, found = (
            [
                row | {"sys_flag": row["sys_flag"] & ~SysFlag.STORE_HOST_V6}
                for row in messages_of(path)
                if row["topic"] == topic
            ]
            for path in (store, tmp_path / "copy")
        )
        assert found == expected
    assert result.messages == len(messages_of(tmp_path / "copy", ["topic"])) > 0
    assert run_import(tmp_path / "lake", tmp_path / "copy").messages == 0


def test_files_come_in_the_order_of_their_names_and_rows_in_theirs(tmp_path: Path, small_parts: None) -> None:
    (tmp_path / "lake").mkdir()
    for first in (200, 0, 100):
        parquet.write_table(table_of(100, first), tmp_path / f"lake/{first:03}.parquet", row_group_size=10)
    result = run_import(tmp_path / "lake", tmp_path / "store")
    assert result == Import(300, 0, 0, result.batches, result.seconds)
    assert result.batches > 3
    assert bodies_of(tmp_path / "store") == [b"%d" % n for n in range(300)]
    with reput.MessageStore.open(tmp_path / "store", config=CONFIG) as store:
        assert store.get_message("orders", 1, 3).messages()[0].body == b"13"
        assert [found.body for found in store.query_message("orders", "k-250")] == [b"250"]


@pytest.mark.parametrize("source", ["lake/one.parquet", "lake", "la*/o*.parquet", "lake/**/*.parquet"])
def test_a_source_is_a_file_a_folder_or_a_pattern(source: str, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    parquet.write_table(table_of(10), tmp_path / "lake/one.parquet")
    assert run_import(tmp_path / source, tmp_path / "store").messages == 10


def test_a_delta_table_of_others_is_a_source(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", table_of(30), partition_by=["topic"])
    write_deltalake(tmp_path / "table", table_of(20, 30), mode="append")
    assert run_import(tmp_path / "table", tmp_path / "store").messages == 50
    assert sorted(bodies_of(tmp_path / "store"), key=int) == [b"%d" % n for n in range(50)]


def test_the_topic_may_be_given_and_columns_left_out(tmp_path: Path) -> None:
    table = table_of(5, price=[1.5] * 5).rename_columns({"topic": "of"})
    parquet.write_table(table, tmp_path / "one.parquet")
    assert run_import(tmp_path / "one.parquet", tmp_path / "store", topic="mine", columns=["body"]).messages == 5
    found = messages_of(tmp_path / "store", ["topic", "keys", "body"])
    assert found == [{"topic": "mine", "keys": [], "body": b"%d" % n} for n in range(5)]


def test_topics_of_folders_stay_texts(tmp_path: Path) -> None:
    (tmp_path / "lake/topic=007/date=2026-11-21").mkdir(parents=True)
    parquet.write_table(table_of(2).drop_columns("topic"), tmp_path / "lake/topic=007/date=2026-11-21/a.parquet")
    run_import(tmp_path / "lake", tmp_path / "store")
    assert {row["topic"] for row in messages_of(tmp_path / "store")} == {"007"}


def test_a_source_that_was_changed_is_refused_and_another_sink_id_begins_anew(tmp_path: Path) -> None:
    parquet.write_table(table_of(5), tmp_path / "one.parquet")
    run_import(tmp_path / "one.parquet", tmp_path / "store")
    again = run_import(tmp_path / "one.parquet", tmp_path / "store")
    assert (again.messages, again.skipped, again.batches) == (0, 5, 0)
    parquet.write_table(table_of(6), tmp_path / "one.parquet")
    with pytest.raises(ConfigError, match="another source, or of this source before it was changed"):
        run_import(tmp_path / "one.parquet", tmp_path / "store")
    assert len(bodies_of(tmp_path / "store")) == 5


def test_a_row_that_rocketmq_would_refuse_is_an_error_or_goes_aside(tmp_path: Path, small_parts: None) -> None:
    table = table_of(200, tags=["a\x01b" if n in (7, 150) else "ok" for n in range(200)])
    parquet.write_table(table, tmp_path / "one.parquet", row_group_size=20)
    with pytest.raises(MessageIllegalError, match=r"one.parquet, row 7: tags: a separator character"):
        run_import(tmp_path / "one.parquet", tmp_path / "store")
    result = run_import(tmp_path / "one.parquet", tmp_path / "store", tmp_path / "bad")
    assert (result.messages, result.aside) == (198, 2)
    assert bodies_of(tmp_path / "store") == [b"%d" % n for n in range(200) if n not in (7, 150)]
    aside = parquet.read_table(tmp_path / "bad").sort_by("body").to_pylist()
    assert [(row["body"], "row" in row["reason"]) for row in aside] == [(b"150", True), (b"7", True)]
    assert [f"row {row['body'].decode()}:" in row["reason"] for row in aside] == [True, True]
    with pytest.raises(ConfigError, match="inside the store"):
        run_import(tmp_path / "one.parquet", tmp_path / "store", tmp_path / "store/bad")


def test_a_batch_is_staged_while_the_one_before_is_committed(tmp_path: Path, small_parts: None) -> None:
    parquet.write_table(table_of(200), tmp_path / "one.parquet", row_group_size=20)
    next_is_staged = threading.Event()

    def judge(operation: Operation) -> None:
        if operation.kind == "create" and os.path.basename(operation.path).startswith("1-"):
            next_is_staged.set()
        if operation.kind == "write" and "commitlog" in operation.path:
            assert next_is_staged.wait(60)

    assert run_import(tmp_path / "one.parquet", tmp_path / "store", files=FaultyFiles(judge)).batches > 1
    assert bodies_of(tmp_path / "store") == [b"%d" % n for n in range(200)]


def test_a_bad_row_leaves_the_batches_before_it_in_the_store(tmp_path: Path, small_parts: None) -> None:
    table = table_of(200, tags=["a\x01b" if n == 150 else "ok" for n in range(200)])
    parquet.write_table(table, tmp_path / "one.parquet", row_group_size=20)
    with pytest.raises(MessageIllegalError, match="row 150"):
        run_import(tmp_path / "one.parquet", tmp_path / "store")
    batches = open_source(tmp_path / "one.parquet").batches
    ends = accumulate(sum(part.rows for part in batch) for batch in batches)
    before = max(end for end in ends if end <= 150)
    assert bodies_of(tmp_path / "store") == [b"%d" % n for n in range(before)] != []


@pytest.mark.parametrize(
    ("columns", "options", "error", "reason"),
    [
        ({"topic": ["t"]}, {}, MessageIllegalError, "no column 'body'"),
        ({"body": [b"x"]}, {}, ConfigError, "say to which the messages go"),
        ({"topic": ["t"], "body": [b"x"], "key": ["k"]}, {}, MessageIllegalError, "did you mean 'keys'"),
        ({"topic": ["t"], "body": [{"a": 1}]}, {}, ConfigError, "decoded to fields"),
        ({"topic": ["t"], "body": [b"x"]}, {"columns": ["topics"]}, ConfigError, "no column 'topics'"),
        ({"topic": ["t"], "body": [1.5]}, {}, MessageIllegalError, "one.parquet: column 'body' .* must be binary"),
        (
            {"topic": ["t"], "body": [b"x"], "keys": ["a b"]},
            {},
            MessageIllegalError,
            "one.parquet: column 'keys' is string, and must be list<item: string>; split it into lists of texts before",
        ),
    ],
)
def test_columns_of_which_no_message_can_be_made_are_refused(
    columns: dict[str, Any], options: dict[str, Any], error: type[ReputError], reason: str, tmp_path: Path
) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "one.parquet")
    with pytest.raises(error, match=reason):
        run_import(tmp_path / "one.parquet", tmp_path / "store", **options)


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/a.parquet").write_bytes(b"no parquet")
    for source, reason in (("gone", "no such file"), ("*.csv", "no such file"), ("lake", "must end in .csv or .jsonl")):
        with pytest.raises(StoreFormatError, match=reason):
            run_import(tmp_path / source, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_store_is_no_source(tmp_path: Path) -> None:
    reput.MessageStore.open(tmp_path / "source", config=CONFIG).close()
    with pytest.raises(StoreFormatError, match="source: a store; `reput replay` puts its messages into another one"):
        run_import(tmp_path / "source", tmp_path / "store")


def test_a_store_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    parquet.write_table(table_of(5), tmp_path / "one.parquet")
    with reput.MessageStore.open(tmp_path / "store", config=CONFIG), pytest.raises(StoreLockedError):
        run_import(tmp_path / "one.parquet", tmp_path / "store")


def test_a_second_import_under_the_same_sink_id_leaves_the_first_alone(tmp_path: Path, small_parts: None) -> None:
    parquet.write_table(table_of(60), tmp_path / "one.parquet", row_group_size=10)
    found = open_source(tmp_path / "one.parquet")
    with ImportSink(tmp_path / "store", CONFIG, "lake", files=DISK) as sink:
        staged = [sink.stage("0-0", found.batches[0][0].batches(), 0, "one")]
        with pytest.raises(StoreLockedError, match="the same import"):
            run_import(tmp_path / "one.parquet", tmp_path / "store")
        sink.commit(found.identity, 0, staged)
    run_import(tmp_path / "one.parquet", tmp_path / "store")


@in_shares(3)
def test_an_import_that_ends_at_any_step_is_gone_on_with_and_each_row_comes_once(
    tmp_path: Path, small_parts: None, share: Share
) -> None:
    table = table_of(60, tags=["a\x01b" if n == 33 else None for n in range(60)])
    parquet.write_table(table, tmp_path / "one.parquet", row_group_size=10)
    counting = FaultyFiles()
    run_import(tmp_path / "one.parquet", tmp_path / "expected", tmp_path / "aside", files=counting)
    expected = [b"%d" % n for n in range(60) if n != 33]
    assert bodies_of(tmp_path / "expected") == expected
    for number in share.of(range(3, len(counting.operations), 19)):
        store, aside = tmp_path / f"{number}/store", tmp_path / f"{number}/aside"
        files = FaultyFiles(crash_at(number))
        with pytest.raises(Crash):
            run_import(tmp_path / "one.parquet", store, aside, files=files)
        files.abandon()
        run_import(tmp_path / "one.parquet", store, aside)
        assert bodies_of(store) == expected
        assert parquet.read_table(aside)["body"].to_pylist() == [b"33"]
        staged = [path for path in (store / "reputStaging").rglob("*") if path.is_file()]
        assert {path.name for path in staged} <= {"owner", "lock"}


def test_a_row_that_is_too_large_for_the_files_of_the_store_is_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reput.MessageStore.open(store, mapped_file_size_commit_log=4096) as opened:
        opened.put_message(reput.Message("t", b"x"))
    parquet.write_table(pa.table({"topic": ["t", "t"], "body": [b"a", bytes(4000)]}), tmp_path / "one.parquet")
    source = open_source(tmp_path / "one.parquet")
    with (
        ImportSink(store, MessageStoreConfig(), "lake", files=DISK) as sink,
        pytest.raises(MessageIllegalError, match=r"one\.parquet, row 1"),
    ):
        import_messages(source, sink, runner=LocalRunner(1))
    assert bodies_of(store) == [b"x"]
