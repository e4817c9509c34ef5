"""`dispatch` as a streaming query: the files of live dispatch, over restarts, and errors of their own type."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError, StoreLockedError
from reput.jobs.dispatch import plan
from reput.log import dispatch_marks as marks
from reput.log.directory import StoreDirectory
from reput.log.tail import LogTail
from reput.spark import bytes_behind_latest
from reput.spark.compat import LIMITS
from reput.spark.dispatch import DispatchResult, dispatch
from reput.spark.runner import SparkRunner
from reput.store.dispatch.log_dispatch import DispatchedBatch
from tests.support.damage import overwrite
from tests.support.dispatched import derived, put
from tests.support.further_units import BOTH, bit_maps
from tests.support.invariants import SMALL, check_store
from tests.support.spark_minors import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What the files of a store do not say, as long as it has none.
SIZES = {name: value for name, value in SMALL.items() if name != "mapped_file_size_commit_log"}


class Reached:
    """Waits until a dispatcher has come to an offset."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._end_offset = 0

    def __call__(self, batch: DispatchedBatch) -> None:
        with self._changed:
            self._end_offset = batch.end_offset
            self._changed.notify_all()

    def wait(self, offset: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._end_offset >= offset, 60)


def test_it_catches_up_once_and_a_later_reput_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    messages = 0
    for begin, end in ((0, 30), (30, 50)):
        put(store, begin, end)
        batches: list[DispatchedBatch] = []
        result = dispatch(store, output, session=spark, once=True, bit_maps=bit_maps, on_batch=batches.append)
        assert (result.messages, result.batches) == (end - begin, len(batches))
        messages += result.messages
        assert derived(output) == derived(store)
        monkeypatch.setattr("reput.jobs.job_folder.version", lambda _: "99.0")
    assert messages == 50
    assert dispatch(store, output, session=spark, once=True, bit_maps=bit_maps) == DispatchResult(result.end_offsets)


INTERRUPTED = """
import os, signal, sys, threading
from reput.spark import session
from reput.spark.dispatch import dispatch

stop = threading.Event()

def interrupt(batch):
    os.kill(os.getpid(), signal.SIGINT)
    print("stopped:", stop.wait(60), flush=True)

dispatch(sys.argv[1], sys.argv[2], session=session(master="local[1]"), on_batch=interrupt, stop=stop)
"""


@pytest.mark.spark
def test_an_interrupt_ends_the_batch_that_runs_and_not_the_whole_log(tmp_path: Path) -> None:
    """In a process of its own: py4j's connection does not survive it."""
    put(tmp_path / "store", 0, 50)
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "store"), str(tmp_path / "output")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "stopped: True\n"), done.stderr


def test_a_live_store_is_followed_until_somebody_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    path, output = tmp_path / "live", tmp_path / "output"
    stop, reached = threading.Event(), Reached()
    with (
        reput.MessageStore.open(path, **SMALL) as store,
        ThreadPoolExecutor() as pool,
    ):
        store.put_message(reput.Message("orders", b"first", keys=["k"]))
        try:
            following = pool.submit(dispatch, path, output, session=spark, settings=SIZES, on_batch=reached, stop=stop)
            for number in range(3):
                store.put_messages([reput.Message("orders", b"x" * 90, keys=[f"{number}-{n}"]) for n in range(60)])
                reached.wait(store.max_commit_log_offset)
                with pytest.raises(StoreLockedError, match="another process works in this folder"):
                    dispatch(path, output, session=None, settings=SIZES)
        finally:
            stop.set()
        assert following.result(60).messages == 181
        log = str(path / "commitlog")
        with reput.MessageStore.open(output, read_only=True, store_path_commit_log=log) as replica:
            assert replica.max_offset("orders", 0) == 181
            assert [m.body for m in replica.query_message("orders", "k")] == [b"first"]
            assert replica.get_message("orders", 0, 180).messages()[0].keys == ("2-59",)
    assert derived(output) == derived(path)


def test_a_query_writes_into_the_folders_of_a_store_that_leaves_it_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, stop = tmp_path / "store", threading.Event()
    with (
        reput.MessageStore.open(path, dispatch="external", **SMALL) as store,
        ThreadPoolExecutor() as pool,
    ):
        following = pool.submit(dispatch, path, session=spark, stop=stop)
        try:
            for number in range(3):
                store.put_messages([reput.Message("orders", b"x" * 90, keys=[f"{number}-{n}"]) for n in range(60)])
                store.wait_dispatched(60)
                assert [m.queue_offset for m in store.query_message("orders", f"{number}-7")] == [60 * number + 7]
                assert store.get_message("orders", 0, 60 * number + 59).messages()[0].keys == (f"{number}-59",)
        finally:
            stop.set()
        assert following.result(60).messages == 180
    check_store(path, SMALL)


def test_what_is_wrong_keeps_its_type_and_names_the_place(spark: SparkSession, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    put(store, 0, 30)
    with pytest.raises(ConfigError, match="lies inside the store"):
        dispatch(store, store / "x", session=spark, once=True, bit_maps=bit_maps)
    log_file = store / "commitlog" / f"{4096:020d}"
    overwrite(log_file, 100, bytes(20))
    with pytest.raises(CorruptRecordError, match=f"{log_file}: damaged at offset 4096"):
        dispatch(store, output, session=spark, once=True, bit_maps=bit_maps)


OPTIONS = {name: value for name, value in BOTH.items() if name != "bit_maps"}
#: What an output of such a store is given.
SETTINGS = {name: value for name, value in OPTIONS.items() if name in marks.SETTINGS}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Batches of a few log files, and the tasks that Spark has run, by their phase."""
    monkeypatch.setattr(plan, "LEAST_BYTES", 1500)
    monkeypatch.setattr(plan, "MOST_BYTES", 3 * 4096)
    monkeypatch.setattr(plan, "SPLIT_BYTES", 2000)
    ran, run = Counter[str](), SparkRunner.run

    def counted(self: SparkRunner, task: Any, items: Any, *, description: str, progress: Any = None) -> Any:
        ran[description] += len(items)
        return run(self, task, items, description=description, progress=progress)

    monkeypatch.setattr(SparkRunner, "run", counted)
    return ran


def grow(path: Path, begin: int, end: int) -> None:
    with reput.MessageStore.open(path, **OPTIONS) as store:
        for number in range(begin, end):
            body, keys = b"x" * (40 + number * 37 % 200), [f"k{number}"]
            store.put_message(reput.Message(f"topic-{number % 2}", body, tags="t", keys=keys), number % 3)


def test_executors_read_the_log_and_write_the_queues_of_large_batches(
    spark: SparkSession, tmp_path: Path, ran: Counter[str]
) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    grow(store, 0, 120)
    result = dispatch(store, output, session=spark, once=True, settings=SETTINGS)
    assert derived(output) == derived(store)
    assert (result.messages, list(result.end_offsets)) == (120, [str(store)])
    assert ran["read the log"] > 5
    assert ran["write queues and index"] > 5


def test_one_query_dispatches_several_stores_and_its_progress_has_their_offsets(
    spark: SparkSession, tmp_path: Path, ran: Counter[str]
) -> None:
    stores, output = [tmp_path / "a,1", tmp_path / "b"], tmp_path / "output"
    for number, store in enumerate(stores):
        grow(store, 0, 100 - 40 * number)
    stop, ends = threading.Event(), {str(store): len(list((store / "commitlog").iterdir())) for store in stores}
    seen: dict[str, int] = {}

    def follow(batch: DispatchedBatch) -> None:
        seen[batch.store] = seen.get(batch.store, 0) + batch.messages
        if seen == {str(stores[0]): 100, str(stores[1]): 60}:
            stop.set()

    result = dispatch(stores, output, session=spark, settings=SETTINGS, on_batch=follow, stop=stop)
    assert result.messages == 160
    assert result.end_offsets.keys() == ends.keys()
    for store in stores:
        assert derived(output / store.name) == derived(store)
    with pytest.raises(ConfigError, match="named twice"):
        dispatch([stores[0], stores[0]], output, session=None)


@needs(LIMITS)
def test_the_lag_stands_in_the_progress_of_the_query(spark: SparkSession, tmp_path: Path, ran: Counter[str]) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    grow(store, 0, 120)
    stop, progress = threading.Event(), list[Any]()

    def look(batch: DispatchedBatch) -> None:
        (query,) = spark.streams.active
        progress.append(query.lastProgress)
        if batch.end_offset == LogTail(StoreDirectory(store)).latest().offset:
            stop.set()

    dispatch(store, output, session=spark, settings=SETTINGS, on_batch=look, stop=stop)
    lags = [bytes_behind_latest(one)[str(store)] for one in progress if one is not None]
    assert lags
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > 0
