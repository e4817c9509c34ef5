"""A process or a machine that ends, and a disk that fails once, at every operation of a deletion of a topic."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    Judge,
    Operation,
    abandon,
    crash_at,
    fail_at,
    no_objection,
    wait_dispatched,
)
from tests.support.invariants import SMALL

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

OLD = [b"old-%d" % number for number in range(30)]
NEW = [b"new-%d" % number for number in range(3)]
ORDERS = reput.TopicConfig("orders", 1, 1)


def filled(path: Path) -> tuple[reput.MessageStore, FaultyFiles]:
    """A store with messages of a topic, which are on the disk."""
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, dispatch="caller", **SMALL)
    store.update_topics([ORDERS, reput.TopicConfig("other")])
    store.put_messages([reput.Message("orders", body) for body in OLD])
    wait_dispatched(store, files)
    return store, files


def operations_of_a_deletion(path: Path) -> int:
    store, files = filled(path)
    before = len(files.operations)
    store.delete_topic_config(["orders"])
    count = sum(is_of_topics(operation) for operation in files.operations[before:])
    store.close()
    return count


def is_of_topics(operation: Operation) -> bool:
    """Whether it is one of the deletion's; a thread of the store may sync a queue meanwhile."""
    return "/config" in operation.path


def at(number: int, judge: Judge) -> Judge:
    """Judge an operation of this number of the deletion's, and all that follow, by a judge that begins at 0."""
    seen = itertools.count()
    begun: list[int] = []

    def judged(operation: Operation) -> None:
        if begun or (is_of_topics(operation) and next(seen) == number):
            begun.append(0)
            judge(operation._replace(number=len(begun) - 1))

    return judged


def bodies(store: reput.MessageStore) -> list[bytes]:
    begin, end = store.min_offset("orders", 0), store.max_offset("orders", 0)
    return [store.get_message("orders", 0, offset, 1).messages()[0].body for offset in range(begin, end)]


def check_next_life(path: Path) -> None:
    """All of it is there, with the topic, or nothing; what comes then is there in each case."""
    for is_first in (True, False):
        with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
            expected = OLD if is_first and "orders" in store.topics else []
            assert bodies(store) == expected + ([] if is_first else NEW)
            if is_first:
                store.delete_topic_config(["orders"])
                store.update_topic(ORDERS)
                assert [store.put_message(reput.Message("orders", body)).queue_offset for body in NEW] == [30, 31, 32]
                store.wait_dispatched()
                assert bodies(store) == NEW


def test_a_crash_or_a_power_cut_at_any_operation_leaves_a_topic_with_its_messages_or_neither(tmp_path: Path) -> None:
    operations = operations_of_a_deletion(tmp_path / "healthy")
    assert operations > 6
    for number in range(operations):
        path, without_power = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        store, files = filled(path)
        files.judge = at(number, crash_at(0))
        with pytest.raises(Crash):
            store.delete_topic_config(["orders"])
        files.cut_power(path, without_power)
        abandon(store, files)
        check_next_life(path)
        check_next_life(without_power)


def test_a_deletion_that_fails_once_changes_nothing_that_is_read_or_has_deleted(tmp_path: Path) -> None:
    for number in range(operations_of_a_deletion(tmp_path / "healthy")):
        path = tmp_path / str(number)
        store, files = filled(path)
        files.judge = at(number, fail_at(0, errno.EIO))
        with pytest.raises(StoreError):
            store.delete_topic_config(["orders"])
        files.judge = no_objection
        assert bodies(store) == (OLD if "orders" in store.topics else [])
        store.delete_topic_config(["orders"])
        assert bodies(store) == []
        store.close()
        check_next_life(path)
