"""A disk that is full to its last byte: what was answered is served, and nothing dies of a signal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import reput
from lab.campaign.children import in_child
from reput.errors import StoreFullError
from reput.formats.consume_queue import decode_unit
from reput.formats.consume_queue_ext import is_ext_address
from reput.kernel_loader import load_kernels
from reput.spark.dispatch import dispatch
from reput.store.queues.consume_queue import ConsumeQueue
from tests.support.heard import heard
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged
from tests.support.small_tmpfs import fill, mount_overlay, mount_tmpfs

_PAGE = 4096
_DISK_BYTES = 2 << 20
_FILE_PAGES = 16
OPTIONS = SMALL | {
    "mapped_file_size_commit_log": _FILE_PAGES * _PAGE,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 50_000,
    "max_index_num": 4000,
}


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    """Compiled before a process begins whose time is bounded."""
    load_kernels()


def put_until_full(store: reput.MessageStore, count: int, acknowledged: list[Acknowledged]) -> None:
    """Put messages to some queues, until the disk is full; in a copy some of them have holes."""
    for number in range(len(acknowledged), len(acknowledged) + count):
        key, body = f"key-{number}", bytes(3 * _PAGE) if number % 50 == 49 else bytes([number % 251]) * 300
        result = store.put_message(reput.Message("orders", body, keys=[key]), number % 3)
        place = result.queue_offset, result.commit_log_offset
        acknowledged.append(Acknowledged("orders", number % 3, *place, key, body))


@pytest.mark.parametrize("pages_left", [_FILE_PAGES, _FILE_PAGES + 2, 2 * _FILE_PAGES - 1, 2 * _FILE_PAGES])
def test_what_was_answered_is_served_though_the_disk_is_full(tmp_path: Path, pages_left: int) -> None:
    """However much space is left when the log needs its next file, the log does not take the last of it."""

    def life() -> Counter[str]:
        mount_tmpfs(tmp_path, _DISK_BYTES)
        acknowledged: list[Acknowledged] = []
        with reput.MessageStore.open(tmp_path / "store", **OPTIONS) as store:
            put_until_full(store, 20, acknowledged)
            store.wait_dispatched()
            fill(tmp_path / "ballast", pages_left)
            with suppress(StoreFullError):
                put_until_full(store, 1000, acknowledged)
            store.wait_dispatched(timeout=30)
            check_acknowledged(store, acknowledged)
        with reput.MessageStore.open(tmp_path / "store", read_only=True) as store:
            check_acknowledged(store, acknowledged)
        return Counter(messages=len(acknowledged))

    assert 20 < in_child(life)["messages"] < 1020


def copy_sparsely(source: Path, target: Path) -> None:
    """Copy a store with holes for all zeros, as `cp --sparse=always` does."""
    for file in source.rglob("*"):
        if file.is_file():
            copy, data = target / file.relative_to(source), file.read_bytes()
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.open("wb") as written:
                for begin in range(0, len(data), _PAGE):
                    if data[begin : begin + _PAGE].strip(b"\0"):
                        written.seek(begin)
                        written.write(data[begin : begin + _PAGE])
                written.truncate(len(data))


def read_all(store: reput.MessageStore, acknowledged: list[Acknowledged]) -> None:
    check_acknowledged(store, acknowledged)
    assert store.query_messages("orders", ["no such key"]) == {"no such key": []}
    assert store.runtime_info().commit_log_max_offset == store.max_commit_log_offset
    with store.tail("orders", consume_from="first", timeout=0) as tail:
        assert sum(1 for _ in tail) == len(acknowledged)


def live_on_a_sparse_copy(disk: Path, *, is_killed: bool, is_overlay: bool) -> Counter[str]:
    """Holes are everywhere, as in the files of RocketMQ's broker: in slots of the index, and in a log file ahead."""
    mount_tmpfs(disk, _DISK_BYTES)
    folder = disk / "folder"
    folder.mkdir()
    if is_overlay:
        mount_overlay(folder, disk)
    path, copy, acknowledged = folder / "store", folder / "copy", []
    with reput.MessageStore.open(path, **OPTIONS) as store:
        put_until_full(store, 150, acknowledged)
        store.wait_dispatched()
        if is_killed:
            copy_sparsely(path, copy)
    if not is_killed:
        copy_sparsely(path, copy)
    last = max(int(file.name) for file in (copy / "commitlog").iterdir())
    with (copy / "commitlog" / f"{last + _FILE_PAGES * _PAGE:020}").open("wb") as ahead:
        ahead.truncate(_FILE_PAGES * _PAGE)
    fill(folder / "ballast")
    with reput.MessageStore.open(copy, read_only=True) as store:
        read_all(store, acknowledged)
    counts: Counter[str] = Counter()
    try:
        store = reput.MessageStore.open(copy, retention=True, **OPTIONS | {"clean_file_forcibly_enable": False})
    except StoreFullError:
        counts["starts refused"] += 1
    else:
        store.close()
    (folder / "ballast").unlink()
    with heard("reput.store") as log, reput.MessageStore.open(copy) as store:
        fill(folder / "ballast")
        read_all(store, acknowledged)
        fill(folder / "ballast", 3 * _FILE_PAGES)  # enough for the log and for entries of the index, not for its slots
        with suppress(StoreFullError):
            put_until_full(store, 1000, acknowledged)
        store.wait_dispatched()
        (folder / "ballast").unlink()
        before = list(acknowledged)
        assert store._writer is not None
        with store._writer.reput.between_passes:
            put_until_full(store, 20, acknowledged)
            fill(folder / "ballast", 3 * _FILE_PAGES)  # another process takes the space that the log left
        log.wait("queues and index lag behind the log")
        check_acknowledged(store, before)
        (folder / "ballast").unlink()
        store.wait_dispatched()
        read_all(store, acknowledged)
    return counts


@pytest.mark.parametrize(
    ("is_killed", "is_overlay"), [(False, False), (True, False), (False, True)], ids=["closed", "killed", "overlay"]
)
def test_files_with_holes_are_read_and_written_on_a_full_tmpfs_without_a_signal(
    tmp_path: Path, is_killed: bool, is_overlay: bool
) -> None:
    in_child(partial(live_on_a_sparse_copy, tmp_path, is_killed=is_killed, is_overlay=is_overlay))


def on_tmpfs(folder: Path, life: Callable[[Path], None]) -> None:
    """Live on a tmpfs with room, in a process of its own."""

    def live() -> Counter[str]:
        mount_tmpfs(folder, 8 << 20)
        life(folder / "store")
        return Counter()

    in_child(live)


def test_queues_on_tmpfs_show_what_is_written_into_holes_later(tmp_path: Path) -> None:
    """A map to read shows the holes of one moment; so a file that has grown is mapped again."""

    def life(path: Path) -> None:
        acknowledged: list[Acknowledged] = []
        with reput.MessageStore.open(path, **OPTIONS) as store:
            for _ in range(8):
                put_until_full(store, 100, acknowledged)
                store.wait_dispatched()
                check_acknowledged(store, acknowledged)
                with reput.MessageStore.open(path, read_only=True) as reader:
                    check_acknowledged(reader, acknowledged)

    on_tmpfs(tmp_path, life)


def test_batch_queues_on_tmpfs_show_what_is_written_into_holes_later(tmp_path: Path) -> None:
    def life(path: Path) -> None:
        with reput.MessageStore.open(path, **OPTIONS | {"mapper_file_size_batch_consume_queue": 46_000}) as store:
            store.update_topic(reput.TopicConfig("orders", attributes={"queue.type": "BatchCQ"}))
            for number in range(300):
                messages = [reput.Message("orders", b"%d" % number)] * 2
                store.put_batch(reput.MessageExtBatch.of(messages, unique_key=f"U{number}"))
                if number % 20 == 0:
                    store.wait_dispatched()
                    result = store.get_message("orders", 0, 2 * number)
                    assert result.status is reput.GetMessageStatus.FOUND

    on_tmpfs(tmp_path, life)


def test_extensions_on_tmpfs_show_what_is_written_into_holes_later(tmp_path: Path) -> None:
    def life(path: Path) -> None:
        keys = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 40_000}
        with reput.MessageStore.open(path, **OPTIONS | keys) as store:
            for number in range(600):
                store.put_message(reput.Message("orders", b"x", tags="red"))
                if number % 50 == 0:
                    store.wait_dispatched()
                    (queue,) = store._queues.queues()
                    units = queue.units_from(number)
                    assert units is not None
                    assert isinstance(queue, ConsumeQueue)
                    assert queue.ext is not None
                    resolved = queue.ext.resolve(units[0], units[1]).tobytes()
                    assert not is_ext_address(decode_unit(resolved).tags_code), "its ext unit is seen"

    on_tmpfs(tmp_path, life)


def test_an_index_on_tmpfs_that_another_process_writes_shows_its_keys(tmp_path: Path) -> None:
    def life(path: Path) -> None:
        reput.MessageStore.open(path, dispatch="external", **OPTIONS).close()
        with reput.MessageStore.open(path, dispatch="external", **OPTIONS) as store:
            for number in range(200):
                store.put_message(reput.Message("orders", b"x", keys=[f"key-{number}"]))
                if number % 40 == 0:
                    dispatch(path, session=None, once=True)
                    store.wait_dispatched()
                    assert len(store.query_message("orders", f"key-{number}")) == 1

    on_tmpfs(tmp_path, life)
