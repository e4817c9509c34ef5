"""A slave that catches up: bytes a second until all is dispatched, and what that costs of a processor.

Both slaves are empty and follow the same master, a broker of reput's, in turns; the clock starts with the first byte.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from bench.apache import NAME, VERSION
from bench.broker.sides import ask
from bench.figures import Figure, Goal, Other
from bench.processes import run_children
from bench.setting import Setting
from reput import Broker
from reput.remoting.codes import RequestCode
from tests.support.rocketmq.apache import Apache
from tests.support.sockets import free_ports

_LOCAL: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
_LOOK_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(setting: Setting) -> list[Figure]:
    """The log of the stock, to a follower of ours and to RocketMQ's slave."""
    rate = Figure("slave, catch-up until dispatched", "MB/s")
    cost = Figure("slave, processor time of the catch-up", "s a GB", goal=Goal(most=1.5))
    if setting.beside_apache:
        rate.other, cost.other = Other(NAME, least=3), Other(NAME)
    (ha_port,) = free_ports(1)
    path = setting.copy(setting.stock(), "replicated")
    with Broker.start(path, ha_listen_port=ha_port, flush_disk_type="ASYNC_FLUSH", **_LOCAL) as master:
        end = int(_runtime(master.address)["commitLogMaxOffset"])
        for _ in range(setting.repeats):
            copy = setting.folder("copy")
            [[seconds, used]] = run_children("bench.follow", [["follow", copy, master.address]])
            setting.remove(copy)
            rate.values.append(end / 1e6 / seconds)
            cost.values.append(used / (end / 1e9))
            if setting.beside_apache:
                seconds, used = _of_apache(setting.folder("copy"), master.namesrv, end)
                setting.remove(copy)
                rate.add_other(end / 1e6 / seconds)
                cost.add_other(used / (end / 1e9))
    setting.remove(path)
    return [rate, cost]


def follow(path: str, address: str) -> str:
    """Seconds, and of a processor's time, of a follower in this process."""
    from threading import Event

    from reput import MessageStore
    from reput.kernel_loader import load_kernels
    from reput.replication.follower import Follower

    load_kernels()
    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        begin, used = time.perf_counter(), time.process_time()
        Follower(store, address, acknowledges=True).run(Event(), once=True)
        store.wait_dispatched(timeout=600)
        return f"{time.perf_counter() - begin} {time.process_time() - used}"


def _of_apache(path: str, namesrv: str, end: int) -> tuple[float, float]:
    (port,) = free_ports(1)
    keys = {"brokerRole": "SLAVE", "brokerId": "1", "brokerName": "broker-a", "brokerIP2": "127.0.0.1"}
    address = f"127.0.0.1:{port}"
    with Apache(VERSION) as java:
        java.run("broker-start", path=path, port=port, namesrv=namesrv, keys=keys)
        while not int(_runtime(address).get("commitLogMaxOffset", 0)):
            time.sleep(_LOOK_S)
        begin, used = time.perf_counter(), _used(java.pid)
        while True:
            found = _runtime(address)
            if int(found.get("commitLogMaxOffset", 0)) == end and not int(found["dispatchBehindBytes"]):
                return time.perf_counter() - begin, _used(java.pid) - used
            time.sleep(_LOOK_S)


def _runtime(address: str) -> dict[str, str]:
    answer = ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    if answer.code:  # RocketMQ's broker fails while its store is empty
        return {}
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def _used(pid: int) -> float:
    """Seconds of a processor that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    import sys

    print(globals()[sys.argv[1]](*sys.argv[2:]))
