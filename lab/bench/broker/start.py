"""A start, and the memory of the process: idle, and after some load."""

from __future__ import annotations

import time

from lab.bench.broker.brokers import QUEUES, TOPIC, Brokers
from lab.bench.broker.load import Job
from lab.bench.figures import Figure, Goal
from lab.bench.processes import run_command
from lab.bench.setting import Setting

#: Until a process that has started does nothing more.
_SETTLE_S = 2.0
_LOAD_S = 5.0
_THREADS = 16


def measure(setting: Setting) -> list[Figure]:
    """Seconds until clients find a broker on an empty folder, and MB, each of new processes."""
    brokers = Brokers(setting)
    start = brokers.figure("broker, start until clients find it", "s")
    start.goal = Goal(most=1, stretch=0.6)
    start.note = "kernels are compiled; its name server starts with it"
    idle = brokers.figure("broker, resident memory, idle", "MB", most=0.65, stretch=0.55)
    loaded = brokers.figure("broker, anonymous memory, loaded", "MB", most=0.4, stretch=0.33)
    loaded.note = f"after sends by {_THREADS} threads"
    run_command(["warm"])
    for _ in range(brokers.rounds):
        for kind in brokers.kinds:
            path = setting.folder("start")
            side = kind(path, "ASYNC_FLUSH")
            try:
                side.add(start, side.seconds)
                time.sleep(setting.seconds(_SETTLE_S))
                side.add(idle, side.memory_mb("VmRSS"))
                side.make_topic(TOPIC, QUEUES)
                with brokers.load.connected(side):
                    brokers.run(side, [Job("send", TOPIC, threads=_THREADS)], setting.seconds(_LOAD_S))
                    side.add(loaded, side.memory_mb("RssAnon"))
            finally:
                side.kill()
                setting.remove(path)
    return [start, idle, loaded, *brokers.failures("broker, start")]
