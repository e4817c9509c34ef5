"""Registrations of brokers: plain, compressed, and hostile."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib

import pytest

from reput.errors import RemotingCommandError
from reput.formats.metadata import DataVersion, TopicConfig, TopicFilterType
from reput.remoting.route_bodies import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    decode_register_body,
    decode_topic_config,
    encode_register_body,
    encode_topic_config,
)
from tests.support.frames import recorded_frames

TOPICS = {
    "orders": TopicConfig("orders", 8, 4, 6, attributes={"message.type": "FIFO", "a b": "c d"}),
    "one": TopicConfig("one", 1, 1, 2, TopicFilterType.MULTI_TAG),
}
BODY = RegisterBrokerBody(
    TopicConfigSerializeWrapper(TOPICS, DataVersion(3, 1, 1_700_000_000_000), {"s": {"topic": "s", "epoch": 1}}),
    ("f:1",),
)
VERSION, NONE = b'{"counter":1}', b"[]"


def compressed(*parts: bytes | int) -> bytes:
    """Numbers, and bytes with their size in front."""
    pack = struct.Struct(">i").pack
    return zlib.compress(b"".join(pack(one) if isinstance(one, int) else pack(len(one)) + one for one in parts))


@pytest.mark.parametrize("packed", [False, True])
def test_a_registration_survives_both_forms(packed: bool) -> None:
    assert decode_register_body(encode_register_body(BODY, compressed=packed), compressed=packed) == BODY


@pytest.mark.parametrize("packed", [False, True])
def test_an_empty_body_registers_no_topic(packed: bool) -> None:
    assert decode_register_body(b"", compressed=packed) == RegisterBrokerBody()


def test_the_registration_of_a_broker_is_read() -> None:
    (one,) = [one for one in recorded_frames() if one.header["code"] == 103]
    wrapper = decode_register_body(one.body).topic_config_serialize_wrapper
    assert wrapper.data_version.timestamp == 1795231593226
    assert wrapper.topic_config_table["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    again = json.loads(encode_register_body(decode_register_body(one.body)))
    sent = json.loads(one.body)["topicConfigSerializeWrapper"]
    assert again["topicConfigSerializeWrapper"]["topicConfigTable"].keys() == sent["topicConfigTable"].keys()


def test_a_topic_as_one_text() -> None:
    text = 'orders 8 4 6 SINGLE_TAG {"message.type":"FIFO","a b":"c d"}'
    assert encode_topic_config(TOPICS["orders"]) == text
    assert decode_topic_config(text) == TOPICS["orders"]
    assert decode_topic_config("one 1 1 2 MULTI_TAG") == TOPICS["one"]
    assert decode_topic_config("one 1 1 2 MULTI_TAG ") == TOPICS["one"]


NO_TOPICS = [
    b"",
    b"t",
    b"t 1 1",
    b"t x 1 6 SINGLE_TAG",
    b"t 1 1 6 NO_TAG",
    b"t 1 1 6 SINGLE_TAG []",
    b"t 1 1 6 SINGLE_TAG 7",
    b't 1 1 6 SINGLE_TAG {"a":7}',
    b"t 1 1 6 SINGLE_TAG {",
    b"t 1 1 6 SINGLE_TAG " + b"[" * 100_000,
    b"\xff 1 1 6 SINGLE_TAG",
    b"t " + b"9" * 5000 + b" 1 6 SINGLE_TAG",
    b"t " + b"9" * 50 + b" 1 6 SINGLE_TAG",
]


@pytest.mark.parametrize("text", NO_TOPICS, ids=range(len(NO_TOPICS)))
def test_a_topic_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(RemotingCommandError):
        decode_register_body(compressed(VERSION, 1, text, NONE, 0), compressed=True)


NO_REGISTRATIONS = [
    b"x",
    b"\0" * 100,
    compressed(VERSION, 0, NONE, 0)[:-1],
    compressed(),
    compressed(VERSION),
    compressed(VERSION, 5),
    compressed(1 << 30),
    compressed(-1),
    compressed(VERSION, 0, b"7"),
    compressed(VERSION, 0, b"[7]"),
    compressed(VERSION, 0, b"{}"),
    compressed(VERSION, 0, b"x"),
    compressed(b"[]", 0, NONE),
    compressed(b"x", 0, NONE),
    compressed(VERSION, 0, NONE, 1, b"[]"),
    compressed(VERSION, 0, NONE, 1, b"{}"),
    compressed(VERSION, 0, NONE, 1, b'{"topic":[]}'),
    compressed(VERSION, 0, NONE, 2, b'{"topic":"a"}'),
    compressed(b"[" * 990 + b"]" * 990, 0, NONE),
]


@pytest.mark.parametrize("body", NO_REGISTRATIONS, ids=range(len(NO_REGISTRATIONS)))
def test_a_compressed_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(RemotingCommandError):
        decode_register_body(body, compressed=True)


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"\xff", b'{"topicConfigSerializeWrapper":7}', b'{"filterServerList":[7]}']
)
def test_a_plain_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(RemotingCommandError):
        decode_register_body(body)


def test_a_broker_of_4_9_sends_no_mappings() -> None:
    body = decode_register_body(compressed(VERSION, 1, b"one 1 1 2 MULTI_TAG", NONE), compressed=True)
    assert body.topic_config_serialize_wrapper.topic_config_table == {"one": TOPICS["one"]}


def test_a_bomb_is_refused_at_its_bound() -> None:
    bomb = zlib.compress(bytes(200 << 20))
    assert len(bomb) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(RemotingCommandError, match="more than 16777216 bytes decompressed"):
            decode_register_body(bomb, compressed=True)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
