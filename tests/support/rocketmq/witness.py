"""Testimony of each side about one store, in the same words; and that both say the same."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.config.properties import camel_case
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import decode_address, decode_ext_unit, is_ext_address
from reput.formats.index_file import HEADER_SIZE, decode_entry, decode_header, entry_position
from reput.formats.message_ext import MessageExt
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.compared import COMPARED
from tests.support.rocketmq.apache import Apache
from tests.support.rocketmq.workload import BATCH_TOPIC

Fields = dict[str, Any]
#: Of a store's options those that a rebuild needs to know.
GEOMETRY = (
    *("mapped_file_size_consume_queue", "mapper_file_size_batch_consume_queue", "max_hash_slot_num", "max_index_num"),
    *("enable_consume_queue_ext", "mapped_file_size_consume_queue_ext", "bit_maps", "enable_lmq"),
)


class QueueTold(NamedTuple):
    """A queue of either type: its ends, its units, and what consumers get.

    A unit is [commit log offset, size, tags code]; with an ext unit, wherever that stands, [commit log offset, size,
    [tags code, store time, bit map]]; in a batch consume queue all eight fields.
    """

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


def options_at(path: Path, options: Fields) -> Fields:
    """The options of a store in this folder, which stands for `{store}` in them."""
    return {name: value.format(store=path) if isinstance(value, str) else value for name, value in options.items()}


def open_apache(apache: Apache, path: Path, options: Fields) -> None:
    """Apache opens the store with reput's options in RocketMQ's words; and no limit to the answers of a key query."""
    config = {camel_case(name): value for name, value in options_at(path, options).items() if name != "bit_maps"}
    types = {} if apache.version < "5" else {"batch_topics": [BATCH_TOPIC.topic_name]}
    config |= {"maxMsgsNumBatch": 1_000_000}
    apache.run("open", path=str(path), config=config, bit_maps="bit_maps" in options, **types)


def told_by_apache(apache: Apache) -> Told:
    """All of the store that Apache has open."""
    dump = apache.run("dump")
    begin = max(dump["ends"][0], 0)
    queues = {}
    for queue in dump["queues"]:
        ends, messages = (queue["min_offset"], queue["max_offset"]), queue["messages"]
        units = [[*unit[:2], unit[3]] if len(unit) == 4 else unit for unit in queue["units"]]
        if apache.version < "5" and (not units or units[-1][0] < begin):
            # 4.9.7 lets a queue begin at 0 whose messages are all deleted, and reads other bytes as one of them.
            ends, units, messages = (ends[1], ends[1]), [], []
        if ends[1]:
            queues[queue["topic"], queue["queue_id"]] = QueueTold(ends, units, messages)
    records = {record["commit_log_offset"]: record["message"] for record in dump["records"] if "message" in record}
    return Told((begin, dump["ends"][1]), records, queues)


def told_by_reput(store: reput.MessageStore) -> Told:
    """All of a store that is in step."""
    store.wait_dispatched()
    queues = {
        (queue.topic, queue.queue_id): QueueTold(
            (queue.min_offset, queue.max_offset),
            units_of(Path(store.path), queue.topic, queue.queue_id, queue.min_offset, queue.max_offset),
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


def units_of(path: Path, topic: str, queue_id: int, begin: int, end: int) -> list[list[Any]]:
    """The units of these messages as they stand in the files."""
    batch_queue = path / "batchconsumequeue" / topic / str(queue_id)
    if batch_queue.exists():
        data = b"".join(file.read_bytes() for file in sorted(batch_queue.iterdir()))
        units = [decode_batch_unit(data, position) for position in range(0, len(data), BATCH_UNIT_SIZE)]
        return [list(unit) for unit in units if unit.is_in_use and begin < unit.next_offset <= end]
    files = sorted((path / "consumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(file.read_bytes() for file in files)
    first = int(files[0].name)
    ext_files = {int(file.name): file.read_bytes() for file in path.glob(f"consumequeue_ext/{topic}/{queue_id}/*")}
    return [
        [*unit[:2], ext_unit_of(ext_files, unit.tags_code) if is_ext_address(unit.tags_code) else unit.tags_code]
        for unit in (decode_unit(data, offset * UNIT_SIZE - first) for offset in range(begin, end))
    ]


def ext_unit_of(ext_files: dict[int, bytes], address: int) -> list[Any]:
    """Of an extension's files, which are named by their first offset."""
    offset = decode_address(address)
    first = max(name for name in ext_files if name <= offset)
    unit = decode_ext_unit(ext_files[first], offset - first)
    assert unit is not None, offset
    return [unit.tags_code, unit.store_timestamp, unit.bit_map.hex()]


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


def check_rebuild(path: Path, options: Fields, told: Told, *, index_is_whole: bool = True) -> None:
    """A rebuild from the closed store's log has its queue files, and its index entries in their order.

    told: what is in the store. A rebuild does not know deleted messages, and has one ext unit where a RocketMQ
    that opens a killed store writes another: then queues are compared by their units.
    """
    output = Path(f"{path}-rebuilt")
    geometry = {name: value for name, value in options.items() if name in GEOMETRY}
    rules = DispatchRules(options["dispatch_rules"])
    if any("DELAY" in record["properties"] for record in told.records.values()) and rules is DispatchRules.V4_9_7:
        rules = (
            DispatchRules.V5_3_3
        )  # live, both give delayed messages the time of delivery; what 4.9.7 makes again differs
    log = options_at(path, options).get("store_path_commit_log")
    rebuild(path, output, runner=LocalRunner(threads=1), commit_log_path=log, rules=rules, **geometry)
    for queue, ends in [(name, queue.ends) for name, queue in told.queues.items() if queue.units]:
        assert units_of(output, *queue, *ends) == units_of(path, *queue, *ends), queue
    if told.ends[0] == 0 and (index_is_whole or not options.get("enable_consume_queue_ext")):
        assert queue_files(output) == queue_files(path)
    slots = options["max_hash_slot_num"]
    if index_is_whole:
        assert index_entries(output, slots, told.ends[0]) == index_entries(path, slots, told.ends[0])


def queue_files(path: Path) -> dict[str, bytes]:
    files = sorted(path.glob("*consumequeue*/*/*/*"))
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def index_entries(path: Path, slots: int, begin: int) -> list[tuple[int, int]]:
    """Hash and commit log offset of all entries from a log offset on; what Apache put in again after a start, once."""
    entries: dict[tuple[int, int], None] = {}
    for file in sorted(path.glob("index/*")):
        data = file.read_bytes()
        for number in range(1, decode_header(data[:HEADER_SIZE]).index_count):
            entry = decode_entry(data, entry_position(slots, number))
            if entry.phy_offset >= begin:
                entries[entry.key_hash, entry.phy_offset] = None
    return list(entries)
