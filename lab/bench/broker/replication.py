"""A master with a follower that acknowledges: sends that wait for it and sends that do not, and the follower's lag."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lab.bench.broker.brokers import QUEUES, TOPIC
from lab.bench.broker.clients import Child
from lab.bench.broker.sides import Ours, ask, free_port
from lab.bench.figures import Figure, Goal, percentile
from lab.bench.setting import Setting
from reput import Message, MessageStore
from reput.client.sync import Producer
from reput.replication.follower import Follower, FollowState

_TASKS = 16
_ROUNDS, _SECONDS, _WARM_S = 3, 4.0, 1.0
_LATENCIES, _WAIT_S = 500, 60.0
_LOG_FILE_SIZE = 256 << 20
#: Part of what an ASYNC_MASTER takes that a SYNC_MASTER should take, and ms until a follower can read a message.
_GOAL_PART, _GOAL_MS = 0.6, 5.0


def measure(setting: Setting) -> list[Figure]:
    """Sends by 16 tasks to an ASYNC_MASTER and to SYNC_MASTERs in turns, and a follower's lag behind an ASYNC_MASTER.

    Master and slave have ASYNC_FLUSH, RocketMQ's default; of one SYNC_MASTER the slave has SYNC_FLUSH, so that each
    acknowledgement waits for a sync.
    """
    names = ("ASYNC_MASTER", "SYNC_MASTER", "SYNC_MASTER, its slave under SYNC_FLUSH")
    rates = [Figure(f"replication, {name}, send, {_TASKS} tasks", "msg/s") for name in names]
    part = "replication, SYNC_MASTER's sends as a part of ASYNC_MASTER's"
    parts = [Figure(part, "", goal=Goal(least=_GOAL_PART)), Figure(f"{part}, its slave under SYNC_FLUSH", "")]
    child = Child()
    try:
        with (
            _master(setting, "ASYNC_MASTER", "ASYNC_FLUSH") as master,
            _master(setting, "SYNC_MASTER", "ASYNC_FLUSH") as waiting,
            _master(setting, "SYNC_MASTER", "SYNC_FLUSH") as synced,
        ):
            for _ in range(1 if setting.quick else _ROUNDS):
                for figure, side in zip(rates, (master, waiting, synced), strict=True):
                    figure.values.append(_rate(setting, child, side))
                    setting.say(f"{figure.name}: {figure.values[-1]:.0f} a second")
                for figure, rate in zip(parts, rates[1:], strict=True):
                    figure.values.append(rate.values[-1] / rates[0].values[-1])
        return [*rates, *parts, *_lags(setting)]
    finally:
        child.close()


@contextmanager
def _master(setting: Setting, role: str, slave_flush: str) -> Iterator[Ours]:
    """A master with a slave, each in a process."""
    path = setting.folder(f"{role}-{slave_flush}")
    side = Ours(path, "ASYNC_FLUSH", _LOG_FILE_SIZE, {"brokerRole": role, "haListenPort": str(free_port())})
    try:
        side.make_topic(TOPIC, QUEUES)
        keys = {
            "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": side.namesrv, "haListenPort": str(free_port()),
            "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "flushDiskType": slave_flush,
            "mappedFileSizeCommitLog": str(_LOG_FILE_SIZE),
        }  # fmt: skip
        settings = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "reput", "broker", f"{path}-slave", "--port", str(free_port()), *settings]
        slave = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_followed(side)
            yield side
        finally:
            slave.kill()
            slave.wait()
    finally:
        side.kill()


def _wait_followed(side: Ours) -> None:
    """Return when a first message has been acknowledged."""
    with Producer(side.namesrv, group="bench") as producer:
        producer.send(Message(TOPIC, b"first"))
    deadline = time.monotonic() + _WAIT_S
    while b'"diff":0' not in ask(side.address, 907).body.replace(b" ", b""):
        if time.monotonic() > deadline:
            raise AssertionError("the slave does not follow")
        time.sleep(0.01)


def _rate(setting: Setting, child: Child, side: Ours) -> float:
    for full in (_WARM_S, _SECONDS):
        asked = {"namesrv": side.namesrv, "topic": TOPIC, "tasks": _TASKS, "batch": 1}
        done = child.run("send", seconds=setting.seconds(full), **asked)
    return done.messages / done.seconds


def _lags(setting: Setting) -> list[Figure]:
    """Milliseconds from before a send until the follower can read its message, one message at a time."""
    side = Ours(setting.folder("lag-master"), "ASYNC_FLUSH", _LOG_FILE_SIZE, {"haListenPort": str(free_port())})
    grown, stop, end = threading.Condition(), threading.Event(), 0

    def note(state: FollowState) -> None:
        nonlocal end
        with grown:
            end = state.end_offset
            grown.notify_all()

    def has_grown(before: int) -> bool:
        return end > before

    lags = []
    try:
        side.make_topic(TOPIC, QUEUES)
        path = setting.folder("lag-copy")
        with (
            MessageStore.open(path, mapped_file_size_commit_log=_LOG_FILE_SIZE) as copy,
            Producer(side.namesrv, group="bench") as producer,
        ):
            thread = threading.Thread(
                target=Follower(copy, side.address, acknowledges=True, on_state=note).run, args=(stop,)
            )
            thread.start()
            try:
                for number in range(setting.count(_LATENCIES) + 20):
                    before, begun = end, time.perf_counter()
                    producer.send(Message(TOPIC, bytes(128)))
                    with grown:
                        if not grown.wait_for(partial(has_grown, before), _WAIT_S):
                            raise AssertionError("the follower does not follow")
                    if number >= 20:  # before, it connects, and code is compiled
                        lags.append((time.perf_counter() - begun) * 1000)
            finally:
                stop.set()
                thread.join()
    finally:
        side.kill()
    p50 = Figure("replication, from a send until a follower can read it, p50", "ms", goal=Goal(most=_GOAL_MS))
    p99 = Figure("replication, from a send until a follower can read it, p99", "ms")
    p50.values.append(percentile(lags, 0.5))
    p99.values.append(percentile(lags, 0.99))
    return [p50, p99]
