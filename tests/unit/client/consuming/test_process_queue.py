"""What a consumer knows of a queue, and the table of its queues."""

from __future__ import annotations

import pytest

from reput.client.consuming.process_queue import ProcessQueue, ProcessQueueTable, tell_moved
from reput.remoting.queue_tables import QueueKey

ORDERS = [QueueKey("orders", "broker-a", number) for number in range(3)]
OTHER = QueueKey("other", "broker-a", 0)


class Told(ProcessQueue):
    """A queue that says what becomes of it."""

    def __init__(self, queue: QueueKey, log: list[tuple[str, QueueKey]]) -> None:
        super().__init__(queue)
        self._log = log

    def want(self) -> None:
        super().want()
        self._log.append(("want", self.queue))

    def drop(self) -> None:
        super().drop()
        self._log.append(("drop", self.queue))


def test_a_share_changes_those_queues_alone_that_come_or_go_and_those_of_its_topics() -> None:
    log: list[tuple[str, QueueKey]] = []
    queues = ProcessQueueTable(lambda queue: Told(queue, log))
    queues.assign([ORDERS[1], ORDERS[0]], {"orders"})
    queues.assign([OTHER], {"other"})
    assert log == [("want", ORDERS[0]), ("want", ORDERS[1]), ("want", OTHER)]
    log.clear()
    queues.assign([ORDERS[1], ORDERS[2]], {"orders"})
    assert log == [("drop", ORDERS[0]), ("want", ORDERS[2])]
    queues.assign([ORDERS[2]])
    assert queues.share() == {ORDERS[2]}


def test_a_queue_that_comes_back_before_its_work_is_over_is_the_same_one() -> None:
    queues = ProcessQueueTable(ProcessQueue)
    queues.assign([ORDERS[0]])
    one = queues.known(ORDERS[0])
    queues.assign([])
    assert list(queues) == [one]
    queues.assign([ORDERS[0]])
    assert queues.known(ORDERS[0]) is one
    queues.remove(one)
    assert queues.get(ORDERS[0]) is None


@pytest.mark.parametrize(("now", "expected"), [(100.0, 0.0), (129.9, 29.9), (130.0, None), (500.0, None)])
def test_a_lock_is_trusted_for_half_a_minute_after_it_was_asked_for(now: float, expected: float | None) -> None:
    one = ProcessQueue(ORDERS[0])
    assert one.locked_s(now) is None
    one.locked_at = 100.0
    assert one.locked_s(now) == (None if expected is None else pytest.approx(expected))


def test_an_offset_that_stays_is_not_told_as_moved(caplog: pytest.LogCaptureFixture) -> None:
    tell_moved(ORDERS[0], 0, 0)
    assert caplog.messages == []
    tell_moved(ORDERS[0], 7, 3)
    (message,) = caplog.messages
    assert message.startswith("an offset is moved")
