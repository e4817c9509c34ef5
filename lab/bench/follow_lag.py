"""Lag of a follower while its master's log grows: behind reput's master, and its own part behind RocketMQ's.

RocketMQ's master looks for new bytes every 100 ms. So behind it only what the follower adds is measured: from the
arrival of a frame at a relay between the two until its records can be read.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from subprocess import Popen
from threading import Thread

import numpy as np
import numpy.typing as npt

from lab.bench.broker.sides import Apache, free_port, log_end
from lab.bench.figures import Figure, Goal
from lab.bench.processes import start_talk
from lab.bench.setting import Setting
from reput import Message
from reput.client.sync import Producer
from reput.formats.replication import FRAME_HEADER

_LOCALHOST = "127.0.0.1"
_CHILD = "lab.bench.follow_child"
_TOPIC = "orders"
_SECONDS, _SECONDS_OF_POLLS = 6.0, 10.0
#: Bytes a second of a writer that leaves the machine idle, and of one that does not.
_MODEST, _MUCH = 1_000_000, 100_000_000
#: Between two sends to RocketMQ's master.
_PAUSE_S = 0.01
_BODY = bytes(128)


def measure(setting: Setting) -> list[Figure]:
    """Percentiles over appends, and over the frames of RocketMQ's master."""
    return [
        *_behind_ours(setting, _MODEST, Goal(most=5)),
        *_behind_ours(setting, _MUCH, None),
        *(_behind_apache(setting) if setting.beside_apache else []),
    ]


def _behind_ours(setting: Setting, rate: int, goal: Goal | None) -> list[Figure]:
    """From before an append to reput's master until its records can be read from the follower's log."""
    name = f"follower, lag behind a master that appends {rate // 1_000_000} MB/s"
    setting.say(name)
    seconds, ha_port = setting.seconds(_SECONDS), free_port()
    appended, copied = setting.folder("lag-master"), setting.folder("lag-copy")
    with (
        start_talk(_CHILD, "lead", appended, str(ha_port), str(rate), str(seconds), f"{appended}.npy") as master,
        start_talk(_CHILD, "follow_live", copied, _line(master), f"{_LOCALHOST}:{ha_port}", f"{copied}.npy") as copy,
    ):
        _line(copy)
        _tell(master, "grow")
        _tell(copy, _line(master))
        _end(copy)
        _tell(master, "end")
        _end(master)
    marks, steps = np.load(f"{appended}.npy"), np.load(f"{copied}.npy")
    setting.remove(appended)
    setting.remove(copied)
    took = float(marks[-1, 0] - marks[0, 0]) or 1.0
    note = f"{float(marks[-1, 1] - marks[0, 1]) / took / 1e6:.0f} MB/s were appended"
    return _percentiles(name, late_ms(marks, steps), goal, note)


def _behind_apache(setting: Setting) -> list[Figure]:
    """From the arrival of a frame of RocketMQ's master until its records can be read from the follower's log."""
    name = "follower, added to the arrival of the bytes of RocketMQ's master"
    setting.say(name)
    ha_port, copied = free_port(), setting.folder("lag-copy")
    keys = {"haListenPort": str(ha_port), "brokerIP2": _LOCALHOST}
    side = Apache(setting.folder("lag-master"), "ASYNC_FLUSH", keys=keys)
    try:
        side.make_topic(_TOPIC, 4)
        relay = _Relay(ha_port)
        with Producer(side.namesrv, group="bench") as producer:
            producer.send(Message(_TOPIC, _BODY))
            with start_talk(_CHILD, "follow_live", copied, side.address, relay.address, f"{copied}.npy") as copy:
                _line(copy)
                relay.arrivals.clear()
                for _ in range(int(setting.seconds(_SECONDS_OF_POLLS) / _PAUSE_S)):
                    producer.send(Message(_TOPIC, _BODY))
                    time.sleep(_PAUSE_S)
                _tell(copy, str(log_end(side.address)))
                _end(copy)
    finally:
        side.kill()
    marks, steps = np.array(relay.arrivals, np.float64), np.load(f"{copied}.npy")
    setting.remove(side.path)
    setting.remove(copied)
    note = "of frames at a relay; passing them on is part of it"
    return _percentiles(name, late_ms(marks, steps), Goal(most=1), note)


def late_ms(marks: npt.NDArray[np.float64], steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """From each mark, a time and an offset, until the log went so far; the first fifth, a warm-up, does not count."""
    reached = np.searchsorted(steps[:, 1], marks[:, 1])
    late: npt.NDArray[np.float64] = (steps[reached, 0] - marks[:, 0]) * 1000
    return late[late.size // 5 :]


def _percentiles(name: str, late_ms: npt.NDArray[np.float64], goal: Goal | None, note: str) -> list[Figure]:
    p50 = Figure(f"{name}, p50", "ms", goal=goal, note=note)
    p99 = Figure(f"{name}, p99", "ms")
    p50.values.append(float(np.quantile(late_ms, 0.5)))
    p99.values.append(float(np.quantile(late_ms, 0.99)))
    return [p50, p99]


def _line(child: Popen[str]) -> str:
    """The next line that a child prints."""
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise AssertionError(f"{child.args!r} ended with {child.wait()}")
    return line.rstrip("\n")


def _tell(child: Popen[str], text: str) -> None:
    assert child.stdin is not None
    print(text, file=child.stdin, flush=True)


def _end(child: Popen[str]) -> None:
    if child.wait():
        raise AssertionError(f"{child.args!r} ended with {child.returncode}")


class _Relay:
    """Stands between a follower, which connects once, and the HA port of its master.

    Attributes:
        address: Where the follower connects, "host:port".
        arrivals: Of each frame with bytes: when it had come (`time.monotonic`), and the offset after them.
    """

    def __init__(self, ha_port: int) -> None:
        self.arrivals: list[tuple[float, int]] = []
        self._ha_port = ha_port
        self._server = socket.create_server((_LOCALHOST, 0))
        self.address = f"{_LOCALHOST}:{self._server.getsockname()[1]}"
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        follower, _ = self._server.accept()
        with self._server, follower, socket.create_connection((_LOCALHOST, self._ha_port)) as master:
            for one in (follower, master):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Thread(target=self._pass_reports, args=(follower, master), daemon=True).start()
            with suppress(OSError):
                self._pass_frames(master, follower)

    def _pass_frames(self, master: socket.socket, follower: socket.socket) -> None:
        came = b""
        while received := master.recv(1 << 20):
            now = time.monotonic()
            follower.sendall(received)
            came += received
            while len(came) >= FRAME_HEADER.size:
                offset, size = FRAME_HEADER.unpack_from(came)
                if len(came) < FRAME_HEADER.size + size:
                    break
                if size:
                    self.arrivals.append((now, offset + size))
                came = came[FRAME_HEADER.size + size :]

    def _pass_reports(self, follower: socket.socket, master: socket.socket) -> None:
        with suppress(OSError):
            while received := follower.recv(4096):
                master.sendall(received)
            master.shutdown(socket.SHUT_RDWR)
