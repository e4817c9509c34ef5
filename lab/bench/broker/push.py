"""Push consumers: one with a backlog, and one that waits for each message."""

from __future__ import annotations

from itertools import count

from lab.bench.broker.brokers import BACKLOG, QUEUES, Brokers
from lab.bench.broker.load import Job
from lab.bench.figures import Figure
from lab.bench.setting import Setting

#: A group's name is never used again: it would go on where it stopped.
_GROUPS = (f"push-{number}" for number in count())
_RATE = 1000
_SECONDS = 6.0
_WARM_S = 1.5
#: Nothing else is in it, so that a consumer of a new group has no backlog.
_LIVE = "live"


def measure(setting: Setting) -> list[Figure]:
    """Messages a second of a backlog, and from send to listener at 1000 messages a second."""
    brokers = Brokers.shared(setting)
    return [*_backlog(brokers), *_live(setting, brokers), *brokers.failures("broker, push consumer")]


def _backlog(brokers: Brokers) -> list[Figure]:
    rate = brokers.figure("broker, push consumer with a backlog", "msg/s", least=1.1, stretch=1.3)
    for side in brokers.turns():
        with brokers.load.connected(side):
            side.add(rate, brokers.backlog / brokers.load.push(BACKLOG, next(_GROUPS), brokers.backlog))
    return [rate]


def _live(setting: Setting, brokers: Brokers) -> list[Figure]:
    name = f"broker, send to push consumer, {_RATE}/s"
    figures = [
        brokers.figure(f"{name}, p50", "us", most=0.8, stretch=0.55),
        brokers.figure(f"{name}, p99", "us"),
        brokers.figure(f"{name}, broker's CPU", "us"),
    ]
    sending = [Job("send", _LIVE, rate=_RATE)]
    for side in brokers.turns():
        side.make_topic(_LIVE, QUEUES)
        with brokers.load.connected(side):
            brokers.load.subscribe(_LIVE, next(_GROUPS))
            warm = brokers.run(side, sending, setting.seconds(_WARM_S)).one
            brokers.load.arrived(warm.messages)
            measured = brokers.run(side, sending, setting.seconds(_SECONDS))
            told = measured.one
            arrived = brokers.load.arrived(told.messages)
        broker = measured.broker_seconds / told.messages * 1e6
        for figure, value in zip(figures, (arrived["p50"], arrived["p99"], broker), strict=True):
            side.add(figure, value)
    return figures
