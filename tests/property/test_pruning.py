"""A pruned read has the rows of a full scan, whatever queues, index, statistics and clocks are, and on torn logs."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.files import DISK
from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.message import Message
from reput.formats.record_layout import BORN_HOST, SYS_FLAG, SysFlag
from reput.kernels.records.record_batch import SCHEMA
from reput.log import point_reads
from reput.log.directory import StoreDirectory
from reput.log.plans import pruning, queue_records
from reput.log.plans.plan import Plan, PlanOptions, plan_read
from reput.log.plans.plan_parts import read_part
from reput.log.plans.pruning import Range, Wanted
from reput.log.scan import find_end
from reput.log.selection import make_selection
from tests.support.examples import examples
from tests.support.shares import sampled
from tests.support.topic_statistics import check_topics

GOLDEN = Path(__file__).parents[1] / "golden"
STORES = sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*.*.*/*/store"))
UNIT_SIZE = 20
#: Each of many cases is tried so often.
few = settings(max_examples=examples(6))


@pytest.fixture(autouse=True, scope="module")
def seeks_cost_nothing() -> Iterator[None]:
    """On logs of half a megabyte hardly a place would be cheaper than the whole, and one piece would be all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "SEEK_BYTES", -(10**6))
        patch.setattr(point_reads, "GAP_BYTES", 100)
        patch.setattr(queue_records, "BATCH_BYTES", 50_001)
        patch.setattr(pruning.os, "sched_getaffinity", lambda _: range(3))  # three parts of the log, each proven alone
        yield


@cache
def full(store: str) -> pa.Table:
    return reput.read_log(GOLDEN / store).read_all()


def wanted_rows(table: pa.Table, wanted: Wanted) -> pa.Table:
    """The rows that are wanted, asked of the rows."""
    mask = np.ones(table.num_rows, np.bool_)
    for name, values in (("topic", wanted.topics), ("queue_id", wanted.queue_ids)):
        if values is not None:
            mask &= np.isin(table[name].to_numpy(), list(values))
    ms = table["store_timestamp"].cast(pa.int64()).to_numpy() // 1000
    offsets = table["commit_log_offset"].to_numpy()
    bounds = ((wanted.store_ms, ms), (wanted.commit_log_offset, offsets), (wanted.queue_offset, table["queue_offset"]))
    for (low, high), numbers in bounds:
        mask &= (np.asarray(numbers) >= low) & (np.asarray(numbers) <= high)
    if wanted.keys is not None:
        pairs = zip(table["unique_key"].to_pylist(), table["keys"].to_pylist(), strict=True)
        mask &= np.array([not wanted.keys.isdisjoint([unique, *keys]) for unique, keys in pairs], np.bool_)
    return table.filter(pa.array(mask))


def pruned(path: Path, wanted: Wanted, *, mode: str = "DROPMALFORMED", **options: Any) -> tuple[pa.Table, Plan]:
    """All rows that a pruned plan reads: more than the wanted ones may be among them."""
    selection = make_selection(store=path.name, topics=wanted.topics, keys=wanted.keys, mode=mode)
    plan = plan_read(StoreDirectory(path), selection, PlanOptions(**{"processors": 2, **options}), wanted)
    return pa.Table.from_batches(
        [batch for part in plan.parts for batch in read_part(part, selection, DISK)], SCHEMA
    ), plan


@st.composite
def wants(draw: st.DrawFn, table: pa.Table) -> Wanted:
    """Something of what is there, and sometimes of what is not."""
    rows = table.num_rows
    row = table.slice(draw(st.integers(0, rows - 1)), 1).to_pylist()[0] if rows else None
    if row is None:
        return Wanted(topics=frozenset({"nothing"}))
    keys = [key for key in (row["unique_key"], *row["keys"]) if key] or ["nothing"]
    ms = round(row["store_timestamp"].timestamp() * 1000)
    span = draw(st.integers(0, 100))
    some: dict[str, Any] = {
        "topics": frozenset({row["topic"], *draw(st.sampled_from([(), ("nothing",)]))}),
        "queue_ids": frozenset({row["queue_id"]}),
        "keys": frozenset(draw(st.lists(st.sampled_from(keys), min_size=1))),
        "queue_offset": Range(row["queue_offset"], row["queue_offset"] + span),
        "commit_log_offset": Range(row["commit_log_offset"], row["commit_log_offset"] + 1000 * span),
        "store_ms": Range(ms, ms + span),
    }
    names = draw(st.sets(st.sampled_from(sorted(some)), min_size=1, max_size=3))
    return Wanted(**{name: some[name] for name in names})


@contextmanager
def copy_of(store: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(GOLDEN / store, Path(folder) / "store"))


@sampled(4)
@pytest.mark.parametrize("store", STORES)
@few
@given(data=st.data())
def test_on_what_apache_left_behind(store: str, data: st.DataObject) -> None:
    wanted = data.draw(wants(full(store)))
    rows, _ = pruned(GOLDEN / store, wanted, split_bytes=data.draw(st.sampled_from([None, 5000])))
    assert wanted_rows(rows, wanted) == wanted_rows(full(store), wanted)


# Each of these changes what is derived, or the log, in one way.


def _files(path: Path, folder: str) -> list[Path]:
    return sorted(file for file in (path / folder).rglob("*") if file.is_file())


def queue_removed(path: Path, data: st.DataObject) -> None:
    """A queue, and sometimes all of its topic."""
    folders = sorted(folder for folder in (path / "consumequeue").glob("*") if folder.is_dir())
    topic = data.draw(st.sampled_from(folders))
    shutil.rmtree(data.draw(st.sampled_from([topic, *sorted(topic.iterdir())])))


def queues_are_behind(path: Path, data: st.DataObject) -> None:
    """As those of an older copy: some queues, or all, have no unit from an offset on."""
    offset = data.draw(st.sampled_from(full_offsets(path)))
    for file in data.draw(st.sampled_from([_files(path, "consumequeue"), _files(path, "consumequeue")[::2]])):
        content = bytearray(file.read_bytes())
        for position in range(0, len(content), UNIT_SIZE):
            if int.from_bytes(content[position : position + 8], "big") >= offset:
                content[position : position + UNIT_SIZE] = bytes(UNIT_SIZE)
        file.write_bytes(content)


def full_offsets(path: Path) -> list[int]:
    return reput.read_log(path, ["commit_log_offset"], mode="DROPMALFORMED").read_all()[0].to_pylist()  # type: ignore[no-any-return]


def stale_units(path: Path, data: st.DataObject) -> None:
    """Units behind a queue's end that lead to where now other records are, as RocketMQ leaves them after a crash."""
    source, target = (data.draw(st.sampled_from(_files(path, "consumequeue"))) for _ in range(2))
    units, content = source.read_bytes().rstrip(b"\0"), target.read_bytes()
    count = data.draw(st.integers(1, 5)) * UNIT_SIZE
    end = -(-len(content.rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE
    stale = units[: len(units) // UNIT_SIZE * UNIT_SIZE][-count:]
    shift = data.draw(st.sampled_from([0, 0, 7, -91]))
    moved = b"".join(
        max(int.from_bytes(stale[i : i + 8], "big") + shift, 0).to_bytes(8, "big") + stale[i + 8 : i + UNIT_SIZE]
        for i in range(0, len(stale), UNIT_SIZE)
    )
    target.write_bytes((content[:end] + moved + content[end + len(moved) :])[: len(content)])


def byte_flipped(folder: str) -> Callable[[Path, st.DataObject], None]:
    def flip(path: Path, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(_files(path, folder)))
        content = bytearray(file.read_bytes())
        used = len(content.rstrip(b"\0"))
        content[data.draw(st.integers(0, max(used - 1, 0)))] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)

    return flip


def pages_lost(folder: str) -> Callable[[Path, st.DataObject], None]:
    """Zeros, as where a power cut kept a part of the pages."""

    def lose(path: Path, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(_files(path, folder)))
        content = bytearray(file.read_bytes())
        used = len(content.rstrip(b"\0"))
        begin = data.draw(st.integers(0, max(used - 1, 0)))
        size = min(data.draw(st.integers(1, 4096)), len(content) - begin)
        content[begin : begin + size] = bytes(size)
        file.write_bytes(content)

    return lose


def file_removed(folder: str) -> Callable[[Path, st.DataObject], None]:
    def remove(path: Path, data: st.DataObject) -> None:
        data.draw(st.sampled_from(_files(path, folder))).unlink()

    return remove


def store_timestamp_position(content: bytes, record: int) -> int:
    """It lies behind the born host, which is longer for IPv6."""
    sys_flag = int.from_bytes(content[record + SYS_FLAG : record + SYS_FLAG + 4], "big")
    return record + BORN_HOST + (HOST_V6_SIZE if sys_flag & SysFlag.BORN_HOST_V6 else HOST_V4_SIZE)


def clock_jumped(path: Path, data: st.DataObject) -> None:
    """Some records have another store time: it is in no CRC."""
    for offset in data.draw(st.lists(st.sampled_from(full_offsets(path)), min_size=1, max_size=5)):
        for file in StoreDirectory(path).log_files():
            if file.start_offset <= offset < file.end_offset:
                content = bytearray(Path(file.path).read_bytes())
                at = store_timestamp_position(content, offset - file.start_offset)
                time = int.from_bytes(content[at : at + 8], "big") + data.draw(st.integers(-(10**7), 10**7))
                content[at : at + 8] = time.to_bytes(8, "big")
                Path(file.path).write_bytes(content)


DAMAGES: dict[str, Callable[[Path, st.DataObject], None]] = {
    "queue removed": queue_removed,
    "queues behind": queues_are_behind,
    "stale units": stale_units,
    "queue byte": byte_flipped("consumequeue"),
    "queue pages": pages_lost("consumequeue"),
    "queue file": file_removed("consumequeue"),
    "index byte": byte_flipped("index"),
    "index pages": pages_lost("index"),
    "index file": file_removed("index"),
    "clock": clock_jumped,
    "log pages": pages_lost("commitlog"),
}


@sampled(4)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("store", ["5.3.3/clean/store", "4.9.7/killed/store", "5.5.0/torn/store"])
@few
@given(data=st.data())
def test_with_derived_files_that_lie(store: str, kind: str, data: st.DataObject) -> None:
    with copy_of(store) as path:
        DAMAGES[kind](path, data)
        expected = reput.read_log(path, mode="DROPMALFORMED").read_all()
        for _ in range(2):
            wanted = data.draw(wants(expected))
            rows, plan = pruned(path, wanted)
            assert wanted_rows(rows, wanted) == wanted_rows(expected, wanted), plan.reasons


@sampled(4)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("store", ["5.3.3/clean/store", "4.9.7/killed/store", "5.5.0/torn/store"])
@few
@given(data=st.data())
def test_counts_of_topics_with_derived_files_that_lie(store: str, kind: str, data: st.DataObject) -> None:
    with copy_of(store) as path:
        DAMAGES[kind](path, data)
        topics = sorted(set(full(store)["topic"].to_pylist()))
        some = data.draw(st.lists(st.sampled_from(topics), min_size=1, max_size=3, unique=True))
        by = data.draw(st.sampled_from([("topic", "queue", "tag"), ("tag",), ("key", "host")]))
        size = data.draw(st.sampled_from([5000, 64 << 20]))
        check_topics(path, some, by=by, check_crc=data.draw(st.booleans()), split_bytes=size)


@few
@given(data=st.data())
def test_with_statistics_of_a_log_that_was_cut_and_has_grown_again(data: st.DataObject) -> None:
    """The sidecar speaks of records that a power cut took, and their places have others now, of other times."""
    store = "5.3.3/clean/store"
    with copy_of(store) as path, tempfile.TemporaryDirectory() as statistics:
        pruned(path, Wanted(), statistics=statistics)
        assert list(Path(statistics).iterdir())
        cut = data.draw(st.sampled_from(full_offsets(path)))
        grow_again(path, cut, data.draw(st.integers(0, 400)))
        if data.draw(st.booleans()):
            sidecar = data.draw(st.sampled_from(sorted(Path(statistics).iterdir())))
            content = bytearray(sidecar.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            sidecar.write_bytes(content)
        expected = reput.read_log(path).read_all()
        for _ in range(2):
            wanted = data.draw(wants(expected))
            rows, plan = pruned(path, wanted, statistics=statistics)
            assert wanted_rows(rows, wanted) == wanted_rows(expected, wanted), plan.reasons


def grow_again(path: Path, cut: int, count: int) -> None:
    """Cut the log at a record, as recovery does, and put other messages behind it."""
    for file in StoreDirectory(path).log_files():
        if file.end_offset > cut:
            content = Path(file.path).read_bytes()[: max(cut - file.start_offset, 0)]
            if file.start_offset >= cut and cut:
                Path(file.path).unlink()
            else:
                Path(file.path).write_bytes(content.ljust(file.size, b"\0"))
    (path / "abort").touch()
    sizes = {"mapped_file_size_commit_log": 131_072, "mapped_file_size_consume_queue": 2000}
    with reput.MessageStore.open(path, max_hash_slot_num=500, max_index_num=1500, **sizes) as opened:
        opened.put_messages([Message("topic-1", b"%d" % n * 70, keys=(f"new-{n}",)) for n in range(count)])


@pytest.mark.slow
def test_beside_a_writer(tmp_path: Path) -> None:
    """What was there before is there, and nothing that is not in the log; the plan's end cuts, and nothing else."""
    path = tmp_path / "live"
    stop, allowed = threading.Event(), threading.Semaphore(0)

    def write(store: reput.MessageStore) -> None:
        number = 0
        while allowed.acquire() and not stop.is_set():
            store.put_messages([Message(f"t-{n % 7}", b"%d" % (number + n), keys=(f"k-{n}",)) for n in range(50)])
            number += 50

    wanted = Wanted(topics=frozenset({"t-3"}), keys=frozenset({"k-3", "k-10"}))
    with reput.MessageStore.open(path, mapped_file_size_commit_log=1 << 16) as store:
        writer = threading.Thread(target=write, args=(store,))
        writer.start()
        try:
            for options in ({}, {"statistics": str(tmp_path / "statistics")}) * 10:
                allowed.release(20)  # as many puts a round: a log without a bound takes ever longer to read
                before = wanted_rows(reput.read_log(path, topics=["t-3"]).read_all(), wanted)
                rows, _ = pruned(path, wanted, **options)
                rows = wanted_rows(rows, wanted)
                after = wanted_rows(reput.read_log(path, topics=["t-3"]).read_all(), wanted)
                assert rows.num_rows >= before.num_rows
                assert rows == after.slice(0, rows.num_rows)
        finally:
            stop.set()
            allowed.release()
            writer.join()


@pytest.mark.parametrize("margin_ms", [0, 50, 10**9])
@few
@given(data=st.data())
def test_a_margin_that_holds_loses_nothing(margin_ms: int, data: st.DataObject) -> None:
    """Within the margin any record may be older than the ones before it."""
    with copy_of("5.3.3/clean/store") as path:
        offsets = full_offsets(path)
        base, step = 1_700_000_000_000, data.draw(st.integers(0, 50))
        for file in StoreDirectory(path).log_files():
            content = bytearray(Path(file.path).read_bytes())
            for number, offset in enumerate(offsets):
                if file.start_offset <= offset < file.end_offset:
                    back = data.draw(st.integers(0, margin_ms)) if number % 97 == 0 else 0
                    at = store_timestamp_position(content, offset - file.start_offset)
                    content[at : at + 8] = (base + number * step - back).to_bytes(8, "big")
            Path(file.path).write_bytes(content)
        expected = reput.read_log(path).read_all()
        wanted = Wanted(store_ms=data.draw(wants(expected).filter(lambda one: one.store_ms != Range())).store_ms)
        for processors in (1, 2):
            rows, _ = pruned(path, wanted, clock_margin_ms=margin_ms, processors=processors)
            assert wanted_rows(rows, wanted) == wanted_rows(expected, wanted)


def test_locations_are_found_at_all() -> None:
    """Without this, everything above could hold because everything is read."""
    store = GOLDEN / "5.3.3" / "clean" / "store"
    table = full("5.3.3/clean/store")
    topic, key = table["topic"][500].as_py(), table["unique_key"][500].as_py() or table["keys"][500].as_py()[0]
    _, by_topic = pruned(store, Wanted(topics=frozenset({topic})))
    assert by_topic.read_bytes == pc.sum(table.filter(pc.equal(table["topic"], topic))["store_size"]).as_py()
    _, by_key = pruned(store, Wanted(keys=frozenset({key})))
    assert by_key.read_bytes < by_key.log_bytes / 3
    assert "index" in by_key.reasons[0]


def test_more_records_than_memory_should_hold_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = "5.3.3/clean/store"
    topic = full(store)["topic"][500].as_py()
    count = wanted_rows(full(store), wanted := Wanted(topics=frozenset({topic}))).num_rows
    for most, reason in ((count - 1, "more than"), (count, f"{count} records")):
        monkeypatch.setattr(pruning, "MOST_RECORDS", most)
        rows, plan = pruned(GOLDEN / store, wanted)
        assert reason in plan.reasons[0]
        assert wanted_rows(rows, wanted) == wanted_rows(full(store), wanted)


@pytest.mark.parametrize("batch_bytes", [3001, 50_001, 1 << 20])
def test_gaps_begin_and_end_at_records_however_the_log_is_cut(
    monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(queue_records, "BATCH_BYTES", batch_bytes)
    with copy_of("5.3.3/clean/store") as path:
        for queue in sorted((path / "consumequeue").glob("*/*"))[::4]:
            shutil.rmtree(queue)
        directory = StoreDirectory(path)
        log_files = directory.log_files()
        batches = list(queue_records.proven_batches(directory.queues(), log_files, DISK))
        starts = set(full_offsets(path)) | {file.end_offset for file in log_files}
        starts.add(find_end(log_files[-1], DISK))
        assert sum(len(batch.gaps) for batch in batches) > 10
        assert all(gap.begin in starts for batch in batches for gap in batch.gaps)
        assert all(gap.end in starts for batch in batches for gap in batch.gaps)
