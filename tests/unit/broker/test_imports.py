"""A broker imports Arrow when something needs it: an expression, or a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from reput import Broker, Message
from reput.client.sync import Producer, PullConsumer
from tests.support.broker import SMALL
with Broker.start(sys.argv[1], **SMALL | {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}) as broker:
    with Producer(broker.namesrv, group="shop") as producer:
        producer.send(Message("orders", b"x", tags="paid", keys=["o-1"]))
    with PullConsumer(broker.namesrv, group="billing", topics={"orders": "paid"}, consume_from="first") as consumer:
        assert [message.body for message in consumer.poll(timeout=30)] == [b"x"]
print(*sorted(sys.modules.keys() & {"numpy", "numba", "pyarrow", "lark", "prometheus_client"}))
"""


def test_sends_and_pulls_of_clients_import_no_arrow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "numba numpy\n"
