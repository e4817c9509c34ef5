"""Signals wait while a process is started."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from reput.spark.held_interrupt import held_interrupt


@pytest.fixture
def came() -> Iterator[list[int]]:
    """The signals that a handler has seen."""
    seen: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: seen.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_acts_once_at_the_end_of_the_block(came: list[int], number: signal.Signals) -> None:
    with held_interrupt():
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert came == []
    assert came == [number]
    signal.raise_signal(number)
    assert came == [number, number]


def test_a_signal_that_python_does_not_take_is_left_alone(came: list[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with held_interrupt():
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert came == []
