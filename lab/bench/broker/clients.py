"""Reput's client beside RocketMQ's Java client: on the same cores, against the same broker of reput's, in turns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from lab.bench.broker.brokers import BACKLOG, BATCH, TOPIC, Brokers
from lab.bench.broker.load import Job
from lab.bench.broker.sides import Side
from lab.bench.figures import Figure, Other
from lab.bench.setting import Setting

_JAVA = "RocketMQ's Java client"
_SECONDS, _WARM_S = 5.0, 0.7
#: A group's name is never used again: it would go on where it stopped.
_GROUPS = (f"clients-{number}" for number in count())


class Done(NamedTuple):
    """Work that a client has done."""

    messages: int
    seconds: float
    processor_seconds: float


class Child:
    """A process with reput's client."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "lab.bench.broker.client_child"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, job: str, **arguments: object) -> Done:
        """Do a job, and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"job": job, **arguments}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        return Done(told["messages"], told["seconds"], told["processor_seconds"])

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def measure(setting: Setting) -> list[Figure]:
    """Messages a second and processor time of a message: sends, batches, tables, a backlog, and a task of Spark's."""
    brokers = Brokers.shared(setting)
    child = Child()
    try:
        figures = [
            *_sends(setting, brokers, child, 1, 0.5),
            *_sends(setting, brokers, child, 64, 1.0),
            *_batches(setting, brokers, child),
            *_backlog(brokers, child),
            *_spark(brokers, child),
        ]
    finally:
        child.close()
    return figures + brokers.failures("clients")


def _pair(name: str, least: float | None = None) -> tuple[Figure, Figure]:
    rate = Figure(f"client, {name}", "msg/s", other=Other(_JAVA, least=least))
    return rate, Figure(f"client, {name}, CPU", "us", other=Other(_JAVA))


def _add(pair: tuple[Figure, Figure], done: Done, *, is_other: bool = False) -> None:
    values = done.messages / done.seconds, done.processor_seconds / done.messages * 1e6
    for figure, value in zip(pair, values, strict=True):
        figure.add_other(value) if is_other else figure.values.append(value)


def _turns(brokers: Brokers) -> Iterator[Side]:
    """Reput's broker, as often as there are rounds."""
    for side in brokers.turns():
        if side is brokers.sides[0]:
            yield side


def _java(brokers: Brokers, side: Side, job: Job, seconds: float) -> Done:
    measured = brokers.measure(side, [job], seconds)
    return Done(measured.one.messages, measured.one.seconds, measured.client_seconds)


def _sends(setting: Setting, brokers: Brokers, child: Child, tasks: int, least: float) -> list[Figure]:
    name = f"sends from {tasks} task{'s' * (tasks > 1)}"
    pair = _pair(f"{name}, beside as many threads", least)
    together = _pair(f"{name}, auto_batch")
    pairs = [(pair, False), (together, True)] if tasks > 1 else [(pair, False)]
    asked = {"tasks": tasks, "batch": 1}
    for side in _turns(brokers):
        java = _java(brokers, side, Job("send", TOPIC, threads=tasks), _SECONDS)
        for one, auto_batch in pairs:
            _add(one, java, is_other=True)
            _add(one, _child_sends(setting, child, side, "send", **asked, auto_batch=auto_batch))
    return [figure for one, _ in pairs for figure in one]


def _batches(setting: Setting, brokers: Brokers, child: Child) -> list[Figure]:
    """Batches one after the other; and tables, which Java's client does not have."""
    pair = _pair(f"batches of {BATCH}, one after the other", 1.0)
    tables = _pair(f"tables (send_arrow), beside batches of {BATCH}")
    for side in _turns(brokers):
        java = _java(brokers, side, Job("send", TOPIC, batch=BATCH), _SECONDS)
        for each in (pair, tables):
            _add(each, java, is_other=True)
        _add(pair, _child_sends(setting, child, side, "send", tasks=1, batch=BATCH))
        _add(tables, _child_sends(setting, child, side, "send_rows"))
    return [*pair, *tables]


def _child_sends(setting: Setting, child: Child, side: Side, job: str, **asked: object) -> Done:
    """After a shorter run that does not count."""
    for full in (_WARM_S, _SECONDS):
        done = child.run(job, namesrv=side.namesrv, topic=TOPIC, seconds=setting.seconds(full), **asked)
    return done


def _backlog(brokers: Brokers, child: Child) -> list[Figure]:
    """A backlog, consumed by a new group: as Arrow, and as objects whose body, tags and keys are read."""
    arrow = _pair("a backlog as Arrow, beside a push consumer", 2.0)
    objects = _pair("a backlog as objects, beside a push consumer", 0.5)
    for side in _turns(brokers):
        with brokers.load.connected(side):
            java = brokers.load.consume(BACKLOG, next(_GROUPS), brokers.backlog)
        done = Done(brokers.backlog, *java)
        for pair, as_arrow in ((arrow, True), (objects, False)):
            _add(pair, done, is_other=True)
            asked = {"topic": BACKLOG, "group": next(_GROUPS), "count": brokers.backlog, "as_arrow": as_arrow}
            _add(pair, child.run("poll", namesrv=side.namesrv, **asked))
    return [*arrow, *objects]


def _spark(brokers: Brokers, child: Child) -> list[Figure]:
    """The backlog as a task of Spark's reads it, at either broker, beside pulls of one thread."""
    names = [kind.name for kind in brokers.kinds]
    pairs = {name: _pair(f"a task of Spark's at the broker of {name}, beside pulls", 2.0) for name in names}
    for side in brokers.turns():
        _add(pairs[side.name], _java(brokers, side, Job("pull", BACKLOG), _SECONDS), is_other=True)
        _add(pairs[side.name], child.run("spark_task", namesrv=side.namesrv, topic=BACKLOG))
    return [figure for pair in pairs.values() for figure in pair]
