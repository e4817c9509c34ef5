import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptRecordError, MessageIllegalError
from reput.formats.hosts import encode_host
from reput.formats.message import Message, check_message, encode_properties_of
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id, encode_message_id
from reput.formats.properties import encode_properties
from reput.formats.record import encode_record

HOST = encode_host("10.0.0.1:10911")
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
KEYS = TEXTS.filter(lambda text: " " not in text)
NAMES = TEXTS.filter(lambda name: name not in ("TAGS", "KEYS", "UNIQ_KEY", "WAIT"))
#: Each counts as false, and none of them is a text, a list or a mapping.
NOTHING_OF_WRONG_TYPES = (0, False, b"", float("nan"), frozenset())


def record(message):
    return encode_record(
        message,
        queue_id=3,
        queue_offset=7,
        commit_log_offset=1000,
        store_timestamp=2,
        store_host=HOST,
        born_timestamp=1,
        born_host=HOST,
    )


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b""),
        Message("Az09%|_-", bytearray(b"b")),
        Message("t", memoryview(b"body")),
        Message("t" * 127, b"x" * 100),
        Message("%RETRY%" + "g" * 248, b"b"),
        Message("t", b"b", tags="a || b", keys=["k1", "订单"], unique_key="u", properties={"n": "🚀"}),
        Message("t", b"b", tags="", keys=[], unique_key="", properties={}),
        Message("t", b"b", properties={"n": "v" * (32767 - 3)}),
        Message("t", b"b", flag=-(2**31), sys_flag=2**31 - 1, born_timestamp=-(2**63)),
        Message("t", b"b", prepared_transaction_offset=2**63 - 1, born_host="[::1]:1"),
    ],
    ids=range(10),
)
def test_a_message_within_the_limits_is_accepted(message):
    check_message(message, max_message_size=100)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": ""}, "topic is empty"),
        ({"topic": None}, "topic must be text, not NoneType"),
        ({"topic": ["t"]}, "topic must be text, not list"),
        ({"topic": "a/b"}, "topic 'a/b' cannot be the name of a folder"),
        ({"topic": ".."}, "topic '..' cannot be the name of a folder"),
        ({"topic": "a\0"}, "cannot be the name of a folder"),
        ({"topic": "\ud83d"}, "is no Unicode text"),
        ({"topic": "t" * 128}, "takes 128 bytes; 127 are allowed"),
        ({"topic": "订" * 43}, "takes 129 bytes; 127 are allowed"),
        ({"topic": "%RETRY%" + "g" * 249}, "takes 256 bytes; 255 are allowed"),
        ({"body": None}, "body must be bytes, not NoneType"),
        ({"body": "text"}, "body must be bytes, not str"),
        ({"body": memoryview(b"abcd").cast("H")}, "not one row of bytes"),
        ({"body": memoryview(b"abcd")[::2]}, "not one row of bytes"),
        ({"body": b"x" * 101}, "takes 101 bytes; maxMessageSize allows 100"),
        ({"properties": {"n": "v" * (32768 - 3)}}, "properties take 32768 bytes; 32767 are allowed"),
        ({"tags": "a\x01b"}, "^tags holds a separator"),
        ({"tags": "a\x02"}, "^tags holds a separator"),
        ({"tags": 5}, "^tags must be text, not int"),
        ({"tags": "\udc80"}, "^tags holds a lone surrogate"),
        ({"unique_key": "\x02"}, "^unique_key holds a separator"),
        ({"keys": ["a", "b\x01"]}, "^keys: a key holds a separator"),
        ({"keys": ["a", "b c"]}, "key 'b c' holds a blank"),
        ({"keys": ["a", ""]}, "^keys: a key is empty"),
        ({"keys": ["a", 1]}, "^keys: a key must be text, not int"),
        ({"keys": "abc"}, "keys must be a list of texts, not str"),
        ({"keys": 5}, "keys must be a list of texts, not int"),
        ({"keys": {"a", "b"}}, "keys must be a list of texts, not set"),
        *[({"tags": value}, f"^tags must be text, not {type(value).__name__}") for value in NOTHING_OF_WRONG_TYPES],
        *[({"unique_key": value}, "^unique_key must be text, not ") for value in NOTHING_OF_WRONG_TYPES],
        *[({"keys": value}, "^keys must be a list of texts, not ") for value in (*NOTHING_OF_WRONG_TYPES, "")],
        *[({"properties": value}, "^properties must be a mapping, not ") for value in (0, "", (), [], float("nan"))],
        *[({"wait_store_msg_ok": value}, "^wait_store_msg_ok must be True or False, ") for value in (0, None, "no")],
        ({"tags": float("nan")}, "^tags must be text, not float"),
        ({"keys": np.array(["a", "b"])}, "^keys must be a list of texts, not ndarray"),
        ({"properties": {"a": np.array([1, 2])}}, "value must be text, not ndarray"),
        ({"properties": {"a\x01": "b"}}, "name holds a separator"),
        ({"properties": {"a": "b\x02"}}, "value holds a separator"),
        ({"properties": {"": "b"}}, "name is empty"),
        ({"properties": {"a": ""}}, "value is empty"),
        ({"properties": {"a": 1}}, "value must be text, not int"),
        ({"properties": {1: "a"}}, "name must be text, not int"),
        ({"properties": {"a": "\ud83d"}}, "value holds a lone surrogate"),
        ({"properties": ["a"]}, "properties must be a mapping, not list"),
        ({"properties": {"TAGS": "a"}}, "pass tags="),
        ({"properties": {"KEYS": "a"}}, "pass keys="),
        ({"properties": {"UNIQ_KEY": "a"}}, "pass unique_key="),
        ({"properties": {"WAIT": "true"}}, "pass wait_store_msg_ok="),
        ({"flag": 2**31}, "flag 2147483648 does not fit 32 bits"),
        ({"sys_flag": -(2**31) - 1}, "sys_flag -2147483649 does not fit 32 bits"),
        ({"reconsume_times": 1.5}, "reconsume_times must be a whole number, not float"),
        ({"prepared_transaction_offset": 2**63}, "does not fit 64 bits"),
        ({"born_timestamp": -(2**63) - 1}, "born_timestamp -9223372036854775809 does not fit 64 bits"),
        ({"born_timestamp": "now"}, "born_timestamp must be a whole number, not str"),
        ({"flag": None}, "flag must be a whole number, not NoneType"),
        ({"born_host": "localhost"}, "host 'localhost' is no address"),
        ({"born_host": 5}, "born_host must be text, not int"),
    ],
)
def test_an_illegal_message_is_refused_with_the_reason(changes, reason):
    message = Message(**{"topic": "t", "body": b"b", **changes})
    with pytest.raises(MessageIllegalError, match=reason.replace("|", "\\|")):
        check_message(message, max_message_size=100)


@given(
    tags=st.none() | TEXTS,
    keys=st.lists(KEYS, max_size=3),
    unique_key=st.none() | TEXTS,
    properties=st.none() | st.dictionaries(NAMES, TEXTS, max_size=4),
    wait=st.booleans(),
)
def test_properties_of_a_message_are_its_pairs_encoded(tags, keys, unique_key, properties, wait):
    message = Message("t", b"", tags, keys, properties, unique_key=unique_key, wait_store_msg_ok=wait)
    pairs = list((properties or {}).items())
    pairs += [("TAGS", tags)] if tags else []
    pairs += [("KEYS", " ".join(keys))] if keys else []
    pairs += [("UNIQ_KEY", unique_key)] if unique_key else []
    pairs += [] if wait else [("WAIT", "false")]
    assert encode_properties_of(message) == encode_properties(pairs)


ANY = st.text(st.sampled_from("a\x01\x02 \ud800"), max_size=3)


@given(ANY, st.lists(ANY, max_size=2), ANY, st.dictionaries(ANY, ANY, max_size=2))
def test_the_properties_text_is_refused_or_comes_back(tags, keys, unique_key, properties):
    message = Message("t", b"", tags, keys, properties, unique_key=unique_key)
    texts = [tags, *keys, unique_key, *properties, *properties.values()]
    empty = "" in [*keys, *properties, *properties.values()]
    if empty or any(set(text) & set("\x01\x02\ud800") for text in texts) or any(" " in key for key in keys):
        with pytest.raises(MessageIllegalError):
            encode_properties_of(message)
    else:
        stored = MessageExt(record(message))
        assert (stored.tags or "", stored.keys, stored.unique_key or "") == (tags, tuple(keys), unique_key)
        assert stored.properties == properties


@pytest.mark.parametrize(
    ("host", "offset", "message_id"),
    [
        ("192.168.1.20:10911", 187, "C0A8011400002A9F00000000000000BB"),
        ("[fe80::20]:10911", 289, "FE80000000000000000000000000002000002A9F0000000000000121"),
    ],
)
def test_message_ids_are_host_and_offset_in_hex(host, offset, message_id):
    assert encode_message_id(encode_host(host), offset) == message_id
    assert decode_message_id(message_id) == (encode_host(host), offset)
    assert decode_message_id(message_id.lower()) == (encode_host(host), offset)


@pytest.mark.parametrize("text", ["", "C0A8", "G" * 32, "00" * 17, "0" * 33, "00 " * 16, "0" * 31 + " "])
def test_a_text_that_is_no_message_id_is_refused(text):
    with pytest.raises(MessageIllegalError, match="32 or 56 hexadecimal digits"):
        decode_message_id(text)


def test_a_stored_message_looks_at_its_bytes_only_when_asked():
    message = MessageExt(b"no record")
    with pytest.raises(CorruptRecordError):
        _ = message.topic


def test_a_stored_message_is_found_at_any_position_of_a_buffer():
    data = record(Message("t", b"one", tags="x"))
    for buffer in (b"123" + data, bytearray(b"123" + data), memoryview(b"123" + data + b"behind")):
        message = MessageExt(buffer, 3)
        assert (message.topic, message.body, message.tags, message.queue_id) == ("t", b"one", "x", 3)
        assert type(message.body) is bytes


def test_stored_messages_are_equal_by_their_fields():
    data = record(Message("t", b"one", tags="x", properties={"a": "b"}))
    message = MessageExt(data)
    assert message == MessageExt(b"1" + data, 1)
    assert message != MessageExt(record(Message("t", b"two", tags="x", properties={"a": "b"})))
    assert message != data
    assert "topic='t', body=b'one', tags='x', keys=(), properties={'a': 'b'}" in repr(message)


def test_a_stored_message_can_be_copied_and_pickled_without_its_buffer():
    data = record(Message("t", b"one", tags="x"))
    message = MessageExt(memoryview(b"1" * 1000 + data + b"1" * 1000), 1000)
    pickled = pickle.dumps(message)
    assert len(pickled) < len(data) + 200
    assert pickle.loads(pickled) == copy.copy(message) == message


def test_a_stored_message_has_no_other_fields():
    with pytest.raises(AttributeError, match="no field 'tag'"):
        _ = MessageExt(b"").tag


def test_text_that_is_no_utf8_is_shown_with_replacement_characters():
    data = bytearray(record(Message("topic", b"", tags="tags")))
    data[data.index(b"topic")] = 0xFF
    data[data.index(b"\x01tags") + 1] = 0xFF
    message = MessageExt(data)
    assert (message.topic, message.tags) == ("\ufffdopic", "\ufffdags")
