"""kill -9 of a dispatcher that follows a live store: what the next one leaves is what live dispatch wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import reput
from reput.log.directory import StoreDirectory
from reput.spark.dispatch import dispatch
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support.dispatched import derived
from tests.support.invariants import SMALL

KILLS = 2
SIZES = {name: value for name, value in SMALL.items() if name != "mapped_file_size_commit_log"}
SETTINGS = [f"--set={name}={value}" for name, value in SIZES.items()]


def put_range(store: reput.MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        store.put_message(reput.Message(f"topic-{number % 3}", b"x" * (number % 90), keys=[f"k{number}"]), number % 2)


def test_a_kill_at_a_random_moment_leaves_no_record_out_and_none_twice(tmp_path: Path) -> None:
    path, output = tmp_path / "store", tmp_path / "output"
    command = [sys.executable, "-m", "reput", "dispatch", str(path), "--output", str(output), "--runner=local"]
    with reput.MessageStore.open(path, flush_disk_type="ASYNC_FLUSH", **SMALL) as store:
        put_range(store, 0, 200)
        for kill in range(KILLS):
            with subprocess.Popen([*command, *SETTINGS], stderr=subprocess.PIPE) as dispatcher:
                assert dispatcher.stderr is not None
                assert b"dispatched_to" in dispatcher.stderr.readline()
                for number in range(40):  # beside it, so that the kill comes while it works
                    put_range(store, 200 + 1000 * kill + 10 * number, 210 + 1000 * kill + 10 * number)
                dispatcher.kill()
        store.wait_dispatched()
        dispatch(path, output, session=None, once=True, settings=SIZES)
    assert derived(output) == derived(path)


def test_what_a_dispatcher_did_is_not_done_again(tmp_path: Path) -> None:
    path, output = tmp_path / "store", tmp_path / "output"
    with reput.MessageStore.open(path, **SMALL) as store:
        put_range(store, 0, 100)
    assert dispatch(path, output, session=None, once=True).messages == 100
    config = store.config
    dispatcher = LogDispatch(StoreDirectory(path), str(output), config)
    assert dispatcher.run_once() is None
    dispatcher.close()
