"""`dispatch` as a streaming query: the files of live dispatch, over restarts, and errors of their own type."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError, StoreLockedError
from reput.spark.dispatch import DispatchResult, dispatch
from reput.store.dispatch.log_dispatch import DispatchedBatch
from tests.support.damage import overwrite
from tests.support.dispatched import derived, put
from tests.support.further_units import bit_maps
from tests.support.invariants import SMALL, check_store

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
    assert dispatch(store, output, session=spark, once=True, bit_maps=bit_maps) == DispatchResult(
        end_offset=result.end_offset
    )


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
