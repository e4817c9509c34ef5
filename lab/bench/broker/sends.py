"""Single sends: rates, latencies and processor time, under ASYNC_FLUSH and under SYNC_FLUSH."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from lab.bench.broker.brokers import TOPIC, Brokers
from lab.bench.broker.load import Job
from lab.bench.figures import Figure
from lab.bench.setting import Setting


class _Bounds(NamedTuple):
    """Of one number of threads, a goal and the better one to reach for; None where a figure only informs.

    Attributes:
        rate: Times RocketMQ's sends a second.
        p50, p99, broker: Parts of RocketMQ's time of a send, and of its broker's processor time.
    """

    rate: tuple[float, float]
    p50: tuple[float | None, float | None] = (None, None)
    p99: float | None = None
    broker: tuple[float | None, float | None] = (None, None)


_ASYNC = {
    1: _Bounds((1.5, 2), p50=(0.6, 0.4), p99=1),
    16: _Bounds((1.5, 2), p50=(0.6, 0.5), p99=1, broker=(0.25, 0.12)),
    64: _Bounds((1.4, 1.7), broker=(0.33, 0.17)),
}
_SYNC = {1: _Bounds((1.2, 1.6)), 16: _Bounds((2, 3.5)), 64: _Bounds((1.8, 2.3))}
_ASYNC_S, _SYNC_S = 7.0, 5.0


def measure(setting: Setting) -> list[Figure]:
    """Sends under ASYNC_FLUSH by 1, 16 and 64 threads."""
    return _measure(Brokers.shared(setting), "ASYNC_FLUSH", _ASYNC, _ASYNC_S)


def measure_sync(setting: Setting) -> list[Figure]:
    """Sends under SYNC_FLUSH by 1, 16 and 64 threads."""
    with closing(Brokers.warmed_up(setting, "SYNC_FLUSH")) as brokers:
        figures = _measure(brokers, "SYNC_FLUSH", _SYNC, _SYNC_S)
    syncs = "fdatasync of small writes"
    for figure in figures:
        if figure.unit == "msg/s":
            figure.limit = (syncs, setting.limits[syncs])
    return figures


def _measure(brokers: Brokers, flush_disk_type: str, bounds: dict[int, _Bounds], seconds: float) -> list[Figure]:
    figures = []
    for threads, bound in bounds.items():
        name = f"broker, send, {flush_disk_type}, {threads} thread{'s' * (threads > 1)}"
        row = [
            brokers.figure(name, "msg/s", least=bound.rate[0], stretch=bound.rate[1]),
            brokers.figure(f"{name}, p50", "us", most=bound.p50[0], stretch=bound.p50[1]),
            brokers.figure(f"{name}, p99", "us", most=bound.p99),
            brokers.figure(f"{name}, broker's CPU", "us", most=bound.broker[0], stretch=bound.broker[1]),
        ]
        sent = dict.fromkeys((kind.name for kind in brokers.kinds), 0)
        for side in brokers.turns():
            measured = brokers.measure(side, [Job("send", TOPIC, threads=threads)], seconds)
            told = measured.one
            broker = measured.broker_seconds / told.requests * 1e6
            for figure, value in zip(row, (told.requests / told.seconds, told.p50, told.p99, broker), strict=True):
                side.add(figure, value)
            sent[side.name] += told.requests
        row[0].note = " beside ".join(f"{count:,}" for count in sent.values()) + " sends in all"
        figures += row
    return figures + brokers.failures(f"broker, send, {flush_disk_type}")
