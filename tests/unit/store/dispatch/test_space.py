"""The log leaves space to queues and index: what was put before a disk was full is dispatched on the full disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from lab.campaign.children import in_child
from reput import Message, MessageStore
from reput.errors import StoreFullError
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernel_loader import load_kernels
from tests.support.heard import heard
from tests.support.shares import sampled
from tests.support.small_tmpfs import mount_tmpfs

KB, MB = 1 << 10, 1 << 20
DEFAULT_INDEX = 5_000_000, 20_000_000
#: No test waits for the syncs of memory.
OPTIONS: dict[str, Any] = {"flush_disk_type": "ASYNC_FLUSH", "mapped_file_size_consume_queue": 20_000}


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    """Compiled before a process begins whose time is bounded."""
    load_kernels()


def on_tmpfs(folder: Path, size: int, life: Callable[[Path], None]) -> None:
    """Live on a disk of so many bytes, in a process of its own."""

    def live() -> Counter[str]:
        mount_tmpfs(folder, size)
        life(folder / "store")
        return Counter()

    in_child(live)


def put_until_refused(store: MessageStore, body: bytes = bytes(100), *, lags: bool = True) -> int:
    """Put messages with one key each to some queues; how many were stored."""
    number = 0
    while True:
        try:
            store.put_message(Message("t", body, keys=[f"key-{number}"]), number % 3)
        except StoreFullError:
            return number
        number += 1
        if number == 1 and not lags:  # a first index file that is being made counts as one that is still to be made
            store.wait_dispatched()


def check_dispatched(store: MessageStore, count: int) -> None:
    """All messages have their units and their entries, the last ones, too."""
    assert store._writer is not None
    store.wait_dispatched()
    assert sum(store.max_offset("t", queue_id) for queue_id in range(3)) == count
    index = store._writer.parts.index
    if index is not None:
        assert sum(file.count - 1 for file in index.index_files) == count
        keys = [f"key-{number}" for number in range(max(0, count - 500), count)]
        assert all(len(found) == 1 for found in store.query_messages("t", keys).values())


@contextmanager
def no_dispatch(store: MessageStore) -> Iterator[None]:
    """Nothing is dispatched meanwhile, as on a slow disk."""
    assert store._writer is not None
    with store._writer.reput.between_passes:
        yield


@sampled(4)
@pytest.mark.parametrize("lags", [False, True], ids=["dispatch keeps up", "dispatch lags behind"])
@pytest.mark.parametrize(
    ("disk", "file_size", "index"),
    [
        pytest.param(2 * MB, 64 * KB, (50_000, 4_000), id="64 KB, 4000 entries a file"),
        pytest.param(2 * MB, 16 * KB, (7, 400), id="16 KB, 400 entries a file"),
        pytest.param(4 * MB, 512 * KB, (2_000, 10_000), id="512 KB, small"),
        pytest.param(16 * MB, 1 * MB, (100_000, 3_000), id="1 MB, three index files a log file"),
        pytest.param(40 * MB, 1 * MB, DEFAULT_INDEX, id="1 MB, 20 MB of slots"),
        pytest.param(56 * MB, 8 * MB, DEFAULT_INDEX, id="8 MB, 20 MB of slots"),
        pytest.param(8 * MB, 1 * MB, None, id="1 MB, no index"),
    ],
)
def test_all_that_was_put_is_in_queues_and_index_when_the_log_refuses_for_lack_of_space(
    tmp_path: Path, disk: int, file_size: int, index: tuple[int, int] | None, *, lags: bool
) -> None:
    slots, entries = index or DEFAULT_INDEX
    sizes = {"mapped_file_size_commit_log": file_size, "max_hash_slot_num": slots, "max_index_num": entries}

    def life(path: Path) -> None:
        ballast = path.parent / "ballast"
        ballast.write_bytes(bytes(disk // 4))
        with MessageStore.open(path, **OPTIONS, **sizes, message_index_enable=index is not None) as store:
            with no_dispatch(store) if lags else nullcontext():
                count = put_until_refused(store, lags=lags)
            assert store.max_commit_log_offset > disk // 32, "the log takes what it may"
            check_dispatched(store, count)
            ballast.unlink()
            store.put_message(Message("t", bytes(100), keys=[f"key-{count}"]), 0)
            check_dispatched(store, count + 1)

    on_tmpfs(tmp_path, disk, life)


def test_a_store_whose_index_does_not_go_on_its_disk_says_so_at_its_start_and_takes_nothing(tmp_path: Path) -> None:
    small_log = {"mapped_file_size_commit_log": MB}

    def life(path: Path) -> None:
        with heard("reput.store") as log, MessageStore.open(path, **OPTIONS, **small_log) as store:
            (line,) = log.lines
            assert line.startswith("WARNING puts will be refused once the log needs space")
            assert "maxHashSlotNum, messageIndexEnable" in line
            with pytest.raises(StoreFullError, match="maxHashSlotNum, messageIndexEnable"):
                store.put_message(Message("t", b"x"))
            assert store.max_commit_log_offset == 0
        with (
            heard("reput.store") as log,
            MessageStore.open(path, **OPTIONS, **small_log, max_hash_slot_num=1000) as store,
        ):
            store.put_message(Message("t", b"x"))
            store.wait_dispatched()
        assert log.lines == []

    on_tmpfs(tmp_path, 8 * MB, life)


def test_a_log_on_a_disk_of_its_own_leaves_space_on_the_disk_of_the_queues(tmp_path: Path) -> None:
    def life(path: Path) -> None:
        (path.parent / "disk").mkdir()
        mount_tmpfs(path.parent / "disk", 3 * MB)
        sizes = {"mapped_file_size_commit_log": 64 * KB, "max_hash_slot_num": 1000, "max_index_num": 2000}
        with MessageStore.open(
            path.parent / "disk" / "store", store_path_commit_log=str(path), **OPTIONS, **sizes
        ) as store:
            count = put_until_refused(store)
            check_dispatched(store, count)

    on_tmpfs(tmp_path, 32 * MB, life)


@pytest.mark.parametrize("ballast_kb", [0, 40, 80, 120])
def test_queues_that_all_come_to_a_new_page_at_once_have_the_space(tmp_path: Path, ballast_kb: int) -> None:
    queues, body = 50, bytes(100)
    sizes = {"mapped_file_size_commit_log": 32 * KB, "mapped_file_size_consume_queue": 16 * UNIT_SIZE}

    def life(path: Path) -> None:
        (path.parent / "ballast").write_bytes(bytes(ballast_kb * KB))
        with MessageStore.open(path, **OPTIONS | sizes, message_index_enable=False) as store:
            number = 0
            with suppress(StoreFullError):
                while True:
                    store.put_message(Message("t", body), number % queues)
                    number += 1
                    if number % queues == 0:
                        store.wait_dispatched()
            store.wait_dispatched(timeout=3)
            assert sum(store.max_offset("t", queue_id) for queue_id in range(queues)) == number
            (path.parent / "ballast").unlink()

    on_tmpfs(tmp_path, 2 * MB, life)
