import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import MessageIllegalError
from reput.formats.hosts import encode_host
from reput.formats.message import Message, encode_properties_of
from reput.formats.property_crc import PROPERTY_CRC_SIZE, encode_property_crc, without_property_crc
from reput.formats.record import decode_record, encode_record

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))
RECORDS = [bytes.fromhex(text) for text in VECTORS["appendPropCrc"]["recordsHex"]]


@pytest.mark.parametrize("record", RECORDS)
def test_the_crc_of_rocketmqs_records_is_the_one_that_they_carry(record):
    assert encode_property_crc(record[:-PROPERTY_CRC_SIZE]) == record[-PROPERTY_CRC_SIZE:]
    assert decode_record(record).properties["__CRC32#"] == record[-11:-1].decode()


@pytest.mark.parametrize("record", RECORDS[1:])
def test_records_of_rocketmq_are_encoded_byte_for_byte(record):
    # The first one has KEYS before TAGS, which reput writes the other way round.
    stored = decode_record(record)
    message = Message(
        stored.topic, stored.body, stored.tags, stored.keys, stored.properties, stored.flag, stored.unique_key
    )
    encoded = encode_record(
        message,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        commit_log_offset=stored.commit_log_offset,
        store_timestamp=stored.store_timestamp,
        store_host=encode_host(stored.store_host),
        born_timestamp=stored.born_timestamp,
        born_host=encode_host(stored.born_host),
        property_crc=True,
    )
    assert encoded == record


def test_the_crc_of_another_record_is_left_out():
    message = Message("t", b"", properties={"a": "1", "__CRC32#": "1234567890", "b": "2"})
    assert encode_properties_of(message) == b"a\x011\x02b\x012\x02"


def test_the_limit_of_the_properties_counts_the_crc():
    message = Message("t", b"", properties={"a": "x" * (32_767 - 3 - 20)})
    assert len(encode_properties_of(message, PROPERTY_CRC_SIZE)) == 32_767
    with pytest.raises(MessageIllegalError, match="32768 bytes; 32767 are allowed"):
        encode_properties_of(Message("t", b"", properties={"a": "x" * (32_767 - 3 - 19)}), PROPERTY_CRC_SIZE)


_PAIR = b"__CRC32#\x010123456789\x02"


@given(st.lists(st.sampled_from([_PAIR, _PAIR[:-1], _PAIR[1:], b"a\x01b\x02", b"\x02", b"\x01", b"9", b"\n"])))
def test_all_crcs_at_the_end_are_dropped_and_nothing_else(parts):
    properties = b"".join(parts)
    expected = properties
    while re.search(rb"(\A|\x02)__CRC32#\x01[0-9]{10}\x02\Z", expected):
        expected = expected[: -len(_PAIR)]
    assert without_property_crc(properties) == expected


def test_crcs_at_the_end_cost_what_their_number_says():
    def seconds(count):
        began = time.thread_time()
        assert without_property_crc(b"a\x01b\x02" + _PAIR * count) == b"a\x01b\x02"
        return time.thread_time() - began

    few, many = (min(seconds(count) for _ in range(3)) for count in (140, 2800))
    assert many < 80 * few  # 20 times as many; 400 times as much, if each looked at all before it
