"""A store whose last reference went without a close."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import reput


def test_a_forgotten_store_is_closed_with_a_warning_and_opened_again(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = reput.MessageStore.open(tmp_path / "store")
    threads = set(threading.enumerate()) - before
    assert {thread.name for thread in threads} >= {"reput-flush", "reput-dispatch", "reput-flush-queues"}
    store.put_message(reput.Message("orders", b"kept"))
    with pytest.warns(ResourceWarning, match=r"store: a store that is open for writing was forgotten.*close\(\)"):
        del store
    with reput.MessageStore.open(tmp_path / "store") as store:
        assert not store.recovery.was_killed
        assert [message.body for message in store.get_message("orders", 0, 0).messages()] == [b"kept"]
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("error::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_it_is_closed_where_the_warning_is_an_error(tmp_path: Path) -> None:
    store = reput.MessageStore.open(tmp_path / "store")
    del store
    with reput.MessageStore.open(tmp_path / "store") as store:
        assert not store.recovery.was_killed


def test_a_store_in_a_circle_is_closed_when_it_is_collected(tmp_path: Path) -> None:
    circle: list[object] = [reput.MessageStore.open(tmp_path / "store")]
    circle.append(circle)
    del circle
    with pytest.warns(ResourceWarning):
        gc.collect()
    reput.MessageStore.open(tmp_path / "store").close()


@pytest.mark.filterwarnings("error")
def test_a_store_that_was_closed_and_one_that_is_read_only_are_forgotten_in_silence(tmp_path: Path) -> None:
    store = reput.MessageStore.open(tmp_path / "store")
    store.close()
    del store
    store = reput.MessageStore.open(tmp_path / "store", read_only=True)
    del store
    gc.collect()


def test_a_future_of_a_forgotten_store_is_done(tmp_path: Path) -> None:
    with pytest.warns(ResourceWarning):
        future = reput.MessageStore.open(tmp_path / "store").async_put_message(reput.Message("orders", b"x"))
    assert future.result(timeout=60).queue_offset == 0
    reput.MessageStore.open(tmp_path / "store").close()


def test_a_process_that_ends_with_an_open_store_ends(tmp_path: Path) -> None:
    """The store is as after a kill: what was answered is there."""
    code = (
        "import reput, sys\n"
        "store = reput.MessageStore.open(sys.argv[1])\n"
        "store.put_message(reput.Message('orders', b'kept'))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    with reput.MessageStore.open(tmp_path / "store") as store:
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 1
