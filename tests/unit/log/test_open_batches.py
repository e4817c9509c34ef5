"""OpenBatches: a reader that is left before its end, by whomever, ends with the program, and the program with it."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import StoreStateError
from reput.formats.message import Message
from reput.kernels.record_batch import SCHEMA
from reput.log import open_batches
from reput.log.open_batches import OpenBatches
from tests.support.left_early import READERS

#: Of a program that ends: on a busy machine its imports take long.
_PATIENCE_S = 400


@pytest.fixture(scope="module")
def many_batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose log is read in more than 100 batches: more than any library reads ahead."""
    path = tmp_path_factory.mktemp("store")
    with reput.MessageStore.open(path, small=True, mapped_file_size_commit_log=1 << 14) as store:
        body = b'{"total": %d, "text": "' + b"-" * 100 + b'"}'
        store.put_messages([Message("ab"[number % 2], body % number) for number in range(8000)])
        store.wait_dispatched()
    assert sum(1 for _ in reput.read_log(path)) > 100
    return path


def left(path: Path, times: int, *names: str) -> tuple[int, str, str]:
    """Exit status and output of the program that leaves these readers so many times."""
    program = [sys.executable, "-m", "tests.support.left_early", str(path), str(times), *names]
    done = subprocess.run(program, capture_output=True, text=True, timeout=_PATIENCE_S)
    return done.returncode, done.stdout, done.stderr


def test_a_program_ends_that_leaves_readers_before_their_end(many_batches: Path) -> None:
    assert left(many_batches, 3) == (0, f"left {len(READERS)}\n", "")


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param((20, 1), id="two programs", marks=pytest.mark.slow),
        pytest.param((200, 1, 1, 1), id="four programs", marks=pytest.mark.campaign),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_a_program_ends_that_leaves_a_reader_once_or_many_times(
    many_batches: Path, name: str, programs: tuple[int, ...]
) -> None:
    for times in programs:
        assert left(many_batches, times, name) == (0, "left 1\n", "")


def test_memory_of_batches_is_arrows_so_that_no_thread_that_drops_them_needs_python(many_batches: Path) -> None:
    shared = {"store", "born_host", "store_host", "status"}  # slices of arrays that batches share
    for name in set(SCHEMA.names) - shared:
        batch = None
        before = pa.total_allocated_bytes()
        batch = next(iter(reput.read_log(many_batches, [name])))
        assert pa.total_allocated_bytes() - before >= batch.get_total_buffer_size() > 0, name


class Held:
    """Batches of which one is being read."""

    def __init__(self) -> None:
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[int]:
        for number in count():
            self.asked.set()
            self.may_go_on.wait()
            yield number


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> open_batches._Every:
    """Batches of a process whose interpreter may end."""
    every = open_batches._Every()
    monkeypatch.setattr(open_batches, "_every", every)
    return every


class TestTheEnd:
    def test_it_waits_for_a_call_that_runs(self, every: open_batches._Every) -> None:
        held = Held()
        batches = OpenBatches(held)
        reading = threading.Thread(target=next, args=(batches,))
        reading.start()
        held.asked.wait()
        ending = threading.Thread(target=every.end)
        ending.start()
        assert ending.is_alive()
        held.may_go_on.set()
        ending.join()
        reading.join()

    def test_a_later_call_is_an_error(self, every: open_batches._Every) -> None:
        batches = OpenBatches([1, 2])
        assert next(batches) == 1
        every.end()
        with pytest.raises(StoreStateError, match="the program ends"):
            next(batches)
        assert list(batches) == []

    def test_it_does_not_wait_for_readers_of_the_main_thread(
        self, every: open_batches._Every, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches = OpenBatches([1, 2])
        next(batches)
        monkeypatch.setattr(open_batches, "sleep", lambda _: pytest.fail("it waited"))
        every.end()

    def test_batches_that_are_gone_are_not_kept(self, every: open_batches._Every) -> None:
        batches = OpenBatches([1])
        gone = weakref.ref(batches)
        del batches
        assert gone() is None
        assert not every.open
