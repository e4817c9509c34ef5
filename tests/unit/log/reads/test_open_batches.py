"""OpenBatches: a reader that is left before its end, by whomever, ends with the program."""

from __future__ import annotations

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
from reput.kernels.records.record_batch import SCHEMA
from reput.log.reads import open_batches
from reput.log.reads.open_batches import OpenBatches


def test_memory_of_batches_is_arrows_so_that_no_thread_that_drops_them_needs_python(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, small=True) as store:
        store.put_messages([Message("orders", b"%d" % number) for number in range(100)])
    shared = {"store", "born_host", "store_host", "status"}  # slices of arrays that batches share
    for name in set(SCHEMA.names) - shared:
        batch = None
        before = pa.total_allocated_bytes()
        batch = next(iter(reput.read_log(tmp_path, [name])))
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
