"""Puts of several messages of any topics and queues, and what they tell when the disk ends in the middle of them."""

from __future__ import annotations

import errno
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reput
from reput.errors import CorruptRecordError, MessageIllegalError, StoreError, StoreFullError, StorePoisonedError
from tests.support.faulty_files import FaultyFiles, Operation, fail_next, no_objection
from tests.support.fixtures import OpenStore
from tests.support.invariants import check_store

TOPICS, QUEUES = 50, 3
LARGE_FILES = {"mapped_file_size_commit_log": 1 << 24}
#: No thread makes a file ahead, so the one that cannot be made is the one that a put needs.
NOTHING_AHEAD = {"flush_interval_consume_queue": 2**31 - 1}


def in_turn(count: int, **fields: Any) -> list[reput.Message]:
    return [reput.Message(f"topic-{n % TOPICS}", b"%d" % n * (n % 40), keys=[f"k{n}"], **fields) for n in range(count)]


@pytest.mark.parametrize("queue_id", [1, [n % QUEUES for n in range(200)]])
def test_messages_of_many_topics_in_turn_are_written_at_once(open_store: OpenStore, queue_id: int | list[int]) -> None:
    files = FaultyFiles()
    store = open_store(files=files, **LARGE_FILES)
    store.put_message(reput.Message("topic-0", b""))
    before = len(files.operations)
    store.put_messages(in_turn(200), queue_id)
    written = [one for one in files.operations[before:] if one.kind == "write" and "commitlog" in one.path]
    assert len(written) == 1


@pytest.mark.parametrize(
    ("options", "fields", "shape"),
    [
        pytest.param({}, {}, list, id="plain"),
        pytest.param({}, {}, lambda ids: np.array(ids, np.uint8), id="an array"),
        pytest.param({}, {"born_host": "10.0.0.1:1"}, np.array, id="not plain"),
        pytest.param({"enabled_append_prop_crc": True}, {}, tuple, id="property CRC"),
        pytest.param({"enable_lmq": True, "enable_multi_dispatch": True}, {}, list, id="light queues"),
    ],
)
def test_each_message_goes_to_its_own_topic_and_queue(
    open_store: OpenStore,
    path: Path,
    options: dict[str, object],
    fields: dict[str, str],
    shape: Callable[[list[int]], Sequence[int]],
) -> None:
    store, messages = open_store(**options), in_turn(120, **fields)
    queue_ids = [n // 7 % QUEUES for n in range(120)]
    next_offsets: dict[tuple[str, int], int] = defaultdict(int)
    for one, queue_id in zip(messages[:2], (1, 2), strict=True):
        next_offsets[one.topic, queue_id] = store.put_message(one, queue_id).queue_offset + 1
    results = store.put_messages(messages, shape(queue_ids))
    store.close()
    records = check_store(path)[2:]
    assert [record.queue for record in records] == [
        (one.topic, queue_id) for one, queue_id in zip(messages, queue_ids, strict=True)
    ]
    assert [record.row["body"] for record in records] == [one.body for one in messages]
    for record, result in zip(records, results, strict=True):
        assert (result.commit_log_offset, result.size) == (record.offset, record.size)
        assert result.store_timestamp == record.row["store_timestamp"]
        assert result.queue_offset == record.row["queue_offset"] == next_offsets[record.queue]
        next_offsets[record.queue] += 1


WRONG_QUEUE_IDS: list[tuple[Any, str]] = [
    ([0, 1], "^2 queue ids for 3 messages; pass one for each"),
    ([], "^0 queue ids for 3 messages"),
    (np.zeros(4, np.int32), "^4 queue ids for 3 messages"),
    ([0, -1, -2], "^message 1: queue_id -1 is not between 0 and 2147483647$"),
    ([0, 0, 1 << 31], "^message 2: queue_id 2147483648 is not"),
    ([1 << 70, 0, 0], f"^message 0: queue_id {1 << 70} is not"),
    (np.array([0, 1 << 63, 0], np.uint64), f"^message 1: queue_id {1 << 63} is not"),
    ([0, "1", 2], "^message 1: queue_id must be a whole number, not str$"),
    ([0, 1, 2.0], "^message 2: queue_id must be a whole number, not float$"),
    ([None] * 3, "^message 0: queue_id must be a whole number, not NoneType$"),
    ([0, True, 2], "^message 1: queue_id must be a whole number, not bool$"),
    (np.array([False, True, True]), "^message 0: queue_id must be a whole number, not bool$"),
    ([0, [1], 2], "^message 1: queue_id must be a whole number, not list$"),
    (np.array([0.0, 1.0, 2.0]), "^message 0: queue_id must be a whole number, not float64$"),
    (np.zeros((3, 1), np.int32), "^message 0: queue_id must be a whole number, not ndarray$"),
    ("012", "^queue_id must be a whole number, or a list with one for each message, not str$"),
    ({0: 1, 1: 2, 2: 3}, "^queue_id must be a whole number, or a list with one for each message, not dict$"),
    (-1, "^queue_id -1 is not between"),
]


def test_queue_ids_that_are_none_are_named_and_nothing_is_written(store: reput.MessageStore) -> None:
    for queue_ids, reason in WRONG_QUEUE_IDS:
        with pytest.raises(MessageIllegalError, match=reason):
            store.put_messages([reput.Message("t", b"x")] * 3, queue_ids)
    assert store.max_commit_log_offset == 0


def test_whole_numbers_of_every_kind_are_queue_ids(store: reput.MessageStore) -> None:
    for queue_ids in (range(1, 3), [1, np.int64(2)], (np.int32(1), 2)):
        store.put_messages([reput.Message("t", b"x")] * 2, queue_ids)
    store.put_messages([reput.Message("t", b"x")] * 2, np.int64(1))  # type: ignore[arg-type]
    store.wait_dispatched()
    assert [store.max_offset("t", queue_id) for queue_id in range(3)] == [0, 5, 3]
    assert store.put_messages([], []) == []


def test_an_illegal_message_is_named_whatever_the_queue_ids(store: reput.MessageStore) -> None:
    topics: list[Any] = ["no/folder", None, ["t"], np.zeros(2), np.zeros(1)]
    for bad in (None, reput.Message("t", "text"), *(reput.Message(topic, b"") for topic in topics)):  # type: ignore[arg-type]
        for queue_ids in (1, [0, 1]):
            with pytest.raises(MessageIllegalError, match="message 1"):
                store.put_messages([reput.Message("t", b"x"), bad], queue_ids)  # type: ignore[list-item]
    assert store.max_commit_log_offset == 0


# -- a put that cannot go on


BODY = bytes(1500)  # two records a file


def put_rows(store: reput.MessageStore, bodies: list[bytes]) -> object:
    return store.put_arrow(pa.table({"topic": ["t"] * len(bodies), "body": bodies}))


def put_reader(store: reput.MessageStore, bodies: list[bytes]) -> object:
    batches = [pa.record_batch({"topic": ["t"], "body": [body]}) for body in bodies]
    return store.put_arrow(pa.RecordBatchReader.from_batches(batches[0].schema, batches))


SEVERAL: dict[str, Callable[[reput.MessageStore, list[bytes]], object]] = {
    "plain": lambda store, bodies: store.put_messages([reput.Message("t", body) for body in bodies]),
    "not plain": lambda store, bodies: store.put_messages(
        [reput.Message("t", body, born_host="10.0.0.1:1") for body in bodies]
    ),
    "table": put_rows,
    "reader": put_reader,
}


def no_third_file(operation: Operation) -> None:
    if operation.kind == "create" and operation.path.endswith(f"{2 * 4096:020d}"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("way", SEVERAL)
def test_a_full_disk_tells_which_messages_are_stored_and_they_are_on_the_disk(
    open_store: OpenStore, path: Path, way: str
) -> None:
    files = FaultyFiles(no_third_file)
    store = open_store(files=files, **NOTHING_AHEAD)
    bodies = [bytes([n]) * len(BODY) for n in range(7)]
    with pytest.raises(
        StoreFullError, match=r"bytes needed.*; the first 4 messages are stored \(PUT_OK\), the "
    ) as full:
        SEVERAL[way](store, bodies)
    assert full.value.stored_messages == 4
    assert full.value.retriable
    assert store.flushed_offset == store.max_commit_log_offset > 4096
    assert store.runtime_info().put_message_failed_times == 1
    store.wait_dispatched()
    assert store.max_offset("t", 0) == 4
    files.judge = no_objection
    SEVERAL[way](store, bodies[full.value.stored_messages :])
    store.close()
    assert [record.row["body"] for record in check_store(path)] == bodies


@pytest.mark.parametrize("way", SEVERAL)
def test_a_disk_that_is_full_before_the_first_message_tells_of_none(open_store: OpenStore, way: str) -> None:
    store = open_store(files=FaultyFiles(no_third_file), **NOTHING_AHEAD)
    SEVERAL[way](store, [BODY] * 4)
    with pytest.raises(StoreFullError) as full:
        SEVERAL[way](store, [BODY] * 2)
    assert "stored" not in str(full.value)
    assert full.value.stored_messages == 0


def test_rows_of_a_reader_before_an_illegal_one_are_counted_in_the_error(store: reput.MessageStore) -> None:
    with pytest.raises(MessageIllegalError, match="the 2 rows of the batches before are stored") as illegal:
        put_reader(store, [b"x", b"y", bytes(5 << 20)])
    assert illegal.value.stored_messages == 2


def test_a_sync_that_takes_too_long_is_told_with_the_messages_that_are_stored(open_store: OpenStore) -> None:
    may_sync, is_syncing = threading.Event(), threading.Event()

    def judge(operation: Operation) -> None:
        no_third_file(operation)
        if operation.kind == "sync" and operation.path.endswith(f"{0:020d}"):
            is_syncing.set()
            assert may_sync.wait(60)

    files = FaultyFiles()
    store = open_store(files=files, sync_flush_timeout=50, **NOTHING_AHEAD)
    store.put_message(reput.Message("t", b"safe"))
    files.judge = judge
    first = threading.Thread(target=store.put_message, args=(reput.Message("t", b"syncs by itself"),))
    first.start()
    assert is_syncing.wait(10)
    with pytest.raises(StoreFullError, match=r"the first 4 messages are stored \(FLUSH_DISK_TIMEOUT\), the "):
        SEVERAL["plain"](store, [BODY] * 7)
    may_sync.set()
    first.join()


def test_after_a_failed_sync_nobody_says_what_is_stored(open_store: OpenStore) -> None:
    fail_sync = fail_next("sync", part=f"commitlog/{0:020d}")
    files = FaultyFiles()

    def judge(operation: Operation) -> None:
        no_third_file(operation)
        fail_sync(operation)

    store = open_store(files=files, **NOTHING_AHEAD)
    store.put_message(reput.Message("t", b"safe"))
    files.judge = judge
    with pytest.raises(StorePoisonedError, match="may be lost") as poisoned:
        SEVERAL["plain"](store, [BODY] * 7)
    assert poisoned.value.stored_messages == 0
    assert "are stored" not in str(poisoned.value)
    with pytest.raises(StorePoisonedError):
        store.close()


FULL, DAMAGED = StoreFullError("the disk is too full"), CorruptRecordError("log", 7, "damage")


@pytest.mark.parametrize(
    ("way", "refusal"), [("plain", FULL), ("not plain", DAMAGED), ("table", FULL), ("reader", DAMAGED)]
)
def test_a_log_that_closes_in_the_middle_keeps_its_error_and_the_put_tells_what_is_stored(
    open_store: OpenStore, way: str, refusal: StoreError
) -> None:
    def close_log(operation: Operation) -> None:
        if operation.kind == "create" and operation.path.endswith(f"{4096:020d}"):
            store._log._refuse_all(refusal)  # as retention and dispatch do, without waiting for this very put

    store = open_store(files=FaultyFiles(close_log), **NOTHING_AHEAD)
    text = str(refusal)
    with pytest.raises(type(refusal)) as told:
        SEVERAL[way](store, [BODY] * 7)
    stored = told.value.stored_messages
    assert stored >= 3
    assert str(told.value) == f"{text}; the first {stored} messages are stored (PUT_OK), the others are not"
    assert (str(refusal), refusal.stored_messages) == (text, 0)
    store._log._refusal = None
    store.wait_dispatched()
    assert store.max_offset("t", 0) == stored
