from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.client.instance.send_request import (
    MAX_MESSAGE_SIZE,
    SendRequest,
    batch_requests,
    delay_properties,
    send_request,
)
from reput.errors import MessageIllegalError
from reput.formats.message import Message
from reput.formats.message_batch import decode_batch
from reput.remoting.codes import LanguageCode, RequestCode
from reput.remoting.command import encode_command
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import decode_send_header, v2_texts

QUEUE = QueueKey("orders", "broker-a", 3)


def test_a_message_becomes_the_request_that_rocketmqs_client_sends() -> None:
    message = Message("orders", b"x", tags="paid", keys=["o-1", "o-2"], properties={"a": "b"}, flag=7)
    command = send_request(message, "ID", 1000).command("g", QUEUE)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    header = decode_send_header(command.code, command.ext_fields)
    assert (header.producer_group, header.topic, header.queue_id) == ("g", "orders", 3)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.born_timestamp, header.flag, header.sys_flag, header.batch) == (1000, 7, 0, False)
    assert header.properties == "UNIQ_KEY\x01ID\x02TAGS\x01paid\x02KEYS\x01o-1 o-2\x02a\x01b\x02"
    assert command.ext_fields is not None
    assert command.ext_fields["n"] == "broker-a"
    assert command.body == b"x"
    assert message.unique_key is None


def test_a_message_with_an_id_and_a_time_of_its_own_keeps_them() -> None:
    request = send_request(Message("t", b"x", unique_key="MINE", born_timestamp=5), "ID", 1000)
    assert (request.ids, request.born_timestamp) == (("MINE",), 5)


def test_a_large_body_is_compressed_and_says_so() -> None:
    request = send_request(Message("t", b"x" * 4096), "ID", 0)
    assert zlib.decompress(request.body) == b"x" * 4096
    assert request.sys_flag == 0x301
    assert send_request(Message("t", b"x" * 4095), "ID", 0).sys_flag == 0


def test_a_body_that_compression_makes_larger_is_sent_as_it_is() -> None:
    body = random.Random(1).randbytes(MAX_MESSAGE_SIZE)
    request = send_request(Message("t", body), "ID", 0)
    assert (request.body, request.sys_flag) == (body, 0)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("t", b""), "the body is empty"),
        (Message("a b", b"x"), "holds ' '"),
        (Message("", b"x"), "topic is empty"),
        (Message("t" * 128, b"x"), "127 are allowed"),
        (Message("t", bytes(MAX_MESSAGE_SIZE + 1)), "maxMessageSize"),
        (Message("t", b"x", properties={"a": "\x01"}), "separator"),
        (Message("t", "text"), "must be bytes"),  # type: ignore[arg-type]
        (Message("t", b"x", keys="k"), "list of texts"),
    ],
)
def test_what_a_broker_would_refuse_is_not_sent(message: Message, reason: str) -> None:
    with pytest.raises(MessageIllegalError, match=reason):
        send_request(message, "ID", 0)


def test_a_batch_has_its_messages_with_their_ids_in_its_body() -> None:
    messages = [Message("t", b"1", tags="a"), Message("t", b"2")]
    (request,) = batch_requests(messages, ["X", "Y"], 9)
    assert messages[0].unique_key is None
    assert (request.ids, request.is_batch, request.born_timestamp) == (("X", "Y"), True, 9)
    items = decode_batch(request.body)
    assert items is not None
    assert [(one.body, one.properties) for one in items] == [
        (b"1", b"UNIQ_KEY\x01X\x02TAGS\x01a\x02"), (b"2", b"UNIQ_KEY\x01Y\x02"),
    ]  # fmt: skip
    command = request.command("g", QUEUE)
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert command.ext_fields is not None
    assert command.ext_fields["m"] == "true"


def test_a_large_batch_is_cut_in_order() -> None:
    messages = [Message("t", bytes(1 << 20)) for _ in range(9)]
    keys = [f"{number:032}" for number in range(9)]
    requests = batch_requests(messages, keys, 0)
    assert [len(request.ids) for request in requests] == [3, 3, 3]
    assert [key for request in requests for key in request.ids] == keys
    assert max(len(request.body) for request in requests) <= MAX_MESSAGE_SIZE
    (one,) = batch_requests([Message("t", bytes(MAX_MESSAGE_SIZE), unique_key="OWN", born_timestamp=5)], ["X"], 9)
    assert (one.ids, one.born_timestamp) == (("OWN",), 5)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one"),
        ([Message("t", b"1"), Message("u", b"2")], "message 1: topic 'u'"),
        ([Message("t", b"1"), Message("t", b"")], "the body is empty"),
        ([Message("t", b"1"), Message("t", bytes(MAX_MESSAGE_SIZE + 1))], "maxMessageSize"),
        ([Message("t", b"1"), Message("t", b"2", keys="k")], "message 1: keys must be"),
        ([Message("a b", b"1")], "holds ' '"),
        ([Message("t", b"1"), "text"], "no reput.Message, but str"),
    ],
)
def test_a_batch_that_a_broker_would_refuse_is_not_sent(messages: list[Message], reason: str) -> None:
    with pytest.raises(MessageIllegalError, match=reason):
        batch_requests(messages, ["X"] * len(messages), 0)


def test_a_batch_that_does_not_wait_for_the_disk_says_so() -> None:
    (request,) = batch_requests([Message("t", b"1", wait_store_msg_ok=False)], ["X"], 0)
    assert request.properties == "WAIT\x01false\x02"


@pytest.mark.parametrize(
    ("delay_ms", "level", "properties"),
    [
        (None, None, {}),
        (1000, None, {"DELAY": "1"}),
        (7_200_000, None, {"DELAY": "18"}),
        (3000, None, {"TIMER_DELAY_MS": "3000"}),
        (None, 4, {"DELAY": "4"}),
    ],
)
def test_a_delay_is_a_level_where_there_is_one(
    delay_ms: int | None, level: int | None, properties: dict[str, str]
) -> None:
    assert delay_properties(delay_ms, level) == properties


@pytest.mark.parametrize(
    ("delay_ms", "level"),
    [(0, None), (-1, None), (None, 0), (None, 19), (1000, 1), ("5", None), (0.5, None), (None, "5"), (True, None)],
)
def test_a_delay_that_is_none_is_refused(delay_ms: Any, level: Any) -> None:
    with pytest.raises(MessageIllegalError, match="delay"):
        delay_properties(delay_ms, level)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint16])
def test_a_delay_is_any_whole_number(kind: Callable[[int], Any]) -> None:
    assert delay_properties(kind(5000), None) == {"DELAY": "2"}
    assert delay_properties(kind(1234), None) == {"TIMER_DELAY_MS": "1234"}
    assert delay_properties(None, kind(3)) == {"DELAY": "3"}


@pytest.mark.parametrize("value", ["5", 5.0, np.float64(5), True, b"5"])
def test_a_delay_that_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(MessageIllegalError, match=r"^delay_ms must be a whole number, not "):
        delay_properties(value, None)
    with pytest.raises(MessageIllegalError, match=r"^delay_level must be a whole number, not "):
        delay_properties(None, value)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(
    group=NAMES, topic=NAMES, broker=NAMES, properties=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    numbers=st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 3), born=st.integers(-(2**63), 2**63 - 1),
    opaque=st.integers(0, 2**31 - 1), kinds=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
def test_a_request_that_nobody_signs_is_the_same_frame(
    group: str, topic: str, broker: str, properties: str, numbers: tuple[int, int, int], born: int, opaque: int,
    kinds: tuple[bool, bool],
) -> None:  # fmt: skip
    flag, sys_flag, queue_id = numbers
    request = SendRequest(topic, ("ID",), flag, sys_flag, born, b"body", properties, *kinds)
    queue = QueueKey(topic, broker, queue_id)
    frames = []
    for command in (request.command(group, queue), request.unsigned(group, queue)):
        command.opaque, command.language = opaque, LanguageCode.PYTHON
        frames.append(encode_command(command))
    assert frames[0] == frames[1]


def test_a_flag_of_true_is_one_and_no_word_in_later_requests() -> None:
    queue = QueueKey("t", "b", 7)
    flags: tuple[Any, ...] = True, 1, np.int32(1)
    for flag in flags:
        request = send_request(Message("t", b"x", flag=flag, sys_flag=flag, born_timestamp=flag), "ID", 5)
        fields = request.command("g", queue).ext_fields
        assert fields is not None
        assert (fields["f"], fields["g"], fields["h"]) == ("1", "1", "1")
        assert b"True" not in encode_command(request.unsigned("g", queue))


def test_no_name_of_a_broker_is_kept() -> None:
    request = send_request(Message("t", b"x"), "ID", 5)
    v2_texts.cache_clear()
    for number in range(100):
        request.unsigned("g", QueueKey("t", f"{number}" + "n" * 100_000, 0))
    assert v2_texts.cache_info().currsize == 1
