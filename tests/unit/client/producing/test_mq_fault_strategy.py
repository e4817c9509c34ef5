from __future__ import annotations

import pytest

from reput.client.producing.mq_fault_strategy import FAILED_S, MQFaultStrategy
from reput.remoting.queue_tables import QueueKey

QUEUES = [QueueKey("t", name, queue_id) for name in "ab" for queue_id in range(2)]


def test_queues_are_taken_in_turn() -> None:
    faults = MQFaultStrategy()
    taken = [faults.select(QUEUES, (), 0.0) for _ in range(8)]
    assert sorted(taken) == sorted(QUEUES * 2)
    assert taken[:4] == taken[4:]


def test_a_broker_that_was_tried_is_not_tried_again_as_long_as_there_is_another() -> None:
    faults = MQFaultStrategy()
    assert {faults.select(QUEUES, ["a"], 0.0).broker_name for _ in range(8)} == {"b"}
    assert {faults.select(QUEUES, ["a", "b"], 0.0).broker_name for _ in range(8)} == {"a", "b"}


@pytest.mark.parametrize(("seconds", "away"), [(0.5, 0), (0.6, 2), (2, 5), (4, 6), (FAILED_S, 10), (20, 30)])
def test_a_slow_broker_is_left_alone_for_a_while(seconds: float, away: float) -> None:
    faults = MQFaultStrategy()
    faults.sent("a", seconds, 100.0)
    assert faults.is_available("a", 100.0 + away)
    assert away == 0 or not faults.is_available("a", 100.0 + away - 0.01)
    if away:
        assert {faults.select(QUEUES, (), 100.0).broker_name for _ in range(8)} == {"b"}


def test_a_quick_answer_brings_a_broker_back_at_once() -> None:
    faults = MQFaultStrategy()
    faults.sent("a", FAILED_S, 100.0)
    faults.sent("a", 0.01, 101.0)
    assert faults.is_available("a", 101.0)


def test_where_all_brokers_are_slow_the_sends_go_on() -> None:
    faults = MQFaultStrategy()
    for name in "ab":
        faults.sent(name, FAILED_S, 100.0)
    assert {faults.select(QUEUES, (), 100.0).broker_name for _ in range(8)} == {"a", "b"}
