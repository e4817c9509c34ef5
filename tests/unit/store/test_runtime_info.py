"""What a store tells of itself, by RocketMQ's names, as its writer and as a reader of its directory."""

import errno
import json
import re
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import StoreFullError
from reput.files import DISK, FileLayer
from reput.formats.metadata import ConsumerOffsets, DelayOffsets, LmqConsumerOffsets
from reput.store.config_files import persist_metadata
from reput.store.snapshot import folder_use
from reput.store.watch import Look, StoreWatch, bytes_per_second, per_second
from tests.support.faulty_files import FaultyFiles, fail_next

GOLDEN = Path(__file__).parents[2] / "golden"
PAGE = Path(__file__).parents[3] / "docs" / "design" / "monitoring.md"
#: RocketMQ never sets it (docs/design/monitoring.md).
NOT_GIVEN = {"dispatchMaxBuffer"}
OF_THE_WRITER = {
    "bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes",
    "putMessageSizeTotal", "putMessageAverageSize", "putMessageDistributeTime", "putLatency99", "putLatency999",
    "getMessageEntireTimeMax", "putTps", "putBytesPerSecond", "getFoundTps", "getMissTps", "getTotalTps",
    "getTransferredTps", "flushedOffset", "remainHowManyDataToFlush", "putRefusal",
}  # fmt: skip


def put_red(store, count=10, topic="a"):
    for number in range(count):
        store.put_message(reput.Message(topic, b"x" * 50, keys=[f"k{number}"], tags="red"), number % 2)
    store.wait_dispatched()


def topic_of(info, name):
    (found,) = [topic for topic in info.topics if topic.topic == name]
    return found


def test_names_and_values_are_those_of_rocketmq(tmp_path):
    theirs = json.loads((GOLDEN / "runtime-info-5.3.3.json").read_text())
    shutil.copytree(GOLDEN / "5.3.3" / "clean" / "store", tmp_path / "store")
    sizes = {"mapped_file_size_commit_log": 131072, "mapped_file_size_consume_queue": 2000}
    with reput.MessageStore.open(tmp_path / "store", **sizes, max_hash_slot_num=500, max_index_num=1500) as store:
        ours = store.runtime_info().to_dict()
    names = {name.replace(str(tmp_path / "store"), "STORE") for name in ours}
    assert set(theirs) - names == NOT_GIVEN
    same = (
        "commitLogMinOffset", "commitLogMaxOffset", "dispatchBehindBytes", "earliestMessageTimeStamp",
        "putMessageSizeTotal", "putMessageFailedTimes", "putMessageEntireTimeMax", "putMessageAverageSize",
        "remainHowManyDataToFlush", "putLatency99", "getMessageEntireTimeMax",
    )  # fmt: skip
    assert {name: float(theirs[name]) for name in same} == {name: float(ours[name]) for name in same}


def test_the_page_lists_every_name(path, store):
    names = re.findall(r"^\| `(\w+)(?:<\w+>)?` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    given = {name.removesuffix(f"{path}/commitlog") for name in store.runtime_info().to_dict()}
    assert {name for name, _ in names} == given | {"scheduleMessageOffset_"}
    assert {name for name, who in names if who == "writer"} == OF_THE_WRITER


def test_messages_and_bytes_are_counted_by_topic(store):
    put_red(store)
    store.put_messages([reput.Message("b", b"1")] * 3)
    store.put_arrow(pa.table({"topic": ["b", "c"], "body": [b"2", b"3"]}))
    store.wait_dispatched()
    info = store.runtime_info()
    counted = {topic.topic: (topic.queues, topic.messages, topic.put_messages) for topic in info.topics}
    assert counted == {"a": (2, 10, 10), "b": (1, 4, 4), "c": (1, 1, 1)}
    assert sum(topic.put_bytes for topic in info.topics) == info.put_message_size_total == info.commit_log_max_offset
    assert info.put_message_times_total == 15
    assert info.put_message_average_size == info.put_message_size_total / 15
    assert sum(info.put_message_distribute_time.values()) == 12  # ten single puts, a batch and a table
    assert (info.dispatch_behind_bytes, info.remain_how_many_data_to_flush) == (0, 0)
    assert info.flushed_offset == info.confirm_offset == info.commit_log_max_offset
    assert info.latest_message_time_stamp >= info.earliest_message_time_stamp > 1_700_000_000_000


def test_futures_are_timed_too(store):
    store.async_put_message(reput.Message("a", b"1")).result()
    assert sum(store.runtime_info().put_message_distribute_time.values()) == 1


def test_pulls_are_counted_by_topic_and_misses_in_all(store, open_store):
    put_red(store)
    found = store.get_message("a", 0, 1)
    store.get_message("a", 0, 0, tags="red")
    for topic, offset, tags in (("none", 0, None), ("a", 5, None), ("a", 50, None), ("a", 0, "blue")):
        assert not len(store.get_message(topic, 0, offset, tags=tags))
    info = store.runtime_info()
    topic = topic_of(info, "a")
    assert (topic.get_times, topic.got_messages) == (2, 4 + 5)
    sizes = [len(record) for record in store.get_message("a", 0, 0).raw()]
    assert topic.got_bytes == sum(sizes[1:]) + sum(sizes)
    assert len(found) == 4
    assert store._stats.get_miss_times == 4


def test_the_longest_pull_is_remembered_in_whole_milliseconds(store, monkeypatch):
    put_red(store)
    seconds = iter([1.0, 1.0205, 2.0, 2.003])
    monkeypatch.setattr("reput.store.message_reader.monotonic", lambda: next(seconds))
    store.get_message("a", 0, 0)
    store.get_message("a", 0, 0)
    assert store.runtime_info().get_message_entire_time_max == 20


def test_bytes_of_messages_that_the_tag_text_leaves_out_are_not_counted(store):
    for tag in ("Aa", "BB"):  # of equal hash
        store.put_message(reput.Message("a", b"x" * len(tag) * 100, tags=tag))
    store.wait_dispatched()
    (record,) = store.get_message("a", 0, 0, tags="BB").raw()
    assert topic_of(store.runtime_info(), "a").got_bytes == len(record)


def test_a_put_that_fails_because_of_the_disk_is_counted_and_a_bad_message_is_not(path, open_store):
    files = FaultyFiles()
    store = open_store(files=files)
    puts = (
        store.put_message,
        store.async_put_message,
        lambda message: store.put_messages([message]),
        lambda message: store.put_batch([message]),
        lambda message: store.put_arrow(pa.table({"topic": [message.topic], "body": [message.body]})),
    )
    for times, put in enumerate(puts, start=1):
        # The thread that makes files ahead asks for the space, too.
        files.judge = fail_next("create", errno.ENOSPC, part="commitlog", times=1_000_000)
        with pytest.raises(StoreFullError):
            put(reput.Message("a", b"1"))
        with pytest.raises(reput.MessageIllegalError):
            put(reput.Message("", b"1"))
        assert store.runtime_info().put_message_failed_times == times


def test_a_reader_sees_the_same_but_what_only_the_writer_counts(path, store, monkeypatch):
    monkeypatch.setattr(FileLayer, "disk_used_percent", lambda self, path: 20)  # others write to the disk, too
    put_red(store)
    writer = store.runtime_info().to_dict()
    with reput.MessageStore.open(path, read_only=True, config=store.config) as reader:
        seen = reader.runtime_info().to_dict()
    assert {name for name in OF_THE_WRITER if seen[name] is not None} == set()
    (topic,) = seen["topics"]
    assert (topic["messages"], topic["putMessages"], topic["getTimes"]) == (10, None, None)
    changing = {"diskFreeBytes", "topics", "commitLog", "index", "consumeQueue", *OF_THE_WRITER}
    assert {n: v for n, v in seen.items() if n not in changing} == {
        n: v for n, v in writer.items() if n not in changing
    }


@pytest.mark.parametrize("case", ["clean", "killed", "killed-undispatched", "empty"])
def test_a_directory_of_rocketmq_is_read(tmp_path, case):
    shutil.copytree(GOLDEN / "5.3.3" / case / "store", tmp_path / "store")
    with reput.MessageStore.open(tmp_path / "store", read_only=True) as store:
        info = store.runtime_info()
        assert info.commit_log_max_offset == store.max_commit_log_offset
        assert (info.dispatch_behind_bytes > 0) == (case == "killed-undispatched")
        assert sum(topic.messages for topic in info.topics) == sum(q.max_offset - q.min_offset for q in store.queues())
        assert sum(file.used for file in info.index_files) == (
            sum(file.count - 1 for file in store._reader.parts.index.index_files) if store._reader.parts.index else 0
        )


def test_groups_are_behind_by_max_offset_less_their_own(path, store):
    put_red(store, 20)
    offsets = {"a@half": {0: 5, 1: 5}, "a@new": {0: 10}, "a@done": {0: 10, 1: 10}, "gone@left": {0: 7}}
    persist_metadata(str(path), ConsumerOffsets(offsets), DISK)
    persist_metadata(str(path), LmqConsumerOffsets({"a@lmq": {0: 9, 1: 10}}), DISK)
    persist_metadata(str(path), DelayOffsets({3: 12}), DISK)
    info = store.runtime_info()
    behind = {(group.group, group.topic): group.fall_behind_messages for group in info.groups}
    assert behind == {
        ("done", "a"): 0, ("half", "a"): 10, ("left", "gone"): 0, ("lmq", "a"): 1, ("new", "a"): 10,
    }  # fmt: skip
    ages = {group.group: group.fall_behind_ms for group in info.groups}
    first = store.get_message("a", 1, 0).messages()[0].store_timestamp
    assert ages["done"] == 0
    assert ages["new"] == info.latest_message_time_stamp - first
    assert info.to_dict()["scheduleMessageOffset_3"] == "12,0"


def test_groups_of_light_queues_have_one_offset(path, open_store):
    store = open_store(enable_multi_dispatch=True, enable_lmq=True)
    for number in range(4):
        store.put_message(reput.Message("a", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%q"}), number % 2)
    store.wait_dispatched()
    light = {"%LMQ%q@%LMQ%g": 3, "%LMQ%q@%LMQ%done": 4, "%LMQ%q@%LMQ%none": -1, "a@%LMQ%g": 1, "%LMQ%no@%LMQ%g": 2}
    persist_metadata(str(path), LmqConsumerOffsets({"a@plain": {0: 2}}, light), DISK)
    info = store.runtime_info()
    assert {(one.group, one.topic): one.fall_behind_messages for one in info.groups} == {
        ("plain", "a"): 2, ("%LMQ%g", "%LMQ%q"): 1, ("%LMQ%done", "%LMQ%q"): 0, ("%LMQ%none", "%LMQ%q"): 4,
        ("%LMQ%g", "a"): 2, ("%LMQ%g", "%LMQ%no"): 0,
    }  # fmt: skip
    (age,) = [one.fall_behind_ms for one in info.groups if one.group == "%LMQ%g" and one.topic == "%LMQ%q"]
    last = store.get_message("%LMQ%q", 0, 3).messages()[0]
    assert age == info.latest_message_time_stamp - last.store_timestamp


def test_a_damaged_file_of_offsets_is_a_finding(path, store):
    put_red(store)
    (path / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":')
    (path / "config" / "delayOffset.json").write_bytes(b"[]")
    info = store.runtime_info()
    assert [finding.partition(": ")[0].rpartition("/")[2] for finding in info.findings] == [
        "delayOffset.json", "consumerOffset.json",
    ]  # fmt: skip
    assert info.groups == ()


def test_sizes_are_those_of_the_files(path, store):
    put_red(store)
    info = store.runtime_info()
    for name, use in (("commitlog", info.commit_log), ("consumequeue", info.consume_queue), ("index", info.index)):
        files = [file for file in (path / name).rglob("*") if file.is_file()]
        assert (use.files, use.bytes) == (len(files), sum(file.stat().st_size for file in files))
    assert folder_use(DISK, str(path / "no")) == (folder_use(DISK, str(path / "no" / "more")))
    assert 0 < info.commit_log_disk_ratio <= 1


def test_a_watch_sees_what_arrives_and_reads_the_log_on(path, store):
    put_red(store)
    watch = StoreWatch(str(path), store.config)
    before = watch.look()
    put_red(store, 5, "b")
    after = watch.look()
    before, after = Look(0.0, before.info), Look(2.0, after.info)
    assert per_second(before, after) == {"a": 0, "b": 2.5}
    assert bytes_per_second(before, after) == topic_of(store.runtime_info(), "b").put_bytes / 2
    assert after.info.commit_log_max_offset == store.max_commit_log_offset
    assert after.info.latest_message_time_stamp == store.latest_time()


def test_a_watch_survives_that_the_records_it_saw_are_gone(path, open_store):
    with open_store() as store:
        put_red(store)
        watch = StoreWatch(str(path), store.config)
        assert watch.look().info.commit_log_max_offset == store.max_commit_log_offset
        left = store.get_message("a", 1, 1).messages()[0].commit_log_offset
    log = next((path / "commitlog").iterdir())
    data = log.read_bytes()
    log.write_bytes(data[:left] + bytes(len(data) - left))
    (path / "abort").touch()
    assert watch.look().info.commit_log_max_offset == left


def test_an_open_store_samples_its_sums(open_store, monkeypatch):
    store = open_store(flush_interval_consume_queue=20)
    sampled = threading.Event()
    monkeypatch.setattr(store._stats, "sample", sampled.set)
    assert sampled.wait(60)
