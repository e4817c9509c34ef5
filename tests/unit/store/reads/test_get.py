"""Getting from a queue: statuses, next offsets, limits and filters as RocketMQ's, and the shapes of a result."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError
from reput.formats.consume_queue import FILLER, encode_unit
from reput.formats.java import string_hash
from reput.formats.metadata import TopicConfig
from reput.store.reads.tag_filter import parse_tags
from tests.support.faulty_files import FaultyFiles
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL

VECTORS = json.loads((Path(__file__).parents[3] / "golden/vectors.json").read_text())["getMessage"]
#: Units of a queue fit one file, as in a store of usual size.
WIDE = {"mapped_file_size_consume_queue": 20 * 1000, "mapped_file_size_commit_log": 1 << 20}


def told(result: Any) -> dict[str, object]:
    """A result in the words of GetMessageResult.toString."""
    return {
        "status": result.status.name,
        "nextBeginOffset": str(result.next_begin_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
        "bufferTotalSize": str(sum(len(record) for record in result.raw())),
        "messageCount": str(len(result)),
        "suggestPullingFromSlave": str(result.suggest_pulling_from_slave).lower(),
    }


def as_apache_says(text: str) -> dict[str, object]:
    words = dict(re.findall(r"(\w+)=(\w+)", text))
    del words["filterMessageCount"]
    return words


@pytest.mark.parametrize("vector", VECTORS["vecStore"], ids=lambda vector: vector["request"])
def test_answers_for_three_messages_are_those_of_apache(open_store: OpenStore, vector: dict[str, str]) -> None:
    store = open_store(**WIDE)
    for size, tag in ((187, "create"), (102, None), (145, "create")):
        body = bytes(size - 91 - len("order") - (len("TAGS.create.") if tag else 0))
        assert store.put_message(reput.Message("order", body, tags=tag)).size == size
    store.wait_dispatched()
    _, what, *arguments = vector["request"].split()
    if what == "unknown":
        result = store.get_message("unknown", 0, 0)
    elif what == "tag":
        result = store.get_message("order", 0, 0, tags=arguments[0])
    else:
        result = store.get_message("order", 0, int(arguments[0]))
    assert told(result) == as_apache_says(vector["result"])


@pytest.mark.parametrize("vector", VECTORS["hundredMessages"], ids=lambda vector: vector["request"])
def test_answers_for_a_hundred_messages_are_those_of_apache(open_store: OpenStore, vector: dict[str, str]) -> None:
    store = open_store(**WIDE)
    for number in range(100):
        tag = "hit" if number in (98, 99) else "mis"
        body = bytes((201 if number >= 98 else 202) - 92 - len("TAGS.hit."))
        store.put_message(reput.Message("t", body, tags=tag))
    store.wait_dispatched()
    _, what, *arguments = vector["request"].split()
    if what == "hit":
        result = store.get_message("t", 0, 0, 32, tags="hit")
    elif what == "size":
        result = store.get_message("t", 0, 0, 32, max_total_size=int(arguments[0]))
    else:
        result = store.get_message("t", 0, 0, int(what))
    assert told(result) == as_apache_says(vector["result"])


@pytest.mark.parametrize(
    ("options", "arguments", "count"),
    [
        ({}, {"max_msg_nums": 1000}, 32),
        ({"max_transfer_count_on_message_in_memory": 50}, {"max_msg_nums": 1000}, 50),
        ({"max_transfer_bytes_on_message_in_memory": 1000}, {}, 10),
        ({"max_transfer_bytes_on_message_in_memory": 999}, {}, 9),
        ({"max_transfer_bytes_on_message_in_memory": 1}, {}, 1),
        ({"access_message_in_memory_max_ratio": 0}, {}, 8),
        ({"access_message_in_memory_max_ratio": 0, "max_transfer_bytes_on_message_in_disk": 300}, {}, 3),
        ({}, {"max_total_size": 350}, 3),
        ({}, {"max_total_size": 1}, 1),
        ({}, {"max_msg_nums": -5}, 1),
        ({"max_filter_message_size": 200}, {"max_msg_nums": 5, "tags": "a"}, 5),
        ({"max_filter_message_size": 200}, {"max_msg_nums": 32, "tags": "b"}, 0),
    ],
)
def test_a_get_is_limited_by_count_and_bytes(
    open_store: OpenStore, options: dict[str, object], arguments: dict[str, Any], count: int
) -> None:
    store = open_store(**WIDE, **options)
    for _ in range(100):
        assert store.put_message(reput.Message("t", b"x", tags="a")).size == 100
    store.wait_dispatched()
    result = store.get_message("t", 0, 10, **arguments)
    assert len(result) == count
    examined = count or options["max_filter_message_size"] // 20 + 22  # type: ignore[operator]
    assert result.next_begin_offset == 10 + examined


class SmallMemory(FaultyFiles):
    """A machine whose page cache holds the newest 400 bytes of a log."""

    def physical_memory(self) -> int:
        return 1000


@pytest.mark.parametrize("kind", ["SimpleCQ", "BatchCQ"])
def test_a_slave_is_suggested_for_what_the_memory_cannot_hold(open_store: OpenStore, kind: str) -> None:
    store = open_store(**WIDE, files=SmallMemory(), access_message_in_memory_max_ratio=40)
    store.update_topic(TopicConfig("t", attributes={"queue.type": kind}))
    for _ in range(10):
        assert store.put_message(reput.Message("t", b"x", tags="a")).size == 100
    store.wait_dispatched()
    pulls = [store.get_message("t", 0, offset, max_msg_nums=1) for offset in range(10)]
    assert [pull.suggest_pulling_from_slave for pull in pulls] == [True] * 6 + [False] * 4


def test_statuses_at_the_borders_of_a_queue(open_store: OpenStore, path: Path) -> None:
    store = open_store(mapped_file_size_consume_queue=20 * 4)
    for _ in range(10):
        store.put_message(reput.Message("t", bytes(800)))
    store.wait_dispatched()
    told = {}
    for offset in (-1, 0, 3, 4, 9, 10, 11, 1 << 40):
        result = store.get_message("t", 0, offset)
        told[offset] = (result.status.name, len(result), result.next_begin_offset)
    assert told == {
        -1: ("OFFSET_TOO_SMALL", 0, 0),
        0: ("FOUND", 4, 4),  # neither across a queue file nor across a log file
        3: ("FOUND", 1, 4),
        4: ("FOUND", 4, 8),
        9: ("FOUND", 1, 10),
        10: ("OFFSET_OVERFLOW_ONE", 0, 10),
        11: ("OFFSET_OVERFLOW_BADLY", 0, 10),
        1 << 40: ("OFFSET_OVERFLOW_BADLY", 0, 10),
    }
    assert store.get_message("t", 1, 5).status.name == "NO_MESSAGE_IN_QUEUE"
    store.close()
    # The first log file goes, as retention does it: units point before the log.
    (path / "commitlog" / f"{0:020d}").unlink()
    store = open_store(mapped_file_size_consume_queue=20 * 4)
    assert (store.min_offset("t", 0), store.max_offset("t", 0)) == (4, 10)
    assert store.get_message("t", 0, 3).status.name == "OFFSET_TOO_SMALL"
    assert store.get_message("t", 0, 3).next_begin_offset == 4
    assert store.get_message("t", 0, 4).messages()[0].queue_offset == 4
    assert store.earliest_time() == store.get_message("t", 0, 4).messages()[0].store_timestamp
    assert store.min_commit_log_offset == 4096


@pytest.mark.parametrize(("queue_type", "following"), [("SimpleCQ", 8), ("BatchCQ", 0)])
def test_a_pull_whose_unit_is_gone_goes_on_where_rocketmq_does(
    open_store: OpenStore, path: Path, queue_type: str, following: int
) -> None:
    """`ConsumeQueue.rollNextFile` is the next file's first offset, `BatchConsumeQueue.rollNextFile` 0."""
    store = open_store()
    store.update_topic(TopicConfig("t", attributes={"queue.type": queue_type}))
    for _ in range(20):
        store.put_message(reput.Message("t", b"x"))
    store.close()
    reader = open_store(read_only=True)
    (queue,) = reader._queues.queues()
    for file in Path(queue.path).iterdir():  # as a writer's retention in another process
        file.unlink()
    queue.find_files()
    result = reader.get_message("t", 0, 3)
    assert (result.status.name, result.next_begin_offset) == ("OFFSET_FOUND_NULL", following)


def test_a_pull_takes_no_group_as_groups_are_counted_by_the_broker(store: reput.MessageStore) -> None:
    with pytest.raises(TypeError, match="group"):
        store.get_message("t", 0, 0, group="g")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        store.get_message("t", 0, 0, 32, None, "g")  # type: ignore[misc]


def test_filler_units_before_the_first_message_lie_below_the_min_offset(open_store: OpenStore, path: Path) -> None:
    store = open_store(mapped_file_size_consume_queue=20 * 10)
    for _ in range(5):
        store.put_message(reput.Message("t", b"x"))
    store.close()
    file = path / "consumequeue/t/0" / f"{0:020d}"
    file.write_bytes(encode_unit(*FILLER) * 3 + file.read_bytes()[60:])
    store = open_store(mapped_file_size_consume_queue=20 * 10)
    assert (store.min_offset("t", 0), store.max_offset("t", 0)) == (3, 5)
    assert store.get_message("t", 0, 0).status.name == "OFFSET_TOO_SMALL"
    assert [message.queue_offset for message in store.get_message("t", 0, 3).messages()] == [3, 4]
    assert store.offset_by_time("t", 0, 0) == 3


def test_all_messages_are_read_by_going_on_at_next_begin_offset(store: reput.MessageStore) -> None:
    offsets = [store.put_message(reput.Message("t", bytes(7 * n))).commit_log_offset for n in range(100)]
    store.wait_dispatched()
    got, calls = [], 0
    while (result := store.get_message("t", 0, len(got))).status.name == "FOUND":
        assert result.next_begin_offset == len(got) + len(result)
        got += [message.commit_log_offset for message in result.messages()]
        calls += 1
    assert got == offsets
    assert calls < 60


def test_tags_are_compared_by_hash_and_then_by_text(open_store: OpenStore) -> None:
    assert string_hash("Aa") == string_hash("BB")
    store = open_store(**WIDE)
    tags = ["Aa", "BB", None, "Aa", "other"]
    for tag in tags:
        store.put_message(reput.Message("t", b"", tags=tag))
    store.wait_dispatched()

    def found(expression: str | None, offset: int = 0) -> list[int]:
        result = store.get_message("t", 0, offset, tags=expression)
        assert result.next_begin_offset == 5
        assert (result.status.name == "FOUND") == (len(result) > 0)
        return [message.queue_offset for message in result.messages()]

    assert found("Aa") == [0, 3]
    assert found("BB") == [1]
    assert found(" Aa||other ") == [0, 3, 4]
    assert found("Aa || BB || other") == [0, 1, 3, 4]
    assert found("*") == found(None) == found("") == [0, 1, 2, 3, 4]
    assert found("nothing") == []
    assert found("BB", 2) == []
    assert store.get_message("t", 0, 2, tags="BB").status.name == "NO_MATCHED_MESSAGE"


def test_an_expression_of_separators_names_no_tag_and_takes_nothing(open_store: OpenStore) -> None:
    store = open_store(**WIDE)
    store.put_message(reput.Message("t", b"", tags="a"))
    store.wait_dispatched()
    for expression in ("||", " || "):
        result = store.get_message("t", 0, 0, tags=expression)
        assert (result.status.name, result.next_begin_offset) == ("NO_MATCHED_MESSAGE", 1)


def test_a_long_expression_selects_as_a_short_one_does_and_is_not_remembered(open_store: OpenStore) -> None:
    store = open_store(**WIDE)
    for tag in ("a", "b"):
        store.put_message(reput.Message("t", b"", tags=tag))
    store.wait_dispatched()
    short, long = "b || no", " || ".join(["b", *map(str, range(100_000))])
    for expression in (short, long):
        assert (parse_tags(expression) is parse_tags(expression)) == (expression is short)
        assert [message.queue_offset for message in store.get_message("t", 0, 0, tags=expression).messages()] == [1]


def test_a_result_gives_messages_bytes_and_arrow(open_store: OpenStore, path: Path) -> None:
    store = open_store(**WIDE)
    results = store.put_messages([reput.Message("t", bytes([n]) * n, tags="a" if n % 2 else "b") for n in range(10)])
    store.wait_dispatched()
    got = store.get_message("t", 0, 2, 7, tags="a")
    messages, raw, batch = got.messages(), got.raw(), got.to_arrow()
    wanted = [result for result in results[2:] if result.queue_offset % 2][: len(got)]
    assert len(got) == 4
    assert [message.commit_log_offset for message in messages] == [result.commit_log_offset for result in wanted]
    assert [len(record) for record in raw] == [result.size for result in wanted]
    assert [bytes(record[88 : 88 + n]) for record, n in zip(raw, (3, 5, 7, 9), strict=True)] == [
        bytes([n]) * n for n in (3, 5, 7, 9)
    ]
    assert batch["commit_log_offset"].to_pylist() == [message.commit_log_offset for message in messages]
    assert batch["body"].to_pylist() == [message.body for message in messages]
    assert set(batch["store"].to_pylist()) == {path.name}
    assert got.to_arrow(["tags"]).to_pydict() == {"tags": ["a"] * 4}
    empty = store.get_message("t", 0, 10)
    assert (empty.messages(), empty.raw(), empty.to_arrow().num_rows) == ([], [], 0)
    assert empty.to_arrow().schema == batch.schema
    store.close()
    assert messages[0].body == bytes([3]) * 3  # what was given out outlives the store
    assert isinstance(batch, pa.RecordBatch)


def test_offset_by_time_answers_as_apache_does(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = json.loads((Path(__file__).parents[3] / "golden/vectors.json").read_text())["offsetByTime"]
    start = 1_700_000_000_000
    store = open_store()
    for time_ms in vectors["storeTimestampsMinus1700000000000"]:
        monkeypatch.setattr("time.time", lambda time_ms=time_ms: (start + time_ms) / 1000)
        store.put_message(reput.Message("t", b"x"))
    store.wait_dispatched()
    for row in vectors["results"]:
        for boundary in ("lower", "upper"):
            assert store.offset_by_time("t", 0, start + row["t"], boundary) == row[boundary.upper()], row
    assert store.offset_by_time("unknown", 0, start) == 0
    assert (store.earliest_time(), store.latest_time()) == (start + 1000, start + 5000)
    with pytest.raises(ConfigError, match="boundary"):
        store.offset_by_time("t", 0, 0, "middle")


def test_a_look_at_a_store_time_is_no_pull(store: reput.MessageStore) -> None:
    store.put_messages([reput.Message("t", b"x")] * 2)
    store.wait_dispatched()
    times = [message.store_timestamp for message in store.get_message("t", 0, 0).messages()]
    got = store.topic_counts["t"].got_messages
    assert [store.message_store_timestamp("t", 0, offset) for offset in (-1, 0, 1, 2)] == [-1, *times, -1]
    assert store.message_store_timestamp("unknown", 0, 0) == -1
    assert store.topic_counts["t"].got_messages == got == 2


def test_an_empty_store_has_no_times_and_no_offsets(store: reput.MessageStore) -> None:
    assert (store.earliest_time(), store.latest_time()) == (-1, -1)
    assert (store.min_offset("t", 0), store.max_offset("t", 0), list(store.queues())) == (0, 0, [])
    assert (store.look_message_by_offset(0), store.dispatch_behind_bytes) == (None, 0)
    store.wait_dispatched()


def test_only_a_records_own_offset_shows_it(store: reput.MessageStore) -> None:
    starts = {store.put_message(reput.Message("t", bytes(n * 100), keys=["k"])).commit_log_offset for n in range(12)}
    for offset in range(-10, store.max_commit_log_offset + 4200):
        found = store.look_message_by_offset(offset)
        assert (found is not None) == (offset in starts), offset


def test_a_message_id_shows_its_message_only_in_its_own_store(store: reput.MessageStore) -> None:
    result = store.put_message(reput.Message("t", b"x"))
    message = store.view_message(result.message_id)
    assert message is not None
    assert (message.body, message.message_id) == (b"x", result.message_id)
    assert store.view_message(result.message_id.lower()) == message
    assert store.view_message("0A000001" + result.message_id[8:]) is None
    assert store.view_message(result.message_id[:-1] + "1") is None
    with pytest.raises(ValueError, match="message id"):
        store.view_message("12")


def test_readers_see_the_same_in_a_copy_that_is_read_only(
    store: reput.MessageStore, path: Path, tmp_path: Path
) -> None:
    for number in range(40):
        store.put_message(reput.Message("t", bytes(200), keys=[f"k{number}"]), number % 2)
    store.wait_dispatched()
    shutil.copytree(path, tmp_path / "copy")
    with reput.MessageStore.open(tmp_path / "copy", read_only=True, files=FaultyFiles()) as reader:
        assert [(q.queue_id, q.min_offset, q.max_offset) for q in reader.queues()] == [(0, 0, 20), (1, 0, 20)]
        assert reader.get_message("t", 1, 3).raw() == store.get_message("t", 1, 3).raw()


def test_a_damaged_record_is_told_with_its_place_and_the_others_are_there(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", **SMALL) as store:
        places = [store.put_message(reput.Message("orders", bytes(50) + b"body")) for _ in range(3)]
        store.wait_dispatched()
        second, third = (place.commit_log_offset for place in places[1:])
        with (tmp_path / "store/commitlog/00000000000000000000").open("r+b") as log:
            log.seek(second + 100)
            log.write(b"x")  # in its body
            log.seek(third + 28)
            log.write(bytes(8))  # where it says that it lies
        assert len(store.get_message("orders", 0, 0, 1).messages()) == 1
        two = store.get_message("orders", 0, 0, 2)
        with pytest.raises(CorruptRecordError, match=rf"commitlog: damaged at offset {second}: .* its CRC; .*dump"):
            two.messages()
        assert two.to_arrow(["status"])["status"].to_pylist() == ["OK", "BAD_BODY_CRC"]
        assert two.to_arrow(["body"]).num_rows == len(two.raw()) == 2
        last = store.get_message("orders", 0, 2, 1)
        for read in (last.messages, last.to_arrow):
            with pytest.raises(CorruptRecordError, match=rf"damaged at offset {third}: no whole record"):
                read()
