"""Messages that a task of Spark's pulls from a broker and makes Arrow of, by the processor time of its thread.

The broker is in another thread of this process. What it takes is not counted, nor what waits.
"""

from __future__ import annotations

import time

from lab.bench import messages
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting, put
from reput import Broker, MessageStore
from reput.formats.metadata import TopicConfig

_COUNT = 1_000_000
_QUEUES = 10
_FEW = ("topic", "queue_id", "queue_offset", "store_timestamp", "body")
#: Messages of one pull: RocketMQ's default, and what docs/spark-wire.md advises.
_PULLS = ((32, 262_144), (2048, 4 << 20))
_GOAL = Goal(least=500_000)


def measure(setting: Setting) -> list[Figure]:
    """Messages a second of a core."""
    path = setting.folder("spark-wire")
    with MessageStore.open(path, flush_disk_type="ASYNC_FLUSH") as store:
        store.update_topic(TopicConfig(messages.TOPIC, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES))
        put(store, setting.count(_COUNT))
    figures = [figure for count, size in _PULLS for figure in _measure(setting, path, count, size)]
    setting.remove(path)
    return figures


def _measure(setting: Setting, path: str, count: int, size: int) -> list[Figure]:
    from reput.kernels.records.record_batch import SCHEMA

    figures = []
    with Broker.start(
        path, bind_address="127.0.0.1", broker_ip1="127.0.0.1", max_transfer_count_on_message_in_memory=count,
        max_transfer_bytes_on_message_in_memory=size,
    ) as broker:  # fmt: skip
        for columns in (_FEW, tuple(SCHEMA.names)):
            _rate(broker, columns)
            rates = [_rate(broker, columns) for _ in range(setting.repeats)]
            name = f"task of Spark's at a broker that gives {count} messages a pull, {len(columns)} columns, of a core"
            figures.append(Figure(name, "msg/s", rates, goal=_GOAL))
    return figures


def _rate(broker: Broker, columns: tuple[str, ...]) -> float:
    from reput.spark.wire.options import read_options
    from reput.spark.wire.reader import WireReader

    reader = WireReader(read_options({"namesrv": broker.namesrv, "subscribe": messages.TOPIC}), columns)
    begin, rows = time.thread_time(), 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            rows += batch.num_rows
    return rows / (time.thread_time() - begin)
