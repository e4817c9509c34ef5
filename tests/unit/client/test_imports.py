"""A client is imported quickly: nothing that only Arrow needs is loaded with it."""

from __future__ import annotations

import os
import subprocess
import sys

from reput.testing import LocalBroker

PROGRAM = """
import sys, time
before = time.process_time()
from reput.client import Message, Producer
seconds = time.process_time() - before
print(seconds)
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "numba", "pyarrow", "typer", "rich"}))
rooms = ("reput.store", "reput.broker", "reput.kernels", "reput.log")
print(*sorted(name for name in sys.modules if name.startswith(rooms)))
"""

#: Sends and pulls, as a client without tables does.
CONNECTED = """
import sys
from reput.client import Message
from reput.client.sync import Producer, PullConsumer
from tests.support.patience import be_patient
be_patient()
with Producer(sys.argv[1], group="shop") as producer:
    producer.send(Message("orders", b"x" * 5000, tags="paid", keys=["o-1"]))
with PullConsumer(sys.argv[1], group="billing", topics={"orders": "paid"}, consume_from="first") as consumer:
    assert [message.body for message in consumer.poll(timeout=30)] == [b"x" * 5000]
print(*sorted(sys.modules.keys() & {"numpy", "numba", "pyarrow", "typer", "rich"}))
"""


def imported() -> tuple[float, str, str]:
    """Seconds of the processor, heavy packages, and rooms of a store that an import of the client loads."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=env).stdout
    seconds, packages, rooms = told.split("\n")[:3]
    return float(seconds), packages, rooms


def test_neither_numpy_nor_a_store_is_loaded() -> None:
    assert imported()[1:] == ("", "")


def test_the_import_takes_less_than_150_ms() -> None:
    assert any(imported()[0] < 0.15 for _ in range(20))  # once: beside other tests a core has half of its speed


def test_sends_and_pulls_import_no_arrays_either(reput_broker: LocalBroker) -> None:
    command = [sys.executable, "-c", CONNECTED, reput_broker.namesrv]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"
