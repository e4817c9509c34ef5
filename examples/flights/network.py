"""What the flights job does over the network: send all events to a broker of its own, consume a topic by a group."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from examples.flights.compare import compare_queue, own_properties
from examples.flights.events import DEPARTED, MESSAGE_SCHEMA, QUEUE_COUNT
from reput.client.sync import Producer, PullConsumer
from reput.progress import Progress

#: The topic that the group consumes: a third of all messages.
CONSUMED = DEPARTED
SEND_ROWS = 65_536
_BROKER = ("-m", "reput", "broker", "--port", "0", "--namesrv-port", "0", "--log-level", "warning")
#: This machine alone; RocketMQ's default for brokers; and one pull may bring a thousand messages instead of 32.
_SETTINGS = (
    "bindAddress=127.0.0.1",
    "brokerIP1=127.0.0.1",
    "flushDiskType=ASYNC_FLUSH",
    "maxTransferCountOnMessageInMemory=1024",
)
_STOP_S = 60
#: How long no message may come before the rest counts as missing.
_PATIENCE_S = 60.0


@contextmanager
def running_broker(store: Path) -> Iterator[str]:
    """A broker in a process of its own: "host:port" of its name server. The store is closed afterwards.

    Raises OSError where it does not start, or does not end well; it says on stderr why.
    """
    settings = [word for setting in _SETTINGS for word in ("--set", setting)]
    command = [sys.executable, *_BROKER, str(store), *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = dict(word.split("=") for word in broker.stdout.readline().split()[1:])
            if "namesrv" not in ready:
                raise OSError(f"the broker on {store} did not start")
            yield ready["namesrv"]
        finally:
            broker.terminate()
            broker.wait(_STOP_S)
        if broker.returncode:
            raise OSError(f"the broker on {store} ended with status {broker.returncode}")


def send(namesrv: str, events: pa.Table, progress: Progress) -> Iterator[str]:
    """Send the events in their order; a finding for what is stored less safely than a send promises."""
    with Producer(namesrv, group="flight-recorder", timeout=30.0) as producer:
        for begin in range(0, len(events), SEND_ROWS):
            sent = producer.send_arrow(events.slice(begin, SEND_ROWS))
            for status in pc.unique(sent["status"]).to_pylist():
                if status != "SEND_OK":
                    yield f"rows from {begin} on: status {status}"
            progress(min(begin + SEND_ROWS, len(events)), len(events), "send")


def consume(namesrv: str, events: pa.Table, progress: Progress) -> Iterator[str]:
    """Consume CONSUMED as the only member of a group, commit, and compare all columns with the events."""
    expected = events.filter(pc.equal(events["topic"], CONSUMED))
    schema = MESSAGE_SCHEMA.append(pa.field("queue_offset", pa.int64()))
    polled = [schema.empty_table()]
    count = 0
    with PullConsumer(namesrv, group="flight-report", topics={CONSUMED: "*"}, consume_from="first") as consumer:
        while count < len(expected):
            rows = consumer.poll_arrow(_PATIENCE_S, columns=schema.names)
            if not len(rows):
                break
            polled.append(rows.cast(schema))
            count += len(rows)
            progress(count, len(expected), f"consume {CONSUMED}")
        consumer.commit()
    found = pa.concat_tables(polled)
    for queue_id in range(QUEUE_COUNT):
        of_queue = (rows.filter(pc.equal(rows["queue_id"], queue_id)) for rows in (expected, found))
        yield from compare_queue(CONSUMED, queue_id, next(of_queue), own_properties(next(of_queue)))
