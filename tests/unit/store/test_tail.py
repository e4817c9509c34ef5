"""store.tail: messages as they come, to loops and batches; offsets of groups as RocketMQ keeps them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import reput
from reput import Message, MessageStore
from reput.errors import ConfigError, CorruptMetadataError, CorruptRecordError, StoreStateError
from reput.formats.metadata import ConsumerOffsets, TopicConfig, decode_metadata, encode_metadata
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.store.group_offsets import GroupOffsets
from reput.store.tail import Tail
from tests.support.faulty_files import Crash, FaultyFiles, Judge, crash_at, fail_next, no_objection
from tests.support.fixtures import OpenStore

#: Ends a loop over what is there, and a wait that must not end by itself.
SOON, LONG = 0.01, 30.0


def put(store: MessageStore, *bodies: bytes, queue_id: int = 0, tags: str | None = None) -> None:
    store.put_messages([Message("orders", body, tags=tags) for body in bodies], queue_id=queue_id)
    store.wait_dispatched()


def bodies(tail: Tail) -> list[bytes]:
    return [message.body for message in tail]


def polled(tail: Tail, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [message.body for message in tail.poll(timeout=LONG)]
    return found


def offsets(path: Path) -> dict[str, dict[int, int]]:
    content = decode_metadata(ConsumerOffsets, (path / "config/consumerOffset.json").read_bytes())
    return {key: dict(queues) for key, queues in content.offset_table.items()}


# -- loops


def test_a_loop_gives_all_queues_each_in_its_order_and_ends_after_the_timeout(store: MessageStore) -> None:
    put(store, b"a0", b"a1")
    put(store, b"b0", b"b1", queue_id=1)
    found = bodies(store.tail("orders", timeout=SOON))
    assert sorted(found) == [b"a0", b"a1", b"b0", b"b1"]
    assert found.index(b"a0") < found.index(b"a1")
    assert found.index(b"b0") < found.index(b"b1")


def test_a_message_that_is_put_wakes_a_loop_that_waits(store: MessageStore) -> None:
    tail = store.tail("orders", timeout=LONG)
    thread = threading.Timer(0.05, put, (store, b"late"))
    thread.start()
    assert next(tail).body == b"late"
    thread.join()


async def test_an_asynchronous_loop_waits_without_blocking_its_event_loop(store: MessageStore) -> None:
    put(store, b"first")

    async def put_after_some_turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0.005)
        put(store, b"late")

    putting = asyncio.create_task(put_after_some_turns())
    found = []
    async for message in store.tail("orders", timeout=LONG):
        found.append(message.body)
        if message.body == b"late":
            break
    await putting
    assert found == [b"first", b"late"]


async def test_an_asynchronous_loop_ends_after_the_timeout(store: MessageStore) -> None:
    put(store, b"one")
    assert [message.body async for message in store.tail("orders", timeout=SOON)] == [b"one"]


async def test_a_cancelled_task_loses_no_message(store: MessageStore) -> None:
    tail = store.tail("orders")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(tail), 0.05)
    await asyncio.to_thread(put, store, b"one")
    assert (await asyncio.wait_for(anext(tail), LONG)).body == b"one"


@pytest.mark.parametrize(
    ("begin", "expected"),
    [("first", [b"old", b"new"]), ("last", [b"new"]), (datetime(2001, 1, 1, tzinfo=UTC), [b"old", b"new"])],
)
def test_where_a_tail_begins(store: MessageStore, begin: object, expected: list[bytes]) -> None:
    put(store, b"old")
    tail = store.tail("orders", consume_from=begin, timeout=SOON)  # type: ignore[arg-type]
    put(store, b"new")
    assert bodies(tail) == expected


def test_only_some_queues_and_tags(store: MessageStore) -> None:
    put(store, b"a", tags="paid")
    put(store, b"b", tags="open")
    put(store, b"c", queue_id=2, tags="paid")
    assert bodies(store.tail("orders", queue_ids=[0], tags="paid", timeout=SOON)) == [b"a"]


def test_queues_that_come_later_are_read_from_their_first_message(store: MessageStore) -> None:
    tail = store.tail("orders", consume_from="last", timeout=SOON)
    assert bodies(tail) == []
    put(store, b"one")
    put(store, b"two", queue_id=3)
    assert bodies(tail) == [b"one", b"two"]


def test_a_batch_consume_queue(store: MessageStore, path: Path) -> None:
    store.update_topic(TopicConfig("orders", attributes={"+queue.type": "BatchCQ"}))
    for _ in range(3):
        store.put_batch([Message("orders", b"one"), Message("orders", b"two")])
    store.wait_dispatched()
    with store.tail("orders", group="billing", timeout=SOON) as tail:
        assert [message.body for message in tail] == [b"one", b"two"] * 3
    assert offsets(path) == {"orders@billing": {0: 6}}


# -- batches


def test_poll_gives_at_most_so_many_and_none_after_the_timeout(store: MessageStore) -> None:
    put(store, *(b"%d" % number for number in range(5)))
    tail = store.tail("orders")
    assert [len(tail.poll(2, timeout=SOON)) for _ in range(4)] == [2, 2, 1, 0]


def test_poll_goes_on_in_the_middle_of_a_loop(store: MessageStore) -> None:
    put(store, *(b"%d" % number for number in range(5)))
    tail = store.tail("orders")
    assert next(tail).body == b"0"
    assert tail.positions == {0: 1}
    with pytest.raises(StoreStateError, match="messages left"):
        tail.poll_arrow()
    assert [message.body for message in tail.poll(2)] == [b"1", b"2"]
    assert tail.positions == {0: 3}
    assert next(tail).body == b"3"


def test_arrow_batches_have_the_columns_of_read_log(store: MessageStore, path: Path) -> None:
    put(store, b"a", b"b", tags="paid")
    tail = store.tail("orders")
    batch = tail.poll_arrow(columns=["body", "tags", "queue_offset"])
    assert batch.to_pylist() == [
        {"body": b"a", "tags": "paid", "queue_offset": 0},
        {"body": b"b", "tags": "paid", "queue_offset": 1},
    ]
    assert tail.poll_arrow(SOON).num_rows == 0
    assert tail.poll_arrow(SOON).schema.names == reput.read_log(path).read_all().schema.names
    with pytest.raises(ConfigError, match="bodi"):
        tail.poll_arrow(SOON, columns=["bodi"])


# -- offsets


def test_a_group_goes_on_after_the_last_handled_message(open_store: OpenStore, path: Path) -> None:
    store = open_store()
    put(store, b"0", b"1", b"2")
    with store.tail("orders", group="billing", timeout=SOON) as tail:
        assert [next(tail).body, next(tail).body] == [b"0", b"1"]
    assert offsets(path) == {"orders@billing": {0: 2}}
    store.close()
    assert bodies(open_store().tail("orders", group="billing", timeout=SOON)) == [b"2"]
    assert ConsumerOffsetManager(str(path)).query_offset("billing", "orders", 0) == 3


def test_a_message_whose_handling_fails_comes_again(store: MessageStore, path: Path) -> None:
    put(store, b"0", b"1", b"2")
    with contextlib.suppress(ZeroDivisionError), store.tail("orders", group="billing") as tail:
        for message in tail:
            assert message.body != b"2"
            1 // (1 - message.queue_offset)
    assert offsets(path) == {"orders@billing": {0: 1}}


@pytest.mark.parametrize("take", [lambda tail: tail.poll(2), lambda tail: tail.poll_arrow()])
def test_a_batch_is_handled_once_the_next_one_is_asked_for(
    store: MessageStore, path: Path, take: Callable[[Tail], object]
) -> None:
    put(store, b"0", b"1")
    put(store, b"2", queue_id=1)
    tail = store.tail("orders", group="billing")
    take(tail)
    take(tail)
    tail.close()
    assert offsets(path) == {"orders@billing": {0: 2, 1: 0}}


def test_commit_takes_all_that_was_given(store: MessageStore, path: Path) -> None:
    put(store, b"0", b"1")
    tail = store.tail("orders", group="billing")
    next(tail)
    tail.commit()
    assert offsets(path) == {"orders@billing": {0: 1}}
    tail.poll()
    tail.commit()
    assert offsets(path) == {"orders@billing": {0: 2}}


def test_what_is_handled_is_committed_before_a_wait(store: MessageStore, path: Path) -> None:
    put(store, b"0")
    assert bodies(store.tail("orders", group="billing", timeout=SOON)) == [b"0"]
    assert offsets(path) == {"orders@billing": {0: 1}}


def test_what_is_handled_is_committed_once_a_second(
    store: MessageStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.tail._COMMIT_S", 0.0)
    put(store, *(b"%d" % number for number in range(4)))
    tail = store.tail("orders", group="billing")
    tail.poll(2)
    tail.poll(2)
    assert offsets(path) == {"orders@billing": {0: 2}}


@pytest.mark.parametrize("kind", ["for", "async for"])
async def test_a_loop_commits_once_a_second_in_the_middle_of_a_pull(
    store: MessageStore, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Else a slow handler that is killed would get all messages of a pull again."""
    monkeypatch.setattr("reput.store.tail._COMMIT_S", 0.0)
    put(store, *(b"%d" % number for number in range(4)))
    tail = store.tail("orders", group="billing")

    async def main() -> list[bytes]:
        return [(await anext(tail)).body for _ in range(3)]

    assert (await main() if kind == "async for" else [next(tail).body for _ in range(3)]) == [b"0", b"1", b"2"]
    assert offsets(path) == {"orders@billing": {0: 2}}


def test_groups_and_topics_share_the_file_with_those_of_a_broker(store: MessageStore, path: Path) -> None:
    (path / "config").mkdir(exist_ok=True)
    before = ConsumerOffsets({"orders@a": {0: 7}, "other@billing": {3: 9}}, others={"groupTopicMap": {"a": ["orders"]}})
    (path / "config/consumerOffset.json").write_bytes(encode_metadata(before))
    put(store, b"0")
    bodies(store.tail("orders", group="billing", timeout=SOON))
    bodies(store.tail("orders", group="b", timeout=SOON))
    expected = {"orders@a": {0: 7}, "other@billing": {3: 9}, "orders@billing": {0: 1}, "orders@b": {0: 1}}
    assert offsets(path) == expected
    content = decode_metadata(ConsumerOffsets, (path / "config/consumerOffset.json").read_bytes())
    assert content.others == before.others
    assert content.data_version.counter == 2


def test_seek(store: MessageStore, path: Path) -> None:
    put(store, b"0", b"1", b"2")
    tail = store.tail("orders", group="billing", timeout=SOON)
    next(tail)
    tail.seek(0, 2)
    assert bodies(tail) == [b"2"]
    tail.seek(0, 1)
    assert tail.positions == {0: 1}
    tail.commit()
    assert offsets(path) == {"orders@billing": {0: 1}}


def test_offsets_outside_of_the_queue_go_to_its_nearest_end_and_are_told(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, b"0", b"1")
    tail = store.tail("orders", timeout=SOON)
    tail.seek(0, 100)
    with caplog.at_level(logging.WARNING, "reput.store"):
        assert bodies(tail) == []
    assert "orders, queue 0: the next message was to have offset 100, but the queue has [0, 2)" in caplog.text
    put(store, b"2")
    assert bodies(tail) == [b"2"]


# -- another process's store


def test_a_read_only_store_gives_what_is_put_later(open_store: OpenStore, path: Path) -> None:
    store = open_store()
    put(store, b"0")
    with reput.MessageStore.open(path, read_only=True) as reader, reader.tail("orders", timeout=SOON) as tail:
        assert next(tail).body == b"0"
        first = threading.Timer(0.05, put, (store, b"1", b"2"))
        first.start()
        assert polled(tail, 2) == [b"1", b"2"]
        first.join()
        for number in range(100):  # over many files of log and queue
            put(store, b"%d" % number * 40)
        assert polled(tail, 100) == [b"%d" % number * 40 for number in range(100)]


def test_offsets_of_a_reader_are_kept_in_a_file_of_its_own(open_store: OpenStore, path: Path, tmp_path: Path) -> None:
    store, file = open_store(), tmp_path / "mine/offsets.json"
    put(store, b"0", b"1")
    with reput.MessageStore.open(path, read_only=True) as reader:
        with reader.tail("orders", group="billing", offsets=file, timeout=SOON) as tail:
            assert next(tail).body == b"0"
        assert bodies(reader.tail("orders", group="billing", offsets=file, timeout=SOON)) == [b"1"]
    assert not (path / "config/consumerOffset.json").exists()
    content = decode_metadata(ConsumerOffsets, file.read_bytes())
    assert content.offset_table == {"orders@billing": {0: 2}}


# -- refusals


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"group": "a@b"}, "letters"),
        ({"group": ""}, "letters"),
        ({"offsets": "/nowhere/x"}, "group"),
        ({"consume_from": "now"}, "expected 'first'"),
        ({"consume_from": datetime(2026, 1, 1)}, "zone"),
    ],
)
def test_wrong_arguments_are_refused(store: MessageStore, arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        store.tail("orders", **arguments)  # type: ignore[arg-type]


def test_a_reader_needs_a_file_for_the_offsets_of_a_group(open_store: OpenStore, path: Path) -> None:
    put(open_store(), b"0")
    with reput.MessageStore.open(path, read_only=True) as reader, pytest.raises(ConfigError, match="give `offsets`"):
        reader.tail("orders", group="billing")


def test_commit_without_a_group_says_what_to_do(store: MessageStore) -> None:
    with pytest.raises(StoreStateError, match="give it a group"):
        store.tail("orders").commit()


def test_a_broker_s_store_is_not_tailed(open_store: OpenStore) -> None:
    with pytest.raises(StoreStateError, match="a broker has this store"):
        open_store(dispatch="caller").tail("orders")


def test_a_tail_ends_with_its_store(store: MessageStore) -> None:
    put(store, b"0")
    tail, closed = store.tail("orders"), store.tail("orders")
    closed.close()
    closed.close()
    with pytest.raises(StoreStateError, match="this tail"):
        next(closed)
    assert next(tail).body == b"0"
    closing = threading.Timer(0.05, store.close)
    closing.start()
    with pytest.raises(StoreStateError, match="closed"):
        next(tail)
    closing.join()


def test_a_closed_tail_gives_no_message_that_it_had_pulled(store: MessageStore) -> None:
    """Such a message would be handled, and come again, as its offset is not committed any more."""
    put(store, *(b"%d" % number for number in range(5)))
    with store.tail("orders", group="billing") as tail:
        assert next(tail).body == b"0"
    with pytest.raises(StoreStateError, match="this tail"):
        next(tail)
    with store.tail("orders", group="billing") as tail:
        assert next(tail).body == b"1"


def damage(path: Path) -> None:
    log = path / "commitlog/00000000000000000000"
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"second"))
        file.write(b"sec*nd")


def test_a_damaged_message_is_told_and_passed_by_seek(store: MessageStore, path: Path) -> None:
    put(store, b"first", b"second", b"third")
    damage(path)
    tail = store.tail("orders", timeout=SOON)
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            next(tail)
    tail.seek(0, 2)
    assert bodies(tail) == [b"third"]


def test_damage_that_ends_a_log_is_told_after_the_messages_before_it(open_store: OpenStore, path: Path) -> None:
    store = open_store()
    put(store, b"first", b"second", b"third")
    store.close()
    damage(path)
    with reput.MessageStore.open(path, read_only=True) as reader:
        tail = reader.tail("orders")
        assert next(tail).body == b"first"
        with pytest.raises(CorruptRecordError, match="damaged at offset 102"):
            next(tail)


# -- faults


def test_damaged_offsets_are_told_and_stay(store: MessageStore, path: Path) -> None:
    (path / "config").mkdir(exist_ok=True)
    (path / "config/consumerOffset.json").write_bytes(b"{")
    with pytest.raises(CorruptMetadataError, match=r"consumerOffset\.json"):
        store.tail("orders", group="billing")
    assert (path / "config/consumerOffset.json").read_bytes() == b"{"


def test_a_commit_that_fails_leaves_the_offsets_as_they_were(open_store: OpenStore, path: Path) -> None:
    files = FaultyFiles()
    store = open_store(files=files)
    put(store, b"0", b"1")
    tail = store.tail("orders", group="billing")
    next(tail)
    tail.commit()
    next(tail)
    files.judge = fail_next("sync", part="consumerOffset")
    with pytest.raises(reput.StoreError):
        tail.commit()
    assert offsets(path) == {"orders@billing": {0: 1}}
    tail.commit()
    assert offsets(path) == {"orders@billing": {0: 2}}


def test_a_power_cut_at_any_operation_of_a_commit_leaves_the_old_or_the_new_offset(tmp_path: Path) -> None:
    def committed(number: int, judge: Judge) -> tuple[FaultyFiles, int]:
        """A life of two commits, and the number of operations of the first one."""
        root = tmp_path / f"life-{number}"
        root.mkdir()
        files = FaultyFiles(judge)
        group_offsets = GroupOffsets(f"{root}/config/consumerOffset.json", files)
        group_offsets.commit("billing", "orders", {0: 1})
        first = len(files.operations)
        with contextlib.suppress(Crash):
            group_offsets.commit("billing", "orders", {0: 2})
        return files, first

    healthy, first = committed(-1, no_objection)
    seen = set()
    for number in range(first, len(healthy.operations) + 1):
        files, _ = committed(number, crash_at(number))
        for cut, chance in enumerate((None, random.Random(number))):
            left = tmp_path / f"cut-{number}-{cut}"
            files.cut_power(tmp_path / f"life-{number}", left, chance)
            seen.add(ConsumerOffsetManager(str(left)).query_offset("billing", "orders", 0))
    assert seen == {1, 2}
