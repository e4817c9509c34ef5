"""Both brokers on stores of their own, warmed up, and turns of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from lab.bench.broker.load import Job, Load, Measured
from lab.bench.broker.sides import Apache, Ours, Side
from lab.bench.figures import Figure, Goal, Other
from lab.bench.setting import Setting

__all__ = ["BACKLOG", "BATCH", "QUEUES", "TOPIC", "Brokers"]

#: The topic of most sends, and the one that is filled before.
TOPIC, BACKLOG = "orders", "backlog"
QUEUES = 4
BATCH = 32
_ROUNDS = 5
_BACKLOG_COUNT = 200_000
#: Of a full run: until a JVM has compiled what answers sends, batches and pulls; and before each measurement.
_WARM_UP_S, _WARM_S = 10.0, 0.7
#: However short a run is, but for a quick one.
_LEAST_WARM_UP_S = 4.0


class Brokers:
    """Reput's broker and RocketMQ's, unless that is left out. One runs while the other one's process is stopped.

    Attributes:
        kinds: Whose brokers there are; ours is the first.
        sides: Those that were added.
        rounds: How often each has its turn.
        backlog: Messages of the topic `BACKLOG`.
    """

    def __init__(self, setting: Setting) -> None:
        self.kinds: tuple[type[Side], ...] = (Ours, Apache) if setting.beside_apache else (Ours,)
        self.sides: list[Side] = []
        self.rounds = 1 if setting.quick else _ROUNDS
        self.backlog = setting.count(_BACKLOG_COUNT)
        self._setting = setting
        self._failures: dict[str, int] = {}

    @property
    def load(self) -> Load:
        """The client of the run."""
        return self._setting.shared("load", Load)

    @classmethod
    def shared(cls, setting: Setting) -> Self:
        """Brokers under ASYNC_FLUSH, which several questions share."""
        return setting.shared("brokers", lambda: cls.warmed_up(setting, "ASYNC_FLUSH"))

    @classmethod
    def warmed_up(cls, setting: Setting, flush_disk_type: str) -> Self:
        """On new stores with the topics `TOPIC` and, filled, `BACKLOG`; their code is compiled."""
        brokers = cls(setting)
        try:
            for kind in brokers.kinds:
                setting.say(f"the broker of {kind.name}, {flush_disk_type}, warming up")
                with brokers.adding(kind(setting.folder(f"{flush_disk_type}-{kind.name}"), flush_disk_type)) as side:
                    brokers._warm_up(side)
        except BaseException:
            brokers.close()
            raise
        return brokers

    def _warm_up(self, side: Side) -> None:
        for topic in (TOPIC, BACKLOG):
            side.make_topic(topic, QUEUES)
        seconds = self._setting.seconds(_WARM_UP_S)
        if not self._setting.quick:
            seconds = max(seconds, _LEAST_WARM_UP_S)
        with self.load.connected(side):
            self.run(side, [Job("send", TOPIC, threads=16)], seconds)
            self.fill(side, Job("send", BACKLOG, threads=4, batch=BATCH), self.backlog)
            self.run(side, [Job("pull", BACKLOG, threads=QUEUES)], seconds / 4)

    @contextmanager
    def adding(self, side: Side) -> Iterator[Side]:
        """One more side, which is running; behind the block it is paused until it has its turn."""
        self.sides.append(side)
        yield side
        side.pause()

    def close(self) -> None:
        """End their processes."""
        for side in self.sides:
            side.kill()

    def turns(self) -> Iterator[Side]:
        """Each side in turn, as often as there are rounds; only the process of the one that has its turn runs."""
        for _ in range(self.rounds):
            for side in self.sides:
                with side.awake():
                    yield side

    def measure(self, side: Side, jobs: Sequence[Job], seconds: float) -> Measured:
        """Run jobs over connections of their own, after a shorter run that does not count."""
        with self.load.connected(side):
            self.run(side, jobs, self._setting.seconds(_WARM_S))
            return self.run(side, jobs, self._setting.seconds(seconds))

    def run(self, side: Side, jobs: Sequence[Job], seconds: float) -> Measured:
        """Run jobs for some seconds, over the connections that are there."""
        return self.check(side, self.load.run(side, jobs, seconds))

    def fill(self, side: Side, job: Job, messages: int) -> None:
        """Run one job until it has sent a number of messages."""
        self.check(side, self.load.fill(side, job, messages))

    def check(self, side: Side, measured: Measured) -> Measured:
        """The measured result, with its failures counted; AssertionError if a job had no good answer at all."""
        for told in measured.told:
            if told.requests == 0:
                raise AssertionError(f"{side.name} answered no request: {told.failure}")
            self.count_failures(side, told.failed, told.requests + told.failed, told.failure)
        return measured

    def count_failures(self, side: Side, failed: int, requests: int, failure: str | None) -> None:
        """Count requests that failed, and say so."""
        self._failures[side.name] = self._failures.get(side.name, 0) + failed
        if failed:
            self._setting.say(f"{side.name}: {failed} of {requests} requests FAILED: {failure}")

    def failures(self, question: str) -> list[Figure]:
        """Requests that failed since this was last asked; of ours there should be none."""
        counts, self._failures = self._failures, {}
        figures = []
        for kind in self.kinds:
            figure = Figure(f"{question}: failed requests, {kind.name}", "requests")
            figure.values.append(counts.get(kind.name, 0))
            figures.append(figure)
        figures[0].goal = Goal(most=0)
        return figures

    def figure(
        self,
        name: str,
        unit: str,
        *,
        least: float | None = None,
        most: float | None = None,
        stretch: float | None = None,
    ) -> Figure:
        """A figure that RocketMQ's broker has too; bounds as of `Other`."""
        other = Other(self.kinds[1].name, least=least, most=most, stretch=stretch) if self.kinds[1:] else None
        return Figure(name, unit, other=other)
