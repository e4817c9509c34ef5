"""Bit maps of ext units, by the SQL92 filters of groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reput import Message, MessageStore
from reput.filter.bloom_filter import BloomFilter
from reput.formats.consume_queue_ext import decode_ext_unit
from reput.remoting.subscription_data import build_subscription_data
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.service.filter_bit_maps import FilterBitMaps

BORN = 1_700_000_000_000


def managed(path: Path, **expressions: str) -> ConsumerFilterManager:
    """A filter for each group, of the topic orders."""
    (path / "config").mkdir(parents=True, exist_ok=True)
    bloom_filter = BloomFilter(20, 32)
    manager = ConsumerFilterManager(str(path), bloom_filter=bloom_filter, is_enabled=True, now_ms=BORN)
    for group, text in expressions.items():
        manager.register(group, [build_subscription_data("orders", text, "SQL92", sub_version=1)], BORN)
    return manager


def bit_maps(path: Path, manager: ConsumerFilterManager, topic: str, amounts: Sequence[int]) -> list[bytes]:
    """The bit maps of messages with such amounts."""
    messages = [Message(topic, b"-", properties={"amount": str(amount)}) for amount in amounts]
    options = {"enable_consume_queue_ext": True, "mapped_file_size_commit_log": 1 << 20}
    with MessageStore.open(path / "store", bit_maps=FilterBitMaps(manager), **options) as store:
        store.put_messages(messages)
        store.put_message(Message("lines", b"-"))  # another topic in the same pass
    (file,) = (path / f"store/consumequeue_ext/{topic}/0").iterdir()
    data, found = file.read_bytes(), []
    while len(found) < len(amounts):
        unit = decode_ext_unit(data)
        found.append(unit.bit_map)
        data = data[unit.size :]
    return found


def bits(manager: ConsumerFilterManager, *groups: str) -> bytes:
    """The bit map with the bits of some groups."""
    data = bytearray(manager.bloom_filter.bit_num // 8)
    for group in groups:
        known = manager.filter_data("orders", group)
        assert known is not None
        assert known.bloom_filter_data is not None
        for position in known.bloom_filter_data.bit_pos:
            data[position // 8] |= 1 << position % 8
    return bytes(data)


def test_a_message_has_the_bits_of_the_groups_that_want_it(tmp_path: Path) -> None:
    manager = managed(tmp_path, few="amount > 10", most="amount > 1")
    assert bit_maps(tmp_path, manager, "orders", [0, 5, 50]) == [
        bits(manager), bits(manager, "most"), bits(manager, "few", "most"),
    ]  # fmt: skip


def test_a_topic_without_filters_has_no_bit_maps(tmp_path: Path) -> None:
    assert bit_maps(tmp_path, managed(tmp_path, few="amount > 10"), "bills", [0, 50]) == [b"", b""]


def test_no_message_has_a_bit_map_beside_a_filter_that_does_not_compile(tmp_path: Path) -> None:
    manager = managed(tmp_path, few="amount > 10", most="amount > 1")
    snapshot = manager.snapshot()
    assert snapshot is not None
    manager.persist(snapshot)
    file = tmp_path / "config/consumerFilter.json"
    content = json.loads(file.read_text())
    content["filterDataByTopic"]["orders"]["groupFilterData"]["few"]["expression"] = "amount >"
    file.write_text(json.dumps(content))
    assert bit_maps(tmp_path, managed(tmp_path), "orders", [0, 50]) == [b"", b""]
