"""Slaves of reput's master and of RocketMQ's: how fast they catch up.

Behind each master a follower of ours and a slave of RocketMQ's take turns, both empty; of the masters only the one
whose turn it is runs. The clock of RocketMQ's slave starts with its first bytes, that of ours before it connects. The
page cache of each catch-up is memory that a removed file has just given back.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import NamedTuple

from lab.bench.apache import NAME, VERSION
from lab.bench.broker.sides import JAVA_OPTIONS, Apache, Ours, Side, free_port, log_end, runtime_info
from lab.bench.figures import Figure, Other
from lab.bench.follow_child import provide_memory
from lab.bench.processes import run_children
from lab.bench.setting import Setting
from tests.support.rocketmq.apache import Apache as JavaProcess

_LOCALHOST = "127.0.0.1"
_LOOK_S = 0.05


class _Copied(NamedTuple):
    """A catch-up: seconds until all was dispatched, and bytes of the log."""

    seconds: float
    bytes: int


def measure(setting: Setting) -> list[Figure]:
    """Catch-ups of logs of the stock's size."""
    with ExitStack() as masters:
        rows = [masters.enter_context(_Row(setting, "reput's master", Ours, setting.stock()))]
        if setting.beside_apache:
            rows.append(masters.enter_context(_Row(setting, "RocketMQ's master", Apache, setting.stock())))
        for _ in range(setting.repeats):
            for row in rows:
                row.measure()
    return [row.rate for row in rows]


class _Row:
    """A master, paused until it has its turn, and the figure of the slaves behind it.

    Args:
        setting: The run.
        name: Of the master and its log.
        kind: Whose it is.
        store: A store, of which it serves a copy.
    """

    def __init__(self, setting: Setting, name: str, kind: type[Side], store: str) -> None:
        self._setting = setting
        self.rate = Figure(f"slave of {name}, catch-up until dispatched", "MB/s")
        if setting.beside_apache:
            self.rate.other = Other(NAME, least=3)
        ha_port = str(free_port())
        keys = {"brokerName": "broker-a", "brokerIP2": _LOCALHOST, "haListenPort": ha_port}
        self._master = kind(setting.copy(store, f"master-{ha_port}"), "ASYNC_FLUSH", keys=keys)
        self._master.pause()

    def __enter__(self) -> _Row:
        return self

    def __exit__(self, *_: object) -> None:
        self._master.kill()
        self._setting.remove(self._master.path)

    def measure(self) -> None:
        """Let one slave of each kind catch up."""
        path = self._setting.folder("copy")
        with self._master.awake():
            copied = self._ours(path)
            self.rate.values.append(copied.bytes / 1e6 / copied.seconds)
            if self._setting.beside_apache:
                copied = self._apache(self._setting.folder("copy"))
                self.rate.add_other(copied.bytes / 1e6 / copied.seconds)
        self._setting.remove(path)
        beside = "" if self.rate.other is None else f" beside {self.rate.other.values[-1]:.3g}"
        self._setting.say(f"{self.rate.name}: {self.rate.values[-1]:.3g} {self.rate.unit}{beside}")

    def _ours(self, path: str) -> _Copied:
        [[seconds, size]] = run_children("lab.bench.follow_child", [["follow", path, self._master.address]])
        return _Copied(seconds, int(size))

    def _apache(self, path: str) -> _Copied:
        port, end = free_port(), log_end(self._master.address)
        keys = {"brokerRole": "SLAVE", "brokerId": "1", "brokerName": "broker-a", "brokerIP2": _LOCALHOST}
        with JavaProcess(VERSION, JAVA_OPTIONS) as java:
            java.run("broker-start", path=path, port=port, namesrv=self._master.namesrv, keys=keys)
            address = f"{_LOCALHOST}:{port}"
            provide_memory(path, end)  # it connects five seconds after its start
            while not log_end(address):
                time.sleep(_LOOK_S)
            begin = time.monotonic()
            while True:
                found = runtime_info(address)
                if int(found["commitLogMaxOffset"]) == end and not int(found["dispatchBehindBytes"]):
                    return _Copied(time.monotonic() - begin, end - int(found["commitLogMinOffset"]))
                time.sleep(_LOOK_S)
