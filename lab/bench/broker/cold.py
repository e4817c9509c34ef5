"""Sends while a consumer reads old messages that are no longer in the page cache."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from lab.bench.broker.brokers import BATCH, QUEUES, TOPIC, Brokers
from lab.bench.broker.load import Job
from lab.bench.broker.sides import Side
from lab.bench.figures import Figure
from lab.bench.setting import Setting

_OLD, _BODY_SIZE, _PULL_SIZE = "old", 4096, 32
#: A start of RocketMQ's broker reads the last three log files, so something else must be in these.
_LOG_FILE_SIZE, _RECOVERED_FILES = 16 << 20, 4
_PULLS_A_SECOND, _SENDS_A_SECOND = 100, 1000
_SECONDS, _WARM_UP_S, _WARM_S = 5.0, 5.0, 0.7


def measure(setting: Setting) -> list[Figure]:
    """Latencies of 1000 sends a second, with and without a consumer that reads 13 MB/s from the disk."""
    with closing(Brokers(setting)) as brokers:
        pulls = int(setting.seconds(_SECONDS) * _PULLS_A_SECOND) + 1
        for kind in brokers.kinds:
            setting.say(f"the broker of {kind.name}, with {brokers.rounds * pulls * _PULL_SIZE:,} old messages")
            restarted = _restarted(setting, brokers, kind, brokers.rounds * pulls)
            with brokers.adding(restarted) as side, brokers.load.connected(side):
                brokers.run(side, [Job("send", TOPIC, threads=16)], setting.seconds(_WARM_UP_S))
        return _measure(setting, brokers, pulls)


def _measure(setting: Setting, brokers: Brokers, pulls: int) -> list[Figure]:
    name = f"broker, {_SENDS_A_SECOND} sends/s"
    figures = [
        brokers.figure(f"{name}, {whether} a cold reader, {which}", "us")
        for whether in ("without", "with")
        for which in ("p50", "p99", "the longest")
    ]
    read = {
        kind.name: Figure(f"broker, read from the disk for a cold reader, {kind.name}", "MB") for kind in brokers.kinds
    }
    sending, first = Job("send", TOPIC, threads=4, rate=_SENDS_A_SECOND), {side.name: 0 for side in brokers.sides}
    for side in brokers.turns():
        reading = Job("pull", _OLD, rate=_PULLS_A_SECOND, first=first[side.name])
        with brokers.load.connected(side):
            brokers.run(side, [sending], setting.seconds(_WARM_S))
            alone = brokers.run(side, [sending], setting.seconds(_SECONDS)).one
            before = side.read_mb()
            beside, reader = brokers.run(side, [sending, reading], setting.seconds(_SECONDS)).told
            read[side.name].values.append(side.read_mb() - before)
        first[side.name] += pulls * _PULL_SIZE  # each round reads what no round has read before
        values = (alone.p50, alone.p99, alone.max, beside.p50, beside.p99, beside.max)
        for figure, value in zip(figures, values, strict=True):
            side.add(figure, value)
        figures[3].note = f"{reader.requests / reader.seconds:.0f} pulls of {_PULL_SIZE} messages of 4 KiB a second"
    return [*figures, *read.values(), *brokers.failures("broker, cold reader")]


def _restarted(setting: Setting, brokers: Brokers, kind: type[Side], pulls: int) -> Side:
    """A broker that was stopped and started again, with old messages for a number of pulls, on the disk alone."""
    path = setting.folder(f"cold-{kind.name}")
    side = kind(path, "ASYNC_FLUSH", _LOG_FILE_SIZE)
    try:
        for topic, queues in ((_OLD, 1), (TOPIC, QUEUES)):
            side.make_topic(topic, queues)
        with brokers.load.connected(side):
            newer = _RECOVERED_FILES * _LOG_FILE_SIZE // _BODY_SIZE
            for topic, messages in ((_OLD, pulls * _PULL_SIZE), (TOPIC, newer)):
                brokers.fill(side, Job("send", topic, batch=BATCH, size=_BODY_SIZE), messages)
        side.stop()
    finally:
        side.kill()
    forget_pages(Path(path, "commitlog"))
    return kind(path, "ASYNC_FLUSH", _LOG_FILE_SIZE)


def forget_pages(folder: Path) -> None:
    """Have none of its files' pages in memory; nobody may have them mapped. It does nothing in a folder in memory."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are not written stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
