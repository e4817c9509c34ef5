"""A store opened with dispatch="external": another process writes its queues and index, and get and query see them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, StoreLockedError, StoreStateError
from reput.files import DISK, FileLayer
from reput.files.attempts import attempt, begin_attempts
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.log import StoreDirectory
from reput.log.dispatch_marks import attempts_path, read_marks
from reput.spark.dispatch import dispatch
from reput.store.dispatch.follower import DispatchFollower
from reput.store.dispatch.locks import lock_dispatcher
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support.faulty_files import Crash, FaultyFiles, Operation, copy_store
from tests.support.further_units import BOTH
from tests.support.invariants import SMALL, check_store

CONFIG = MessageStoreConfig.from_mapping(SMALL)
FURTHER = {name: value for name, value in BOTH.items() if name != "bit_maps"}


def put_range(store: reput.MessageStore, begin: int, end: int, **properties: str) -> None:
    for number in range(begin, end):
        message = reput.Message(
            f"topic-{number % 2}", bytes(number % 99), tags="t", keys=[f"k{number}"], properties=properties
        )
        store.put_message(message, number % 3)


def check_seen(store: reput.MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        topic = f"topic-{number % 2}"
        found = store.query_message(topic, f"k{number}")
        assert [message.keys for message in found] == [(f"k{number}",)]
        got = store.get_message(topic, number % 3, found[0].queue_offset, 1, tags="t").messages()
        assert [message.commit_log_offset for message in got] == [found[0].commit_log_offset]


@contextmanager
def dispatching(path: Path) -> Iterator[None]:
    """A dispatcher that works meanwhile, as another process would."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(dispatch, path, session=None, stop=stop)
        try:
            yield
        finally:
            stop.set()
            running.result(60)


@pytest.mark.parametrize("options", [SMALL, FURTHER], ids=["plain", "extensions and light queues"])
def test_get_and_query_see_what_a_dispatcher_wrote_over_restarts_of_the_store(
    options: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "store"
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if options is FURTHER else {}
    reput.MessageStore.open(path, dispatch="external", **options).close()
    with dispatching(path):
        for begin in (0, 60, 120):
            with reput.MessageStore.open(path, dispatch="external", **options) as store:
                put_range(store, begin, begin + 60, **light)
                store.wait_dispatched()
                assert store.dispatch_behind_bytes == 0
                check_seen(store, 0, begin + 60)
                if light:
                    assert store.max_offset("%LMQ%a", 0) == begin + 60
    if options is SMALL:
        check_store(path, options)
    with reput.MessageStore.open(path, read_only=True) as store:
        check_seen(store, 0, 180)


class OneTick(FileLayer):
    """A layer by which all files have the same inode and the same time, as two of marks within a tick may have."""

    def identity(self, path: str) -> tuple[int, int]:
        return 0, 0

    def modified_ms(self, path: str) -> int:
        return 0


def test_a_mark_is_seen_though_its_file_looks_like_that_of_an_earlier_one(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", dispatch="external", files=OneTick(), **SMALL) as store:
        for begin in (0, 5, 10):
            put_range(store, begin, begin + 5)
            dispatch(tmp_path / "store", session=None, once=True)
            store.wait_dispatched()
            check_seen(store, 0, begin + 5)


def test_messages_of_a_deleted_topic_that_a_dispatcher_brings_later_are_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, dispatch="external", **SMALL) as store:
        for number in range(3):
            store.put_message(reput.Message("orders", b"old-%d" % number))
        store.delete_topic_config(["orders"])
        store.put_message(reput.Message("orders", b"new"))
        dispatch(path, session=None, once=True)
        store.wait_dispatched()
        assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (3, 4)
        assert [message.body for message in store.get_message("orders", 0, 3).messages()] == [b"new"]


def test_without_a_dispatcher_nothing_new_is_seen_and_the_next_start_brings_all_in_step(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, dispatch="external", **SMALL) as store:
        put_range(store, 0, 50)
        with pytest.raises(TimeoutError, match=r"queues and index are \d+ bytes behind"):
            store.wait_dispatched(0.05)
        assert store.max_offset("topic-0", 0) == 0
        killed = copy_store(path, tmp_path / "killed")
    for copy in (path, killed):
        with reput.MessageStore.open(copy, dispatch="external", **SMALL) as store:
            check_seen(store, 0, 50)
        check_store(copy, SMALL)


def test_a_store_without_an_index_is_left_to_a_dispatcher_too(tmp_path: Path) -> None:
    options = SMALL | {"message_index_enable": False}
    for begin in (0, 20):
        with reput.MessageStore.open(tmp_path / "store", dispatch="external", **options) as store:
            put_range(store, begin, begin + 20)
            dispatch(tmp_path / "store", session=None, once=True)
            store.wait_dispatched()
    assert not (tmp_path / "store/index").exists()


def test_there_is_one_dispatcher_and_it_is_never_the_store_as_well(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, **SMALL) as store:
        put_range(store, 0, 5)
        with pytest.raises(StoreStateError, match='dispatches by itself; open it with dispatch="external"'):
            dispatch(path, session=None, once=True)
    reput.MessageStore.open(path, dispatch="external", **SMALL).close()
    with dispatching(path), reput.MessageStore.open(path, dispatch="external", **SMALL) as store:
        put_range(store, 5, 10)
        store.wait_dispatched()
        with pytest.raises(StoreLockedError, match=r"reputDispatcher\.lock: .* dispatches the log of .* already"):
            dispatch(path, session=None, once=True)
        store.close()
        with pytest.raises(StoreLockedError, match=r"dispatches the log of .* or open the store with dispatch="):
            reput.MessageStore.open(path, **SMALL)
    with reput.MessageStore.open(path, **SMALL) as store:
        put_range(store, 10, 15)
        store.wait_dispatched()
        check_seen(store, 0, 15)
    check_store(path, SMALL)


def test_a_store_that_rocketmq_has_opened_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    reput.MessageStore.open(path, dispatch="external", **SMALL).close()
    copy = shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(copy / "lock")  # the last file that was copied
    dispatch(copy, session=None, once=True)
    for opened in (path, copy):
        (opened / "lock").write_bytes(b"lock")
        os.utime(opened / "lock", (0, 0))  # by a clock that was set back, or just before a dispatcher's mark
        with pytest.raises(StoreStateError, match="RocketMQ has opened the store since"):
            dispatch(opened, session=None, once=True)
    reput.MessageStore.open(path, dispatch="external", **SMALL).close()
    dispatch(path, session=None, once=True)


def test_an_index_file_of_a_batch_that_was_killed_is_never_seen(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, dispatch="external", **SMALL) as store:
        files = FaultyFiles()
        dispatcher = LogDispatch(StoreDirectory(path), str(path), CONFIG, in_store=True, files=files)
        put_range(store, 0, 20)
        assert dispatcher.run_once() is not None
        store.wait_dispatched()
        put_range(store, 20, 60)

        def judge(operation: Operation) -> None:
            """The store looks in the middle of the next batch, which is not to be: a new index file is there."""
            if operation.kind == "sync" and "/index/" in operation.path:
                marks = read_marks(str(path), files)
                follower = DispatchFollower(str(path), store._reader.parts, CONFIG, files)
                follower.reput_from_offset = -1
                assert follower.run_once() == 1
                assert marks[0].point == dispatcher.point
                raise Crash

        files.judge = judge
        with pytest.raises(Crash):
            dispatcher.run_once()
        files.abandon()
        dispatch(path, session=None, once=True)
        store.wait_dispatched()
        assert store._reader.parts.index is not None
        assert [Path(file.path) for file in store._reader.parts.index.index_files] == sorted((path / "index").iterdir())
        check_seen(store, 0, 60)


def test_a_rebuild_in_place_and_a_dispatcher_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, dispatch="external", **SMALL) as store:
        put_range(store, 0, 60)
    dispatch(path, session=None, once=True)
    dispatcher = lock_dispatcher(str(path), DISK)
    with pytest.raises(StoreLockedError, match=r"reputDispatcher\.lock: .* dispatches the log of"):
        rebuild(path, None, runner=LocalRunner(1))
    dispatcher.release()
    assert not (path / "rebuild.unfinished").exists()
    rebuild(path, None, runner=LocalRunner(1))
    with pytest.raises(StoreStateError, match='open it with dispatch="external" first'):
        dispatch(path, session=None, once=True)  # what it had said of the index files is not so any more
    with reput.MessageStore.open(path, dispatch="external", **SMALL) as store, dispatching(path):
        put_range(store, 60, 120)
        store.wait_dispatched()
        check_seen(store, 0, 120)
    check_store(path, SMALL)


@pytest.mark.parametrize("taker", ["a rebuild", "a store"])
def test_a_task_that_a_killed_dispatcher_has_left_does_not_begin_any_more(tmp_path: Path, taker: str) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, dispatch="external", **SMALL) as store:
        put_range(store, 0, 60)
    permit = begin_attempts(attempts_path(str(path)), DISK)
    if taker == "a rebuild":
        rebuild(path, None, runner=LocalRunner(1))
    else:
        reput.MessageStore.open(path, **SMALL).close()
    with pytest.raises(StoreStateError, match="nothing was written"), attempt(permit, DISK):
        raise AssertionError("it must not begin")
    check_store(path, SMALL)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dispatch": "flink"}, "dispatch='flink': expected 'thread', 'external' or 'caller'"),
        (
            {"dispatch": "external", "on_arrival": print},
            "on_arrival and bit_maps belong to the process that dispatches",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        reput.MessageStore.open(tmp_path / "store", **wrong, **SMALL)
    assert not (tmp_path / "store").exists()
    reput.MessageStore.open(tmp_path / "store", dispatch="external", **SMALL).close()
    with pytest.raises(ConfigError, match="the configuration counts that it was opened with"):
        dispatch(tmp_path / "store", session=None, settings={"max_index_num": 30})


def test_retention_and_the_dispatcher_do_not_meet(tmp_path: Path) -> None:
    path, options = tmp_path / "store", SMALL | {"file_reserved_time": 0}
    with (
        reput.MessageStore.open(path, dispatch="external", files=FaultyFiles(), **options) as store,
        dispatching(path),
    ):
        put_range(store, 0, 60)
        store.wait_dispatched()
        deleted = store.delete_expired()
        assert deleted.commit_log_files
        assert deleted.consume_queue_files
        assert deleted.index_files
        put_range(store, 60, 120)
        store.wait_dispatched()
        check_seen(store, 60, 120)
    with reput.MessageStore.open(path, **options) as store:
        check_seen(store, 60, 120)
