"""Batches of 32 messages from four threads."""

from __future__ import annotations

from lab.bench.broker.brokers import BATCH, TOPIC, Brokers
from lab.bench.broker.load import Job
from lab.bench.figures import Figure
from lab.bench.setting import Setting

_THREADS = 4
_SECONDS = 8.0


def measure(setting: Setting) -> list[Figure]:
    """Messages a second, and processor time of a batch."""
    brokers = Brokers.shared(setting)
    name = f"broker, batches of {BATCH}, {_THREADS} threads"
    rate = brokers.figure(name, "msg/s", least=1.7, stretch=2)
    broker = brokers.figure(f"{name}, broker's CPU of a batch", "us", most=0.25, stretch=0.15)
    for side in brokers.turns():
        measured = brokers.measure(side, [Job("send", TOPIC, threads=_THREADS, batch=BATCH)], _SECONDS)
        told = measured.one
        side.add(rate, told.messages / told.seconds)
        side.add(broker, measured.broker_seconds / told.requests * 1e6)
    return [rate, broker, *brokers.failures("broker, batches")]
