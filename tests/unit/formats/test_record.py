import json
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptRecordError, MessageIllegalError
from reput.formats import record_layout as layout
from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE, encode_host
from reput.formats.java import body_crc
from reput.formats.message import Message
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import encode_message_id
from reput.formats.properties import decode_properties, split_keys
from reput.formats.record import decode_record, encode_blank, encode_record
from reput.formats.record_layout import FIELDS, MagicCode, SysFlag, encode_topic, pack_record, record_size

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))
RECORDS = VECTORS["commitLog"]["records"]
WORKED = bytes.fromhex(RECORDS[0]["recordHex"])
NAMES = [field.name for field in FIELDS]
# Fields that no check covers: a wrong bit in them gives a message with a wrong field.
UNCHECKED = {
    *("queue_id", "flag", "queue_offset", "commit_log_offset", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset"),
    *("topic", "tags", "keys", "unique_key", "properties"),
}

each_record = pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: vector["name"])


def host_of(pair):
    address, port = pair
    return encode_host(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")


def fields_of(message):
    return {name: getattr(message, name) for name in MessageExt.__annotations__ if not name.startswith("_")}


@each_record
def test_records_of_rocketmq_are_encoded_byte_for_byte(vector):
    body = vector["bodyUtf8"].encode()
    magic, topic = encode_topic(vector["topic"])
    properties = vector["propertiesString"].encode()
    data = pack_record(
        magic,
        body_crc(body),
        vector["queueId"],
        vector["flag"],
        vector["queueOffset"],
        vector["physicalOffset"],
        vector["sysFlagStored"] & SysFlag.TRANSACTION_MASK,
        vector["bornTimestamp"],
        host_of(vector["bornHost"]),
        vector["storeTimestamp"],
        host_of(vector["storeHost"]),
        vector["reconsumeTimes"],
        vector["preparedTransactionOffset"],
        body,
        topic,
        properties,
    )
    assert data.hex() == vector["recordHex"]
    size = record_size(
        len(body),
        len(vector["topic"].encode()),
        len(properties),
        magic=MagicCode(magic),
        sys_flag=vector["sysFlagStored"],
    )
    assert size == len(data) == vector["totalSize"]
    assert encode_message_id(host_of(vector["storeHost"]), vector["physicalOffset"]) == vector["offsetMsgId"]


@each_record
def test_records_of_rocketmq_are_decoded(vector):
    message = decode_record(bytes.fromhex(vector["recordHex"]))
    properties = decode_properties(vector["propertiesString"].encode())
    assert properties == {name: value for name, value in vector["properties"] if value}
    born, store = (
        f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        for address, port in (vector["bornHost"], vector["storeHost"])
    )
    assert fields_of(message) == {
        "topic": vector["topic"],
        "body": vector["bodyUtf8"].encode(),
        "tags": properties.pop("TAGS", None),
        "keys": split_keys(properties.pop("KEYS", "")),
        "unique_key": properties.pop("UNIQ_KEY", None),
        "properties": properties,
        "flag": vector["flag"],
        "queue_id": vector["queueId"],
        "queue_offset": vector["queueOffset"],
        "commit_log_offset": vector["physicalOffset"],
        "store_size": vector["totalSize"],
        "magic_code": struct.unpack(">i", bytes.fromhex(vector["magic"]))[0],
        "sys_flag": vector["sysFlagStored"],
        "born_timestamp": vector["bornTimestamp"],
        "born_host": born,
        "store_timestamp": vector["storeTimestamp"],
        "store_host": store,
        "reconsume_times": vector["reconsumeTimes"],
        "prepared_transaction_offset": vector["preparedTransactionOffset"],
        "body_crc": vector["bodyCRC"],
    }
    assert message.message_id == vector["offsetMsgId"]


def records_in(data):
    position = 0
    while position < len(data):
        message = decode_record(data, position)
        assert message.commit_log_offset == position
        position += message.store_size
        yield message


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (VECTORS["commitLog"]["wholeHex"], 15),
        ("".join(VECTORS["appendPropCrc"]["recordsHex"]), 3),
        (VECTORS["lmq"]["commitLogHex"], None),
        (VECTORS["batchConsumeQueue"]["commitLogHex"], None),
    ],
    ids=["plain", "whole-record CRC", "LMQ", "inner batches"],
)
def test_a_log_of_rocketmq_is_read_from_end_to_end(data, count):
    messages = list(records_in(bytes.fromhex(data)))
    assert len(messages) == count or (count is None and len(messages) >= 2)


def test_full_files_of_rocketmq_end_with_a_blank_record():
    vector = VECTORS["blankRecord"]
    size, wrote = vector["mappedFileSizeCommitLog"], vector["recordSize"]
    for name, hex_bytes in vector["files"].items():
        data = bytes.fromhex(hex_bytes)
        assert len(data) == size
        position = 0
        while data[position + layout.MAGIC_CODE :][:4].hex() == "daa320a7":
            message = decode_record(data, position)
            assert (message.body, message.commit_log_offset) == (b"x" * 91, int(name) + position)
            assert message.store_size == wrote
            position += wrote
        assert data[position : position + 8] == encode_blank(size - position)
        with pytest.raises(CorruptRecordError, match="BLANK, the end of a file"):
            decode_record(data, position)


def test_positions_agree_with_the_fields():
    position = 0
    for name, field in zip(
        [
            *("TOTAL_SIZE", "MAGIC_CODE", "BODY_CRC", "QUEUE_ID", "FLAG", "QUEUE_OFFSET", "PHYSICAL_OFFSET"),
            *("SYS_FLAG", "BORN_TIMESTAMP", "BORN_HOST", "STORE_TIMESTAMP", "STORE_HOST", "RECONSUME_TIMES"),
            *("PREPARED_TRANSACTION_OFFSET", "BODY_LENGTH", "BODY"),
        ],
        FIELDS,
        strict=False,
    ):
        assert getattr(layout, name) == position, name
        assert field.code is None or struct.calcsize(">" + field.code) == field.size
        position += field.size or 0
    assert sum(field.size or 0 for field in FIELDS) == layout.MIN_RECORD_SIZE
    assert layout.BLANK_SIZE == len(encode_blank(512)) == 8
    assert (HOST_V4_SIZE, HOST_V6_SIZE) == (8, 20)


def test_each_public_column_of_a_record_is_a_field_of_the_message():
    columns = [field.column for field in FIELDS if field.column]
    assert len(columns) == len(set(columns)) == 17
    assert set(columns) < set(MessageExt.__annotations__)


HOSTS = st.sampled_from([encode_host("10.0.0.1:10911"), encode_host("[2001:db8::1]:40000")])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
MESSAGES = st.builds(
    Message,
    topic=st.text("aZ9%|_-", min_size=1, max_size=127) | st.text("a订", max_size=40) | st.text("a", min_size=128),
    body=st.binary(max_size=200),
    tags=st.none() | TEXTS,
    keys=st.lists(TEXTS.filter(lambda text: " " not in text), max_size=3).map(tuple),
    properties=st.dictionaries(TEXTS.filter(lambda name: not name.isupper()), TEXTS, max_size=3),
    flag=INT32,
    unique_key=st.none() | TEXTS,
    sys_flag=INT32,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
    wait_store_msg_ok=st.booleans(),
)


@given(MESSAGES, INT32, INT64, INT64, INT64, HOSTS, INT64, HOSTS, st.binary(max_size=9))
def test_any_message_comes_back(message, queue_id, queue_offset, offset, stored, store_host, born, born_host, before):
    data = encode_record(
        message,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=offset,
        store_timestamp=stored,
        store_host=store_host,
        born_timestamp=born,
        born_host=born_host,
    )
    stored_message = decode_record(before + data + b"behind", len(before))
    for name in ("topic", "body", "tags", "keys", "flag", "unique_key", "reconsume_times"):
        assert getattr(stored_message, name) == getattr(message, name)
    wait = {} if message.wait_store_msg_ok else {"WAIT": "false"}
    assert stored_message.properties == {**message.properties, **wait}
    assert stored_message.prepared_transaction_offset == message.prepared_transaction_offset
    assert (stored_message.queue_id, stored_message.queue_offset) == (queue_id, queue_offset)
    assert (stored_message.commit_log_offset, stored_message.store_timestamp) == (offset, stored)
    assert (stored_message.born_timestamp, stored_message.body_crc) == (born, body_crc(message.body))
    assert encode_host(stored_message.born_host) == born_host
    assert encode_host(stored_message.store_host) == store_host
    host_bits = (0x10 if len(born_host) == 20 else 0) | (0x20 if len(store_host) == 20 else 0)
    assert stored_message.sys_flag == message.sys_flag & ~0x30 | host_bits
    assert stored_message.magic_code == (MagicCode.MESSAGE_V2 if len(message.topic) > 127 else MagicCode.MESSAGE_V1)
    assert stored_message.store_size == len(data)


@each_record
def test_every_truncated_record_is_refused(vector):
    data = bytes.fromhex(vector["recordHex"])
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError, match="too short"):
            decode_record(data[:size])


@each_record
def test_every_flipped_bit_is_refused_or_changes_a_field_that_no_check_covers(vector):
    data = bytes.fromhex(vector["recordHex"])
    original = fields_of(decode_record(data))
    unchecked = UNCHECKED if original["body"] else UNCHECKED | {"body_crc"}
    accepted = 0
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            fields = fields_of(decode_record(damaged))
        except CorruptRecordError:
            continue
        accepted += 1
        changed = {name for name, value in fields.items() if value != original[name]}
        assert changed <= unchecked, f"bit {bit}"
    assert accepted > 300


@given(st.binary(max_size=150), st.data())
def test_any_bytes_are_a_message_or_refused(noise, data):
    buffer = bytearray(WORKED)
    start = data.draw(st.integers(0, len(buffer)))
    buffer[start : start + len(noise)] = noise
    position = data.draw(st.integers(-5, len(buffer) + 5))
    for at in (0, position):
        with suppress(CorruptRecordError):
            assert len(fields_of(decode_record(buffer, at))) == 20


def changed(**fields):
    """WORKED with other values in some of its fixed fields."""
    data = bytearray(WORKED)
    for name, value in fields.items():
        field = FIELDS[NAMES.index(name)]
        position = 114 if name == "PROPERTIESLENGTH" else 102 if name == "TOPICLENGTH" else None
        if position is None:
            position = sum(before.size for before in FIELDS[: NAMES.index(name)])
        struct.pack_into(">" + field.code, data, position, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too short: 0 bytes left"),
        (WORKED[:7], "too short: 7 bytes left"),
        (bytes(200), "magic code: expected daa320a7 or daa320ab, found 00000000"),
        (changed(TOTALSIZE=90), "size: a record takes 91 bytes or more, TOTALSIZE says 90"),
        (changed(TOTALSIZE=-1), "size: a record takes 91 bytes or more, TOTALSIZE says -1"),
        (changed(TOTALSIZE=188), "too short: TOTALSIZE says 188 bytes, 187 are left"),
        (changed(TOTALSIZE=186), "inner lengths: TOTALSIZE says 186, the parts 187"),
        (changed(TOTALSIZE=91, SYSFLAG=0x30), "inner lengths: TOTALSIZE says 91 bytes, the fixed fields take 115"),
        (changed(BODYLENGTH=-1), "inner lengths: TOTALSIZE says 187, BODYLENGTH -1"),
        (changed(BODYLENGTH=97), "inner lengths: TOTALSIZE says 187, BODYLENGTH 97"),
        (changed(TOPICLENGTH=-1), "inner lengths: TOTALSIZE says 187, BODYLENGTH 14, TOPICLENGTH -1"),
        (changed(TOPICLENGTH=83), "inner lengths: TOTALSIZE says 187, BODYLENGTH 14, TOPICLENGTH 83"),
        (changed(PROPERTIESLENGTH=-1), r"the parts 115 \(PROPERTIESLENGTH -1\)"),
        (changed(PROPERTIESLENGTH=70), r"the parts 186 \(PROPERTIESLENGTH 70\)"),
        (changed(BODYCRC=1), "body CRC: BODYCRC says 1, the body gives 1774740973"),
    ],
    ids=str,
)
def test_a_damaged_record_is_refused_with_the_reason(data, reason):
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        decode_record(b"12345" + data, 5)
    assert (caught.value.path, caught.value.offset) == ("", 5)


def test_the_body_crc_can_be_left_unchecked():
    assert decode_record(changed(BODYCRC=1), check_crc=False).body == b"Hello RocketMQ"


def test_the_crc_of_an_empty_body_is_not_looked_at():
    data = bytearray.fromhex(RECORDS[1]["recordHex"])
    struct.pack_into(">i", data, layout.BODY_CRC, 5)
    assert decode_record(data).body_crc == 5


@pytest.mark.parametrize(
    ("topic", "magic", "length_size"),
    [
        ("t" * 127, MagicCode.MESSAGE_V1, 1),
        ("t" * 128, MagicCode.MESSAGE_V2, 2),
        ("订" * 42, MagicCode.MESSAGE_V1, 1),
        ("订" * 128, MagicCode.MESSAGE_V2, 2),
        ("🚀" * 64, MagicCode.MESSAGE_V2, 2),
    ],
)
def test_topics_of_more_than_127_java_characters_take_version_2(topic, magic, length_size):
    encoded = topic.encode()
    assert encode_topic(topic) == (magic, len(encoded).to_bytes(length_size, "big") + encoded)


@pytest.mark.parametrize("topic", ["订" * 43, "t" * 32768, "\ud83d"], ids=["V1", "V2", "surrogate"])
def test_a_topic_that_no_record_can_hold_is_refused(topic):
    with pytest.raises(MessageIllegalError, match="topic"):
        encode_topic(topic)


def test_a_number_that_no_record_can_hold_is_refused():
    host = encode_host("10.0.0.1:1")
    with pytest.raises(MessageIllegalError, match="does not fit its field"):
        encode_record(
            Message("t", b""),
            queue_id=2**31,
            queue_offset=0,
            commit_log_offset=0,
            store_timestamp=0,
            store_host=host,
            born_timestamp=0,
            born_host=host,
        )
