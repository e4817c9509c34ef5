"""Pulls of 32 messages, one after the other along queues that are in the page cache."""

from __future__ import annotations

from lab.bench.broker.brokers import BACKLOG, Brokers
from lab.bench.broker.load import Job
from lab.bench.figures import Figure
from lab.bench.setting import Setting

#: By threads, how many times RocketMQ's messages a second; and the part of its broker's CPU of a pull.
_TIMES = {1: (1.8, 3.0), 4: (1.1, 1.3)}
_PROCESSOR = (0.4, 0.25)
_SECONDS = 6.0


def measure(setting: Setting) -> list[Figure]:
    """Messages a second by one thread and by four, and processor time of a pull."""
    brokers = Brokers.shared(setting)
    figures = []
    for threads, (least, stretch) in _TIMES.items():
        name = f"broker, pulls of 32, {threads} thread{'s' * (threads > 1)}"
        rate = brokers.figure(name, "msg/s", least=least, stretch=stretch)
        broker = brokers.figure(f"{name}, broker's CPU of a pull", "us", most=_PROCESSOR[0], stretch=_PROCESSOR[1])
        for side in brokers.turns():
            measured = brokers.measure(side, [Job("pull", BACKLOG, threads=threads)], _SECONDS)
            told = measured.one
            side.add(rate, told.messages / told.seconds)
            side.add(broker, measured.broker_seconds / told.requests * 1e6)
        figures += [rate, broker]
    return [*figures, *brokers.failures("broker, pulls")]
