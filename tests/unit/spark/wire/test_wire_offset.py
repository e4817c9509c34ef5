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
    assert ranges_of(start, end) == {A0: (10, 12), B0: (4, 6)}
    assert ranges_of(start, json_of_queues({A0: 10, A1: 11})) == {A1: (10, 11)}
    assert ranges_of({}, json_of_queues({A0: [3, 3]})) == {}


@pytest.mark.parametrize(
    "value", [{"/data/store": {"offset": "x:0"}}, {"orders": 5}, {"orders": {"a:0": "5"}}, {"orders": {"a:0": [1]}}, []]
)
def test_an_offset_of_another_source_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        ends_of(value)
