"""Check points and acks: as RocketMQ 5.3.3 wrote them, and whatever else stands in the revive topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats import pop_messages
from reput.formats.pop_messages import (
    Ack,
    CheckPoint,
    CheckPointKey,
    ack_unique_key,
    check_point_unique_key,
    decode_ack,
    decode_check_point,
    encode_acks,
    encode_batch_ack,
    encode_check_point,
)
from reput.formats.properties import UNIQ_KEY

RECORDS = json.loads((Path(__file__).parents[2] / "golden/pop/records-5.3.3.json").read_text())["records"]
CHECK_POINTS = [one for one in RECORDS if one["properties"].get("TAGS") == "ck"]
ACKS = [one for one in RECORDS if one["properties"].get("TAGS") in ("ack", "bAck")]
KEY = CheckPointKey("orders", "g", 3, 7, 1_700_000_000_000, "broker-a")


@pytest.mark.parametrize("record", CHECK_POINTS, ids=[one["name"] for one in CHECK_POINTS])
def test_check_points_are_rocketmqs_byte_for_byte(record: dict[str, str]) -> None:
    check_point = decode_check_point(record["body"].encode())
    assert check_point is not None
    assert encode_check_point(check_point) == record["body"].encode()
    assert check_point_unique_key(check_point.key) == record["properties"][UNIQ_KEY]  # type: ignore[index]
    assert check_point.revive_time - 1000 == int(record["properties"]["TIMER_DELIVER_MS"])  # type: ignore[index]


@pytest.mark.parametrize("record", ACKS, ids=[one["name"] for one in ACKS])
def test_acks_are_rocketmqs_byte_for_byte(record: dict[str, str]) -> None:
    body = record["body"].encode()
    ack = decode_ack(body, "broker-a")
    assert ack is not None
    if b'"bn"' not in body:  # what RocketMQ's buffer wrote, which reput has not
        assert ack == Ack(CheckPointKey("PopB", "GB", 0, 2, 1795386758657, "broker-a"), (3,))
        return
    is_batch = b'"aol"' in body
    assert (encode_batch_ack(ack) if is_batch else encode_acks(ack.key, [ack.offsets[0]])[0]) == body
    number = -1 if is_batch else ack.offsets[0]
    assert ack_unique_key(ack.key, number) == record["properties"][UNIQ_KEY]  # type: ignore[index]


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_numbers = st.integers(-(1 << 62), 1 << 62)


@given(
    st.builds(CheckPointKey, _text, _text, st.integers(0, 2**31 - 1), st.integers(0, 1 << 40), _numbers, _text),
    _numbers,
    st.lists(st.integers(0, 1 << 20), max_size=32, unique=True),
    st.integers(0, 0xFFFFFFFF),
    st.none() | st.integers(0, 1000),
)
def test_what_is_written_is_read_back(
    key: CheckPointKey, invisible: int, diffs: list[int], bits: int, times: int | None
) -> None:
    offsets = tuple(key.start_offset + one for one in diffs)
    check_point = CheckPoint(key, invisible, offsets, bits, times)
    assert decode_check_point(encode_check_point(check_point)) == check_point
    assert decode_ack(encode_batch_ack(Ack(key, offsets)), "x") == Ack(key, offsets)
    assert decode_ack(encode_acks(key, [5])[0], "x") == Ack(key, (5,))


def test_long_names_old_forms_and_keys_without_quotes_are_read() -> None:
    old = b'{"so":7,"pt":5,"it":9,"n":3,"q":3,"t":"orders","c":"g","bn":"broker-a","more":[1]}'
    assert decode_check_point(old) == CheckPoint(KEY._replace(pop_time=5), 9, (7, 8, 9))
    long = (
        b'{"ackOffset":8,"startOffset":7,"consumerGroup":"g","topic":"orders","queueId":3,"popTime":5,'
        b'"brokerName":"broker-a"}'
    )
    assert decode_ack(long, "x") == Ack(KEY._replace(pop_time=5), (8,))
    assert decode_ack(long.replace(b'"ackOffset":8', b'"ackOffsetList":[8,9],1:2'), "x") == Ack(
        KEY._replace(pop_time=5), (8, 9)
    )


_REST = b',"bn":"b","c":"g","pt":5,"q":3,"so":7,"t":"t"}'


@pytest.mark.parametrize("digits", [b"8", b"0", b"08", b"-8", b"8.0", b"9" * 18, b"9" * 19, b"9" * 20, b"", b'"8"'])
@pytest.mark.parametrize(
    "rest",
    [_REST, _REST[:-1] + b',"ao":9}', _REST[:-1] + b',"ao":1}', _REST[:-1] + b',"aol":[4,5]}', _REST[:-1], b"}",
     _REST.replace(b'"bn":"b",', b""), _REST.replace(b'"c":"g"', b'"c":7'), _REST[:-1] + b',"x":"%b"}' % (b"y" * 1024)],
)  # fmt: skip
def test_an_ack_is_decoded_as_if_no_other_had_come_before(digits: bytes, rest: bytes) -> None:
    body = b'{"ao":' + digits + rest
    for broker in ("a", "b"):
        assert decode_ack(body, broker) == pop_messages._decode_any_ack(body, broker)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"a":1}', b'"x"', b"\xff", b"[" * 100_000, b'{"so":1e5}',
     *(encode_check_point(CheckPoint(KEY, 9, (7, 8))).replace(before, after) for before, after in [
         (b'"t":"orders"', b'"t":null'), (b'"c":"g"', b'"c":5'), (b'"n":2', b'"n":33'), (b'"n":2', b'"n":-1'),
         (b'"n":2', b'"n":true'), (b'"n":2', b'"n":3'), (b'"d":[0,1]', b'"d":[0,"1"]'), (b'"d":[0,1]', b'"d":{"a":1}'),
         (b'"so":7', b'"so":99999999999999999999'), (b'"pt":', b'"px":'), (b'"it":9', b'"it":"9"')])],
)  # fmt: skip
def test_what_is_no_check_point_is_none(body: bytes) -> None:
    assert decode_check_point(body) is None
    if b'"bm"' not in body:
        assert decode_ack(body, "x") is None
