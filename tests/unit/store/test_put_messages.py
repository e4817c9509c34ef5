"""Puts of several messages of any topics and queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reput
from reput.errors import MessageIllegalError
from tests.crash.faulty_files import FaultyFiles
from tests.crash.invariants import check_store
from tests.unit.store.conftest import OpenStore

TOPICS, QUEUES = 50, 3
LARGE_FILES = {"mapped_file_size_commit_log": 1 << 24}


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
    for queue_ids in (range(1, 3), [True, np.int64(2)], (np.int32(1), 2)):
        store.put_messages([reput.Message("t", b"x")] * 2, queue_ids)
    store.put_messages([reput.Message("t", b"x")] * 2, np.int64(1))  # type: ignore[arg-type]
    store.wait_dispatched()
    assert [store.max_offset("t", queue_id) for queue_id in range(3)] == [0, 5, 3]
    assert store.put_messages([], []) == []


def test_an_illegal_message_is_named_whatever_the_queue_ids(store: reput.MessageStore) -> None:
    topics: list[Any] = ["no blanks", None, ["t"], np.zeros(2), np.zeros(1)]
    for bad in (None, reput.Message("t", "text"), *(reput.Message(topic, b"") for topic in topics)):  # type: ignore[arg-type]
        for queue_ids in (1, [0, 1]):
            with pytest.raises(MessageIllegalError, match="message 1"):
                store.put_messages([reput.Message("t", b"x"), bad], queue_ids)  # type: ignore[list-item]
    assert store.max_commit_log_offset == 0
