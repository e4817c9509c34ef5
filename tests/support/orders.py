"""A small store of orders, with several files of each kind, for jobs to look at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import reput
from reput.formats.metadata import ConsumerOffsets, TopicConfig, encode_metadata
from tests.support.faulty_files import FaultyFiles

SLOTS, ENTRIES = 50, 150
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": SLOTS,
    "max_index_num": ENTRIES,
    "max_message_size": 4096,
    "flush_disk_type": "ASYNC_FLUSH",
}


def put(store: reput.MessageStore, count: int = 200) -> None:
    """Put 25 messages in each millisecond: the last records have one time, the files before another."""
    begin_s = time.time()
    for n in range(count):
        message = reput.Message("orders", b"x" * 200, tags=f"t{n % 3}", keys=(f"k{n}", "all"))
        with patch("time.time", lambda now_s=begin_s + n // 25 / 1000: now_s):
            store.put_message(message, queue_id=n % 4)
    store.wait_dispatched()


def closed_orders(path: Path) -> Path:
    """200 messages in four queues, over several files of each kind, and two settings."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **SIZES) as store:
        put(store)
        store.update_topic(TopicConfig("orders", 4, 4))
        store.update_topic(TopicConfig("refunds", 2, 2))
    offsets = ConsumerOffsets({"orders@shop": {0: 50, 3: 20}})
    (path / "config/consumerOffset.json").write_bytes(encode_metadata(offsets))
    return path


def log_with_crcs(path: Path, switches: str = "+") -> Path:
    """100 messages for each switch: + with CRCs of the records, - without."""
    for switch in switches:
        with reput.MessageStore.open(path, **SIZES, enabled_append_prop_crc=switch == "+") as store:
            put(store, 100)
    return path
