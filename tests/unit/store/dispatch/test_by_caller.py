"""Dispatch that the store's caller does, a pass at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reput import Message, MessageStore, StoreFullError, StoreStateError
from reput.formats.java import string_hash
from reput.store.dispatch import by_caller
from tests.support.broker import SMALL, SYNCED
from tests.support.faulty_files import FaultyFiles, Operation


def put_orders(store: MessageStore, count: int, size: int = 10) -> None:
    for _ in range(count):
        store.put_message(Message("orders", bytes(size)))


def test_nothing_is_dispatched_before_the_caller_does(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        assert writer.dispatch() is None
        put_orders(store, 3)
        assert (store.max_offset("orders", 0), store.dispatch_behind_bytes > 0) == (0, True)
        arrivals = writer.dispatch()
        assert arrivals is not None
        assert (arrivals.records, arrivals.queues, arrivals.max_offsets) == (3, [("orders", 0)], [3])
        assert (store.max_offset("orders", 0), store.dispatch_behind_bytes) == (3, 0)
        assert writer.dispatch() is None
        assert not [thread for thread in threading.enumerate() if thread.name == "reput-dispatch"]


def test_arrivals_name_the_tags_of_each_queue_and_stay_as_they_are(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        kept = []
        for _ in range(2):  # in the plain way, then by a small pass
            for queue_id, tags in ((0, "a"), (1, "b"), (0, "c"), (0, "")):
                store.put_message(Message("orders", b"", tags), queue_id)
            kept.append(writer.dispatch())
        for rounds, arrivals in enumerate(kept, 1):
            assert arrivals is not None
            assert (arrivals.records, arrivals.queues) == (4, [("orders", 0), ("orders", 1)])
            assert arrivals.max_offsets == [3 * rounds, rounds]
            assert arrivals.tags_codes == [{string_hash("a"), string_hash("c"), 0}, {string_hash("b")}]


def test_arrivals_name_light_queues(tmp_path: Path) -> None:
    keys = SMALL | {"enable_multi_dispatch": True, "enable_lmq": True}
    with MessageStore.open(tmp_path / "s", dispatch="caller", **keys) as store:
        writer = store.loop_writer()
        for count in (1, 2):
            store.put_message(Message("orders", b"", "a", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
            arrivals = writer.dispatch()
            assert arrivals is not None
            assert (arrivals.records, arrivals.queues) == (1, [("orders", 0), ("%LMQ%a", 0)])
            assert (arrivals.max_offsets, arrivals.tags_codes) == ([count, count], [{97}, {97}])


def test_a_pass_takes_so_many_bytes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        put_orders(store, 10, 1000)
        passes = []
        while arrivals := writer.dispatch(3000):
            passes.append(arrivals.records)
        assert sum(passes) == 10
        assert len(passes) > 2


def test_a_record_larger_than_a_pass_is_dispatched(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        put_orders(store, 2, 50_000)
        while writer.dispatch(1000):
            pass
        assert store.max_offset("orders", 0) == 2


@pytest.mark.parametrize("keys", [SMALL, SYNCED], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_close_dispatches_everything(tmp_path: Path, keys: dict[str, object]) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **keys) as store:
        put_orders(store, 30, 1000)
    with MessageStore.open(tmp_path / "s", read_only=True) as store:
        assert store.max_offset("orders", 0) == 30


def test_waiting_for_dispatch_dispatches(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        put_orders(store, 3)
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 3


def test_after_a_full_disk_dispatch_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_caller, "RETRY_WAIT_S", 0.001)
    full = threading.Event()

    def judge(operation: Operation) -> None:
        if full.is_set() and "/consumequeue/" in operation.path:
            raise OSError(28, "No space left on device")

    with MessageStore.open(tmp_path / "s", dispatch="caller", files=FaultyFiles(judge), **SMALL) as store:
        writer = store.loop_writer()
        put_orders(store, 3)
        full.set()
        assert writer.dispatch() is None
        assert isinstance(writer.dispatch_failure, StoreFullError)
        full.clear()
        while not writer.dispatch():
            assert isinstance(writer.dispatch_failure, StoreFullError)
        assert (writer.dispatch_failure, store.max_offset("orders", 0)) == (None, 3)


def test_a_small_pass_whose_keys_find_no_space_leaves_no_unit_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_caller, "RETRY_WAIT_S", 0.001)
    full = threading.Event()

    def judge(operation: Operation) -> None:
        if full.is_set() and "/index/" in operation.path:
            raise OSError(28, "No space left on device")

    with MessageStore.open(tmp_path / "s", dispatch="caller", files=FaultyFiles(judge), **SMALL) as store:
        writer = store.loop_writer()
        store.put_messages([Message("orders", b"", keys=[f"k{n}"]) for n in range(399)])  # one index file
        store.wait_dispatched()
        store.put_message(Message("orders", b"", keys=["last"]))
        full.set()
        assert writer.dispatch() is None
        assert (isinstance(writer.dispatch_failure, StoreFullError), store.max_offset("orders", 0)) == (True, 400)
        full.clear()
        while (arrivals := writer.dispatch()) is None:
            assert isinstance(writer.dispatch_failure, StoreFullError)
        assert (arrivals.records, arrivals.max_offsets) == (1, [400])
        assert len(store.query_message("orders", "last", 9, 0, 1 << 62)) == 1


def test_a_full_disk_is_left_alone_for_a_while_but_not_by_a_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_caller, "RETRY_WAIT_S", 3600)
    full = threading.Event()

    def judge(operation: Operation) -> None:
        if full.is_set() and "/consumequeue/" in operation.path:
            raise OSError(28, "No space left on device")

    with MessageStore.open(tmp_path / "s", dispatch="caller", files=FaultyFiles(judge), **SMALL) as store:
        writer = store.loop_writer()
        put_orders(store, 1)
        full.set()
        assert writer.dispatch() is None
        full.clear()
        assert writer.dispatch() is None
        assert isinstance(writer.dispatch_failure, StoreFullError)
    with MessageStore.open(tmp_path / "s", read_only=True) as closed:
        assert closed.max_offset("orders", 0) == 1


def test_only_a_store_that_was_opened_for_it_is_dispatched_by_its_caller(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", **SMALL) as store, pytest.raises(StoreStateError, match="somebody else"):
        store.loop_writer()
