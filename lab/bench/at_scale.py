"""Costs at scale: `python -m lab.bench.at_scale`; a part alone: `--only brokers`, `--only log`.

*queues*, *connections* and *groups*: a broker of its own for each count. A line has the broker's processor time of a
send and of a pull of 32 messages, its resident memory, and its start on the store that the round before has left. Sends
go to all queues, over all connections, and pulls are of all groups, one after the other; each waits for its answer.

*log*: a log of 100 GB whose bodies are holes of the file system. Each command is a process: its seconds, the
processor's, and its most resident memory, of which the mapped log is a part that the system takes back when it wants.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from lab.bench.broker.sides import Ours, call, connect
from reput.formats.message import Message
from reput.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.send_headers import v2_fields

_QUEUES, _CONNECTIONS, _GROUPS = (10, 100, 1_000, 10_000), (1, 10, 100), (1, 100, 1_000)
_SENDS, _PULLS, _BATCH = 20_000, 5_000, 32
_QUEUES_OF_A_TOPIC = 10
_LOG_BYTES, _FILE_BYTES, _BODY_BYTES = 100 << 30, 1 << 30, 1 << 20
_RARE = 1000


class _Broker:
    """A broker, and requests to it."""

    def __init__(self, folder: str, queues: int, connections: int) -> None:
        self._side = Ours(folder, "ASYNC_FLUSH")
        self.seconds = self._side.seconds
        topics = -(-queues // _QUEUES_OF_A_TOPIC)
        self._queues = [(f"topic-{n // _QUEUES_OF_A_TOPIC}", n % _QUEUES_OF_A_TOPIC) for n in range(queues)]
        self._open = ExitStack()
        self._connections = [self._open.enter_context(connect(self._side.address)) for _ in range(connections)]
        if self._ask(0, RequestCode.GET_MAX_OFFSET, topic="topic-0", queueId="0").code != ResponseCode.SUCCESS:
            raise AssertionError("no broker")
        for number in range(topics):
            self._side.make_topic(f"topic-{number}", min(queues, _QUEUES_OF_A_TOPIC))

    def _ask(self, number: int, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        connection: socket.socket = self._connections[number % len(self._connections)]
        return call(connection, RemotingCommand(code, number, ext_fields=fields, body=body))

    def send(self, number: int) -> None:
        topic, queue_id = self._queues[number % len(self._queues)]
        fields = v2_fields(
            producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
            sys_flag=0, born_timestamp=1_700_000_000_000, flag=0, properties="", batch=False, broker_name="broker-a",
        )  # fmt: skip
        answer = self._ask(number, RequestCode.SEND_MESSAGE_V2, b"x" * 100, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer

    def pull(self, number: int, groups: int) -> None:
        topic, queue_id = self._queues[number % len(self._queues)]
        answer = self._ask(
            number, RequestCode.PULL_MESSAGE, consumerGroup=f"group-{number % groups}", topic=topic,
            queueId=str(queue_id), queueOffset="0", maxMsgNums=str(_BATCH), sysFlag=str(int(PullSysFlag.SUBSCRIPTION)),
            commitOffset="0", suspendTimeoutMillis="0", subscription="*", subVersion="0", expressionType="TAG",
        )  # fmt: skip
        assert answer.code == ResponseCode.SUCCESS, answer

    def us(self, deed: Callable[[int], None], count: int) -> float:
        """The broker's processor time of a deed, in us, when each was done before."""
        for number in range(count):
            deed(number)
        before = self._side.processor_seconds()
        for number in range(count):
            deed(number)
        return (self._side.processor_seconds() - before) / count * 1e6

    def close(self) -> float:
        """Stop it; returns its resident memory in MB before."""
        memory = self._side.memory_mb("VmRSS")
        self._open.close()
        self._side.stop()
        return memory


def _brokers(folder: Path) -> Iterator[tuple[str, str]]:
    yield "| what | number | send | pull of 32 | memory | start |", "| --- | --- | --- | --- | --- | --- |"
    rounds = [(f"{n:,}", "queues", n, 1, 1) for n in _QUEUES]
    rounds += [(f"{n:,}", "connections", 8, n, 1) for n in _CONNECTIONS]
    rounds += [(f"{n:,}", "groups", 8, 1, n) for n in _GROUPS]
    for shown, what, queues, connections, groups in rounds:
        store = str(folder / f"{what}-{shown}")
        broker = _Broker(store, queues, connections)
        sends = max(_SENDS, queues)
        send = broker.us(broker.send, sends)
        pulls = max(_PULLS, queues if what == "queues" else groups)
        pull = broker.us(partial(broker.pull, groups=groups), pulls)
        memory = broker.close()
        again = Ours(store, "ASYNC_FLUSH")
        seconds = again.seconds
        again.stop()
        yield f"| {what} | {shown} | {send:.1f} us | {pull:.1f} us | {memory:.0f} MB | {seconds:.2f} s |", ""


def _fill(store: str, log_bytes: int) -> int:
    """A log of messages of 1 MiB of zeros, whose pages are given back file by file; the number of messages."""
    import reput

    config: dict[str, Any] = {"mapped_file_size_commit_log": _FILE_BYTES, "max_message_size": 2 * _BODY_BYTES}
    body, count, done = bytes(_BODY_BYTES), log_bytes // (_BODY_BYTES + 200), 0
    with reput.MessageStore.open(store, flush_disk_type="ASYNC_FLUSH", **config) as opened:
        for number in range(count):
            topic = "rare" if number % _RARE == 0 else f"topic-{number % 8}"
            opened.put_message(Message(topic, body, keys=[f"k{number}"]))
            if opened.max_commit_log_offset // _FILE_BYTES > done:
                path = f"{store}/commitlog/{done * _FILE_BYTES:020d}"
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
                subprocess.run(["fallocate", "--dig-holes", path], check=True)
                done += 1
    return count


def _command(*words: str, program: tuple[str, ...] = ("-m", "reput")) -> tuple[float, float, float]:
    """Seconds, seconds of the processor, and MB of a command of reput, or of a program of Python's."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    assert os.waitstatus_to_exitcode(status) == 0, words
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


_OPEN = "-c", "import sys, reput; store = reput.MessageStore.open(sys.argv[1]); store.close()"


def _log(folder: Path, log_bytes: int) -> Iterator[tuple[str, str]]:
    yield "| a log of 100 GB | seconds | processor | memory |", "| --- | --- | --- | --- |"
    store = str(folder / "large")
    # By a process of its own: a command counts the memory of the process that has started it.
    subprocess.run(
        [sys.executable, "-m", "lab.bench.at_scale", "--fill", store, "--gb", str(log_bytes >> 30)], check=True
    )
    _command("info", store)  # reads the caches of kernels

    def line(name: str, found: tuple[float, float, float]) -> tuple[str, str]:
        return f"| {name} | {found[0]:.1f} s | {found[1]:.1f} s | {found[2]:.0f} MB |", ""

    yield line("open and close, after a clean exit", _command(store, program=_OPEN))
    Path(store, "abort").touch()
    yield line("open and close, after a kill", _command(store, program=_OPEN))
    yield line("`reput info`", _command("info", store))
    yield line("`reput rebuild`", _command("rebuild", store, "--output", str(folder / "rebuilt")))
    yield line("`reput audit`", _command("audit", store))
    yield line("`reput export --topics rare`", _command("export", store, str(folder / "rows"), "--topics", "rare"))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["brokers", "log"])
    parser.add_argument("--gb", type=int, default=_LOG_BYTES >> 30, help="of the log")
    parser.add_argument("--fill", metavar="STORE", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path("build/at-scale"))
    given = parser.parse_args()
    if given.fill:
        _fill(given.fill, given.gb << 30)
        return
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    parts = {"brokers": _brokers(given.folder), "log": _log(given.folder, given.gb << 30)}
    try:
        for name, part in parts.items():
            if given.only in (None, name):
                for lines in part:
                    for text in filter(None, lines):
                        print(text, flush=True)
    finally:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
