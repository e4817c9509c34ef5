"""A store that is large enough for many tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import reput
from reput.kernels.records.record_batch import SCHEMA

MESSAGES = 60_000


def write_large_store(path: Path, messages: int = MESSAGES) -> None:
    """Messages of 3 topics with 8 queues each, in several files of each kind."""
    numbers = range(messages)
    table = pa.table(
        {
            "topic": [f"topic-{n % 3}" for n in numbers],
            "queue_id": pa.array([n % 8 for n in numbers], pa.int32()),
            "tags": [(None, "paid", "shipped")[n % 7 % 3] for n in numbers],
            "keys": pa.array([[f"k-{n}"][: n % 2] for n in numbers], SCHEMA.field("keys").type),
            "body": [b"%d " % n * (n % 40) for n in numbers],
        }
    )
    with reput.MessageStore.open(
        path,
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=20 * 1000,
        max_hash_slot_num=1000,
        max_index_num=10_000,
    ) as store:
        store.put_arrow(table)
        store.wait_dispatched(timeout=60)
