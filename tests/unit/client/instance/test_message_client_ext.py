from __future__ import annotations

import logging
import pickle
import zlib
from typing import Any

import pyarrow as pa
import pytest

from reput.client.consuming.arrow_messages import table_of, wanted_columns
from reput.client.instance.message_client_ext import decode_messages
from reput.errors import ConfigError, CorruptRecordError
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.message_batch import INNER_BATCH, encode_batch
from reput.formats.record import encode_record
from reput.formats.record_layout import SysFlag
from reput.remoting.queue_tables import QueueKey
from reput.remoting.subscription_data import build_subscription_data

QUEUE = QueueKey("orders", "broker-a", 3)
ALL, PAID = (build_subscription_data("orders", text) for text in ("*", "paid || shipped"))
HOST = encode_host("127.0.0.1:10911")


def record(body: bytes = b"x", offset: int = 0, topic: str = "orders", **more: Any) -> bytes:
    return encode_record(
        Message(topic, body, **more), queue_id=3, queue_offset=offset, commit_log_offset=1000 + offset,
        store_timestamp=2000, store_host=HOST, born_timestamp=1000, born_host=HOST,
    )  # fmt: skip


def test_messages_of_a_pull_are_decoded_in_their_order() -> None:
    body = record(b"a", 5, unique_key="ID", tags="paid", keys=["k"]) + record(b"b", 6, properties={"n": "v"})
    first, second = decode_messages(body, QUEUE, ALL)
    assert (first.body, first.queue_offset, first.message_id, first.tags, first.keys) == (b"a", 5, "ID", "paid", ("k",))
    assert (second.body, second.queue_offset, second.properties) == (b"b", 6, {"n": "v"})
    assert second.message_id == second.offset_message_id == "7F00000100002A9F00000000000003EE"
    assert first.queue is QUEUE


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_compressed_body_is_plain_when_it_is_read(sys_flag: int) -> None:
    (message,) = decode_messages(record(zlib.compress(b"long" * 99), sys_flag=sys_flag), QUEUE, ALL)
    assert message.body == b"long" * 99


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_bodies_of_other_compressions_are_plain_too(codec: str) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(b"long" * 99)
    flag = SysFlag.COMPRESSED | {"lz4": SysFlag.COMPRESSION_LZ4, "zstd": SysFlag.COMPRESSION_ZSTD}[codec]
    (message,) = decode_messages(record(sink.getvalue().to_pybytes(), sys_flag=flag), QUEUE, ALL)
    assert message.body == b"long" * 99


def test_a_body_that_cannot_be_decompressed_is_an_error_each_time_it_is_read() -> None:
    (message,) = decode_messages(record(b"no zlib", sys_flag=0x301), QUEUE, ALL)
    assert message.queue_offset == 0
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="cannot be decompressed"):
            _ = message.body


def test_a_retry_has_the_topic_that_it_was_sent_to() -> None:
    body = record(topic="%RETRY%g", properties={"RETRY_TOPIC": "orders"}, reconsume_times=2)
    (message,) = decode_messages(body, QueueKey("%RETRY%g", "broker-a", 0), None)
    assert (message.topic, message.reconsume_times) == ("orders", 2)


def test_tags_are_compared_as_texts() -> None:
    body = record(tags="paid") + record(tags="other", offset=1) + record(offset=2) + record(tags="shipped", offset=3)
    assert [one.queue_offset for one in decode_messages(body, QUEUE, PAID)] == [0, 3]
    assert table_of([(PAID, body)], wanted_columns(["queue_offset"]))["queue_offset"].to_pylist() == [0, 3]


def test_a_message_with_another_crc_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    damaged = bytearray(record(b"damaged", 1))
    damaged[damaged.index(b"damaged")] ^= 1
    body = record(b"a", 0) + bytes(damaged) + record(b"c", 2)
    with caplog.at_level(logging.ERROR, "reput.client"):
        assert [one.body for one in decode_messages(body, QUEUE, ALL)] == [b"a", b"c"]
        assert table_of([(ALL, body)], wanted_columns(["body"]))["body"].to_pylist() == [b"a", b"c"]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("cut", [1, 40, 95])
def test_what_is_cut_short_ends_the_messages(cut: int, caplog: pytest.LogCaptureFixture) -> None:
    body = record(b"a", 0) + record(b"b", 1)[:cut]
    with caplog.at_level(logging.ERROR, "reput.client"):
        assert [one.body for one in decode_messages(body, QUEUE, ALL)] == [b"a"]
        assert table_of([(ALL, body)], wanted_columns(["body"]))["body"].to_pylist() == [b"a"]
    assert caplog.records


def test_messages_of_an_inner_batch_come_one_by_one() -> None:
    batch = encode_batch([Message("orders", b"1", tags="paid"), Message("orders", b"2", tags="other")])
    body = record(batch, 7, sys_flag=INNER_BATCH)
    assert [(one.body, one.queue_offset) for one in decode_messages(body, QUEUE, ALL)] == [(b"1", 7), (b"2", 8)]
    assert [one.body for one in decode_messages(body, QUEUE, PAID)] == [b"1"]
    table = table_of([(ALL, body)], wanted_columns(["body", "queue_offset"]))
    assert table.to_pydict() == {"body": [b"1", b"2"], "queue_offset": [7, 8]}


def test_a_table_has_the_rows_of_all_pulls_with_the_columns_that_were_asked_for() -> None:
    compressed = record(zlib.compress(b"long" * 99), 1, sys_flag=0x301)
    table = table_of(
        [(ALL, record(b"a", keys=["k"]) + compressed), (ALL, record(b"c", 2))], wanted_columns(["queue_offset", "body"])
    )
    assert table.to_pydict() == {"queue_offset": [0, 1, 2], "body": [b"a", b"long" * 99, b"c"]}
    everything = table_of([(ALL, record(b"a", tags="t"))], wanted_columns(None))
    assert everything.column_names[:3] == ["topic", "queue_id", "queue_offset"]
    assert everything["status"].to_pylist() == ["OK"]
    assert table_of([], wanted_columns(["body"])).num_rows == 0
    with pytest.raises(ConfigError, match="no column 'bdy'"):
        wanted_columns(["bdy"])


def test_a_message_is_pickled_without_the_others_of_its_pull() -> None:
    messages = decode_messages(record(b"a") + record(b"b" * 4000, 1), QUEUE, ALL)
    data = pickle.dumps(messages[0])
    assert len(data) < 1000
    copied = pickle.loads(data)
    assert (copied.body, copied.queue) == (b"a", QUEUE)
