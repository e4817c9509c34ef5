"""Plain pulls that a loop finds as they lie: the bytes, offsets and counts are those of `get_raw`."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from reput import Message, MessageStore
from reput.formats.java import INT32_MAX
from reput.formats.metadata import TopicConfig
from reput.log.queue_types import BATCH_CQ, QUEUE_TYPE
from reput.store.log.commit_log import CommitLog
from reput.store.reads import pulled_run
from tests.support.broker import SMALL
from tests.support.cold_pages import ColdPages

KEYS = SMALL | {"mapped_file_size_commit_log": 1 << 14, "mapped_file_size_consume_queue": 20 * 20}
LARGE = 1 << 20


def found(
    store: MessageStore, offset: int, most: int, most_size: int = LARGE, tags: str | None = None
) -> tuple[object, ...] | None:
    run = store.find_pull("orders", 0, offset, most, tags, most_size)
    if run is None:
        return None
    pairs = np.ctypeslib.as_array(ctypes.cast(run.segments, ctypes.POINTER(ctypes.c_int64)), (run.segment_count, 2))
    records = b"".join(ctypes.string_at(*pair) for pair in pairs.tolist())
    assert len(records) == run.size
    return run.following, run.min_offset, run.max_offset, records, run.messages


def got(store: MessageStore, offset: int, most: int, tags: str | None = None) -> tuple[object, ...]:
    result = store.get_raw("orders", 0, offset, most, tags, may_wait=True)
    assert result is not None
    return result.next_begin_offset, result.min_offset, result.max_offset, result.records, result.messages


def counts(store: MessageStore) -> tuple[int, ...]:
    one = store._queues.counts["orders"]
    return one.get_times, one.got_messages, one.got_bytes


def grown(store: MessageStore, before: tuple[int, ...]) -> list[int]:
    return [after - one for one, after in zip(before, counts(store), strict=True)]


def test_it_finds_what_a_pull_gets(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, **KEYS) as store:
        for number in range(50):
            store.put_message(Message("orders", bytes(number * 20)), queue_id=0)
            store.put_messages([Message("others", b"x")] * (number % 3), queue_id=0)
        store.wait_dispatched()
        for offset in range(50):
            for most in (-1, 0, 1, 5, 32, 10**9):
                expected = got(store, offset, most)
                before = counts(store)
                assert found(store, offset, most) == expected
                assert grown(store, before) == [1, expected[4], len(expected[3])]  # type: ignore[arg-type]


#: Aa and BB have one hash.
TAGS = ("Aa", "BB", "b", None, "Aa", "c")


@pytest.mark.parametrize("tags", ["*", "Aa", "b", "b || c", "Aa || none", "none"])
def test_it_finds_what_a_pull_by_tags_gets(tmp_path: Path, tags: str) -> None:
    with MessageStore.open(tmp_path, max_filter_message_size=20 * 30, **KEYS) as store:
        for number in range(60):
            store.put_message(Message("orders", bytes(number * 20), tags=TAGS[number % 6]), queue_id=0)
        store.wait_dispatched()
        for offset in range(60):
            for most in (-1, 0, 1, 5, 32, 10**9):
                expected = got(store, offset, most, tags)
                before, missed = counts(store), store._stats.get_miss_times
                run = found(store, offset, most, tags=tags)
                assert run == (expected if expected[4] else None)
                size = len(expected[3])  # type: ignore[arg-type]
                assert grown(store, before) == [bool(expected[4]), expected[4], size]
                assert store._stats.get_miss_times == missed


def test_a_message_that_is_dispatched_meanwhile_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, **KEYS) as store:

        def put() -> None:
            store.put_message(Message("orders", b"x", tags="a"), queue_id=0)
            store.wait_dispatched()

        def end_of(log: CommitLog) -> int:
            monkeypatch.undo()
            end = log.confirm_offset
            put()
            return end

        put()
        monkeypatch.setattr(CommitLog, "confirm_offset", property(end_of))
        run = found(store, 0, 32, tags="a")
        assert run is not None
        assert run[0] == run[-1] == 1
        assert store.max_offset("orders", 0) == 2


@pytest.mark.parametrize("is_batch", [False, True])
def test_pulls_without_a_limit_of_messages_take_memory_for_what_is_there(tmp_path: Path, is_batch: bool) -> None:
    unlimited = {f"max_transfer_count_on_message_in_{where}": INT32_MAX for where in ("memory", "disk")}
    with MessageStore.open(tmp_path, **unlimited, **KEYS) as store:
        if is_batch:
            store.update_topics([TopicConfig("orders", 1, 1, attributes={QUEUE_TYPE: BATCH_CQ})])
        for _ in range(15):
            store.put_message(Message("orders", b"x", tags="a"), queue_id=0)
        store.wait_dispatched()
        for tags in (None, "a"):
            assert got(store, 0, INT32_MAX, tags)[4] == 15
            assert is_batch or found(store, 0, INT32_MAX, tags=tags) == got(store, 0, INT32_MAX, tags)


def test_half_of_a_surrogate_pair_in_a_tag_matches_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, **KEYS) as store:
        for tag in ("a", "b"):
            store.put_message(Message("orders", b"x", tags=tag), queue_id=0)
        store.wait_dispatched()
        assert found(store, 0, 32, tags="\ud800 || b") == got(store, 0, 32, "\ud800 || b")
        assert got(store, 0, 32, "\ud800 || b")[4] == 1
        assert got(store, 0, 32, "\ud800")[4] == 0


def test_tags_in_ext_units_are_left_to_the_plain_way(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, enable_consume_queue_ext=True, **KEYS) as store:
        store.put_message(Message("orders", b"x", tags="a"), queue_id=0)
        store.wait_dispatched()
        assert found(store, 0, 1, tags="a") is None
        assert found(store, 0, 1) == got(store, 0, 1)


@pytest.mark.parametrize("case", ["offset", "topic", "size", "cold", "batch queue", "slave", "not mapped"])
def test_it_finds_and_counts_nothing_that_is_no_plain_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(pulled_run, "_RECENT_S", -1.0)
    disk, ratio = ColdPages(), 0 if case == "slave" else 40
    with MessageStore.open(tmp_path, files=disk, access_message_in_memory_max_ratio=ratio, **KEYS) as store:
        if case == "batch queue":
            store.update_topics([TopicConfig("orders", 1, 1, attributes={QUEUE_TYPE: BATCH_CQ})])
        for number in range(50):
            if case != "topic":
                store.put_message(Message("orders", b"%d" % number), queue_id=0)
        store.wait_dispatched()
        before, missed = counts(store) if case != "topic" else (0, 0, 0), store._stats.get_miss_times
        if case == "offset":
            assert found(store, 50, 1) is found(store, 51, 1) is found(store, -1, 1) is None
        elif case == "cold":
            assert found(store, 45, 1) is not None
            before = counts(store)
            with disk.cold():
                assert found(store, 45, 1) is None
            assert not disk.reads
        elif case == "size":
            size = len(got(store, 45, 2)[3])  # type: ignore[arg-type]
            before = counts(store)
            assert found(store, 45, 2, size - 1) is None
        else:
            assert found(store, 0, 1) is None
        if case != "topic":
            assert grown(store, before) == [0, 0, 0]
        assert store._stats.get_miss_times == missed


class CountedAsks(ColdPages):
    """A disk that counts how often it is asked what is in memory, and about how many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def are_in_memory(self, runs: int, count: int) -> bool:
        pairs = np.ctypeslib.as_array(ctypes.cast(runs, ctypes.POINTER(ctypes.c_int64)), (count, 2))
        self.asked.append(int(pairs[:, 1].sum()))
        return super().are_in_memory(runs, count)


def test_pages_are_asked_for_once_for_many_pulls_and_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, disk = [100.0], CountedAsks()
    monkeypatch.setattr(pulled_run, "monotonic", lambda: now[0])
    with MessageStore.open(tmp_path, files=disk, **SMALL) as store:
        for number in range(100):
            store.put_message(Message("orders", b"%d" % number), queue_id=0)
        store.wait_dispatched()
        for offset in range(60):
            assert found(store, offset, 32) == got(store, offset, 32)
        asked = len(disk.asked)
        for offset in range(60):
            assert found(store, offset, 32) is not None
        assert len(disk.asked) == asked
        with disk.cold():
            assert found(store, 60, 1) is not None
            now[0] += 0.06
            assert found(store, 60, 1) is None
        assert not disk.reads
        assert found(store, 60, 1) is not None
        store.put_message(Message("orders", b"new"), queue_id=0)
        store.wait_dispatched()
        with disk.cold():
            assert found(store, 60, 1) is not None
            assert found(store, 100, 1) is None, "what has come since then was not asked for"


def test_messages_far_from_each_other_ask_for_no_pages_between_them(tmp_path: Path) -> None:
    disk = CountedAsks()
    with MessageStore.open(tmp_path, files=disk, **SMALL | {"mapped_file_size_commit_log": 1 << 23}) as store:
        for number in range(4):
            store.put_message(Message("orders", b"%d" % number), queue_id=0)
            store.put_messages([Message("others", bytes(1 << 20))] * (number < 3) * 2, queue_id=0)
        store.wait_dispatched()
        assert found(store, 0, 32) == got(store, 0, 32)
        assert max(disk.asked) < 1 << 16


def test_what_it_found_stays_mapped_as_long_as_it_is_held(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, **KEYS) as store:
        store.put_message(Message("orders", b"found"), queue_id=0)
        store.wait_dispatched()
        run = store.find_pull("orders", 0, 0, 1, None, LARGE)
    assert run is not None
    address = np.ctypeslib.as_array(ctypes.cast(run.segments, ctypes.POINTER(ctypes.c_int64)), (2,)).tolist()
    assert b"found" in ctypes.string_at(*address)
