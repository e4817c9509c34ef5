"""Staged batches: what is refused, by which words, and that nothing of it is in the store afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import CorruptMetadataError, MessageIllegalError, StoreError, StoreLockedError
from reput.files import DISK
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.sink_commit import STAGING, SinkBatch, StagedPart
from reput.kernels.records.message_columns import check_schema
from reput.log.sink_commits import read_sinks
from reput.store.sinks.bad_rows import checked_tables
from reput.store.sinks.commit import check_store, put_staged
from reput.store.sinks.staging import StagingFile, read_frames
from tests.support.invariants import SMALL
from tests.support.invariants import check_store as check_whole

CONFIG = MessageStoreConfig.from_mapping(SMALL, MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH))


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"topic": ["orders"] * count, "body": [b"%d" % n for n in range(count)]})


def staged(path: Path, name: str, batch: pa.RecordBatch, config: MessageStoreConfig = CONFIG) -> StagedPart:
    (path / STAGING).mkdir(exist_ok=True)
    with StagingFile(DISK, str(path / STAGING / name), config) as staging:
        staging.write(staging.check(batch, 0))
        assert staging.part is not None
        return staging.part


@pytest.fixture
def store(tmp_path: Path) -> Path:
    check_store(str(tmp_path / "store"), CONFIG, DISK, lock_timeout_ms=0)
    return tmp_path / "store"


def log_bodies(store: Path) -> list[bytes]:
    return [record.row["body"] for record in check_whole(store)]


def test_a_staged_file_that_was_changed_is_refused_and_nothing_of_the_batch_stays(store: Path) -> None:
    put_staged(str(store), CONFIG, DISK, [staged(store, "a", rows(3))])
    good, bad = staged(store, "b", rows(60)), staged(store, "c", rows(60))
    data = bytearray((store / STAGING / "c").read_bytes())
    data[-5] ^= 1
    (store / STAGING / "c").write_bytes(data)
    with pytest.raises(StoreError, match=r"c: expected 60 staged records .* write it again"):
        put_staged(str(store), CONFIG, DISK, [good, bad])
    assert len(log_bodies(store)) == 3
    assert not (store / "abort").exists()
    assert read_sinks(DISK, str(store)).intent is None
    put_staged(str(store), CONFIG, DISK, [good])
    assert len(log_bodies(store)) == 63


@pytest.mark.parametrize("size", [0, 10, 40, -1])
def test_a_staged_file_that_was_cut_is_refused(store: Path, size: int) -> None:
    part = staged(store, "a", rows(9))
    (store / STAGING / "a").write_bytes((store / STAGING / "a").read_bytes()[:size])
    with pytest.raises(StoreError, match="/a: "):
        put_staged(str(store), CONFIG, DISK, [part])
    assert log_bodies(store) == []


def test_a_staged_file_that_is_gone_is_named(store: Path) -> None:
    part = staged(store, "a", rows(9))
    (store / STAGING / "a").unlink()
    with pytest.raises(StoreError, match=r"1 of 1 files of staged records are gone, .*/a for one.*stagingPath"):
        put_staged(str(store), CONFIG, DISK, [part])


def test_batches_of_a_sink_count_upwards_and_belong_to_one_query(store: Path) -> None:
    part = staged(store, "a", rows(2))
    first = put_staged(str(store), CONFIG, DISK, [part], SinkBatch("copy", 5, "q1"))
    assert put_staged(str(store), CONFIG, DISK, [part], SinkBatch("copy", 5, "q1")) == first
    for batch in (SinkBatch("copy", 4, "q1"), SinkBatch("copy", 5, "q2"), SinkBatch("copy", 6, "q2")):
        with pytest.raises(
            StoreError, match=rf"'copy' has committed batch 5 of query q1.*batch {batch.batch_id} of query"
        ):
            put_staged(str(store), CONFIG, DISK, [part], batch)
    assert len(log_bodies(store)) == 2
    put_staged(str(store), CONFIG, DISK, [part], SinkBatch("copy", 9, "q1"))
    put_staged(str(store), CONFIG, DISK, [part], SinkBatch("other", 0, "q2"))
    assert len(log_bodies(store)) == 6


def test_a_batch_without_a_query_that_counts_downwards_is_told_its_number_and_no_checkpoint(store: Path) -> None:
    part = staged(store, "a", rows(2))
    put_staged(str(store), CONFIG, DISK, [part], SinkBatch("copy", 5))
    with pytest.raises(StoreError, match="has committed batch 5, and now batch 3 comes: a batchId counts upwards"):
        put_staged(str(store), CONFIG, DISK, [part], SinkBatch("copy", 3))
    assert len(log_bodies(store)) == 2


def test_an_open_store_is_refused_after_the_time_to_wait(store: Path) -> None:
    with reput.MessageStore.open(store, **SMALL), pytest.raises(StoreLockedError, match=r"\(waited 20 ms\)"):
        put_staged(str(store), CONFIG, DISK, [], lock_timeout_ms=20)
    with reput.MessageStore.open(store, **SMALL), pytest.raises(StoreLockedError) as refused:
        put_staged(str(store), CONFIG, DISK, [])
    assert "waited" not in str(refused.value)


def test_a_damaged_file_of_sinks_keeps_the_store_closed(store: Path) -> None:
    (store / "config" / "reputSinks.json").write_text("{")
    with pytest.raises(CorruptMetadataError, match=r"reputSinks\.json: damaged at offset 1"):
        reput.MessageStore.open(store, **SMALL)


def test_staged_records_are_read_as_they_were_written_without_their_places(store: Path) -> None:
    config = MessageStoreConfig.from_mapping({"enabled_append_prop_crc": True}, CONFIG)
    large = pa.record_batch({"topic": ["t"] * 3, "body": [b"x" * 1_500_000, b"", b"y"]})
    part = staged(store, "a", large, MessageStoreConfig.from_mapping({"mapped_file_size_commit_log": 1 << 22}, config))
    frames = [(frame.data.tobytes(), frame.positions.tolist()) for frame in read_frames(DISK, part)]
    assert sum(len(positions) - 1 for _, positions in frames) == part.rows == 3
    for data, positions in frames:
        for begin, end in pairwise(positions):
            assert data[begin + 20 : begin + 36] == bytes(16)
            assert data[end - PROPERTY_CRC_SIZE : end] == bytes(PROPERTY_CRC_SIZE)


def test_columns_are_judged_without_a_row() -> None:
    check_schema(pa.schema({"topic": pa.string(), "body": pa.string(), "queue_id": pa.int64()}))
    for name, kind, words in (
        ("bodi", pa.binary(), "unknown column 'bodi'; did you mean 'body'"),
        ("properties", pa.int32(), "'properties' is int32"),
        ("queue_id", pa.float64(), "'queue_id' is double, and must be int32"),
        ("born_timestamp", pa.string(), "'born_timestamp' is string"),
        ("tags", pa.int64(), "'tags' is int64, and must be string"),
    ):
        with pytest.raises(MessageIllegalError, match=words):
            check_schema(pa.schema({"topic": pa.string(), "body": pa.binary(), name: kind}))


def test_every_bad_row_is_found_and_the_others_keep_their_order(store: Path) -> None:
    count, bad = 300, {0, 7, 8, 150, 299}
    topics = ["" if n in bad else "orders" for n in range(count)]
    numbers = pa.array([n if n % 2 else None for n in range(count)], pa.int64())
    batch = pa.record_batch({"topic": topics, "body": [b"%d" % n for n in range(count)], "queue_id": numbers})
    aside: list[tuple[bytes, str]] = []
    with StagingFile(DISK, str(store / "staged"), CONFIG) as staging:
        tables = checked_tables(
            batch, 1000, staging.check, lambda row, reason: aside.append((row["body"][0].as_py(), reason))
        )
        for table in tables:
            staging.write(table)
        part = staging.part
    assert part is not None
    put_staged(str(store), CONFIG, DISK, [part])
    assert [int(body) for body in log_bodies(store)] == [n for n in range(count) if n not in bad]
    assert sorted(int(body) for body, _ in aside) == sorted(bad)
    for body, reason in aside:
        assert reason.startswith(f"row {1000 + int(body)}: ")


def test_sinks_of_one_store_take_turns(store: Path) -> None:
    parts = {sink: staged(store, sink, rows(5)) for sink in ("a", "b")}

    def write(sink: str) -> None:
        for batch in range(4):
            put_staged(str(store), CONFIG, DISK, [parts[sink]], SinkBatch(sink, batch), lock_timeout_ms=60_000)

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(write, sink) for sink in parts]:
            done.result()
    assert log_bodies(store) == [b"%d" % n for n in range(5)] * 8
    commits = read_sinks(DISK, str(store)).commits
    assert {sink: commit.batch.batch_id for sink, commit in commits.items() if commit.batch} == {"a": 3, "b": 3}
