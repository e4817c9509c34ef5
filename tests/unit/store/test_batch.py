"""Topics with batch consume queues, and batches: put, read, found again after every kind of end."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, MessageIllegalError, StoreBusyError, StoreFormatError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.message_batch import BatchItem, decode_batch, encode_batch
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import TopicConfig
from reput.formats.properties import DELAY
from reput.formats.property_crc import PROPERTY_CRC_SIZE, encode_property_crc
from reput.formats.record_layout import SysFlag
from reput.store.puts.put_batch import encode_items
from reput.store.queues.batch_consume_queue import BatchConsumeQueue
from reput.store.statistics import TopicCounts
from tests.support.faulty_files import Crash, FaultyFiles, Operation, abandon, no_objection
from tests.support.fixtures import OpenStore
from tests.support.invariants import check_store, contents

BATCH_CQ = TopicConfig("orders", attributes={"queue.type": "BatchCQ"})
VECTOR = json.loads((Path(__file__).parents[2] / "golden/vectors.json").read_text())["batchConsumeQueue"]


def batch(count: int, *, unique_key: str | None = "U", tags: str | None = None, topic: str = "orders", **fields):
    messages = [reput.Message(topic, f"{count}-{i}".encode(), tags="item", flag=i) for i in range(count)]
    made = reput.MessageExtBatch.of(messages, unique_key=unique_key)
    made.tags = tags
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def units(path: Path, topic: str = "orders", queue_id: int = 0) -> list[BatchUnit]:
    data = b"".join(file.read_bytes() for file in sorted((path / f"batchconsumequeue/{topic}/{queue_id}").iterdir()))
    found = [decode_batch_unit(data, position) for position in range(0, len(data), BATCH_UNIT_SIZE)]
    used = [unit for unit in found if unit.is_in_use]
    assert found[: len(used)] == used
    assert not any(data[len(used) * BATCH_UNIT_SIZE :])
    return used


@pytest.fixture
def store(open_store: OpenStore) -> reput.MessageStore:
    """A store with small files, and the topic `orders` with batch consume queues."""
    opened = open_store()
    opened.update_topic(BATCH_CQ)
    return opened


def put_batches(store: reput.MessageStore, counts: list[int]) -> list[int]:
    """Put inner batches of these sizes, single messages for 1; returns the queue offset of each."""
    offsets = []
    for count in counts:
        if count == 1:
            offsets.append(store.put_message(reput.Message("orders", b"one", tags="one")).queue_offset)
        else:
            offsets.append(store.put_batch(batch(count, tags="many")).queue_offset)
    store.wait_dispatched()
    return offsets


def test_an_inner_batch_is_one_record_and_takes_a_queue_offset_a_message(store: reput.MessageStore, path: Path) -> None:
    assert put_batches(store, [3, 1, 5, 1]) == [0, 3, 4, 9]
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (0, 10)
    messages = store.get_message("orders", 0, 0).messages()
    assert [(m.queue_offset, m.sys_flag & 0xC0) for m in messages] == [(0, 0xC0), (3, 0), (4, 0xC0), (9, 0)]
    assert messages[2].properties == {"INNER_NUM": "5", "INNER_BASE": "4"}
    assert (messages[2].unique_key, messages[2].tags) == ("U", "many")
    sent = [reput.Message("orders", b"5-%d" % i, tags="item", flag=i) for i in range(5)]
    assert messages[2].body == encode_batch(sent)
    assert [(unit.base_offset, unit.message_count) for unit in units(path)] == [(0, 3), (3, 1), (4, 5), (9, 1)]
    assert [(u.commit_log_offset, u.size) for u in units(path)] == [
        (m.commit_log_offset, m.store_size) for m in messages
    ]
    assert not (path / "consumequeue/orders").exists()
    store.close()
    check_store(path)


def test_the_units_of_rocketmqs_own_vector_are_those_that_dispatch_makes(path: Path, open_store: OpenStore) -> None:
    log, unit_bytes = bytes.fromhex(VECTOR["commitLogHex"]), bytes.fromhex(VECTOR["unitsHex"])
    (path / "commitlog").mkdir(parents=True)
    (path / "commitlog" / f"{0:020d}").write_bytes(log + bytes(4096 - len(log)))
    store = open_store()
    (file,) = (path / "batchconsumequeue").glob("*/*/*")
    assert file.read_bytes()[: len(unit_bytes)] == unit_bytes
    topic = file.parent.parent.name
    for get in VECTOR["getMessage"]:
        result = store.get_message(topic, 0, int(get["request"].split()[1]))
        assert f"status={result.status.name}, nextBeginOffset={result.next_begin_offset}, " in get["result"]
        inner = [one for message in result.messages() for one in message.unfold()]
        assert f"messageCount={len(inner)}," in get["result"]


def test_a_client_unfolds_an_inner_batch_into_its_messages(store: reput.MessageStore) -> None:
    put_batches(store, [1, 3])
    single, inner = store.get_message("orders", 0, 0).messages()
    assert single.unfold() == [single]
    shown = inner.unfold()
    assert [(m.queue_offset, m.body, m.flag, m.tags, m.sys_flag) for m in shown] == [
        (1 + i, f"3-{i}".encode(), i, "item", 0) for i in range(3)
    ]
    assert {m.commit_log_offset for m in shown} == {inner.commit_log_offset}
    table = reput.read_log(store.path).read_all()
    assert table["queue_offset"].to_pylist() == [0, 1, 2, 3]


OFFSETS_ASKED = {0: (0, 10), 1: (0, 10), 2: (0, 10), 3: (3, 10), 4: (4, 10), 8: (4, 10), 9: (9, 10)}


@pytest.mark.parametrize(("asked", "answer"), OFFSETS_ASKED.items())
def test_a_get_begins_with_the_record_that_has_the_offset(
    store: reput.MessageStore, asked: int, answer: tuple[int, int]
) -> None:
    put_batches(store, [3, 1, 5, 1])
    result = store.get_message("orders", 0, asked)
    assert (result.messages()[0].queue_offset, result.next_begin_offset) == answer


def test_statuses_of_a_batch_queue_are_those_of_any_queue(store: reput.MessageStore) -> None:
    assert store.get_message("orders", 0, 0).status.name == "NO_MESSAGE_IN_QUEUE"
    put_batches(store, [3])
    told = [(r.status.name, r.next_begin_offset) for r in (store.get_message("orders", 0, at) for at in (-1, 3, 4))]
    assert told == [("OFFSET_TOO_SMALL", 0), ("OFFSET_OVERFLOW_ONE", 3), ("OFFSET_OVERFLOW_BADLY", 3)]


# (sizes of the batches, most messages) -> next offset. A batch is taken where the messages so far leave room for it.
LIMITS = [([3, 3, 3], 3, 3), ([3, 3, 3], 5, 3), ([3, 3, 3], 6, 6), ([3, 3], 0, 3), ([3, 3], 1, 3), ([1, 4, 1], 2, 1)]


@pytest.mark.parametrize(("sizes", "most", "following"), LIMITS)
def test_limits_count_the_messages_in_batches(
    store: reput.MessageStore, sizes: list[int], most: int, following: int
) -> None:
    put_batches(store, sizes)
    assert store.get_message("orders", 0, 0, most).next_begin_offset == following


def test_the_transfer_limit_of_32_lets_the_batch_that_crosses_it_through(open_store: OpenStore) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 20)
    store.update_topic(BATCH_CQ)
    put_batches(store, [20, 11, 20, 1])
    assert store.get_message("orders", 0, 0, 100).next_begin_offset == 51
    assert store.get_message("orders", 0, 0, 32).next_begin_offset == 31


def test_a_filter_compares_the_tags_of_the_batch(store: reput.MessageStore) -> None:
    put_batches(store, [3, 1, 2])
    got = store.get_message("orders", 0, 0, tags="many")
    assert [m.queue_offset for m in got.messages()] == [0, 4]
    assert [m.queue_offset for m in store.get_message("orders", 0, 0, tags="one").messages()] == [3]
    assert store.get_message("orders", 0, 0, tags="none").status.name == "NO_MATCHED_MESSAGE"


def test_queue_files_roll_and_every_message_is_found(store: reput.MessageStore, path: Path) -> None:
    counts = [1 + i * 7 % 5 for i in range(40)]
    offsets = put_batches(store, counts)
    assert len(list((path / "batchconsumequeue/orders/0").iterdir())) == 5
    for offset, count in zip(offsets, counts, strict=True):
        for inside in range(offset, offset + count):
            assert store.get_message("orders", 0, inside).messages()[0].queue_offset == offset
    at = 0
    seen = []
    while (result := store.get_message("orders", 0, at)).status.name == "FOUND":
        seen += [message.queue_offset for message in result.messages()]
        at = result.next_begin_offset
    assert seen == offsets
    store.close()
    check_store(path)


def test_offsets_by_time_are_those_of_batches(store: reput.MessageStore) -> None:
    put_batches(store, [3, 2])
    first, second = (m.store_timestamp for m in store.get_message("orders", 0, 0).messages())
    assert store.offset_by_time("orders", 0, first) == 0
    assert store.offset_by_time("orders", 0, second + 1) == 5
    assert store.offset_by_time("orders", 0, second + 1, "upper") == 4
    assert store.offset_by_time("orders", 0, first - 1, "upper") == 0


def test_reopening_goes_on_behind_the_last_message(open_store: OpenStore, path: Path) -> None:
    with open_store() as store:
        store.update_topic(BATCH_CQ)
        put_batches(store, [3, 4])
    with open_store() as store:
        assert (store.recovery.was_killed, store.recovery.dispatched_records) == (False, 0)
        assert put_batches(store, [2, 1]) == [7, 9]
        assert store.get_message("orders", 0, 5).messages()[0].queue_offset == 3
    check_store(path)


@pytest.mark.parametrize("lost", ["nothing", "batchconsumequeue", "all queues", "topics.json", "all but the log"])
def test_after_a_kill_the_queues_are_what_they_were(open_store: OpenStore, path: Path, lost: str) -> None:
    files = FaultyFiles()
    store = open_store(files=files)
    store.update_topic(BATCH_CQ)
    put_batches(store, [1, 3, 1, 2] * 5)
    store.put_message(reput.Message("simple", b""))
    store.wait_dispatched()
    abandon(store, files)
    before = contents(path, "batchconsumequeue")
    names = {
        "batchconsumequeue": ["batchconsumequeue"],
        "all queues": ["batchconsumequeue", "consumequeue"],
        "topics.json": ["config"],
        "all but the log": ["batchconsumequeue", "consumequeue", "config", "index", "checkpoint"],
    }
    for name in names.get(lost, []):
        shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()
    with open_store() as again:
        assert contents(path, "batchconsumequeue") == before
        assert put_batches(again, [2]) == [35]
    check_store(path)


@pytest.mark.parametrize("lost", ["batchconsumequeue", "batchconsumequeue/orders/1"])
def test_a_queue_whose_folder_was_deleted_after_a_clean_exit_is_built_again(
    open_store: OpenStore, path: Path, lost: str
) -> None:
    with open_store() as store:
        store.update_topic(BATCH_CQ)
        store.put_batch(batch(3), 1)
        put_batches(store, [3, 1])
    before = contents(path, "batchconsumequeue")
    shutil.rmtree(path / lost)
    with open_store() as store:
        assert contents(path, "batchconsumequeue") == before
        assert store.max_offset("orders", 1) == 3


def test_a_gap_before_the_first_unit_of_a_recovery_makes_it_begin_at_the_first_record(
    open_store: OpenStore, path: Path
) -> None:
    files = FaultyFiles()
    store = open_store(files=files)
    store.update_topic(BATCH_CQ)
    put_batches(store, [3, 2] * 20)
    later = store.latest_time() + 3_600_000
    abandon(store, files)
    before = contents(path, "batchconsumequeue")
    shutil.rmtree(path / "batchconsumequeue")
    (path / "consumequeue/other/0").mkdir(parents=True)  # or all queues would count as lost
    (path / f"consumequeue/other/0/{0:020}").write_bytes(bytes(20 * 8))
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(later, later, later)))
    with open_store() as again:
        assert (again.recovery.was_killed, again.recovery.dispatched_from) == (True, 0)
        assert contents(path, "batchconsumequeue") == before


def test_retention_deletes_the_files_of_a_batch_queue_that_the_log_has_left(
    store: reput.MessageStore, open_store: OpenStore, path: Path
) -> None:
    offsets = put_batches(store, [1 + i % 3 for i in range(60)])
    files = sorted((path / "batchconsumequeue/orders/0").iterdir())
    old = sorted((path / "commitlog").iterdir())[:2]
    for file in old:
        os.utime(file, (0, 0))
    result = store.delete_expired()
    assert len(result.commit_log_files) == len(old)
    deleted = [file for file in files if not file.exists()]
    assert list(map(str, deleted)) == result.consume_queue_files == list(map(str, files[: len(deleted)]))
    assert result.bytes_freed == 2 * 4096 + len(deleted) * 46 * 8 + len(result.index_files) * (40 + 4 * 7 + 20 * 20)
    first = next(o for o in offsets if o >= store.min_offset("orders", 0))
    assert deleted
    assert store.min_offset("orders", 0) == first
    assert store.get_message("orders", 0, first).messages()[0].commit_log_offset >= store.min_commit_log_offset
    assert store.get_message("orders", 0, first - 1).status.name == "OFFSET_TOO_SMALL"
    store.close()
    with open_store() as again:
        assert (again.min_offset("orders", 0), again.max_offset("orders", 0)) == (first, 120)


def test_a_batch_queue_that_lost_its_last_units_gets_them_back(open_store: OpenStore, path: Path) -> None:
    with open_store() as store:
        store.update_topic(BATCH_CQ)
        put_batches(store, [3, 1] * 10)
    before = contents(path, "batchconsumequeue")
    last = max((path / "batchconsumequeue/orders/0").iterdir())
    last.unlink()
    with open_store():
        assert contents(path, "batchconsumequeue") == before


def test_a_store_whose_folders_and_topics_disagree_is_refused_unchanged(open_store: OpenStore, path: Path) -> None:
    with open_store() as store:
        store.put_message(reput.Message("simple", b""))
        store.update_topic(BATCH_CQ)
        put_batches(store, [2])
    config = path / "config/topics.json"
    text = config.read_text()
    for changed, told in [
        (text.replace('"BatchCQ"', '"SimpleCQ"'), "/batchconsumequeue/orders: .* belong into consumequeue, by"),
        (text.replace('"orders"', '"simple"'), "/consumequeue/simple: .* belong into batchconsumequeue, by queue.type"),
    ]:
        config.write_text(changed)
        before = contents(path)
        with pytest.raises(StoreFormatError, match=told):
            open_store()
        assert contents(path) == before
    config.write_text(text)
    shutil.copytree(path / "consumequeue/simple", path / "consumequeue/orders")
    config.unlink()
    (path / "config/topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(StoreFormatError, match="or batchconsumequeue has it, too"):
        open_store()


def test_the_type_of_a_topic_with_queues_stays(store: reput.MessageStore) -> None:
    put_batches(store, [2])
    store.put_message(reput.Message("simple", b""))
    store.wait_dispatched()
    store.put_message(reput.Message("just_put", b""))  # and perhaps not dispatched yet
    for topic, attributes in (
        ("orders", {}), ("simple", {"queue.type": "BatchCQ"}), ("just_put", {"queue.type": "BatchCQ"}),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"topic '{topic}': queue.type is"):
            store.update_topic(TopicConfig(topic, attributes=attributes))
    store.update_topic(TopicConfig("new", attributes={"queue.type": "BatchCQ"}))
    store.update_topic(TopicConfig("new"))
    store.put_message(reput.Message("new", b""))
    store.wait_dispatched()
    assert [queue.topic for queue in store.queues()] == ["just_put", "new", "orders", "simple"]


def test_no_message_comes_in_while_the_type_of_its_topic_changes(open_store: OpenStore) -> None:
    files, outcomes = FaultyFiles(), list[str]()

    def put_meanwhile(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.endswith("topics.json"):
            assert store._writer is not None
            outcomes.append("between passes" if store._writer.reput.between_passes.locked() else "")
            files.judge = no_objection
            try:
                store.put_message(reput.Message("orders", b""))
            except StoreBusyError:
                outcomes.append("busy")

    store = open_store(files=files, os_page_cache_busy_time_out_mills=20)
    files.judge = put_meanwhile
    store.update_topic(BATCH_CQ)
    assert outcomes == ["between passes", "busy"]
    assert store.max_commit_log_offset == 0
    files.judge = put_meanwhile
    store.update_topic(replace(BATCH_CQ, read_queue_nums=7))  # the type stays, and puts go on
    assert outcomes[3:] == []
    assert store.max_commit_log_offset > 0


def test_an_inner_batch_that_meets_the_change_of_its_topic_s_type_is_refused(store: reput.MessageStore) -> None:
    class Changing(set[str]):
        def __contains__(self, topic: object) -> bool:
            is_in = super().__contains__(topic)
            self.discard(str(topic))
            return is_in

    store._queues.types.batch = Changing({"orders"})
    end = store.max_commit_log_offset
    with pytest.raises(MessageIllegalError, match="no batch consume queues any more"):
        put_batches(store, [2])
    assert store.max_commit_log_offset == end


@pytest.mark.parametrize("was_batch", [False, True])
def test_a_topic_of_prepared_messages_alone_has_no_queue_and_may_change_its_type(
    open_store: OpenStore, path: Path, was_batch: bool
) -> None:
    store = open_store()
    types = [TopicConfig("t"), TopicConfig("t", attributes={"queue.type": "BatchCQ"})]
    if was_batch:
        types.reverse()
    store.update_topic(types[0])
    store.put_message(reput.Message("t", b"", sys_flag=SysFlag.TRANSACTION_PREPARED))
    store.wait_dispatched()
    assert list(store.queues()) == []
    assert [(topic.topic, topic.queues) for topic in store.runtime_info().topics] == [("t", 0)]
    store.update_topic(types[1])
    store.put_message(reput.Message("t", b""))
    store.wait_dispatched()
    assert [(queue.topic, queue.max_offset) for queue in store.queues()] == [("t", 1)]
    assert (path / "consumequeue/t").exists() == was_batch
    assert (path / "batchconsumequeue/t").exists() == (not was_batch)
    store.close()
    assert [(queue.topic, queue.max_offset) for queue in open_store().queues()] == [("t", 1)]


def test_arrow_rows_for_a_batch_topic_are_single_messages(store: reput.MessageStore, path: Path) -> None:
    put_batches(store, [3])
    store.put_arrow(pa.table({"topic": ["orders"] * 3, "body": [b"a", b"b", b"c"]}))
    store.wait_dispatched()
    assert [(unit.base_offset, unit.message_count) for unit in units(path)] == [(0, 3), (3, 1), (4, 1), (5, 1)]


def test_prepared_messages_of_a_batch_topic_have_no_unit(store: reput.MessageStore, path: Path) -> None:
    for sys_flag in (4, 8, 12, 0):
        store.put_message(reput.Message("orders", b"", sys_flag=sys_flag))
    store.wait_dispatched()
    assert [unit.base_offset for unit in units(path)] == [0, 1]


def test_of_files_behind_the_last_unit_the_last_one_goes_first(tmp_path: Path) -> None:
    names = [f"{number * BATCH_UNIT_SIZE:020d}" for number in range(3)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(BATCH_UNIT_SIZE))

    def die_at_the_second(operation: Operation) -> None:
        if operation.kind == "unlink" and len(list(tmp_path.iterdir())) == 2:
            raise Crash

    queue = BatchConsumeQueue(
        FaultyFiles(die_at_the_second), str(tmp_path), "t", 0, BATCH_UNIT_SIZE, TopicCounts(), [].append
    )
    queue.load([int(name) for name in names], end_offset=0)
    with pytest.raises(Crash):
        queue.cut()
    assert sorted(path.name for path in tmp_path.iterdir()) == names[:2]


# -- ordinary batches


def test_an_ordinary_batch_is_a_record_a_message_in_one_file(store: reput.MessageStore) -> None:
    store.put_message(reput.Message("plain", bytes(3600)))
    made = batch(4, topic="plain", unique_key="B", born_timestamp=7, born_host="10.0.0.1:5", reconsume_times=2)
    result = store.put_batch(made)
    store.wait_dispatched()
    assert (result.msg_num, result.queue_offset, result.commit_log_offsets[0]) == (4, 1, 4096)
    messages = store.get_message("plain", 0, 1).messages()
    assert [message.commit_log_offset for message in messages] == list(result.commit_log_offsets)
    assert ",".join(message.message_id for message in messages) == result.message_id
    assert messages[-1].commit_log_offset + messages[-1].store_size == result.end_offset
    assert {message.store_timestamp for message in messages} == {result.store_timestamp}
    told = [
        (m.queue_offset, m.body, m.flag, m.tags, m.born_timestamp, m.born_host, m.reconsume_times) for m in messages
    ]
    assert told == [(1 + i, f"4-{i}".encode(), i, "item", 7, "10.0.0.1:5", 2) for i in range(4)]
    # RocketMQ 5.3.3 puts the batch's own properties behind those of each message.
    assert [message.unique_key for message in messages] == ["B"] * 4


@pytest.mark.parametrize("rules", ["4.9.7", "5.3.3", "5.5.0"])
def test_the_rules_of_a_version_decide_whether_messages_take_the_properties_of_their_batch(
    open_store: OpenStore, rules: str
) -> None:
    store = open_store(dispatch_rules=rules)
    store.put_batch(batch(2, topic="plain", unique_key="B"))
    store.wait_dispatched()
    keys = [message.unique_key for message in store.get_message("plain", 0, 0).messages()]
    assert keys == ([None, None] if rules == "5.5.0" else ["B", "B"])


def test_every_record_of_a_batch_has_its_crc_where_it_is_configured(open_store: OpenStore) -> None:
    store = open_store(enabled_append_prop_crc=True)
    store.update_topic(BATCH_CQ)
    store.put_batch(batch(3))
    store.put_batch(batch(3, topic="plain"))
    bare = reput.MessageExtBatch("plain", encode_batch([reput.Message("plain", b"", properties={"a": "b"})]))
    bare.body = bare.body[:-6] + (3).to_bytes(2, "big") + b"a\x01b"  # as RocketMQ 4 writes it, without the last 0x02
    bare.body = (len(bare.body)).to_bytes(4, "big") + bare.body[4:]
    store.put_batch(bare)
    store.wait_dispatched()
    records = store.get_message("orders", 0, 0).raw() + store.get_message("plain", 0, 0).raw()
    assert len(records) == 5
    for record in map(bytes, records):
        assert record.endswith(encode_property_crc(record[:-PROPERTY_CRC_SIZE]))
    assert MessageExt(records[0]).properties["INNER_NUM"] == "3"
    assert MessageExt(records[-1]).properties["a"] == "b"


def test_a_list_of_messages_is_a_batch_without_properties_of_its_own(store: reput.MessageStore, path: Path) -> None:
    messages = [reput.Message("orders", b"a", unique_key="A"), reput.Message("orders", b"b", unique_key="B")]
    assert store.put_batch(messages, 3).msg_num == 2
    store.wait_dispatched()
    assert [m.unique_key for m in store.get_message("orders", 3, 0).messages()] == ["A", "B"]
    assert [(unit.base_offset, unit.message_count) for unit in units(path, queue_id=3)] == [(0, 1), (1, 1)]


def test_properties_of_the_batch_are_joined_as_rocketmq_joins_them(store: reput.MessageStore) -> None:
    record = store._writer.putting.check(reput.Message("t", b"", unique_key="B"), 0)
    items = [BatchItem(0, b"", b""), BatchItem(0, b"", b"a\x01b"), BatchItem(0, b"", b"a\x01b\x02")]
    ends = [b"UNIQ_KEY\x01B\x02", b"a\x01b\x02UNIQ_KEY\x01B\x02", b"a\x01b\x02UNIQ_KEY\x01B\x02"]
    for with_batch_properties, wanted in ((True, ends), (False, [item.properties for item in items])):
        rows = encode_items(
            record, items, 0, store._writer.parts.log.check_size, with_batch_properties=with_batch_properties
        )
        bounds = rows.positions.tolist()
        for (begin, end), text in zip(pairwise(bounds), wanted, strict=True):
            tail = rows.data[begin:end].tobytes()[-len(text) - 2 :] if text else rows.data[end - 2 : end].tobytes()
            assert tail == len(text).to_bytes(2, "big") + text


REFUSED = {
    "no message": (list, "needs at least one message"),
    "two topics": (lambda: [reput.Message("a", b""), reput.Message("b", b"")], "message 1: topic 'b', but"),
    "waiting or not": (
        lambda: [reput.Message("a", b""), reput.Message("a", b"", wait_store_msg_ok=False)],
        "message 1: wait_store_msg_ok differs",
    ),
    "a delayed message": (lambda: [reput.Message("a", b"", properties={DELAY: "3"})], "message 0: it has a delay"),
    "a sys flag": (lambda: [reput.Message("a", b"", sys_flag=8)], "message 0: sys_flag 0x8"),
    "a retry topic": (lambda: [reput.Message("%RETRY%g", b"")], "a retry topic takes no batches"),
    "a bad message": (lambda: [reput.Message("a", b"", tags="\x01")], "message 0: tags holds"),
    "no batch body": (lambda: reput.MessageExtBatch("a", b"123"), "the body of 3 bytes is no batch"),
    "an empty body": (lambda: reput.MessageExtBatch("a", b""), "is no batch"),
    "a transaction": (lambda: batch(2, sys_flag=8), "cannot be of a transaction"),
    "compressed": (lambda: batch(2, sys_flag=1), "nor compressed"),
    "a delay": (lambda: batch(2, properties={DELAY: "3"}), "cannot have a delay level"),
    "inner batch for a simple topic": (lambda: batch(2, topic="a", sys_flag=0xC0), "has no batch consume queues"),
    "INNER_NUM": (lambda: batch(2, properties={"INNER_NUM": "2"}), "'INNER_NUM' is RocketMQ's own"),
    "too large": (lambda: batch(300, topic="a"), "a commit log file of 4096 bytes"),
    "too large an inner batch": (lambda: batch(400), "a commit log file of 4096 bytes"),
    "too many properties": (lambda: batch(1, properties={"a": "b" * 32_720}), "32767 are allowed"),
}


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED)
def test_what_no_batch_can_be_is_refused_and_writes_nothing(store: reput.MessageStore, make, told: str) -> None:
    end = store.max_commit_log_offset
    with pytest.raises(MessageIllegalError, match=told):
        store.put_batch(make())
    assert store.max_commit_log_offset == end
    assert store.put_message(reput.Message("orders", b"")).queue_offset == 0


def test_inner_batches_go_no_other_way(store: reput.MessageStore) -> None:
    for flags in (0x40, 0x80, 0xC0):
        with pytest.raises(MessageIllegalError, match="goes to put_batch"):
            store.put_message(reput.Message("orders", b"", sys_flag=flags))
        table = pa.table({"topic": ["orders"], "body": [b""], "sys_flag": pa.array([flags], pa.int32())})
        with pytest.raises(MessageIllegalError, match=r"row 0: sys_flag .* put_batch"):
            store.put_arrow(table)
    for name in ("INNER_NUM", "INNER_BASE"):
        with pytest.raises(MessageIllegalError, match=f"'{name}' is RocketMQ's own; pass the batch to put_batch"):
            store.put_message(reput.Message("orders", b"", properties={name: "1"}))
        pairs = pa.array([[(name, "1")]], pa.map_(pa.string(), pa.string()))
        with pytest.raises(MessageIllegalError, match="INNER_BASE are for put_batch"):
            store.put_arrow(pa.table({"topic": ["orders"], "body": [b""], "properties": pairs}))


def test_a_batch_comes_back_as_it_was() -> None:
    messages = [reput.Message("a", bytes([i]) * i, tags="t", keys=["k"], flag=-i) for i in range(4)]
    items = decode_batch(encode_batch(messages))
    assert items is not None
    assert [(item.flag, item.body) for item in items] == [(-i, bytes([i]) * i) for i in range(4)]
    assert decode_batch(encode_batch(messages) + b"x") is None
