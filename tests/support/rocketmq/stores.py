"""Stores that reput writes for RocketMQ to open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.log.dispatch_marks import RECOVERY_FILE
from tests.support.retained import RoomyFiles, age
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import STORE_VERSIONS

Options = dict[str, Any]
#: File sizes so small that a hundred messages roll every kind of them.
SMALL: Options = {
    "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 16_384,
    "mapped_file_size_consume_queue": 20 * 30,
    "mapper_file_size_batch_consume_queue": 46 * 5,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
SINCE_5 = tuple(version for version in STORE_VERSIONS if version > "5")
#: For tests that need no broker.
each_store_version = pytest.mark.parametrize("apache", STORE_VERSIONS, indirect=True)
Messages = Callable[..., list[workload.Fields]]


def puts(count: int, messages: Messages = workload.messages) -> Callable[[Path, Options], None]:
    def write(path: Path, options: Options) -> None:
        with reput.MessageStore.open(path, **options) as store:
            if messages is workload.inner_batches:
                store.update_topic(workload.BATCH_TOPIC)
            workload.put(store, messages(count))

    return write


def retained(messages: Messages) -> Callable[[Path, Options], None]:
    """Without its oldest log files, what was derived from these, and all messages of one queue."""

    def write(path: Path, options: Options) -> None:
        puts(3, lambda count: [one | {"topic": "rare"} for one in workload.messages(count)])(path, options)
        puts(240, messages)(path, options)
        age(path, 4)
        with reput.MessageStore.open(path, files=RoomyFiles(), **options) as store:
            assert len(store.delete_expired().commit_log_files) == 4

    return write


DERIVED = ("consumequeue", "batchconsumequeue", "index")


def spoil(store: Path) -> None:
    """Damage that no start would find: units that point nowhere, an index file that is gone; and a mark of a start."""
    for path in store.glob("consumequeue/order/*/*"):
        path.write_bytes(bytes(path.stat().st_size))
    sorted((store / "index").iterdir())[0].unlink()
    (store / "config" / RECOVERY_FILE).write_text("{}")
