"""Time of a cheap request while others send and pull: the longest stall of the broker's loop."""

from __future__ import annotations

import time
from threading import Event, Thread

from lab.bench.broker.brokers import BACKLOG, BATCH, TOPIC, Brokers
from lab.bench.broker.load import Job
from lab.bench.broker.sides import call, connect
from lab.bench.figures import Figure, Goal, percentile
from lab.bench.setting import Setting
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand

_SECONDS = 6.0
_PAUSE_S = 0.001
#: Far from what either broker can take: a stall is the broker's and not that of processors with too much to do.
_MIXED = [
    Job("send", TOPIC, threads=4, rate=2000),
    Job("send", TOPIC, threads=1, rate=50, batch=BATCH),
    Job("pull", BACKLOG, threads=2, rate=200),
]


def measure(setting: Setting) -> list[Figure]:
    """Milliseconds of a request for a topic's configuration, one a millisecond over a connection of its own."""
    brokers = Brokers.shared(setting)
    name = "broker, a cheap request beside mixed load"
    figures = [brokers.figure(f"{name}, {which}", "ms") for which in ("p50", "p999", "the longest")]
    figures[1].goal = Goal(most=10)
    figures[0].note = "2000 sends, 50 batches of 32 and 200 pulls of 32 a second"
    for side in brokers.turns():
        with _Pings(side.address) as pings:
            brokers.measure(side, _MIXED, _SECONDS)
        for figure, share in zip(figures, (0.5, 0.999, 1), strict=True):
            side.add(figure, percentile(pings.seconds, share) * 1e3)
    return [*figures, *brokers.failures("broker, mixed load")]


class _Pings:
    """A thread that asks again and again while the `with` block runs.

    Attributes:
        seconds: Of each request.
    """

    def __init__(self, address: str) -> None:
        self.seconds: list[float] = []
        self._address = address
        self._ended = Event()
        self._thread = Thread(target=self._ask)

    def __enter__(self) -> _Pings:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if not self.seconds:
            raise AssertionError(f"{self._address} answered no request")

    def _ask(self) -> None:
        request = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, opaque=1, ext_fields={"topic": TOPIC})
        with connect(self._address) as connection:
            while not self._ended.wait(_PAUSE_S):
                begun = time.perf_counter()
                call(connection, request)
                self.seconds.append(time.perf_counter() - begun)
