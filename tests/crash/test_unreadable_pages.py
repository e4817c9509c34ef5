"""A page of a map that cannot be read is an error that names file and place, and no signal.

The pages are those of files that another program has cut under their maps, which Linux treats as a disk that cannot
read them. Each case runs in a child process, which SIGBUS would end.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reput
from reput.formats.consume_queue import UNIT_SIZE
from tests.support.forked import raised_in_child

#: Several files of each kind, each of several pages.
SIZES = {
    "mapped_file_size_commit_log": 256 << 10,
    "mapped_file_size_consume_queue": 20_480,
    "max_hash_slot_num": 2_048,
    "max_index_num": 3_000,
}
MESSAGES = 1_500
_CUT = 4096


def fill(store: reput.MessageStore) -> None:
    """Messages of two topics in one queue each, with keys and tags."""
    for i in range(MESSAGES):
        message = reput.Message(f"t{i % 2}", b"body" * (20 + i % 50), tags=f"tag{i % 3}", keys=[f"k{i}"])
        store.put_message(message, 0)
    store.wait_dispatched(60)


def new_store(path: Path, **options: object) -> reput.MessageStore:
    return reput.MessageStore.open(path, **(SIZES | options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unreadable") / "closed"
    with new_store(path) as store:
        fill(store)
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unreadable") / "killed"
    with new_store(path) as store:
        fill(store)
        shutil.copytree(path, path.parent / "copy")
    return path.parent / "copy"


def cut(folder: Path) -> None:
    """Leave one page of each file below a folder."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        os.truncate(file, min(_CUT, file.stat().st_size))


def map_all(store: reput.MessageStore) -> None:
    """Map all files, and read none of them."""
    parts = store._reader.parts
    parts.log.queue.maps()
    for queue in parts.queues.queues():
        for start in queue.file_starts:
            assert queue.units_from(start // UNIT_SIZE) is not None


def every_message(store: reput.MessageStore) -> None:
    for topic in ("t0", "t1"):
        for offset in range(0, MESSAGES // 2, 10):
            store.get_message(topic, 0, offset, 10).messages()


def every_message_of_a_tag(store: reput.MessageStore) -> None:
    for offset in range(0, MESSAGES // 2, 10):
        store.get_message("t1", 0, offset, 10, tags="tag1 || tag2").messages()


def every_raw_message(store: reput.MessageStore) -> None:
    for offset in range(0, MESSAGES // 2, 10):
        store.get_raw("t0", 0, offset, 10)


def every_key(store: reput.MessageStore) -> None:
    for i in range(MESSAGES):
        store.query_message(f"t{i % 2}", f"k{i}")


def many_keys(store: reput.MessageStore) -> None:
    store.query_messages("t0", [f"k{i}" for i in range(0, MESSAGES, 2)])


def offsets_by_time(store: reput.MessageStore) -> None:
    for queue in store.queues():
        store.offset_by_time(queue.topic, queue.queue_id, store.latest_time())


def messages_by_offset(store: reput.MessageStore) -> None:
    for offset in range(0, store.max_commit_log_offset, 1):
        if store.look_message_by_offset(offset) is not None and offset > _CUT:
            break


def units(store: reput.MessageStore) -> None:
    store.units("t0", 0, 0, MESSAGES)


def a_tail(store: reput.MessageStore) -> None:
    with store.tail("t0", timeout=0.1) as tail:
        for _ in tail:
            pass


def the_log(store: reput.MessageStore) -> None:
    offset = store.min_commit_log_offset
    while data := store.commit_log_data(offset, 1 << 20):
        offset += len(bytes(data))


READS: dict[str, tuple[Callable[[reput.MessageStore], object], str]] = {
    "gets": (every_message, "commitlog consumequeue"),
    "gets of a tag": (every_message_of_a_tag, "commitlog consumequeue"),
    "raw gets": (every_raw_message, "commitlog consumequeue"),
    "queries by key": (every_key, "commitlog index"),
    "a query by keys": (many_keys, "commitlog index"),
    "offsets by time": (offsets_by_time, "commitlog consumequeue"),
    "a look by offset": (messages_by_offset, "commitlog"),
    "units": (units, "consumequeue"),
    "a tail": (a_tail, "commitlog consumequeue"),
    "a slave": (the_log, "commitlog"),
}


def cases() -> Iterator[tuple[str, str]]:
    for name, (_, folders) in READS.items():
        yield from ((name, folder) for folder in folders.split())


@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "writer"])
@pytest.mark.parametrize("is_mapped", [True, False], ids=["mapped", "not yet mapped"])
@pytest.mark.parametrize(("name", "folder"), list(cases()))
def test_a_read_of_a_page_that_cannot_be_read_names_file_and_place(
    name: str, folder: str, is_mapped: bool, read_only: bool, closed: Path, tmp_path: Path
) -> None:
    path, act = tmp_path / "store", READS[name][0]
    shutil.copytree(closed, path)

    def read() -> None:
        store = reput.MessageStore.open(path, read_only=read_only)
        if is_mapped:
            map_all(store)
        cut(path / folder)
        act(store)

    told = r"cannot read at \d+: Input/output error"
    if not is_mapped:
        told = rf"({told}|4096 bytes long, expected \d+: it was cut)"
    assert re.search(rf"^StoreError: {path}/{folder}/.*: {told}", raised_in_child(read))


@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "writer"])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("state", ["closed", "killed"])
def test_a_start_that_cannot_read_a_page_ends_with_an_error_or_well(
    state: str, folder: str, read_only: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(request.getfixturevalue(state), path)
    is_cut: list[bool] = []

    def progress(*_: object) -> None:
        if not is_cut:
            is_cut.append(True)
            cut(path / folder)

    found = raised_in_child(
        lambda: reput.MessageStore.open(path, read_only=read_only, progress=progress).close()  # type: ignore[arg-type]
    )
    assert found == "" or "Error: " in found
    if (state, folder) == ("killed", "commitlog"):
        assert re.search(r"/commitlog/\d+: cannot read at \d+: Input/output", found)


@pytest.mark.parametrize("dispatch", ["thread", "caller"])
def test_dispatch_that_cannot_read_a_page_stops_with_an_error(dispatch: str, tmp_path: Path) -> None:
    path = tmp_path / "store"

    def act() -> None:
        store = new_store(path, dispatch=dispatch)
        with store._writer.reput.between_passes if dispatch == "thread" else open(os.devnull):  # type: ignore[union-attr]
            for i in range(300):
                store.put_message(reput.Message("t", b"body" * 100, keys=[f"k{i}"]), 0)
            cut(path / "commitlog")
        store.wait_dispatched(30)

    assert re.search(r"/commitlog/0+: cannot read at \d+: Input/output", raised_in_child(act))


def test_keys_for_an_index_file_that_was_cut_stop_dispatch_with_an_error(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(closed, path)

    def act() -> None:
        store = reput.MessageStore.open(path)
        cut(path / "index")
        for i in range(300):
            store.put_message(reput.Message("t", b"body", keys=[f"new{i}"]), 0)
        store.wait_dispatched(30)

    assert re.search(r"^StoreError: .*/index/\d+: 4096 bytes long, expected \d+: it was cut", raised_in_child(act))
