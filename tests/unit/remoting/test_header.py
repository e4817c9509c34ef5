"""Header classes: texts of a command to fields and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from reput.errors import RemotingCommandError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, decode_command
from reput.remoting.consumer_headers import UnregisterClientRequestHeader
from reput.remoting.header import Int32, Int64, camel_case, decode_header, encode_header
from reput.remoting.send_headers import V2_NAMES, SendMessageRequestHeader, decode_send_header
from tests.support.frames import recorded_frames


@dataclass(frozen=True, slots=True)
class Kinds:
    """One field of each type."""

    WIRE_NAMES: ClassVar[dict[str, str]] = {"client_id": "clientID"}

    queue_id: Int32
    client_id: str = "none"
    offset: Int64 | None = None
    order: bool | None = None
    flag: Int32 = 7


def kinds(**fields: str) -> Kinds:
    return decode_header(Kinds, {"queueId": "0", **fields})


def test_names_are_those_of_rocketmq() -> None:
    assert [camel_case(name) for name in ("topic", "queue_id", "max_msg_nums", "body_crc32")] == [
        "topic", "queueId", "maxMsgNums", "bodyCrc32",
    ]  # fmt: skip
    assert encode_header(Kinds(1, "me", 2, True)) == {
        "queueId": "1", "clientID": "me", "offset": "2", "order": "true", "flag": "7",
    }  # fmt: skip


def test_none_is_left_out_and_comes_back_as_none() -> None:
    assert encode_header(Kinds(1)) == {"queueId": "1", "clientID": "none", "flag": "7"}
    assert decode_header(Kinds, encode_header(Kinds(1))) == Kinds(1)


def test_unknown_fields_are_ignored() -> None:
    assert kinds(ns="x", AccessKey="", Signature="y", bname="broker-a", ReqT="0") == Kinds(0)


@pytest.mark.parametrize("text", ["true", "TRUE", "True", "tRuE"])
def test_true_is_true_in_any_letter_case(text: str) -> None:
    assert kinds(order=text).order is True


@pytest.mark.parametrize("text", ["1", "0", "yes", "false", "", "true ", " true", "t"])
def test_any_other_text_is_false_1_too(text: str) -> None:
    assert kinds(order=text).order is False


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-1", -1), ("+5", 5), ("007", 7), ("-0", 0), ("2147483647", 2147483647), ("-2147483648", -2147483648),
     ("0" * 5000 + "12", 12), ("-" + "0" * 5000, 0)],
)  # fmt: skip
def test_a_number_is_what_java_parses(text: str, number: int) -> None:
    assert kinds(flag=text).flag == number


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.0", "1e3", " 1", "1 ", "1_000", "--1", "+-1", "-", "+", "0x10", "1L", "١", "²", "2147483648",
     "-2147483649", "9" * 100_000, "NaN", "null", "true", "\ud800"],
)  # fmt: skip
def test_a_text_that_is_no_number_leaves_the_default(text: str) -> None:
    assert kinds(flag=text).flag == 7


def test_numbers_of_64_bits_end_where_javas_do() -> None:
    for number in (-(1 << 63), (1 << 63) - 1):
        assert kinds(offset=str(number)).offset == number
    for number in (-(1 << 63) - 1, 1 << 63):
        assert kinds(offset=str(number)).offset is None


@pytest.mark.parametrize("fields", [None, {}, {"queueID": "1"}])
def test_a_missing_required_field_is_told(fields: dict[str, str] | None) -> None:
    with pytest.raises(RemotingCommandError, match="Kinds: the field queueId is missing") as caught:
        decode_header(Kinds, fields)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_a_required_number_that_is_none_is_told_with_what_came() -> None:
    with pytest.raises(RemotingCommandError, match=r"the field queueId is 'x{40}', no number"):
        kinds(queueId="x" * 1_000_000)


def test_what_rocketmq_reads_in_the_fast_way_takes_no_text_for_a_number() -> None:
    assert decode_header(Kinds, {"queueId": "0"}, is_fast=True) == kinds()
    with pytest.raises(RemotingCommandError, match="Kinds: the field flag is 'x', no number"):
        decode_header(Kinds, {"queueId": "1", "flag": "x"}, is_fast=True)


def test_a_class_may_have_names_of_its_own() -> None:
    assert decode_header(UnregisterClientRequestHeader, {"clientID": "me"}).client_id == "me"
    with pytest.raises(RemotingCommandError):
        decode_header(UnregisterClientRequestHeader, {"clientId": "me"})


def test_a_send_of_v2_has_short_names() -> None:
    long = SendMessageRequestHeader("p", "t", 1, 0, 5, 0, "TBW102", 4, "KEYS\x01k\x02", 0, False, True, 16)
    fields = encode_header(long)
    short = {letter: fields[name] for letter, name in V2_NAMES.items() if name in fields}
    assert len(short) == len(fields) == 13
    assert decode_send_header(RequestCode.SEND_MESSAGE, fields) == long
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
        assert decode_send_header(code, short) == long
    with pytest.raises(RemotingCommandError, match="topic is missing"):
        decode_send_header(RequestCode.SEND_MESSAGE_V2, None)


def sends() -> list[RemotingCommand]:
    commands = [decode_command(one.frame) for one in recorded_frames()]
    return [one for one in commands if one.code in (10, 310, 320) and not one.is_response]


def test_the_sends_of_all_clients_are_understood() -> None:
    headers = [decode_send_header(one.code, one.ext_fields) for one in sends()]
    assert len(headers) == 12
    assert {one.default_topic for one in headers} == {"TBW102"}
    assert any(one.batch for one in headers)
    assert {one.language.name for one in sends()} == {"JAVA", "GO", "CPP"}
