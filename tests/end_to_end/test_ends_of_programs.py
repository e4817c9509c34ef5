"""Programs that leave the end of a store, a broker or a client to the interpreter: they end, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import reput
import reput.testing
from reput.client import Message
from reput.client.sync import Producer, PullConsumer

_OPEN = {
    "store": "reput.MessageStore.open('store', small=True)",
    "broker": "reput.Broker.start('broker', port=0, namesrv_port=0, mapped_file_size_commit_log=1 << 20)",
    "producer": "reput.client.sync.Producer(served.namesrv, group='g')",
}
_LEFT = {
    "by its owner's __del__": """
class Owner:
    def __init__(self):
        self.held = {made}.__enter__()
    def __del__(self):
        self.held.close()
owner = Owner()
""",
    "by a generator": """
def held():
    with {made} as one:
        yield one
left = held()
next(left)
""",
}
_PROGRAM = """
import reput, reput.client.sync, reput.testing
{served}
{left}
print("ends", flush=True)
"""


@pytest.mark.parametrize("left", _LEFT.values(), ids=_LEFT.keys())
@pytest.mark.parametrize("kind", _OPEN)
def test_a_program_ends_that_leaves_a_close_to_the_interpreter(kind: str, left: str, tmp_path: Path) -> None:
    served = "context = reput.testing.broker(); served = context.__enter__()" if kind == "producer" else ""
    program = _PROGRAM.format(served=served, left=left.format(made=_OPEN[kind]))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_what_was_acknowledged_is_there_after_a_close_that_came_too_late(tmp_path: Path) -> None:
    put = "owner.held.put_message(reput.Message('orders', b'x'))"
    left = next(iter(_LEFT.values())).format(made=_OPEN["store"]) + put
    program = _PROGRAM.format(served="", left=left)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=120, check=True, stdout=subprocess.DEVNULL)
    with reput.MessageStore.open(tmp_path / "store") as store:
        assert store.recovery.was_killed
        assert [message.body for message in store.get_message("orders", 0, 0).messages()] == [b"x"]


@pytest.mark.parametrize("more", ["", "import atexit; atexit.register(served.close)"], ids=["nobody", "atexit"])
def test_a_broker_that_nobody_closes_before_the_programs_end_is_closed_clean(more: str, tmp_path: Path) -> None:
    program = f"""
import reput
from reput.client import Message
from reput.client.sync import Producer
served = {_OPEN["broker"]}
{more}
with Producer(served.namesrv, group="g") as producer:
    producer.send(Message("orders", b"x"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with reput.MessageStore.open(tmp_path / "broker") as store:
        assert not store.recovery.was_killed
        assert sum(len(store.get_message("orders", queue_id, 0)) for queue_id in range(4)) == 1


_LATE = """
import logging, sys, threading
from reput.client.sync import PushConsumer

class Told(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), flush=True)
        told.set()

def consume():
    threading.main_thread().join()
    logging.getLogger("reput").addHandler(Told())
    with PushConsumer(sys.argv[1], group="g", topics={"orders": "*"}, on_message=print, orderly=sys.argv[2] == "True",
                      consume_from="first"):
        told.wait()

told = threading.Event()
threading.Thread(target=consume).start()
"""


@pytest.mark.parametrize("orderly", [False, True])
def test_a_handler_that_cannot_be_called_any_more_leaves_its_messages_to_the_group(
    orderly: bool, tmp_path: Path
) -> None:
    with reput.testing.broker() as broker, Producer(broker.namesrv, group="p") as producer:
        producer.send(Message("orders", b"x"))
        done = subprocess.run(
            [sys.executable, "-c", _LATE, broker.namesrv, str(orderly)],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert "a consumer is closed: its handler cannot be called" in done.stdout, done.stderr
        assert done.stdout.count("\n") == 1, done.stdout
        with PullConsumer(broker.namesrv, group="g", topics={"orders": "*"}, consume_from="first") as consumer:
            (message,) = consumer.poll(timeout=30)
    assert (message.body, message.reconsume_times) == (b"x", 0)


def test_a_forked_process_ends_and_leaves_the_broker_to_its_parent(tmp_path: Path) -> None:
    program = f"""
import multiprocessing
import reput
from reput.client import Message
from reput.client.sync import Producer

def send():
    with Producer(served.namesrv, group="child") as producer:
        producer.send(Message("orders", b"child"))
    served.close()

served = {_OPEN["broker"]}
child = multiprocessing.get_context("fork").Process(target=send)
child.start()
child.join()
with Producer(served.namesrv, group="parent") as producer:
    producer.send(Message("orders", b"parent"))
served.close()
print(child.exitcode)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
