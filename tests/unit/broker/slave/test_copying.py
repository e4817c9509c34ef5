"""Whether a slave copies, as one state."""

from __future__ import annotations

import logging

import pytest

from reput.broker.slave.copying import Copying
from reput.events import Event

MASTER = "10.0.0.5:10911"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def copying(clock: Clock) -> Copying:
    return Copying(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, object]]:
    """Level, message and reason of each line."""
    events = [(one.levelname, one.msg) for one in caplog.records if isinstance(one.msg, Event)]
    return [(level, event.message, event.fields.get("reason")) for level, event in events]


def test_a_refusal_counts_at_once_and_a_master_that_is_away_after_a_while(copying: Copying, clock: Clock) -> None:
    assert copying.copies_nothing is None
    copying.stops("Connection refused", MASTER)
    assert copying.copies_nothing is None
    copying.stops("other bytes", MASTER, is_refused=True)
    assert copying.copies_nothing == "copies nothing from 10.0.0.5:10911: other bytes"
    copying.stops("the connection ended", MASTER)  # it is tried again
    assert copying.copies_nothing == "copies nothing from 10.0.0.5:10911: the connection ended"
    copying.goes_on(0, is_all=True)
    assert copying.copies_nothing is None
    clock.now = 100.0
    copying.stops("Connection refused", MASTER)
    clock.now = 129.9
    copying.stops("no connection in 3 s", MASTER)
    assert copying.copies_nothing is None
    clock.now = 130.0
    assert copying.copies_nothing == "copies nothing from 10.0.0.5:10911: no connection in 3 s"
    copying.goes_on(0, is_all=True)
    assert copying.copies_nothing is None


def test_a_slave_that_never_hears_of_a_master_copies_nothing(copying: Copying, clock: Clock) -> None:
    clock.now = 30.0
    assert copying.copies_nothing == "copies nothing: it has just started"
    copying.stops("no name server knows a master of broker-a")
    assert copying.copies_nothing == "copies nothing: no name server knows a master of broker-a"


def test_the_log_says_it_again_and_again_but_not_at_each_try(
    copying: Copying, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "reput.broker")
    for second in range(0, 125, 5):
        clock.now = float(second)
        copying.stops("other bytes", MASTER, is_refused=True)
    assert lines(caplog) == [("ERROR", "the slave copies nothing", "other bytes")] * 3
    copying.stops("a gap", MASTER, is_refused=True)
    assert lines(caplog)[3:] == [("ERROR", "the slave copies nothing", "a gap")]
    copying.goes_on(0, is_all=True)
    copying.goes_on(0, is_all=True)
    assert lines(caplog)[4:] == [("INFO", "the slave copies again", None)]


def test_a_master_that_is_back_in_a_moment_is_not_told(
    copying: Copying, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "reput.broker")
    copying.stops("Connection refused", MASTER)
    copying.goes_on(0, is_all=True)
    assert lines(caplog) == []
    clock.now = 40.0
    copying.stops("Connection refused", MASTER)
    clock.now = 70.0
    copying.stops("Connection refused", MASTER)
    assert lines(caplog) == [("WARNING", "the slave copies nothing", "Connection refused")]


def test_a_refusal_ends_with_a_new_byte_and_not_with_a_new_connection(
    copying: Copying, caplog: pytest.LogCaptureFixture
) -> None:
    copying.goes_on(100, is_all=False)
    with caplog.at_level(logging.INFO, "reput.broker"):
        for _ in range(3):  # a full disk: each connection compares the last bytes, and then has no space
            copying.stops("no space left", MASTER, is_refused=True)
            copying.goes_on(100, is_all=False)
        assert copying.copies_nothing == "copies nothing from 10.0.0.5:10911: no space left"
        copying.goes_on(101, is_all=False)
    assert copying.copies_nothing is None
    assert lines(caplog) == [
        ("ERROR", "the slave copies nothing", "no space left"),
        ("INFO", "the slave copies again", None),
    ]
