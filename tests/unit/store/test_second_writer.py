"""A store whose lock was removed stops when another process has opened it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reput
from reput.errors import ReputError, StoreLockedError, StoreStateError

_SECOND = """
import sys, reput
with reput.MessageStore.open(sys.argv[1]) as store:
    store.put_message(reput.Message("t", b"second"), 0)
"""
_FOREIGN = "expected this process's own file, found another process's"


def second_process(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _SECOND, path], capture_output=True, text=True)


def one_message(path: Path) -> reput.MessageStore:
    store = reput.MessageStore.open(path, small=True, flush_interval_consume_queue=60_000)
    store.put_message(reput.Message("t", b"first"), 0)
    store.wait_dispatched()
    return store


def bytes_of(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def stopped(store: reput.MessageStore) -> None:
    """The next checkpoint is refused, and so is every put after it."""
    assert store._writer is not None
    assert not store._writer.housekeeping.run_once(thorough=True)
    with pytest.raises(ReputError, match=_FOREIGN):
        store.put_message(reput.Message("t", b"third"), 0)


def test_a_copy_of_its_files_lets_no_second_process_in(tmp_path: Path) -> None:
    store = one_message(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert "StoreLockedError" in second_process(tmp_path / "store").stderr
    store.close()
    with pytest.raises(StoreLockedError), reput.MessageStore.open(tmp_path / "store"):
        reput.MessageStore.open(tmp_path / "store")


def test_a_store_whose_lock_was_removed_stops_at_the_next_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = one_message(path)
    (path / "lock").unlink()
    assert store._writer is not None
    assert store._writer.housekeeping.run_once(thorough=True)  # nobody else is here
    assert not second_process(path).returncode
    stopped(store)


def test_a_foreign_mark_of_an_open_store_stops_it_and_its_close_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = one_message(path)
    (path / "abort").write_text("1")
    before = bytes_of(path)
    with pytest.raises(StoreStateError, match=_FOREIGN):
        store.close()
    assert bytes_of(path) == before
