"""A process that forks with an open store, as multiprocessing does on Linux: the store stays the parent's."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import ReputError, StoreLockedError, StoreStateError
from tests.support.forked import raised_in_child
from tests.support.invariants import SMALL, check_store

MESSAGE = reput.Message("t", b"x")


DEEDS: dict[str, tuple[Callable[[reput.MessageStore], object], type[ReputError] | None]] = {
    "puts": (lambda store: store.put_message(MESSAGE), StoreStateError),
    "gets": (lambda store: store.get_message("t", 0, 0), StoreStateError),
    "opens it again": (lambda store: reput.MessageStore.open(store.path, **SMALL), StoreLockedError),
    "closes it": (lambda store: store.close(), None),
    "reads it": (lambda store: reput.MessageStore.open(store.path, read_only=True).close(), None),
}


@pytest.mark.parametrize("read_only", [False, True])
def test_an_open_store_is_not_sent_to_another_process(tmp_path: Path, read_only: bool) -> None:
    reput.MessageStore.open(tmp_path / "store", **SMALL).close()
    with (
        reput.MessageStore.open(tmp_path / "store", read_only=read_only, **SMALL) as store,
        pytest.raises(TypeError, match="belongs to this process: let the other one open it"),
    ):
        pickle.dumps(store)


@pytest.mark.parametrize("name", DEEDS)
def test_a_child_that_was_forked_from_a_writer_does_it_no_harm(tmp_path: Path, name: str) -> None:
    deed, error = DEEDS[name]
    path = tmp_path / "store"
    with reput.MessageStore.open(path, **SMALL) as store:
        store.put_message(MESSAGE)
        store.wait_dispatched()  # a lock that another thread holds at the fork is held in the child for ever
        found = raised_in_child(lambda: deed(store))
        assert found.partition(":")[0] == (error.__name__ if error is not None else ""), found
        assert (path / "abort").exists()
        assert store.put_message(MESSAGE).queue_offset == 1
    check_store(path, SMALL)
    reput.MessageStore.open(path, **SMALL).close()


def test_a_child_may_open_the_store_once_its_parent_has_closed_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = reput.MessageStore.open(path, **SMALL)
    read_end, write_end = os.pipe()

    def wait_and_put() -> None:
        os.close(write_end)
        os.read(read_end, 1)
        with reput.MessageStore.open(path, **SMALL) as own:
            own.put_message(MESSAGE)

    child = os.fork()
    if not child:
        code = 1
        try:
            wait_and_put()
            code = 0
        finally:
            os._exit(code)
    store.close()
    os.close(write_end)
    _, status = os.waitpid(child, 0)
    assert status == 0
    with reput.MessageStore.open(path, **SMALL) as again:
        assert again.max_offset("t", 0) == 1
