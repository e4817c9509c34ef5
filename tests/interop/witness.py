"""What each side says about one store, in the same words; and that they say the same."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.config.properties import camel_case
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.index_file import HEADER_SIZE, decode_entry, decode_header, entry_position
from reput.formats.message import MessageExt
from reput.jobs.rebuild import rebuild
from reput.jobs.runner import LocalRunner
from reput.store.batch_consume_queue import BatchConsumeQueue
from reput.store.consume_queue import ConsumeQueue
from tests.interop.apache import Apache

Fields = dict[str, Any]
#: How much was compared in this run; conftest.py prints it.
COMPARED: Counter[str] = Counter()
#: What a rebuild is told, where a store was not written with RocketMQ's defaults.
GEOMETRY = (
    *("mapped_file_size_consume_queue", "mapped_file_size_consume_queue_ext", "mapper_file_size_batch_consume_queue"),
    *("max_hash_slot_num", "max_index_num"),
)


class QueueTold(NamedTuple):
    """A consume queue: its ends, the numbers of each unit and of its ext unit, and what consumers get."""

    ends: tuple[int, int]
    units: list[list[Any]]
    messages: list[Fields]


class Told(NamedTuple):
    """A store: the log's ends, every record, every queue."""

    ends: tuple[int, int]
    records: dict[int, Fields]
    queues: dict[tuple[str, int], QueueTold]

    def keys(self) -> dict[str, list[str]]:
        """The keys that messages of each topic carry."""
        keys: dict[str, set[str]] = defaultdict(set)
        for record in self.records.values():
            keys[record["topic"]].update(keys_of(record))
        return {topic: sorted(found) for topic, found in keys.items()}


def keys_of(record: Fields) -> set[str]:
    """KEYS and UNIQ_KEY."""
    properties = record["properties"]
    return {key for key in [*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY")] if key}


def apache_config(options: dict[str, object]) -> dict[str, object]:
    """reput's options in RocketMQ's words; and no limit to the answers of a key query."""
    return {camel_case(name): value for name, value in options.items()} | {"maxMsgsNumBatch": 1_000_000}


def told_by_apache(apache: Apache) -> Told:
    """All of the store that Apache has open."""
    dump = apache.run("dump")
    queues = {
        (queue["topic"], queue["queue_id"]): QueueTold(
            (queue["min_offset"], queue["max_offset"]), queue["units"], queue["messages"]
        )
        for queue in dump["queues"]
        if queue["max_offset"]
    }
    records = {record["commit_log_offset"]: record["message"] for record in dump["records"] if "message" in record}
    return Told((max(dump["ends"][0], 0), dump["ends"][1]), records, queues)


def told_by_reput(store: reput.MessageStore) -> Told:
    """All of a store that is in step."""
    store.wait_dispatched()
    queues = {
        (queue.topic, queue.queue_id): QueueTold(
            (queue.min_offset, queue.max_offset),
            units_of(Path(store.path), queue),
            [*messages_of(store, queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)],
        )
        for queue in store.queues()
        if queue.max_offset  # one that got prepared messages alone may be known, and has no files
    }
    ends = store.min_commit_log_offset, store.max_commit_log_offset
    return Told(ends, dict(records_of(store)), queues)


def records_of(store: reput.MessageStore) -> Iterator[tuple[int, Fields]]:
    offset, file_size = store.min_commit_log_offset, store.config.mapped_file_size_commit_log
    while offset < store.max_commit_log_offset:
        message = store.look_message_by_offset(offset)
        if message is None:  # a blank record ends the file
            offset += file_size - offset % file_size
        else:
            yield offset, fields_of(message)
            offset += message.store_size


def units_of(path: Path, queue: ConsumeQueue | BatchConsumeQueue) -> list[list[Any]]:
    """The units as they stand in the files."""
    kind, size = (
        ("batchconsumequeue", BATCH_UNIT_SIZE) if isinstance(queue, BatchConsumeQueue) else ("consumequeue", UNIT_SIZE)
    )
    files = sorted((path / kind / queue.topic / str(queue.queue_id)).iterdir())
    data = b"".join(file.read_bytes() for file in files)
    if isinstance(queue, BatchConsumeQueue):
        found = (decode_batch_unit(data, position) for position in range(0, len(data), size))
        return [list(unit) for unit in found if unit.is_in_use and unit.next_offset > queue.min_offset]
    units: list[list[Any]] = []
    for offset in range(queue.min_offset, queue.max_offset):
        units.append(list(decode_unit(data, offset * size - int(files[0].name))))
        if ext := queue.ext_unit(offset):
            units[-1].append([ext.tags_code, ext.store_timestamp, ext.bit_map.hex()])
    return units


def messages_of(store: reput.MessageStore, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Fields]:
    while begin < end:
        result = store.get_message(topic, queue_id, begin)
        yield from map(fields_of, result.messages())
        assert result.next_begin_offset > begin
        begin = result.next_begin_offset


def fields_of(message: MessageExt) -> Fields:
    """A message as reput.interop.Dump tells it."""
    named = {"TAGS": message.tags, "KEYS": " ".join(message.keys), "UNIQ_KEY": message.unique_key}
    numbers = (
        *("topic", "flag", "queue_id", "queue_offset", "commit_log_offset", "store_size", "sys_flag"),
        *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc"),
    )
    return {
        **{name: getattr(message, name) for name in numbers},
        "body": message.body.hex(),
        "properties": message.properties | {name: value for name, value in named.items() if value},
        "born_host": host_of(message.born_host),
        "store_host": host_of(message.store_host),
    }


def host_of(host: str) -> str:
    address, _, port = host.rpartition(":")
    return f"{ipaddress.ip_address(address.strip('[]')).packed.hex()}:{port}"


def check_agreement(
    store: reput.MessageStore, apache: Apache, *, apache_lost_keys: bool = False, index_is_whole: bool = True
) -> Told:
    """Both have the same store in the same state, and say the same of it; returns what they say.

    apache_lost_keys: Apache has just opened what was killed; then it removes index files, and makes again only what the
    log files hold that it recovers. index_is_whole: no such opening has changed this store before.
    """
    ours, theirs = told_by_reput(store), told_by_apache(apache)
    assert ours.ends == theirs.ends, (ours.ends, theirs.ends)
    for offset in ours.records.keys() | theirs.records.keys():
        assert ours.records.get(offset) == theirs.records.get(offset)
    for queue in ours.queues.keys() | theirs.queues.keys():
        assert ours.queues.get(queue) == theirs.queues.get(queue)
    carriers = check_queries(store, ours, index_is_whole=index_is_whole)
    for topic, keys in ours.keys().items():
        for key, found in apache.run("query", topic=topic, keys=keys, max_num=1_000_000).items():
            # Apache may repeat one, and give others whose keys have the same hash.
            assert set(found) >= set(carriers[topic, key]) or apache_lost_keys or not index_is_whole, (topic, key)
            others = [ours.records[offset] for offset in set(found) - set(carriers[topic, key])]
            assert not any(other["topic"] == topic and key in keys_of(other) for other in others)
    COMPARED.update(
        stores=1,
        messages=len(ours.records),
        units=sum(len(queue.units) for queue in ours.queues.values()),
        key_queries=len(carriers),
    )
    return ours


def check_queries(
    store: reput.MessageStore, told: Told, *, index_is_whole: bool = True
) -> dict[tuple[str, str], list[int]]:
    """A query for each key gives just the messages that carry it, which are returned by topic and key."""
    carriers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for offset, record in told.records.items():
        for key in keys_of(record) if record["sys_flag"] & 0xC != 0xC else ():
            carriers[record["topic"], key].append(offset)
    for topic, keys in told.keys().items():
        for key, messages in store.query_messages(topic, keys, max_num=1_000_000).items():
            found = [message.commit_log_offset for message in messages]
            wanted = carriers[topic, key]
            assert found == (wanted if index_is_whole else [one for one in wanted if one in found]), (topic, key)
    return carriers


def check_rebuild(path: Path, output: Path, options: dict[str, Any], *, index_is_whole: bool = True) -> None:
    """A rebuild from the closed store's log has its queue files, and its index entries in their order."""
    geometry = {
        name: options[name] for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")
    }
    # Live, 4.9.7 gives delayed messages the time of delivery as 5.3.3 does; only what it makes again differs.
    rules = DispatchRules("5.3.3" if options["dispatch_rules"] == "4.9.7" else options["dispatch_rules"])
    rebuild(path, output, runner=LocalRunner(threads=1), rules=rules, **geometry)
    assert queue_files(output) == queue_files(path)
    slots = options["max_hash_slot_num"]
    if index_is_whole:
        assert index_entries(output, slots) == index_entries(path, slots)


def queue_files(path: Path) -> dict[str, bytes]:
    files = sorted(path.glob("*consumequeue*/*/*/*"))
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def index_entries(path: Path, slots: int) -> list[tuple[int, int]]:
    """Hash and commit log offset of all entries; what Apache put in again after a start, once."""
    entries: dict[tuple[int, int], None] = {}
    for file in sorted(path.glob("index/*")):
        data = file.read_bytes()
        for number in range(1, decode_header(data[:HEADER_SIZE]).index_count):
            entry = decode_entry(data, entry_position(slots, number))
            entries[entry.key_hash, entry.phy_offset] = None
    return list(entries)
