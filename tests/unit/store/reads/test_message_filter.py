"""Pulls that choose messages by their properties."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import reput
from reput.formats.metadata import TopicConfig
from reput.store.reads.get_result import GetRawResult
from reput.store.results import GetMessageStatus
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL


class Numbers:
    """Wants messages by their number."""

    names = ("n", "missing")
    most_rows = 800
    is_short = True

    def __init__(self, *wanted: int) -> None:
        self.wanted = wanted
        self.calls: list[int] = []

    def matches(self, texts: Mapping[str, pa.StringArray], rows: int) -> npt.NDArray[np.bool_]:
        self.calls.append(rows)
        assert texts["missing"].null_count == rows
        for array in texts.values():
            array.validate(full=True)
        wanted = set(map(str, self.wanted))
        return np.array([number in wanted for number in texts["n"].to_pylist()], np.bool_)


def filled(open_store: OpenStore, count: int, **keys: object) -> reput.MessageStore:
    store = open_store(**(SMALL | keys))
    messages = [reput.Message("t", b"x" * 50, properties={"n": str(number), "nn": "1"}) for number in range(count)]
    store.put_messages(messages)
    store.wait_dispatched()
    return store


def pull(store: reput.MessageStore, wanted: Numbers, offset: int = 0, most: int = 32, **more: object) -> GetRawResult:
    result = store.get_raw("t", 0, offset, most, None, wanted, **more)  # type: ignore[arg-type]
    assert result is not None
    return result


def numbers(result: GetRawResult) -> list[int]:
    found, position = [], 0
    while position < len(result.records):
        message = reput.MessageExt(result.records, position)
        found.append(int(message.properties["n"]))
        position += message.store_size
    return found


def test_a_pull_takes_what_the_filter_wants_and_goes_on_behind_it(open_store: OpenStore) -> None:
    store = filled(open_store, 7)
    result = pull(store, Numbers(1, 3, 6), most=2)
    assert (numbers(result), result.next_begin_offset, result.messages) == ([1, 3], 4, 2)
    result = pull(store, Numbers(1, 3, 6), offset=4)
    assert (numbers(result), result.next_begin_offset) == ([6], 7)


def test_a_pull_that_finds_nothing_says_how_far_it_has_looked(open_store: OpenStore) -> None:
    store = filled(open_store, 7)
    result = pull(store, Numbers())
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 7)
    assert pull(store, Numbers(), offset=7).status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_a_pull_ends_with_its_queue_file_and_all_messages_are_found(open_store: OpenStore) -> None:
    store = filled(open_store, 100)  # in many files of the log, and 8 units in each of the queue's
    wanted = Numbers(*range(0, 100, 7))
    found, offset = [], 0
    while offset < 100:
        result = pull(store, wanted, offset)
        assert offset < result.next_begin_offset <= offset + 8
        found += numbers(result) if result.messages else []
        offset = result.next_begin_offset
    assert found == list(wanted.wanted)


def test_a_filter_is_asked_about_more_and_more_until_it_has_found_enough(open_store: OpenStore) -> None:
    store = filled(open_store, 1000, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)
    wanted = Numbers(*range(500, 1000))
    result = pull(store, wanted)
    assert (numbers(result), result.next_begin_offset) == (list(range(500, 532)), 532)
    assert wanted.calls == [32, 64, 128, 256, 256]  # 736 messages
    wanted = Numbers()
    assert pull(store, wanted).next_begin_offset == 800
    assert sum(wanted.calls) == 800
    wanted.most_rows = 20
    assert pull(store, wanted).next_begin_offset == 20


def test_a_pull_ends_after_many_bytes_of_properties(open_store: OpenStore) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)
    large = "1" + "0" * 20_000
    store.put_messages([reput.Message("t", b"x", properties={"n": large}) for _ in range(60)])
    store.wait_dispatched()
    result = pull(store, Numbers())
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 32)
    assert store.get_raw("t", 0, 0, 32, None, Numbers(), may_wait=False) is None


def test_a_filter_that_takes_long_counts_as_not_in_memory(open_store: OpenStore) -> None:
    store = filled(open_store, 3)
    wanted = Numbers(1)
    assert numbers(pull(store, wanted, may_wait=False)) == [1]
    wanted.is_short = False
    assert store.get_raw("t", 0, 0, 32, None, wanted, may_wait=False) is None
    assert numbers(pull(store, wanted)) == [1]


def test_messages_of_a_batch_queue_are_chosen_too(open_store: OpenStore) -> None:
    store = open_store()
    store.update_topics([TopicConfig("t", 1, 1, attributes={"queue.type": "BatchCQ"})])
    store.put_messages([reput.Message("t", b"x", properties={"n": str(number)}) for number in range(9)])
    store.wait_dispatched()
    result = pull(store, Numbers(2, 5))
    assert (numbers(result), result.messages, result.next_begin_offset) == (
        [2, 5],
        2,
        8,
    )  # a file of the queue has 8 units
    assert pull(store, Numbers()).status is GetMessageStatus.NO_MATCHED_MESSAGE
