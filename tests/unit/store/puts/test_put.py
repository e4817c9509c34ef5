"""Putting: what a record gets, where it goes, what is refused, and what the flush modes promise."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError, MessageIllegalError, StoreError, StoreStateError
from reput.formats.java import string_hash
from reput.formats.record import decode_record
from reput.formats.record_layout import SysFlag
from reput.kernels.records import message_table
from reput.kernels.records.columns import RecordColumns
from reput.store.results import PutMessageStatus
from tests.support.asking import until
from tests.support.faulty_files import FaultyFiles
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL, check_rebuild, check_store, contents, log_records

FILE_SIZE = 4096
HEAD = 92  # bytes of a record of topic "t", without body and properties


def test_a_put_tells_where_its_record_went(store: reput.MessageStore) -> None:
    before = int(time.time() * 1000)
    first = store.put_message(reput.Message("t", b"one"), 1)
    second = store.put_message(reput.Message("t", b"two!"), 1)
    other = store.put_message(reput.Message("t", b""), 2)
    assert first.status is PutMessageStatus.PUT_OK
    assert (first.commit_log_offset, first.queue_offset, first.size) == (0, 0, HEAD + 3)
    assert (second.commit_log_offset, second.queue_offset, second.size) == (first.size, 1, HEAD + 4)
    assert (other.queue_offset, other.size) == (0, HEAD)
    assert before <= first.store_timestamp <= second.store_timestamp <= int(time.time() * 1000)
    assert first.message_id == "7F00000100002A9F0000000000000000"
    assert (store.min_commit_log_offset, store.max_commit_log_offset) == (0, other.commit_log_offset + other.size)


def test_every_field_of_a_message_is_stored(store: reput.MessageStore) -> None:
    message = reput.Message(
        "t", b"body", tags="paid", keys=["a", "b"], properties={"region": "eu"}, flag=7, unique_key="u", sys_flag=2,
        born_timestamp=1_700_000_000_123, born_host="[2001:db8::1]:40000", reconsume_times=3,
        prepared_transaction_offset=99, wait_store_msg_ok=False,
    )  # fmt: skip
    result = store.put_message(message, 5)
    store.wait_dispatched()
    found = store.look_message_by_offset(result.commit_log_offset)
    assert found is not None
    assert (found.topic, found.body, found.tags, found.keys, found.unique_key) == (
        "t",
        b"body",
        "paid",
        ("a", "b"),
        "u",
    )
    assert (found.properties, found.flag) == ({"region": "eu", "WAIT": "false"}, 7)
    assert (found.sys_flag, found.born_timestamp) == (2 | SysFlag.BORN_HOST_V6, 1_700_000_000_123)
    assert (found.born_host, found.store_host) == ("[2001:db8::1]:40000", "127.0.0.1:10911")
    assert (found.reconsume_times, found.prepared_transaction_offset, found.queue_id) == (3, 99, 5)
    assert found.body_crc == zlib.crc32(b"body") & 0x7FFFFFFF
    assert found.store_timestamp == result.store_timestamp


def test_a_store_with_an_ipv6_host_writes_it_and_gives_its_message_ids(open_store: OpenStore, path: Path) -> None:
    store = open_store(broker_ip1="2001:db8::7", listen_port=1)
    result = store.put_message(reput.Message("t", b"x", keys=["k"]))
    table = store.put_arrow(pa.table({"topic": ["t"], "body": [b"y"]}))
    store.wait_dispatched()
    assert len(result.message_id) == 56
    message = store.view_message(result.message_id)
    assert message is not None
    assert (message.store_host, message.born_host) == ("[2001:db8::7]:1", "[2001:db8::7]:1")
    row = store.look_message_by_offset(table.commit_log_offset)
    assert row is not None
    assert row.store_host == "[2001:db8::7]:1"
    assert store.query_message("t", "k") == [message]
    store.close()
    check_store(path)


@pytest.mark.parametrize(
    ("size", "following"),
    [
        (FILE_SIZE - 8 - HEAD, FILE_SIZE),
        (FILE_SIZE - 9 - HEAD, FILE_SIZE),
        (FILE_SIZE - 8 - 2 * HEAD, FILE_SIZE - 8 - HEAD),
    ],
)
def test_a_record_may_leave_just_the_blank_one(
    store: reput.MessageStore, path: Path, size: int, following: int
) -> None:
    store.put_message(reput.Message("t", bytes(size)))
    assert store.put_message(reput.Message("t", b"")).commit_log_offset == following
    store.close()
    check_store(path)


def test_a_row_may_leave_just_the_blank_record(store: reput.MessageStore, path: Path) -> None:
    for size, places in ((FILE_SIZE - 8 - HEAD, 1), (FILE_SIZE - 8 - 2 * HEAD, 2), (1, 1)):
        bodies = [b""] * (places - 1) + [bytes(size)]
        store.put_arrow(pa.table({"topic": ["t"] * places, "body": bodies}))
    assert store.max_commit_log_offset == 2 * FILE_SIZE + HEAD + 1
    store.close()
    assert [record.offset for record in check_store(path)] == [0, FILE_SIZE, FILE_SIZE + HEAD, 2 * FILE_SIZE]


@pytest.mark.parametrize("way", ["one", "several", "table", "reader"])
def test_a_record_that_no_file_can_hold_is_refused_before_anything_is_written(
    store: reput.MessageStore, path: Path, way: str
) -> None:
    small, large = reput.Message("t", b"x"), reput.Message("t", bytes(FILE_SIZE - 8 - HEAD + 1))
    table = pa.table({"topic": ["t", "t"], "body": [small.body, large.body]})
    put = {
        "one": lambda: store.put_message(large),
        "several": lambda: store.put_messages([small, large]),
        "table": lambda: store.put_arrow(table),
        "reader": lambda: store.put_arrow(table.to_reader()),
    }[way]
    with pytest.raises(MessageIllegalError, match=f"{FILE_SIZE - 8}"):
        put()
    assert store.max_commit_log_offset == 0
    assert store.put_message(reput.Message("t", bytes(FILE_SIZE - 8 - HEAD))).queue_offset == 0


def test_a_full_file_ends_with_a_blank_record(store: reput.MessageStore, path: Path) -> None:
    store.put_message(reput.Message("t", bytes(3000)))
    assert store.put_message(reput.Message("t", bytes(3000))).commit_log_offset == FILE_SIZE
    blank = (path / "commitlog" / f"{0:020d}").read_bytes()[3000 + HEAD :]
    assert blank[:8] == (FILE_SIZE - 3000 - HEAD).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert not any(blank[8:])


def test_null_keys_and_properties_are_absent_even_if_something_lies_behind_the_null(store: reput.MessageStore) -> None:
    offsets, mask = pa.array([0, 1, 3, 4], pa.int32()), pa.array([False, True, False])
    texts = pa.array(["a", "b", "c", "d"])
    keys = pa.ListArray.from_arrays(offsets, texts, mask=mask)
    properties = pa.MapArray.from_arrays(offsets, texts, texts, mask=mask)
    hidden = pa.table({"topic": ["t"] * 3, "body": [b""] * 3, "keys": keys, "properties": properties})
    pairs = pa.array([[("a", "a")], None, [("d", "d")]], properties.type)
    plain = pa.table({"topic": ["t"] * 3, "body": [b""] * 3, "keys": [["a"], None, ["d"]], "properties": pairs})
    for given in (hidden, hidden.slice(0, 2), hidden.slice(1, 2), plain):
        store.put_arrow(given)
    found = reput.read_log(store.path, ["keys", "properties"]).read_all().to_pylist()
    a, none, d = ({"keys": keys, "properties": [(key, key) for key in keys]} for keys in (["a"], [], ["d"]))
    assert found == [a, none, d, a, none, none, d, a, none, d]


@pytest.mark.parametrize(
    ("topic", "magic"),
    [("t" * 127, 0xDAA320A7), ("%RETRY%" + "t" * 121, 0xDAA320AB), ("%RETRY%" + "t" * 248, 0xDAA320AB)],
)
def test_topics_up_to_their_limits_are_stored_and_found(
    open_store: OpenStore, path: Path, topic: str, magic: int
) -> None:
    store = open_store()
    result = store.put_message(reput.Message(topic, b"x", keys=["k"]))
    store.put_arrow(pa.table({"topic": [topic], "body": [b"y"], "keys": [["k"]]}))
    store.wait_dispatched()
    assert [message.topic for message in store.query_message(topic, "k")] == [topic, topic]
    message = store.look_message_by_offset(result.commit_log_offset)
    assert message is not None
    assert message.magic_code & 0xFFFFFFFF == magic
    assert store.max_offset(topic, 0) == 2
    store.close()
    check_store(path)


PUTS = {
    "put_message": lambda store, message, queue_id: store.put_message(message, queue_id),
    "async_put_message": lambda store, message, queue_id: store.async_put_message(message, queue_id),
    "put_messages": lambda store, message, queue_id: store.put_messages([message], queue_id),
    "put_batch": lambda store, message, queue_id: store.put_batch([message], queue_id),
}
WRONG_TYPES = [
    *[(value, 0, "no reput.Message, but") for value in (None, "x", 5, b"x", {"topic": "t"})],
    *[
        (reput.Message("t", b"x"), value, "queue_id must be a whole number")
        for value in ("0", None, 1.5, 1.0, True, b"0")
    ],
    *[(reput.Message(value, b"x"), 0, "topic must be text") for value in (None, 5, b"t", ["t"])],  # type: ignore[arg-type]
    *[(reput.Message("t", value), 0, "body must be bytes") for value in (None, 5, "x")],  # type: ignore[arg-type]
    *[(reput.Message("t", b"x", tags=value), 0, "must be text") for value in (5, b"x")],  # type: ignore[arg-type]
    *[(reput.Message("t", b"x", keys=value), 0, "keys must be a list|must be text") for value in ("k", 5, [5])],  # type: ignore[arg-type]
    *[(reput.Message("t", b"x", properties=value), 0, "mapping|must be text") for value in (5, "a=b", {"a": 5})],  # type: ignore[arg-type]
    *[(reput.Message("t", b"x", sys_flag=value), 0, "sys_flag") for value in ("1", None)],  # type: ignore[arg-type]
    *[(reput.Message("t", b"x", born_timestamp=value), 0, "born_timestamp") for value in ("now", 1.5)],  # type: ignore[arg-type]
]


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("value", [True, 1.0])
def test_what_equals_the_id_of_a_known_queue_is_none(store: reput.MessageStore, put: str, value: object) -> None:
    end = store.put_message(reput.Message("t", b"x"), 1).size
    with pytest.raises(MessageIllegalError, match="queue_id must be a whole number"):
        PUTS[put](store, reput.Message("t", b"x"), value)
    assert store.max_commit_log_offset == end


@pytest.mark.parametrize("put", PUTS)
def test_a_stored_message_is_refused_with_what_to_do(store: reput.MessageStore, put: str) -> None:
    store.put_message(reput.Message("t", b"x"))
    store.wait_dispatched()
    (got,) = store.get_message("t", 0, 0).messages()
    told = "no reput.Message, but PulledMessage; make one of its topic, body, tags, keys and properties"
    with pytest.raises(reput.MessageIllegalError, match=told):
        PUTS[put](store, got, 0)


@pytest.mark.parametrize("put", PUTS)
def test_what_has_the_wrong_type_is_named_and_nothing_is_written(store: reput.MessageStore, put: str) -> None:
    for message, queue_id, reason in WRONG_TYPES:
        if put == "put_batch" and isinstance(message, reput.Message) and message.sys_flag is None:
            continue  # counts as 0
        with pytest.raises(MessageIllegalError, match=reason):
            PUTS[put](store, message, queue_id)
    assert store.max_commit_log_offset == 0


@pytest.mark.parametrize("messages", [None, 5, "ab", b"ab", reput.Message("t", b"x")])
def test_what_is_no_list_of_messages_is_refused(store: reput.MessageStore, messages: object) -> None:
    for put in (store.put_messages, store.put_batch, reput.MessageExtBatch.of):
        with pytest.raises(MessageIllegalError, match=r"expected a list of messages, not|a batch needs"):
            put(messages)  # type: ignore[operator]


REFUSED = [
    (reput.Message("t" * 128, b""), "127 are allowed"),
    (reput.Message("%RETRY%" + "t" * 249, b""), "255 are allowed"),
    (reput.Message("a/b", b""), "'a/b'"),
    (reput.Message("", b""), "empty"),
    (reput.Message("t", bytes(2000)), "maxMessageSize"),
    (reput.Message("t", "text"), "must be bytes"),  # type: ignore[arg-type]
    (reput.Message("t", b"", properties={"p": "x" * 32_767}), "32767"),
    (reput.Message("t", b"", properties={"p": "a\x01b"}), "separator|0x01|x01"),
    (reput.Message("t", b"", keys=["a b"]), "blank"),
    (reput.Message("t", b"", tags="a\x02"), "separator|0x02|x02"),
    (reput.Message("t", b"", flag=1 << 31), "32 bits"),
    (reput.Message("t", b"", born_host="nowhere"), "nowhere"),
]


@pytest.mark.parametrize("way", ["one", "later", "several"])
@pytest.mark.parametrize(("message", "reason"), REFUSED)
def test_a_message_that_breaks_a_limit_is_refused_with_the_reason_and_the_store_goes_on(
    open_store: OpenStore, path: Path, way: str, message: reput.Message, reason: str
) -> None:
    store = open_store(max_message_size=1999)
    before = contents(path)
    put = {
        "one": lambda: store.put_message(message),
        "later": lambda: store.async_put_message(message),
        "several": lambda: store.put_messages([reput.Message("t", b""), message]),
    }[way]
    with pytest.raises(MessageIllegalError, match=reason) as caught:
        put()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("message 1: ") == (way == "several")
    assert contents(path) == before
    assert store.put_message(reput.Message("t", bytes(1999))).commit_log_offset == 0


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"topic": ["t"]}, "no column 'body'"),
        ({"body": [b""]}, "no column 'topic'"),
        ({"topic": ["t"], "body": [b""], "tag": ["a"]}, "unknown column 'tag'; did you mean 'tags'"),
        ({"topic": ["t"], "body": [b""], "keys": ["a"]}, "column 'keys' is string, and must be list<item: string>;"),
        ({"topic": ["t"], "body": [b""], "tags": [5]}, "column 'tags' is int64, and must be string; convert it before"),
        ({"topic": [5], "body": [b""]}, "column 'topic' is int64, and must be string;"),
        ({"topic": ["t"], "body": [1.5]}, "column 'body' is double, and must be binary;"),
        ({"topic": ["t"], "body": [b""], "unique_key": [True]}, "column 'unique_key' is bool, and must be string;"),
        ({"topic": ["t"], "body": [b""], "keys": [[5]]}, "column 'keys' is list<.*int64>, and must be list<.*string>;"),
        ({"topic": ["t"], "body": [b""], "properties": [{"a": "b"}]}, "column 'properties' is struct<a: string>, and"),
        ({"topic": ["t"], "body": [b""], "queue_id": ["1"]}, "column 'queue_id' is string, and must be int32;"),
        (
            {"topic": ["t"], "body": [b""], "queue_id": [1 << 40]},
            "column 'queue_id' is int64, .* value that this",
        ),
        ({"topic": ["t"], "body": [b""], "born_timestamp": ["2020"]}, "must be int64, in milliseconds, or a timestamp"),
        ({"topic": ["t", "a/b"], "body": [b"", b""]}, "row 1"),
        ({"topic": ["t", None], "body": [b"", b""]}, "row 1: topic is null"),
        ({"topic": ["t", "t", "t"], "body": [b"", b"", bytes(2000)]}, "row 2.*maxMessageSize"),
    ],
)
def test_a_table_with_a_wrong_column_or_row_is_refused_and_nothing_of_it_is_written(
    open_store: OpenStore, path: Path, columns: dict[str, list[object]], reason: str
) -> None:
    store = open_store(max_message_size=1999)
    before = contents(path)
    with pytest.raises(MessageIllegalError, match=reason):
        store.put_arrow(pa.table(columns))
    assert contents(path) == before
    assert store.put_arrow(pa.table({"topic": ["t"], "body": [b""]})).commit_log_offset == 0


_ONE_TEXT = pa.list_(pa.string(), 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": pa.array(["t"]).dictionary_encode(), "body": pa.array(["text"], pa.large_string())},
        {"topic": pa.array(["t"], pa.large_string()), "body": pa.array([b"text"], pa.binary(4)), "tags": pa.nulls(1)},
        {
            "topic": pa.array(["t"], pa.string_view()),
            "body": [b"text"],
            "keys": pa.array([["k"]], pa.list_(pa.string(), 1)),
        },
        {"topic": ["t"], "body": [b"text"], "keys": pa.nulls(1), "properties": pa.nulls(1), "queue_id": pa.nulls(1)},
        {"topic": ["t"], "body": [b"text"], "keys": [[]], "queue_id": pa.array([0], pa.uint8())},
    ],
)
def test_other_types_of_the_same_kind_are_taken(store: reput.MessageStore, columns: dict[str, pa.Array]) -> None:
    store.put_arrow(pa.table(columns))
    store.wait_dispatched()
    (message,) = store.get_message("t", 0, 0).messages()
    assert (message.body, message.queue_id) == (b"text", 0)


def test_queue_ids_are_checked(store: reput.MessageStore) -> None:
    for queue_id in (-1, 1 << 31):
        with pytest.raises(MessageIllegalError, match="queue_id"):
            store.put_message(reput.Message("t", b""), queue_id)
    assert store.put_message(reput.Message("t", b""), (1 << 31) - 1).queue_offset == 0


@pytest.mark.parametrize("way", ["one", "table"])
def test_prepared_and_rolled_back_messages_take_no_queue_offset_and_have_no_unit(
    open_store: OpenStore, path: Path, way: str
) -> None:
    store = open_store()
    flags = [0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK, SysFlag.TRANSACTION_COMMIT, 0]
    keys = [[f"k{row}"] for row in range(5)]
    if way == "one":
        results = [
            store.put_message(reput.Message("t", b"", keys=key, sys_flag=flag))
            for key, flag in zip(keys, flags, strict=True)
        ]
        assert [result.queue_offset for result in results] == [0, 0, 0, 1, 2]
    else:
        flag_column = pa.array([int(flag) for flag in flags], pa.int32())
        store.put_arrow(pa.table({"topic": ["t"] * 5, "body": [b""] * 5, "keys": keys, "sys_flag": flag_column}))
    store.wait_dispatched()
    assert [message.keys[0] for message in store.get_message("t", 0, 0).messages()] == ["k0", "k3", "k4"]
    found = store.query_messages("t", [key for (key,) in keys])
    assert [len(found[key]) for (key,) in keys] == [1, 1, 0, 1, 1]  # the index leaves out only what was rolled back
    store.close()
    check_store(path)
    assert open_store().put_message(reput.Message("t", b"")).queue_offset == 3


def _lists_of_messages() -> dict[str, list[reput.Message]]:
    many = [reput.Message("t", bytes([n % 256]) * (n % 900), tags="a", keys=[f"k{n}"]) for n in range(4_000)]
    topics = [reput.Message("abc"[n // 3 % 3], b"x" * n, unique_key=f"u{n}") for n in range(40)]
    odd = [reput.Message("t", b"x", born_host="10.0.0.1:1"), reput.Message("t", bytearray(b"y"), properties={"a": "b"})]
    large = [reput.Message("t", b"z" * size) for size in (1, 700_000, 700_000, 2, 1_200_000, 3)]
    return {"more than a buffer": many, "several topics": topics, "not all plain": topics + odd, "large": large}


@pytest.mark.parametrize("name", list(_lists_of_messages()))
def test_put_messages_stores_what_one_put_after_the_other_would(name: str, open_store: OpenStore) -> None:
    store, messages = open_store(mapped_file_size_commit_log=1 << 21), _lists_of_messages()[name]
    store.put_message(messages[0], 3)
    next_offsets = defaultdict(int, {messages[0].topic: 1})
    for result, message in zip(store.put_messages(messages, 3), messages, strict=True):
        found = store.look_message_by_offset(result.commit_log_offset)
        assert found is not None
        assert (found.topic, found.body, found.tags) == (message.topic, bytes(message.body), message.tags)
        assert (found.keys, found.unique_key) == (tuple(message.keys), message.unique_key)
        assert (found.queue_id, found.queue_offset) == (3, next_offsets[message.topic])
        assert (result.queue_offset, result.size) == (found.queue_offset, found.store_size)
        assert (result.store_timestamp, result.message_id) == (found.store_timestamp, found.message_id)
        next_offsets[message.topic] += 1


def test_an_illegal_message_among_plain_ones_stores_none_of_them(store: reput.MessageStore) -> None:
    store.put_message(reput.Message("t", b"first"))
    end = store.max_commit_log_offset
    messages = [reput.Message("t", b"x") for _ in range(3)]
    for bad in (reput.Message("no/folder", b""), reput.Message("t", b"", tags="\x01"), reput.Message("t", b"x" * 4090)):
        with pytest.raises(MessageIllegalError, match="message 3"):
            store.put_messages([*messages, bad])
    assert store.max_commit_log_offset == end
    assert store.put_messages([]) == []


def test_messages_that_can_be_gone_through_only_once_are_stored_whether_plain_or_not(store: reput.MessageStore) -> None:
    for born_host in (None, "10.0.0.1:1"):
        messages = (reput.Message("t", b"x", born_host=born_host) for _ in range(3))
        assert len(store.put_messages(messages)) == 3  # type: ignore[arg-type]


def test_put_messages_gives_one_result_a_message_in_log_order(store: reput.MessageStore) -> None:
    results = store.put_messages([reput.Message("t", bytes(n)) for n in range(5)], 3)
    assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
    assert [result.size for result in results] == [HEAD + n for n in range(5)]
    assert store.put_messages([]) == []


def test_async_put_gives_a_future_that_cannot_be_taken_back(store: reput.MessageStore) -> None:
    futures = [store.async_put_message(reput.Message("t", b"x")) for _ in range(20)]
    assert not any(future.cancel() for future in futures)
    assert [future.result(timeout=60).queue_offset for future in futures] == list(range(20))
    assert store.put_message(reput.Message("t", b"x")).queue_offset == 20
    assert store.flushed_offset == store.max_commit_log_offset


def sync_count(files: FaultyFiles, part: str = "commitlog") -> int:
    return sum(operation.kind == "sync" and part in operation.path for operation in files.operations)


def test_sync_flush_syncs_before_a_put_returns(open_store: OpenStore) -> None:
    files = FaultyFiles()
    store = open_store(files=files)
    for _ in range(5):
        before = sync_count(files)
        store.put_message(reput.Message("t", b"x"))
        assert sync_count(files) > before
        assert store.flushed_offset == store.max_commit_log_offset
    store.put_arrow(pa.table({"topic": ["t"] * 100, "body": [bytes(200)] * 100}))
    assert store.flushed_offset == store.max_commit_log_offset
    store.put_messages([reput.Message("t", bytes(1000))] * 10)
    assert store.flushed_offset == store.max_commit_log_offset


def test_async_flush_does_not_sync_in_the_put_and_close_syncs(open_store: OpenStore, path: Path) -> None:
    files = FaultyFiles()
    options = {"flush_disk_type": "ASYNC_FLUSH", "flush_interval_commit_log": 600_000}
    store = open_store(files=files, **options, flush_interval_consume_queue=600_000)
    store.put_message(reput.Message("t", b"x"))
    before = sync_count(files)
    for _ in range(10):
        assert store.put_message(reput.Message("t", b"x")).status is PutMessageStatus.PUT_OK
    assert store.async_put_message(reput.Message("t", b"x")).done()
    assert (sync_count(files), store.flushed_offset) == (before, 0)
    store.wait_dispatched()  # readers need not wait for the disk
    assert store.max_offset("t", 0) == 12
    store.close()
    files.cut_power(path, path.parent / "cut")
    assert len(check_store(path.parent / "cut")) == 12


class SlowDisk(FaultyFiles):
    """Syncs of the log wait until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.waiting = threading.Event()

    def step(self, kind: str, path: str, size: int = 0) -> None:
        if kind == "sync" and "commitlog" in path and not self.go.is_set():
            self.waiting.set()
            assert self.go.wait(60)
        super().step(kind, path, size)


def test_a_put_that_does_not_want_to_wait_returns_before_the_sync_and_is_not_served(open_store: OpenStore) -> None:
    files = SlowDisk()
    store = open_store(files=files)
    store.put_message(reput.Message("t", b"safe"))
    store.wait_dispatched()
    files.go.clear()
    result = store.put_message(reput.Message("t", b"x", wait_store_msg_ok=False))
    assert result.status is PutMessageStatus.PUT_OK
    assert store.async_put_message(reput.Message("t", b"y", wait_store_msg_ok=False)).done()
    assert files.waiting.wait(60), "a put that does not wait wakes the flush thread all the same"
    assert store.flushed_offset < store.max_commit_log_offset
    assert (len(store.get_message("t", 0, 0)), store.max_offset("t", 0)) == (1, 1)
    assert store.look_message_by_offset(result.commit_log_offset) is None
    assert store.dispatch_behind_bytes == store.max_commit_log_offset - result.commit_log_offset
    files.go.set()
    store.wait_dispatched()
    assert store.max_offset("t", 0) == 3


@pytest.mark.parametrize("way", ["put_message", "async_put_message", "put_messages"])
def test_a_put_that_does_not_wait_is_synced_soon_all_the_same(open_store: OpenStore, way: str) -> None:
    files = SlowDisk()
    store = open_store(files=files)
    store.put_message(reput.Message("t", b"safe"))
    files.go.clear()
    message = reput.Message("t", b"x", wait_store_msg_ok=False)
    getattr(store, way)([message] if way == "put_messages" else message)
    assert files.waiting.wait(60), "no sync began"
    files.go.set()


def test_a_sync_that_takes_too_long_is_flush_disk_timeout_and_the_message_is_stored(open_store: OpenStore) -> None:
    files = SlowDisk()
    store = open_store(files=files, sync_flush_timeout=50)
    store.put_message(reput.Message("t", b"safe"))
    files.go.clear()
    first = threading.Thread(target=store.put_message, args=(reput.Message("t", b"syncs by itself"),))
    first.start()
    assert files.waiting.wait(60)
    result = store.put_message(reput.Message("t", b"waits"))
    assert result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
    files.go.set()
    first.join()
    store.wait_dispatched()
    assert len(store.get_message("t", 0, 0)) == 3


def test_sixteen_threads_get_offsets_that_are_dense_and_in_log_order(open_store: OpenStore, path: Path) -> None:
    # A machine that stands still is no disk that does not keep up.
    store = open_store(mapped_file_size_commit_log=64 * 1024, os_page_cache_busy_time_out_mills=60_000)
    results: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    start = threading.Barrier(16)

    def put(thread: int) -> None:
        start.wait()
        for number in range(60):
            message = reput.Message("t", bytes([thread]) * (number % 50), keys=[f"{thread}-{number}"])
            if number % 10 == 9:
                future = store.async_put_message(message, thread % 3)
                result = future.result(timeout=60)
            else:
                result = store.put_message(message, thread % 3)
            results[thread].append((result.commit_log_offset, result.queue_offset, result.store_timestamp))

    threads = [threading.Thread(target=put, args=(thread,)) for thread in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    records = check_store(path)
    assert len(records) == 16 * 60
    times = [record.row["store_timestamp"] for record in records]
    assert times == sorted(times)
    told = {place for thread in results.values() for place in thread}
    assert told == {(r.offset, r.row["queue_offset"], r.row["store_timestamp"]) for r in records}
    for thread in results.values():
        assert thread == sorted(thread)


def test_many_queues_need_few_descriptors(open_store: OpenStore, path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    options = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 40}
    store = open_store(**options)
    queues = 1500
    # Beside what other tests still have open in this process.
    allowed = max(map(int, os.listdir("/proc/self/fd"))) + 800
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed, limits[1]), limits[1]))
    try:
        for _ in range(2):
            ids = pa.array(range(queues), pa.int32())
            store.put_arrow(pa.table({"topic": ["t"] * queues, "body": [b""] * queues, "queue_id": ids}))
            store.wait_dispatched(timeout=60)
        assert [queue.max_offset for queue in store.queues()] == [2] * queues
        assert all(len(store.get_message("t", queue, 0)) == 2 for queue in range(queues))
        store.close()
        store = open_store(**options)
        assert [queue.max_offset for queue in store.queues()] == [2] * queues
        store.put_message(reput.Message("t", b""), 7)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_table_crosses_files_and_takes_its_places_as_single_puts_would(open_store: OpenStore, path: Path) -> None:
    store = open_store()
    rows = 60
    table = pa.table(
        {
            "topic": [f"t{row % 2}" for row in range(rows)],
            "queue_id": pa.array([row % 3 for row in range(rows)], pa.int32()),
            "body": [bytes([row]) * (7 * row) for row in range(rows)],
            "tags": ["a", None] * (rows // 2),
            "keys": [[f"k{row}", "all"] for row in range(rows)],
        }
    )
    store.put_message(reput.Message("t0", b"before"))
    result = store.put_arrow(table)
    assert (result.status, result.messages) == (PutMessageStatus.PUT_OK, rows)
    assert result.end_offset == store.max_commit_log_offset
    after = store.put_message(reput.Message("t0", b"after"))
    assert after.queue_offset == 1 + 10
    store.close()
    records = check_store(path)
    check_rebuild(path, path.parent / "rebuilt")
    assert records[1].offset == result.commit_log_offset
    assert [record.row["body"] for record in records[1:-1]] == table["body"].to_pylist()
    assert [record.queue for record in records[1:-1]] == [(f"t{row % 2}", row % 3) for row in range(rows)]
    ends = {record.offset // FILE_SIZE for record in records}
    assert len(ends) > 3
    for record, following in pairwise(records):  # no file is left before it is full
        if following.offset % FILE_SIZE == 0:
            left = FILE_SIZE - (record.offset + record.size) % FILE_SIZE
            assert following.size + 8 > left


@pytest.mark.parametrize("shape", ["table", "batch", "reader", "chunks"])
def test_tables_batches_and_readers_are_taken(store: reput.MessageStore, shape: str) -> None:
    batch = pa.record_batch({"topic": ["t"] * 3, "body": [b"a", b"b", b"c"]})
    puts = {
        "table": pa.Table.from_batches([batch, batch]),
        "batch": batch,
        "reader": pa.RecordBatchReader.from_batches(batch.schema, [batch, batch]),
        "chunks": pa.Table.from_batches([batch.slice(0, 1), batch.slice(1, 0), batch.slice(1), batch]),
    }
    store.put_message(reput.Message("t", b"before"))
    result = store.put_arrow(puts[shape])
    count = 3 if shape == "batch" else 6
    assert (result.messages, result.commit_log_offset) == (count, HEAD + 6)
    assert result.end_offset == store.max_commit_log_offset
    store.wait_dispatched()
    assert [m.body for m in store.get_message("t", 0, 1).messages()] == [b"a", b"b", b"c"] * (count // 3)


def test_rows_without_properties_or_keys_stand_beside_those_that_have_some(store: reput.MessageStore) -> None:
    properties = [[("a", "1")], None, [], [("b", "2"), ("c", "3")], None]
    keys = [None, ["k", "l"], [], None, ["m"]]
    columns = {"topic": ["t"] * 6, "body": [b"x"] * 6, "keys": [["before"], *keys]}
    table = pa.table(columns | {"properties": pa.array([[], *properties], pa.map_(pa.string(), pa.string()))})
    store.put_arrow(table.slice(1))
    store.wait_dispatched()
    found = store.get_message("t", 0, 0).messages()
    assert [dict(message.properties) for message in found] == [dict(pairs or []) for pairs in properties]
    assert [list(message.keys) for message in found] == [some or [] for some in keys]


def test_an_empty_table_writes_nothing(store: reput.MessageStore) -> None:
    empty = pa.table({"topic": pa.array([], pa.string()), "body": pa.array([], pa.binary())})
    for source in (empty, empty.to_reader()):
        assert store.put_arrow(source)[:2] == (PutMessageStatus.PUT_OK, 0)
    assert store.max_commit_log_offset == 0


@pytest.mark.parametrize("compression", [None, "zlib", "lz4", "zstd"])
def test_what_read_log_gives_can_be_put_again(open_store: OpenStore, path: Path, compression: str | None) -> None:
    body = b"many of the same words, " * 20
    sys_flag, stored = 0, body
    if compression == "zlib":
        sys_flag, stored = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB, zlib.compress(body)
    elif compression:
        bits = SysFlag.COMPRESSION_LZ4 if compression == "lz4" else SysFlag.COMPRESSION_ZSTD
        sys_flag, stored = SysFlag.COMPRESSED | bits, pa.Codec(compression).compress(body, asbytes=True)
    store = open_store()
    for number in range(30):
        store.put_message(
            reput.Message(
                f"t{number % 2}", stored, tags=["a", None][number % 2], keys=["k"] * (number % 3),
                unique_key=f"u{number}", properties={"p": str(number)}, flag=number, sys_flag=sys_flag,
                born_host="10.1.2.3:4",
                born_timestamp=1_600_000_000_000 + number, reconsume_times=number, prepared_transaction_offset=number,
            ), number % 3,
        )  # fmt: skip
    store.close()
    first = reput.read_log(path, store="s").read_all()
    assert first["body"].to_pylist() == [body] * 30
    copy = path.parent / "copy"
    with reput.MessageStore.open(copy, files=FaultyFiles(), **SMALL) as other:
        other.put_arrow(reput.read_log(path))
        other.wait_dispatched()
        assert other.max_offset("t0", 0) == 5
    second = reput.read_log(copy, store="s").read_all()
    changed = {"commit_log_offset", "store_timestamp", "store_size", "body_crc", "sys_flag"}
    for name in first.column_names:
        if name not in changed:
            assert first[name] == second[name], name
    kept = [flag & ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK) for flag in first["sys_flag"].to_pylist()]
    assert [flag & ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK) for flag in second["sys_flag"].to_pylist()] == kept
    raw = path.parent / "raw"
    with reput.MessageStore.open(raw, files=FaultyFiles(), **SMALL) as other:
        other.put_arrow(reput.read_log(path, raw_body=True))
    assert [record.row["body"] for record in log_records(raw)] == [stored] * 30
    assert reput.read_log(raw, store="s").read_all()["body"] == first["body"]


def test_a_put_that_meets_the_close_is_stored_or_refused(open_store: OpenStore, path: Path) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=1 << 20)
    rows = 40_000
    table = pa.table({"topic": ["t"] * rows, "body": [b"x"] * rows})
    outcome: list[object] = []
    is_in_the_middle = threading.Event()

    def meet_the_close() -> None:
        is_in_the_middle.set()
        until(lambda: store._log.failure)

    assert store._writer is not None
    store._writer.putting._on_append = meet_the_close

    def put() -> None:
        try:
            outcome.append(store.put_arrow(table))
        except StoreStateError as error:
            outcome.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    assert is_in_the_middle.wait(60)
    store.close()
    log = contents(path)
    thread.join()
    assert isinstance(outcome[0], StoreStateError)
    assert contents(path) == log
    again = open_store(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=1 << 20)
    assert not again.recovery.was_killed
    assert 0 < again.max_offset("t", 0) < rows


def test_a_closed_store_refuses_every_verb(open_store: OpenStore) -> None:
    store = open_store()
    store.close()
    store.close()
    verbs = [
        lambda: store.put_message(reput.Message("t", b"")),
        lambda: store.async_put_message(reput.Message("t", b"")),
        lambda: store.put_messages([]),
        lambda: store.put_arrow(pa.table({"topic": ["t"], "body": [b""]})),
        lambda: store.get_message("t", 0, 0),
        lambda: store.query_message("t", "k"),
        lambda: store.offset_by_time("t", 0, 0),
        lambda: store.look_message_by_offset(0),
        lambda: store.max_offset("t", 0),
        lambda: store.wait_dispatched(),
    ]
    for verb in verbs:
        with pytest.raises(StoreStateError, match="closed"):
            verb()


def test_a_listener_hears_of_every_message_once_and_in_order(open_store: OpenStore) -> None:
    heard: list[int] = []
    store = open_store(on_arrival=lambda columns: heard.extend(columns["commit_log_offset"].tolist()))
    offsets = [store.put_message(reput.Message("t", bytes(500))).commit_log_offset for _ in range(20)]
    store.wait_dispatched()
    store.close()
    assert heard == offsets


def test_what_a_listener_hears_stays_as_it_is_when_more_is_dispatched(open_store: OpenStore) -> None:
    heard: list[RecordColumns] = []
    store = open_store(on_arrival=heard.append)
    put = []
    for number in range(5):  # a pass of dispatch each
        put += store.put_messages([reput.Message(f"topic{number}", b"x", keys=[f"k{number}"])] * (number + 1), number)
        store.wait_dispatched()
    store.close()
    assert len(heard) >= 5
    rows = [
        (columns.queues()[queue], *offsets)
        for columns in heard
        for queue, *offsets in zip(
            columns["queue"].tolist(), columns["queue_offset"].tolist(), columns["commit_log_offset"].tolist(),
            strict=True,
        )
    ]  # fmt: skip
    names = [(b"topic%d" % number, number) for number in range(5) for _ in range(number + 1)]
    assert rows == [
        (name, result.queue_offset, result.commit_log_offset) for name, result in zip(names, put, strict=True)
    ]
    hashes = [hashed for columns in heard for hashed in columns.key_hashes.tolist()]
    assert hashes == [string_hash(f"topic{number}#k{number}") for number in range(5) for _ in range(number + 1)]
    assert [len(columns.key_rows) for columns in heard] == [columns.rows for columns in heard]
    with pytest.raises(ValueError, match="read-only"):
        heard[0].buffer[0] = 1  # of the log itself


@pytest.mark.parametrize("error", [ValueError("the listener's own fault"), SystemExit("the listener's own fault")])
def test_an_error_of_a_listener_is_logged_once_and_dispatch_goes_on(
    open_store: OpenStore, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    heard, logged_before = [], []

    def listen(columns: RecordColumns) -> None:
        heard.append(columns.rows)
        logged_before.append(len(caplog.records))
        if len(heard) != 4:
            raise error

    store = open_store(on_arrival=listen)
    for number in range(6):
        store.put_message(reput.Message("t", b"x"))
        store.wait_dispatched()
        assert store.max_offset("t", 0) == number + 1
    store.close()
    assert heard == [1] * 6
    assert logged_before == [0, 1, 1, 1, 1, 2], "again after a call that went well"
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert (record.name, record.levelname) == ("reput.store", "ERROR")
        assert record.exc_info is not None
        assert record.exc_info[1] is error
    assert not open_store().recovery.was_killed


def test_a_bug_in_dispatch_stops_the_store_and_the_next_start_has_everything(open_store: OpenStore, path: Path) -> None:
    def fail(columns: object) -> None:
        raise ValueError("a bug")

    store = open_store(enable_consume_queue_ext=True, bit_maps=fail)
    store.put_message(reput.Message("t", b"x", keys=["k"]))

    def put_until_it_fails() -> None:
        for _ in range(100_000):
            store.put_message(reput.Message("t", b"x", keys=["k"]))

    with pytest.raises(StoreError, match=r"dispatch stopped.*a bug"):
        put_until_it_fails()
    with pytest.raises(StoreError, match="dispatch stopped"):
        store.close()
    records = len(log_records(path))
    again = open_store()
    assert again.recovery.was_killed
    assert again.max_offset("t", 0) == records
    again.close()
    check_store(path)


def test_wrong_configuration_names_the_nearest_key(path: Path) -> None:
    for name in ("flush_disk_typ", "flushDiskTyp"):
        with pytest.raises(ConfigError, match=r"did you mean flush_?[dD]isk_?[tT]ype\?"):
            reput.MessageStore.open(path, **{name: "SYNC_FLUSH"})
    assert not path.exists()


def test_warmed_files_hold_the_same_bytes(open_store: OpenStore, path: Path) -> None:
    for flush_disk_type in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        store = open_store(
            warm_maped_file_enable=True, flush_disk_type=flush_disk_type, mapped_file_size_commit_log=64 * 1024,
            flush_least_pages_when_warm_maped_file=4,
        )  # fmt: skip
        for _ in range(100):
            store.put_message(reput.Message("t", bytes(1000)))
        assert (path / "commitlog" / f"{0:020d}").stat().st_blocks * 512 >= 64 * 1024
        store.close()
    assert len(check_store(path)) == 200


def test_records_decode_from_the_log_as_they_were_put(store: reput.MessageStore, path: Path) -> None:
    store.put_message(reput.Message("t", b"body", tags="a"))
    assert decode_record((path / "commitlog" / f"{0:020d}").read_bytes()).tags == "a"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"topic": ["t", "t"], "body": [b"", b""], "queue_id": pa.array([0, -7], pa.int32())}), "row 1.*-7"),
        ({"topic": ["t"], "body": [b""]}, "dict"),
    ],
)
def test_a_negative_queue_and_what_is_no_table_are_refused(
    store: reput.MessageStore, table: object, reason: str
) -> None:
    with pytest.raises(MessageIllegalError, match=reason):
        store.put_arrow(table)  # type: ignore[arg-type]
    assert store.max_commit_log_offset == 0


def test_a_reader_is_taken_batch_by_batch(store: reput.MessageStore) -> None:
    schema = pa.schema({"topic": pa.string(), "body": pa.binary()})
    ends = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            ends.append(store.max_commit_log_offset)
            yield pa.record_batch({"topic": ["t"] * 3, "body": [b"%d" % number] * 3}, schema)

    result = store.put_arrow(pa.RecordBatchReader.from_batches(schema, batches()))
    assert ends == sorted(set(ends)), "each batch was in the log before the next was asked for"
    assert (result.messages, result.commit_log_offset) == (15, 0)
    found = reput.read_log(store.path, columns=["body"]).read_all()["body"].to_pylist()
    assert found[::3] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_bad_batch_of_a_reader_is_refused_whole_and_tells_what_is_stored(store: reput.MessageStore) -> None:
    good = pa.record_batch({"topic": ["t"] * 4, "body": [b""] * 4})
    bad = pa.record_batch({"topic": ["t", "t", ""], "body": [b""] * 3})
    with pytest.raises(MessageIllegalError, match=r"^row 10: .*; the 8 rows of the batches before are stored$"):
        store.put_arrow(pa.RecordBatchReader.from_batches(good.schema, [good, good, bad, good]))
    store.wait_dispatched()
    assert store.max_offset("t", 0) == 8
    end = store.max_commit_log_offset
    with pytest.raises(MessageIllegalError, match=r"^row 2: "):
        store.put_arrow(pa.RecordBatchReader.from_batches(good.schema, [bad]))
    with pytest.raises(MessageIllegalError, match="no column 'topic'"):
        store.put_arrow(pa.RecordBatchReader.from_batches(pa.schema({"body": pa.binary()}), []))
    assert store.max_commit_log_offset == end


def test_a_table_whose_plans_are_not_kept_is_written_as_one_whose_are(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 100
    table = pa.table(
        {
            "topic": [f"t{i % 7}" for i in range(rows)],
            "body": pa.array([b"%d" % i * (i % 5) for i in range(rows)], pa.large_binary()),
            "keys": [[f"k{i}"] for i in range(rows)],
            "born_timestamp": pa.array(range(rows), pa.int64()),
        }
    )
    monkeypatch.setattr(message_table, "_BATCH_ROWS", 8)
    monkeypatch.setattr(message_table, "_KEPT_BATCHES", 3)
    store = open_store(mapped_file_size_commit_log=1 << 20)
    with pytest.raises(MessageIllegalError, match=r"^row 100: body is null"):
        store.put_arrow(
            pa.concat_tables([table, pa.table({"topic": ["t"], "body": [None]})], promote_options="permissive")
        )
    assert store.max_commit_log_offset == 0
    assert store.put_arrow(table).messages == rows
    store.wait_dispatched()
    columns = ["topic", "body", "keys", "born_timestamp"]
    found = reput.read_log(store.path, columns=columns).read_all()
    assert found["body"].to_pylist() == table["body"].to_pylist()
    assert found["keys"].to_pylist() == table["keys"].to_pylist()
    assert [store.max_offset(f"t{i}", 0) for i in range(7)] == [15, 15, 14, 14, 14, 14, 14]


def test_a_loop_that_puts_what_it_reads_comes_to_an_end(open_store: OpenStore) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 20)
    store.put_messages([reput.Message("t", b"%d" % i) for i in range(10)])
    for _ in range(2):
        reader = reput.read_log(store.path, columns=["topic", "body"])
        before = store.max_offset("t", 0)
        store.put_arrow(reader)
        store.wait_dispatched()
        assert store.max_offset("t", 0) == 2 * max(before, 10)
