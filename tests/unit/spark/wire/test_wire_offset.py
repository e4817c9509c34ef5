"""Offsets in the checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reput.errors import ConfigError
from reput.remoting.queue_tables import QueueKey
from reput.spark.wire.wire_offset import ends_of, json_of_queues, queues_of_json, ranges_of

A0, A1, B0 = QueueKey("orders", "a:1", 0), QueueKey("orders", "a:1", 1), QueueKey("refunds", "b", 0)


def test_offsets_are_json_by_topic_and_queue_and_come_back() -> None:
    value = json_of_queues({B0: 7, A1: (2, 5), A0: 1})
    text = json.dumps(value)
    assert text == '{"orders": {"a:1:0": 1, "a:1:1": [2, 5]}, "refunds": {"b:0": 7}}'
    assert queues_of_json(json.loads(text)) == {A0: 1, A1: [2, 5], B0: 7}
    assert ends_of(value) == {A0: 1, A1: 5, B0: 7}


def test_a_batch_goes_from_the_end_before_it_unless_it_says_where_it_begins() -> None:
    start = json_of_queues({A0: 10, A1: [0, 10]})
    end = json_of_queues({A0: 12, A1: [0, 10], B0: [4, 6]})
    assert ranges_of(start, end, none_asked) == {A0: (10, 12), B0: (4, 6)}
    assert ranges_of(start, json_of_queues({A0: 10, A1: 11}), none_asked) == {A1: (10, 11)}
    assert ranges_of({}, json_of_queues({A0: [3, 3]}), none_asked) == {}


def test_an_end_that_was_found_without_a_start_begins_where_the_batch_before_it_ends() -> None:
    end = json_of_queues({A0: {"first": 3, "end": 12}, A1: {"first": 0, "end": 10}, B0: {"first": None, "end": 6}})
    assert ends_of(end) == {A0: 12, A1: 10, B0: 6}
    assert ranges_of(json_of_queues({A0: 5, A1: [0, 10], B0: 2}), end, none_asked) == {A0: (5, 12), B0: (2, 6)}
    assert ranges_of(end, json_of_queues({A0: 13, A1: 10}), none_asked) == {A0: (12, 13)}
    assert ranges_of(end, end, none_asked) == {}


def test_the_begin_of_a_queue_without_a_batch_before_is_the_one_that_the_first_end_has_or_is_asked_for() -> None:
    end = json_of_queues({A0: {"first": 3, "end": 12}, B0: {"first": None, "end": 6}})
    asked = {B0: 1}
    assert ranges_of({}, end, asked.__getitem__) == {A0: (3, 12), B0: (1, 6)}
    asked[A0] = 4  # a queue that is new beside others begins with its first message
    assert ranges_of(json_of_queues({A1: 5}), end, asked.__getitem__) == {A0: (4, 12), B0: (1, 6)}


def none_asked(queue: QueueKey) -> int:
    raise AssertionError(queue)


@pytest.mark.parametrize(
    "value", [{"/data/store": {"offset": "x:0"}}, {"orders": 5}, {"orders": {"a:0": "5"}}, {"orders": {"a:0": [1]}}, []]
)
def test_an_offset_of_another_source_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        ends_of(value)
