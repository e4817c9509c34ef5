"""The rows of the broker: what is counted, and that every goal has its figure."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from lab.bench.apache import NAME
from lab.bench.broker.answers import send
from lab.bench.broker.brokers import Brokers
from lab.bench.broker.load import Job, Measured, Told
from lab.bench.broker.requests import KINDS, make_frames
from lab.bench.broker.sides import Ours, ask, processor_seconds
from lab.bench.main import _chosen
from lab.bench.setting import Setting
from reput import Broker, MessageStore
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, encode_command
from tests.support.broker import send_command

ROOT = Path(__file__).parents[2]
SMALL = {"mapped_file_size_commit_log": 1 << 20, "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
#: By figure: times RocketMQ's, or the part of it; and the better bound.
TIMES = {
    "broker, send, ASYNC_FLUSH, 1 thread": (1.5, 2),
    "broker, send, ASYNC_FLUSH, 16 threads": (1.5, 2),
    "broker, send, ASYNC_FLUSH, 64 threads": (1.4, 1.7),
    "broker, send, SYNC_FLUSH, 1 thread": (1.2, 1.6),
    "broker, send, SYNC_FLUSH, 16 threads": (2, 3.5),
    "broker, send, SYNC_FLUSH, 64 threads": (1.8, 2.3),
    "broker, batches of 32, 4 threads": (1.7, 2),
    "broker, pulls of 32, 1 thread": (1.8, 3),
    "broker, pulls of 32, 4 threads": (1.1, 1.3),
    "broker, push consumer with a backlog": (1.1, 1.3),
    "broker, pops of 32, each message acked": (1.2, None),
    "client, sends from 1 task, beside as many threads": (0.5, None),
    "client, sends from 64 tasks, beside as many threads": (1, None),
    "client, batches of 32, one after the other": (1, None),
    "client, a backlog as Arrow, beside a push consumer": (2, None),
    "client, a backlog as objects, beside a push consumer": (0.5, None),
    "client, a task of Spark's at the broker of reput, beside pulls": (2, None),
    f"client, a task of Spark's at the broker of {NAME}, beside pulls": (2, None),
}
PARTS = {
    "broker, send, ASYNC_FLUSH, 1 thread, p50": (0.6, 0.4),
    "broker, send, ASYNC_FLUSH, 16 threads, p50": (0.6, 0.5),
    "broker, send, ASYNC_FLUSH, 1 thread, p99": (1, None),
    "broker, send, ASYNC_FLUSH, 16 threads, p99": (1, None),
    "broker, send, ASYNC_FLUSH, 16 threads, broker's CPU": (0.25, 0.12),
    "broker, send, ASYNC_FLUSH, 64 threads, broker's CPU": (0.33, 0.17),
    "broker, batches of 32, 4 threads, broker's CPU of a batch": (0.25, 0.15),
    "broker, pulls of 32, 1 thread, broker's CPU of a pull": (0.4, 0.25),
    "broker, pulls of 32, 4 threads, broker's CPU of a pull": (0.4, 0.25),
    "broker, send to push consumer, 1000/s, p50": (0.8, 0.55),
    "broker, resident memory, idle": (0.65, 0.55),
    "broker, anonymous memory, loaded": (0.4, 0.33),
}
#: At most, whatever RocketMQ does.
MOST = {
    "broker, start until clients find it": 1,
    "broker, a cheap request beside mixed load, p999": 10,
    "broker, timers, anonymous memory of 100,000 that wait": 50,
    "broker, timers, late, p99": 100,
    "replication, from a send until a follower can read it, p50": 5,
}
#: At least, whatever RocketMQ does.
LEAST = {f"broker, requests, {kind}": 5000 for kind in KINDS} | {
    "replication, SYNC_MASTER's sends as a part of ASYNC_MASTER's": 0.6
}


@pytest.mark.java
@pytest.mark.campaign
def test_a_quick_run_of_the_broker_has_a_figure_for_every_goal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab.bench.main", "--quick", "--only", "broker", "--directory", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (kept,) = tmp_path.iterdir()  # and nothing of the data is left
    figures = {f["name"]: f for found in json.loads(kept.read_text())["questions"].values() for f in found}
    others = {name: figure["other"] for name, figure in figures.items() if figure["other"]}
    assert {name: (other["least"], other["stretch"]) for name, other in others.items() if other["least"]} == TIMES
    assert {name: (other["most"], other["stretch"]) for name, other in others.items() if other["most"]} == PARTS
    goals = {name: figure["goal"] for name, figure in figures.items() if figure["goal"]}
    failed = [name for name in goals if name.endswith(": failed requests, reput")]
    most = {name: goal["most"] for name, goal in goals.items() if goal["most"] is not None}
    assert most == MOST | dict.fromkeys(failed, 0)
    assert {name: goal["least"] for name, goal in goals.items() if goal["least"] is not None} == LEAST
    assert [figures[name]["median"] for name in failed] == [0] * 11
    may_be_nothing = ("failed", "from the disk", "timers")
    assert all(f["median"] > 0 for name, f in figures.items() if not any(part in name for part in may_be_nothing))
    assert all(f"  {name}  " in run.stdout for name in TIMES)


def test_a_kind_of_questions_is_all_of_them() -> None:
    chosen = _chosen(["broker", "put_message"])
    assert chosen[0] == "put_message"
    assert {name.partition(".")[0] for name in chosen[1:]} == {"broker"}
    assert _chosen(["broker.sends"]) == ["broker.sends"]
    assert not [name for name in _chosen(None) if name.startswith("broker.")]  # they take long


def test_ready_made_frames_are_counted_as_the_store_counts_their_messages(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", flush_disk_type="ASYNC_FLUSH", **SMALL) as broker:
        fields = {"topic": "frames", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "false"}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
        assert ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields).code == ResponseCode.SUCCESS
        count = send(broker.address, make_frames(send_command("frames")), 64, 0.1)
    assert count.answers == count.good > 0
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        assert store.max_offset("frames", 0) == count.good


@contextmanager
def answering(answers: bytes) -> Iterator[str]:
    """A server that gives these bytes one by one to whoever sends something, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(1)
                for byte in answers:
                    connection.sendall(bytes([byte]))
                connection.recv(1 << 16)

        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_answers_that_come_in_pieces_are_counted_once_and_errors_are_told_apart() -> None:
    answers = [RemotingCommand(code, number, flag=1) for number, code in enumerate((0, 1, 0))]
    with answering(b"".join(map(encode_command, answers))) as address:
        count = send(address, [b"frame"] * 3, 3, seconds=0)
    assert (count.answers, count.good) == (3, 2)


def test_a_side_runs_in_its_turn_only(tmp_path: Path) -> None:
    side = Ours(str(tmp_path / "store"), "ASYNC_FLUSH", 1 << 20)
    try:
        assert side.seconds > 0
        side.make_topic("orders", 2)
        side.pause()
        for _ in range(2):
            assert state(side.pid) == "T"
            with side.awake():
                assert state(side.pid) != "T"
                assert ask(side.address, RequestCode.GET_TOPIC_CONFIG, topic="orders").code == ResponseCode.SUCCESS
        assert side.memory_mb("VmRSS") > side.memory_mb("RssAnon") > 10
        assert side.processor_seconds() > 0.1
    finally:
        side.kill()


def state(pid: int) -> str:
    """Of a process, once it has taken a signal: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(AssertionError, match=r"reput broker ended with 2: .*store"):
        Ours(str(tmp_path / "store"), "ASYNC_FLUSH")


def test_the_processor_time_of_a_process_is_that_of_its_own_clock() -> None:
    before = time.process_time()
    seconds = processor_seconds(os.getpid())
    assert before <= seconds <= time.process_time()


def test_a_request_that_fails_is_said_and_misses_a_goal(tmp_path: Path) -> None:
    said: list[str] = []
    brokers = Brokers(Setting(str(tmp_path), quick=True, scale=0.01, say=said.append, beside_apache=False))
    side = object.__new__(Ours)
    brokers.check(side, measured(requests=5, failed=0))
    assert said == []
    brokers.check(side, measured(requests=5, failed=2))
    assert said == ["reput: 2 of 7 requests FAILED: refused"]
    (figure,) = brokers.failures("sends")
    assert (figure.name, figure.values) == ("sends: failed requests, reput", [2])
    assert figure.goal is not None
    assert not figure.goal.is_met(figure.median)
    assert brokers.failures("pulls")[0].values == [0]  # each question has its own
    with pytest.raises(AssertionError, match="reput answered no request: refused"):
        brokers.check(side, measured(requests=0, failed=3))


def measured(requests: int, failed: int) -> Measured:
    told = Told(requests, requests, failed, "refused" if failed else None, 1, 1, 1, 1, 1)
    return Measured([told], 1, 1)


@pytest.mark.java
def test_the_client_counts_what_fails_and_what_it_pulls(tmp_path: Path) -> None:
    setting = Setting(str(tmp_path), quick=True, scale=0.01, say=print, beside_apache=False)
    brokers = Brokers(setting)
    side = Ours(setting.folder("store"), "ASYNC_FLUSH", 1 << 20)
    try:
        for topic in ("orders", "empty"):
            side.make_topic(topic, 2)
        with brokers.load.connected(side):
            brokers.fill(side, Job("send", "orders", batch=10), 100)
            queues = [ask(side.address, RequestCode.GET_MAX_OFFSET, topic="orders", queueId=i) for i in (0, 1)]
            assert sum(int((one.ext_fields or {})["offset"]) for one in queues) == 100
            pulled = brokers.run(side, [Job("pull", "orders", threads=2)], 0.2).one
            assert pulled.messages > pulled.requests > 0
            none = brokers.load.run(side, [Job("pull", "empty")], 0.1).one
            assert (none.requests, none.messages) == (0, 0)
            assert none.failed > 0
            assert "NO_NEW_MSG" in str(none.failure) or "NO_MATCHED" in str(none.failure)
    finally:
        side.kill()
        setting.clear()
