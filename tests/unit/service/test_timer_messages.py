"""When a message with a time is due, and where it waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import MessageIllegalError
from reput.service.timer_messages import (
    added_when_due,
    deliver_time,
    due_time,
    out_time,
    slot_times,
)

TIMES = st.integers(1, 1 << 45)
PRECISIONS = st.sampled_from([1, 10, 100, 1000, 7000])


@pytest.mark.parametrize(
    ("properties", "time"),
    [
        ({}, None),
        ({"TIMER_DELIVER_MS": "123"}, 123),
        ({"TIMER_DELAY_MS": "5"}, 1005),
        ({"TIMER_DELAY_SEC": "5"}, 6000),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "2", "TIMER_DELAY_SEC": "3"}, 4000),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "-2"}, 998),
    ],
)
def test_a_message_asks_for_its_time_in_seconds_before_ms_before_the_time(
    properties: dict[str, str], time: int | None
) -> None:
    assert deliver_time(properties, 1000) == time


@pytest.mark.parametrize("text", ["", "x", "1.5", "1 ", "٣", "9" * 30])
def test_a_time_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegalError, match="no number"):
        deliver_time({"TIMER_DELAY_MS": text}, 0)


@given(TIMES, PRECISIONS)
def test_the_slot_is_before_the_time_by_one_precision_at_most(deliver_ms: int, precision: int) -> None:
    out_ms = out_time(deliver_ms, precision)
    assert out_ms % precision == 0
    assert out_ms < deliver_ms <= out_ms + precision


@given(TIMES, TIMES, PRECISIONS, st.sampled_from(["TIMER_DELIVER_MS", "TIMER_DELAY_MS"]))
def test_a_message_is_due_at_the_time_that_it_asked_for(stored: int, delay: int, precision: int, name: str) -> None:
    deliver_ms = stored + delay
    text = str(deliver_ms if name == "TIMER_DELIVER_MS" else delay)
    assert due_time({name: text}, stored, out_time(deliver_ms, precision), precision) == deliver_ms


@given(TIMES, TIMES, PRECISIONS, st.dictionaries(st.just("TIMER_DELAY_MS"), st.text()))
def test_whatever_a_message_says_it_is_due_in_its_slot(
    stored: int, out: int, precision: int, properties: dict[str, str]
) -> None:
    out_ms = out - out % precision
    assert out_ms < due_time(properties, stored, out_ms, precision) <= out_ms + precision


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 33), PRECISIONS, st.integers(2, 1000))
def test_no_wait_is_longer_than_the_window_nor_later_than_the_message(
    now: int, delay: int, precision: int, slots: int
) -> None:
    write_ms, window_ms = now - now % precision, slots * precision
    out_ms = write_ms + delay - delay % precision
    (time,) = slot_times(np.array([out_ms]), np.array([write_ms]), window_ms, precision).tolist()
    assert time % precision == 0
    assert write_ms <= time <= min(out_ms, write_ms + window_ms)
    assert time == out_ms or time > write_ms  # each step comes nearer


def test_the_steps_of_a_far_message_are_those_of_rocketmq() -> None:
    day = 86_400_000
    write_ms = 1_795_578_957_000
    out_ms = np.array([1_795_755_357_000, 1_795_838_152_000, write_ms + day])
    times = slot_times(out_ms, np.full(3, write_ms), 2 * day, 1000)
    assert times.tolist() == [write_ms + day, write_ms + 2 * day, write_ms + day]


@pytest.mark.parametrize(("before", "after"), [("0", "1"), ("1", "2"), ("x", "1"), ("-1", "0")])
def test_a_message_says_when_it_came_into_its_slot_and_when_it_left(before: str, after: str) -> None:
    times = {"TIMER_ENQUEUE_MS": "6", "TIMER_DEQUEUE_MS": "7"}
    assert added_when_due(enqueued_ms=6, now_ms=7, roll_times=None) == times
    assert added_when_due(enqueued_ms=6, now_ms=7, roll_times=before) == times | {"TIMER_ROLL_TIMES": after}
