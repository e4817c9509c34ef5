"""Two brokers, reput's and RocketMQ's: each with its name server in a process of its own, with the same settings."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from lab.bench.apache import NAME, VERSION
from lab.bench.figures import Figure
from reput.errors import RemotingError
from reput.formats.remoting import FRAME_HEAD
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, decode_command, encode_command, frame_size
from tests.support.rocketmq.apache import Apache as JavaProcess

_LOCALHOST = "127.0.0.1"
#: RocketMQ's own scripts ask for 8 GB; on a machine of 24 GB with both brokers and their load this is plenty.
JAVA_OPTIONS = ("-Xms512m", "-Xmx2g", "-XX:+UseG1GC")
_ROUTABLE_S = 300.0
_POLL_S = 0.002
_STOPPED_S = 60.0
#: Both brokers have this topic from the first start on.
_FIRST_TOPIC = "TBW102"


def ask(address: str, code: int, **fields: object) -> RemotingCommand:
    """The answer to one request over a connection of its own.

    Raises OSError where the server cannot be reached.
    """
    command = RemotingCommand(code, opaque=1, ext_fields={name: str(value) for name, value in fields.items()})
    with connect(address) as connection:
        return call(connection, command)


def runtime_info(address: str) -> dict[str, str]:
    """Runtime info of a broker's store; empty of one of RocketMQ's with an empty store, which fails then."""
    answer = ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = {} if answer.code else json.loads(answer.body)["table"]
    return table


def log_end(address: str) -> int:
    """Commit log offset after a broker's last record; 0 where there is none."""
    return int(runtime_info(address).get("commitLogMaxOffset", 0))


def connect(address: str) -> socket.socket:
    """A connection whose requests leave at once."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def call(connection: socket.socket, command: RemotingCommand) -> RemotingCommand:
    """The answer to a request."""
    connection.sendall(encode_command(command))
    return read_answer(connection)


def read_answer(connection: socket.socket) -> RemotingCommand:
    """The next answer on a connection; whoever asks one thing after the other has nothing behind it."""
    frame, size = b"", FRAME_HEAD.size
    while len(frame) < size:
        data = connection.recv(size - len(frame))
        if not data:
            raise ConnectionError("the broker closed the connection")
        frame += data
        if len(frame) == FRAME_HEAD.size:
            size = frame_size(frame)
    return decode_command(frame)


class Side(ABC):
    """A broker that runs.

    Attributes:
        name: Whose it is.
        address, namesrv: "host:port" of the broker, and of its name server.
        seconds: From the start of its process until clients could find it.
    """

    name: str

    def __init__(
        self,
        path: str,
        flush_disk_type: str,
        log_file_size: int | None = None,
        keys: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start it on a store; returns when clients can find it.

        Args:
            path: The store's directory.
            flush_disk_type: RocketMQ's key.
            log_file_size: Bytes of a commit log file; without it RocketMQ's default, 1 GiB.
            keys: More of RocketMQ's keys, of broker and store.
        """
        self.path = path
        self._log_file_size = log_file_size
        self._keys = keys
        ports = free_port(), free_port()
        self.address, self.namesrv = (f"{_LOCALHOST}:{port}" for port in ports)
        begun = time.perf_counter()
        self._start(*ports, flush_disk_type)
        try:
            self.wait_routable(_FIRST_TOPIC)
        except BaseException:
            self.kill()
            raise
        self.seconds = time.perf_counter() - begun

    @abstractmethod
    def _start(self, port: int, namesrv_port: int, flush_disk_type: str) -> None:
        """Start the process."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The number of its process."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it cleanly."""

    @abstractmethod
    def kill(self) -> None:
        """End its process at once, if it runs."""

    @abstractmethod
    def check(self) -> None:
        """Raise AssertionError where its process has ended."""

    @abstractmethod
    def add(self, figure: Figure, value: float) -> None:
        """One more value of a figure: ours, or the other's."""

    def wait_routable(self, topic: str) -> None:
        """Return when the name server tells clients where the topic is."""
        deadline = time.monotonic() + _ROUTABLE_S
        while True:
            try:
                if ask(self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic).code == ResponseCode.SUCCESS:
                    socket.create_connection((_LOCALHOST, int(self.address.rpartition(":")[2]))).close()
                    return
            except OSError:
                self.check()  # it does not listen yet
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} has no route to {topic} after {_ROUTABLE_S:g} s")
            time.sleep(_POLL_S)

    def make_topic(self, topic: str, queues: int) -> None:
        """Make a topic as an operator does; returns when clients can find it."""
        answer = ask(
            self.address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic=_FIRST_TOPIC,
            readQueueNums=queues, writeQueueNums=queues, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0,
            order="false",
        )  # fmt: skip
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"{self.name} made no topic {topic}: {answer.code} {answer.remark}")
        self.wait_routable(topic)

    def pause(self) -> None:
        """Stop its process until it is `awake`: it takes no processor from the other side."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # a signal takes a moment

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let its process, which is paused, run for a while."""
        os.kill(self.pid, signal.SIGCONT)
        try:
            self.wait_routable(_FIRST_TOPIC)  # a name server that was stopped for long may have forgotten its broker
            yield
        finally:
            self.pause()

    def processor_seconds(self) -> float:
        """Of its process, since its start."""
        return processor_seconds(self.pid)

    def memory_mb(self, name: str) -> float:
        """Of its process: "VmRSS", resident, or "RssAnon", the part of it that is no file's."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1000
        raise AssertionError(f"no {name} in /proc/{self.pid}/status")

    def read_mb(self) -> float:
        """Of its process, since its start, from disks."""
        lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"]) / 1e6


class Ours(Side):
    """`reput broker`."""

    name = "reput"

    def _start(self, port: int, namesrv_port: int, flush_disk_type: str) -> None:
        settings = {"bindAddress": _LOCALHOST, "brokerIP1": _LOCALHOST, "flushDiskType": flush_disk_type, **self._keys}
        if self._log_file_size is not None:
            settings["mappedFileSizeCommitLog"] = str(self._log_file_size)
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        ports = ["--port", str(port), "--namesrv-port", str(namesrv_port)]
        command = [sys.executable, "-m", "reput", "broker", self.path, *ports, *words]
        self._errors = Path(f"{self.path}.stderr")
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)

    def check(self) -> None:
        """Raise AssertionError where its process has ended."""
        if self._process.poll() is not None:
            told = self._errors.read_text()[-4000:]
            raise AssertionError(f"reput broker ended with {self._process.returncode}: {told}")

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def stop(self) -> None:
        """Stop it cleanly."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(_STOPPED_S):
            self.check()

    def kill(self) -> None:
        """End its process at once, if it runs."""
        self._process.kill()
        self._process.wait()

    def add(self, figure: Figure, value: float) -> None:
        """One more value of a figure."""
        figure.values.append(value)


class Apache(Side):
    """RocketMQ's broker in a JVM, with its own defaults for all that is not said."""

    name = NAME

    def _start(self, port: int, namesrv_port: int, flush_disk_type: str) -> None:
        self._process = JavaProcess(VERSION, JAVA_OPTIONS)
        sizes = {} if self._log_file_size is None else {"log_file_size": self._log_file_size}
        asked = {"port": port, "namesrv_port": namesrv_port, "flush": flush_disk_type, **sizes}
        self._process.run("broker-start", path=self.path, keys=dict(self._keys), **asked)

    def check(self) -> None:
        """Nothing: the JVM has said that it serves."""

    @property
    def pid(self) -> int:
        """The number of its process."""
        return int(self._process.pid)

    def stop(self) -> None:
        """Stop it cleanly."""
        self._process.run("broker-stop")
        self._process.kill()

    def kill(self) -> None:
        """End its process at once, if it runs."""
        self._process.kill()

    def add(self, figure: Figure, value: float) -> None:
        """One more value beside a figure."""
        figure.add_other(value)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its threads, in nanoseconds' steps: the clock of clock_getcpuclockid(3)."""
    return float(time.clock_gettime(~pid << 3 | 2))


def free_port() -> int:
    """A port that nobody listens on, nor on the second one below it, which RocketMQ's broker takes, too.

    It lies below the ports that the system gives to connections: one of these could be gone once a JVM has started.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server((_LOCALHOST, port)), socket.create_server((_LOCALHOST, port - 2)):
            return port
