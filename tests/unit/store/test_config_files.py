"""Topics of an open store: on the disk when update_topic returns, and whole at any moment."""

import errno
import json
import shutil
from pathlib import Path

import pytest

import reput
from reput.errors import ConfigError, CorruptMetadataError, StoreError, StoreFullError, StoreStateError
from reput.formats import metadata
from reput.formats.fastjson import encode_fastjson
from reput.formats.metadata import Topics, decode_metadata, encode_metadata
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from reput.store import config_files
from reput.store.config_files import StoreTopics
from tests.support.faulty_files import Crash, FaultyFiles, crash_at, fail_next
from tests.support.invariants import SMALL
from tests.support.retained import RoomyFiles, age

GOLDEN = Path(__file__).parents[2] / "golden" / "config" / "5.3.3"
FIRST = reput.TopicConfig("a", 4, 4)
SECOND = reput.TopicConfig("a", 8, 8, attributes={"+queue.type": "BatchCQ"})


def topics_file(path):
    return path / "config" / "topics.json"


def test_a_topic_is_on_the_disk_when_the_call_returns(path, store):
    assert store.topics == {}
    store.update_topic(FIRST)
    store.update_topic(SECOND)
    store.update_topic(reput.TopicConfig("b"))
    assert dict(store.topics) == {"a": SECOND, "b": reput.TopicConfig("b")}
    stored = decode_metadata(Topics, topics_file(path).read_bytes())
    assert dict(stored.topic_config_table) == dict(store.topics)
    assert stored.data_version.counter == 3
    assert stored.data_version.timestamp > 1_700_000_000_000
    backup = decode_metadata(Topics, topics_file(path).with_name("topics.json.bak").read_bytes())
    assert dict(backup.topic_config_table) == {"a": SECOND}
    with reput.MessageStore.open(path, read_only=True) as reader:
        assert dict(reader.topics) == dict(store.topics)
        with pytest.raises(StoreStateError):
            reader.update_topic(FIRST)


def test_several_topics_are_made_in_one_write(path, store):
    store.update_topics([FIRST, SECOND, reput.TopicConfig("b")])
    assert dict(store.topics) == {"a": SECOND, "b": reput.TopicConfig("b")}
    assert store.topic_metadata == decode_metadata(Topics, topics_file(path).read_bytes())
    assert store.topic_metadata.data_version.counter == 1
    assert not topics_file(path).with_name("topics.json.bak").exists()


def test_one_wrong_topic_among_several_changes_nothing(path, store):
    with pytest.raises(ConfigError, match="holds ' '"):
        store.update_topics([FIRST, reput.TopicConfig("a b")])
    assert not topics_file(path).exists()
    assert store.topics == {}


def test_a_change_of_one_topic_encodes_and_checks_that_topic_alone(path, open_store, monkeypatch):
    """Of 30,000 topics all took 1.6 s of a processor, at each new topic; also at the first one after a start."""
    with open_store() as store:
        store.update_topics([reput.TopicConfig(f"topic-{number}") for number in range(500)])
    sizes = []

    def sized(function, size_of):
        def call(*arguments):
            result = function(*arguments)
            sizes.append(size_of(arguments, result))
            return result

        return call

    with open_store() as store:
        decode = sized(decode_metadata, lambda arguments, _: len(arguments[1]))
        monkeypatch.setattr(config_files, "decode_metadata", decode)
        monkeypatch.setattr(metadata, "encode_fastjson", sized(encode_fastjson, lambda _, result: len(result)))
        store.update_topic(reput.TopicConfig("new", attributes={"+message.type": "FIFO"}))
        store.update_topic(reput.TopicConfig("topic-7", 1, 1))
        store.delete_topic_config({"topic-9"})
        topics = store.topic_metadata
        assert 0 < max(sizes) < 2000
        monkeypatch.undo()
    assert topics_file(path).read_bytes() == encode_metadata(topics)
    assert (topics.topic_config_table["topic-7"].read_queue_nums, len(topics.topic_config_table)) == (1, 500)


def test_a_topic_that_is_too_deep_for_the_file_changes_nothing(path, store):
    deep = {"x": {}}
    for _ in range(98):  # by itself it can be read
        deep = {"x": deep}
    store.update_topic(FIRST)
    before = topics_file(path).read_bytes()
    with pytest.raises(StoreError, match="not replaced, as what is to be written could not be read again"):
        store.update_topic(reput.TopicConfig("deep", others=deep))
    assert topics_file(path).read_bytes() == before
    assert dict(store.topics) == {"a": FIRST}


def test_a_deleted_topic_is_gone_after_the_next_start_and_its_messages_are_in_the_log_alone(path, open_store):
    with open_store() as store:
        store.update_topics([FIRST, reput.TopicConfig("b")])
        store.put_message(reput.Message("a", b"gone"), 0)
        store.delete_topic_config({"a", "unknown"})
        assert list(store.topics) == ["b"]
        assert list(store.topic_metadata.begin_offset_table) == ["a"]
        assert store.topic_metadata.data_version.counter == 2
        store.delete_topic_config({"unknown"})
        assert store.topic_metadata.data_version.counter == 2
    with open_store() as store:
        assert list(store.topics) == ["b"]
        assert store.put_message(reput.Message("a", b"new"), 0).queue_offset == 1
        store.wait_dispatched()
        assert [message.body for message in store.get_message("a", 0, 1).messages()] == [b"new"]
        assert store.get_message("a", 0, 0).status is reput.GetMessageStatus.OFFSET_TOO_SMALL
    assert reput.read_log(path, columns=["body"]).read_all().to_pydict() == {"body": [b"gone", b"new"]}


def test_only_a_topic_with_messages_has_a_begin_and_only_while_the_log_has_them(path, open_store):
    """Else whoever makes and deletes topics would let the file grow."""
    with open_store(files=RoomyFiles()) as store:
        for number in range(3):
            store.update_topic(reput.TopicConfig(f"without-{number}"))
            store.delete_topic_config([f"without-{number}"])
        assert store.topic_metadata.begin_offset_table is None
        assert b"begin" not in topics_file(path).read_bytes()
        for topic in ("with", "later"):
            end = store.max_commit_log_offset
            while store.max_commit_log_offset // 4096 == end // 4096:
                store.put_message(reput.Message(topic, bytes(900)))
            store.update_topic(reput.TopicConfig(topic))
            store.delete_topic_config([topic])
        begins = dict(store.topic_metadata.begin_offset_table)
        assert list(begins) == ["with", "later"]
        age(path, begins["with"] // 4096)
        store.wait_dispatched()
        store.delete_expired()
        assert store.min_commit_log_offset < begins["with"]
        store.put_messages([reput.Message("b", bytes(900)) for _ in range(5)])
        store.delete_topic_config(["b"])
        assert list(store.topic_metadata.begin_offset_table) == ["with", "later", "b"]
        store.wait_dispatched()
        age(path, 1)
        store.delete_expired()
        assert begins["with"] <= store.min_commit_log_offset < begins["later"]
        store.delete_topic_config(["b"])
        assert list(store.topic_metadata.begin_offset_table) == ["later", "b"]


def test_queue_files_of_a_deleted_topic_stay_as_long_as_the_log_has_their_records(path, open_store):
    """A log from its beginning has all its units: `audit` and a start would miss them."""
    with open_store(files=RoomyFiles()) as store:
        store.put_messages([reput.Message("a", b"old") for _ in range(40)])
        store.delete_topic_config(["a"])
        store.wait_dispatched()
        assert store.delete_expired().consume_queue_files == []
        assert (store.min_offset("a", 0), store.min_commit_log_offset) == (40, 0)
    assert not audit(path, runner=LocalRunner(1)).findings


def test_units_of_deleted_messages_that_are_dispatched_later_are_passed_over(path):
    options = SMALL | {"dispatch": "caller"}
    with reput.MessageStore.open(path, **options) as store:
        dispatch = store.loop_writer().dispatch
        store.put_message(reput.Message("a", b"known"))
        dispatch()  # so that the next pass takes the short way
        store.put_messages([reput.Message("a", b"old")] * 3)
        store.delete_topic_config(["a"])
        store.put_message(reput.Message("a", b"new"))
        for max_bytes in (100, 100, 1 << 20):
            dispatch(max_bytes)
            assert [one.body for one in store.get_message("a", 0, store.min_offset("a", 0)).messages()] in (
                [],
                [b"new"],
            )
        assert (store.min_offset("a", 0), store.max_offset("a", 0)) == (4, 5)


def test_a_reader_of_damaged_topics_sees_what_the_queues_have(path, open_store):
    with open_store() as store:
        store.put_message(reput.Message("a", b"old"))
        store.delete_topic_config(["a"])
    for file in (path / "config").glob("topics.json*"):
        file.write_bytes(b'{"beginOffsetTable":{')
    with reput.MessageStore.open(path, read_only=True) as store:
        assert store.min_offset("a", 0) == 0


def test_a_full_disk_deletes_no_topic(path, open_store):
    files = FaultyFiles()
    store = open_store(files=files)
    store.update_topic(FIRST)
    files.judge = fail_next("write", errno.ENOSPC, part="topics")
    with pytest.raises(StoreFullError):
        store.delete_topic_config({"a"})
    assert dict(store.topics) == {"a": FIRST}


def test_topics_are_there_after_the_next_start(open_store):
    with open_store() as store:
        store.update_topic(FIRST)
    assert dict(open_store().topics) == {"a": FIRST}


def test_what_rocketmq_wrote_stays_beside_a_new_topic(path, open_store):
    open_store().close()
    shutil.copy(GOLDEN / "topics.json", topics_file(path))
    store = open_store()
    before = dict(store.topics)
    assert len(before) == 4
    store.update_topic(FIRST)
    assert dict(store.topics) == before | {"a": FIRST}
    assert topics_file(path).read_bytes() == encode_metadata(store.topic_metadata)
    assert topics_file(path).with_name("topics.json.bak").read_bytes() == (GOLDEN / "topics.json").read_bytes()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (reput.TopicConfig(""), "the topic is empty"),
        (reput.TopicConfig("a b"), "holds ' '"),
        (reput.TopicConfig("订单"), "allowed are letters"),
        (reput.TopicConfig("\ud800"), "is no Unicode text"),
        (reput.TopicConfig("a" * 128), "128"),
        (reput.TopicConfig("a", perm=8), "perm between 0 and 7"),
        (reput.TopicConfig("a", -1), "numbers of queues of 0 or more"),
        (reput.TopicConfig("a", "4"), "readQueueNums: expected a whole number"),
        (reput.TopicConfig("a", attributes={"x": 1}), "attributes.x: expected a string, found 1"),
        (reput.TopicConfig("a", attributes={1: "x"}), "would be read back as something else"),
        (reput.TopicConfig("a", topic_filter_type="BOTH"), "expected SINGLE_TAG or MULTI_TAG"),
        (reput.TopicConfig(None), "topic"),
        ("a", "must be a TopicConfig, not str"),
    ],
)
def test_a_topic_that_rocketmq_could_not_read_is_refused(path, store, config, reason):
    with pytest.raises(ConfigError, match=reason):
        store.update_topic(config)
    assert not topics_file(path).exists()


def test_a_kill_at_any_operation_leaves_the_old_topics_or_the_new_ones(tmp_path):
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    StoreTopics(FaultyFiles(), str(root)).update([FIRST])
    for number in range(100):
        work = tmp_path / str(number)
        shutil.copytree(root, work)
        files = FaultyFiles(crash_at(number))
        try:
            StoreTopics(files, str(work)).update([SECOND])
        except Crash:
            assert StoreTopics(FaultyFiles(), str(work)).find("a") in (FIRST, SECOND)
            StoreTopics(FaultyFiles(), str(work)).update([SECOND])
            assert StoreTopics(FaultyFiles(), str(work)).find("a") == SECOND
        else:
            break
    assert number > 5


def test_a_power_cut_after_the_call_loses_nothing(tmp_path, path, open_store):
    files = FaultyFiles()
    store = open_store(files=files)
    store.update_topic(FIRST)
    store.update_topic(SECOND)
    files.cut_power(path, tmp_path / "after")
    assert StoreTopics(FaultyFiles(), str(tmp_path / "after")).find("a") == SECOND


def test_a_full_disk_changes_nothing(path, open_store):
    files = FaultyFiles()
    store = open_store(files=files)
    store.update_topic(FIRST)
    before = topics_file(path).read_bytes()
    files.judge = fail_next("write", errno.ENOSPC, part="topics")
    with pytest.raises(StoreFullError):
        store.update_topic(SECOND)
    assert dict(store.topics) == {"a": FIRST}
    assert topics_file(path).read_bytes() == before
    store.update_topic(SECOND)
    assert dict(store.topics) == {"a": SECOND}


def test_a_damaged_file_is_read_from_its_backup_and_does_not_replace_it(path, open_store):
    with open_store() as store:
        store.update_topic(FIRST)
        store.update_topic(SECOND)
    topics_file(path).write_bytes(topics_file(path).read_bytes()[:40])
    store = open_store()
    assert dict(store.topics) == {"a": FIRST}
    store.update_topic(reput.TopicConfig("b"))
    backup = json.loads(topics_file(path).with_name("topics.json.bak").read_bytes())
    assert backup["topicConfigTable"]["a"]["readQueueNums"] == 4
    assert set(store.topics) == {"a", "b"}


def test_a_store_with_two_damaged_files_is_refused_and_left_alone(path, open_store):
    with open_store() as store:
        store.update_topic(FIRST)
        store.update_topic(SECOND)
    for name in ("topics.json", "topics.json.bak"):
        (path / "config" / name).write_bytes(b'{"dataVersion":')
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(CorruptMetadataError, match=r"topics.json: damaged at offset 15: .* put back a copy"):
        open_store()
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
