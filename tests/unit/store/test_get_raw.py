"""Pulls for a broker: the records' bytes, and whether the disk is waited for."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import TopicConfig
from reput.store.log.mapped_file import MappedFile
from reput.store.message_store import MessageStore
from reput.store.reads.pages import Cold, Pages
from reput.store.results import GetMessageStatus
from tests.support.cold_pages import ColdPages
from tests.support.fixtures import OpenStore

KEYS = {"mapped_file_size_consume_queue": 20_000, "mapped_file_size_commit_log": 1 << 16}


def put_tagged(store: MessageStore, count: int = 600) -> None:
    """Messages with the tags a, b and c, in two queues in turn at first, then in the first one alone."""
    for number in range(count):
        queue_id = number % 2 if number < 200 else 0
        store.put_message(reput.Message("orders", b"x" * (number % 300), tags="abc"[number % 3]), queue_id)
    store.wait_dispatched()


@pytest.mark.parametrize("tags", [None, "b", "a || c", "d"])
@pytest.mark.parametrize("may_wait", [False, True])
@pytest.mark.parametrize("memory_ratio", [0, 40])  # at 0 a pull suggests a slave, if messages follow
def test_a_raw_pull_has_the_bytes_of_the_messages_of_a_pull(
    open_store: OpenStore, tags: str | None, may_wait: bool, memory_ratio: int
) -> None:
    store = open_store(**KEYS, access_message_in_memory_max_ratio=memory_ratio)
    put_tagged(store)
    for queue_id, offset in [(0, 0), (1, 3), (0, 90), (0, 150), (0, 499), (0, 500), (0, 501), (2, 0), (0, -1)]:
        for most in (0, 1, 7, 32):
            expected = store.get_message("orders", queue_id, offset, most, tags)
            store.get_raw("orders", queue_id, offset, most, tags)  # maps the log's file
            found = store.get_raw("orders", queue_id, offset, most, tags, may_wait=may_wait)
            assert found is not None
            assert found == (
                expected.status, expected.next_begin_offset, expected.min_offset, expected.max_offset,
                b"".join(expected.raw()), len(expected), expected.suggest_pulling_from_slave,
            )  # fmt: skip


@pytest.mark.parametrize("tags", [None, "b"])
def test_a_raw_pull_that_may_not_wait_tells_that_a_page_is_not_in_memory(
    open_store: OpenStore, path: Path, tags: str | None
) -> None:
    files = ColdPages()
    store = open_store(files=files, **KEYS)
    put_tagged(store)
    expected = store.get_raw("orders", 0, 5, 32, tags)
    assert expected is not None
    with files.cold():
        assert store.get_raw("orders", 0, 5, 32, tags, may_wait=False) is None
        assert files.reads == []
        assert store.get_raw("orders", 0, 5, 32, tags) == expected
        assert {Path(read).relative_to(path).parts[0] for read in files.reads} == {"consumequeue", "commitlog"}
    assert store.get_raw("orders", 0, 5, 32, tags, may_wait=False) == expected


def test_statuses_without_messages_need_no_page(open_store: OpenStore) -> None:
    files = ColdPages()
    store = open_store(files=files, **KEYS)
    put_tagged(store)
    with files.cold():
        for queue_id, offset in [(0, 500), (0, 501), (2, 0), (0, -1)]:
            found = store.get_raw("orders", queue_id, offset, may_wait=False)
            assert found is not None
            assert found.status is not GetMessageStatus.FOUND


def test_a_file_that_was_not_read_before_is_not_opened_by_a_pull_that_may_not_wait(
    open_store: OpenStore, path: Path
) -> None:
    store = open_store(**KEYS)
    put_tagged(store, 2000)
    store.close()
    store = open_store(**KEYS)
    assert len(list((path / "consumequeue/orders/0").iterdir())) == 2
    assert store.get_raw("orders", 0, 0, may_wait=False) is None
    assert store.get_raw("orders", 0, 0) == store.get_raw("orders", 0, 0, may_wait=False)
    put_tagged(store, 1)  # the file that is being written is open
    last = store.max_offset("orders", 0) - 1
    assert store.get_raw("orders", 0, last, may_wait=False) is not None


def test_messages_of_a_batch_queue_count_as_not_in_memory(open_store: OpenStore) -> None:
    store = open_store(**KEYS)
    store.update_topic(TopicConfig("orders", attributes={"queue.type": "BatchCQ"}))
    store.put_batch([reput.Message("orders", b"1"), reput.Message("orders", b"2")])
    store.wait_dispatched()
    assert store.get_raw("orders", 0, 0, may_wait=False) is None
    found = store.get_raw("orders", 0, 0)
    assert found is not None
    assert found.records == b"".join(store.get_message("orders", 0, 0).raw())


def test_messages_that_the_disk_cannot_read_are_an_error(open_store: OpenStore) -> None:
    files = ColdPages()
    store = open_store(files=files, **KEYS)
    put_tagged(store)
    files.fails = True
    with files.cold(), pytest.raises(StoreError, match=r"consumequeue/orders/0/0{20}: cannot read at 0: Input/output"):
        store.get_raw("orders", 0, 0)
    assert store.get_raw("orders", 0, 0) is not None


def test_a_read_that_takes_long_is_right_though_retention_and_close_come_in_between(open_store: OpenStore) -> None:
    files = ColdPages()
    store = open_store(files=files, file_reserved_time=0, **KEYS)
    put_tagged(store, 2000)
    expected = store.get_raw("orders", 0, 5)
    found: list[object] = []
    with files.cold(), files.held():
        reader = threading.Thread(target=lambda: found.append(store.get_raw("orders", 0, 5)))
        reader.start()
        files.wait()
        before = store.min_commit_log_offset
        store.delete_expired()
        assert store.min_commit_log_offset > before
        store.close()
    reader.join()
    assert found == [expected]


def test_records_that_were_looked_at_stay_mapped_until_they_are_gathered(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(**KEYS)
    put_tagged(store)
    expected = store.get_raw("orders", 0, 5)
    look, gather, maps = Pages.look_at_records, Pages.gather, []

    def look_and_drop(pages: Pages, cold: Cold, file: MappedFile, *units: int, are_pairs: bool) -> None:
        look(pages, cold, file, *units, are_pairs=are_pairs)
        maps.append(weakref.ref(file.mapping.view.obj))
        file.drop_mapping()  # another thread has mapped the file, too, or there are too many maps

    def gather_mapped(pages: Pages, file: memoryview) -> bytes:
        assert maps[0]() is not None
        return gather(pages, file)

    monkeypatch.setattr(Pages, "look_at_records", look_and_drop)
    monkeypatch.setattr(Pages, "gather", gather_mapped)
    assert store.get_raw("orders", 0, 5) == expected
    assert maps[0]() is None, "it would hold the space of a file that is deleted"


def test_records_are_looked_at_by_their_places(open_store: OpenStore, path: Path) -> None:
    files = ColdPages()
    store = open_store(files=files, **KEYS | {"mapped_file_size_commit_log": 20_000})
    put_tagged(store)
    end = store.max_commit_log_offset
    assert end > 2 * 20_000
    pulled: list[MessageExt] = []
    while len(pulled) < 500:
        pulled += store.get_message("orders", 0, len(pulled)).messages()
    places = [(one.commit_log_offset, one.store_size) for one in reversed(pulled)]
    expected: list[bytes | None] = [one.raw for one in reversed(pulled)]
    assert store.look_records(places) == expected
    for odd in ((-5, 9), (3, 0), (3, -1), (end - 10, 11), (end, 1), (19_990, 11), (10 * end, 1)):
        assert store.look_records([odd]) == [None]
        assert store.look_records([*places[:3], odd, *places[3:]]) == [*expected[:3], None, *expected[3:]]
    with files.cold():
        assert store.look_records(places, may_wait=False) is None
        assert files.reads == []
        assert store.look_records(places) == expected
        assert {Path(read).relative_to(path).parts[0] for read in files.reads} == {"commitlog"}
    assert store.look_records(places, may_wait=False) == expected
