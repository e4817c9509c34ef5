"""Acks that are decoded by their form: as `decode_command` and the header's class decode them, or not at all."""

from __future__ import annotations

import json
from itertools import zip_longest

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.formats.remoting import FRAME_HEAD
from reput.remoting.ack_frames import TAKEN, _form, _header, decode_plain_ack
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, SerializeType, decode_command, encode_command
from reput.remoting.extra_info import ExtraInfo, decode_extra_info
from reput.remoting.header import decode_header
from reput.remoting.pop_headers import AckMessageRequestHeader, PopKey

HANDLE = "3 1795386593472 60000 1 0 broker-a 2 "
FIELDS = {"consumerGroup": "g", "topic": "orders", "queueId": "2", "extraInfo": HANDLE + "17", "offset": "17"}
#: A frame of which each part may be another one: what JSON allows, and what it does not.
_TEXTS = st.sampled_from(["g", "orders", "", "1000000001", "ö", "a,b", "a}b", '"', "\\", "\x01", "\n", "1000000002 x"])
_NUMBERS = st.one_of(
    st.integers(-5, 2**70).map(str), st.sampled_from(["007", "+5", "", "x", "1,2", "0", "00", " 5", "5 ", "1e3", "１"])
)
_HANDLES = [
    HANDLE, "3 1795386593472 60000 7 0 broker-a 2 ", "007 0 00 1 0 broker-a 2 ", "-3 1 2 1 0 broker-a 2 ",
    "3 1 2 2147483648 0 b 2 ", "3 1 2  1 0 b 2 ", "3 1 2 1 0  2 ", "3 1 2 1 0 b ö x 2 ", "1 2 3 4 5 b", "1 2 3 4 5 ",
    "1 2 3 4 5 b ", "x", "\n",
]  # fmt: skip


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> memoryview:
    return memoryview(FRAME_HEAD.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body)


def frame(opaque: int = 5, *, flag: int = 0, code: int = RequestCode.ACK_MESSAGE, **fields: str) -> memoryview:
    return memoryview(encode_command(RemotingCommand(code, opaque, flag, ext_fields=FIELDS | fields)))


def generally(one: memoryview) -> tuple[PopKey, ExtraInfo, int, int] | None:
    """What the general way finds; None for what is no ack that wants an answer, or is no command at all."""
    try:
        command = decode_command(one)
        ack = decode_header(AckMessageRequestHeader, command.ext_fields)
        info = decode_extra_info(ack.extra_info)
    except (RemotingDecodeError, RemotingCommandError):
        return None
    if (command.code, command.flag, command.body) != (RequestCode.ACK_MESSAGE, 0, b""):
        return None
    return PopKey(ack.topic, ack.consumer_group, ack.queue_id), info, ack.offset, command.opaque


def test_the_acks_of_a_queue_are_decoded_by_one_form() -> None:
    _form.cache_clear()
    most, forms = 999_999_999_999_999_999, set()
    for offset, opaque, start, pop_time, invisible_time, revive_qid in [
        (17, 5, 3, 1795386593472, 60000, 1), (18, 6, 9, 1795386593473, 60001, 2),
        (most, 2**31 - 1, most, most, most, 2**31 - 1), (0, 0, 0, 0, 0, 0),
    ]:  # fmt: skip
        handle = f"{start} {pop_time} {invisible_time} {revive_qid} 0 broker-a 2 {offset}"
        found = decode_plain_ack(frame(opaque, extraInfo=handle, offset=str(offset)))
        assert found is not None
        forms.add(found.form)
        assert found.form.queue == PopKey("orders", "g", 2)
        info = ExtraInfo(start, pop_time, invisible_time, revive_qid, "broker-a")
        assert found[1:] == (info, offset, opaque)
    assert len(forms) == _form.cache_info().currsize == 1


@given(
    st.permutations(["consumerGroup", "topic", "queueId", "extraInfo", "offset", "bornTime"]),
    st.dictionaries(st.sampled_from(["consumerGroup", "topic", "unknown", "extraInfo"]), _TEXTS, max_size=2),
    st.lists(st.tuples(_NUMBERS, _NUMBERS, st.sampled_from(_HANDLES)), max_size=3),
    st.sampled_from([{}, {"flag": 2}, {"flag": 1}, {"code": 11}, {"remark": "r"}, {"version": 1}, {"opaque": "5"}]),
    st.booleans(),
)
@example(list(FIELDS), {}, [("17", "00", HANDLE)], {}, False)
@example(list(FIELDS), {"unknown": '"opaque":7'}, [("17", "8", HANDLE)], {}, False)
def test_a_decoder_finds_what_the_general_way_finds_or_nothing(
    order: list[str],
    texts: dict[str, str],
    numbers: list[tuple[str, str, str]],
    more: dict[str, object],
    spaced: bool,
) -> None:
    """A few frames of about one form, so that the later ones meet what the first ones have taught."""
    for offset, opaque, handle in [("17", "5", HANDLE), *numbers]:
        given = FIELDS | {"offset": offset, "extraInfo": handle + offset, "bornTime": "1"} | texts
        header: dict[str, object] = {
            "code": RequestCode.ACK_MESSAGE,
            "extFields": {name: given[name] for name in order},
        }
        header |= {"flag": 0, "language": "JAVA", "opaque": "@", "version": 477} | more
        for name in texts:
            header["extFields"][name] = given[name]  # type: ignore[index]
        text = json.dumps(header, ensure_ascii=False, separators=None if spaced else (",", ":"))
        one = framed(text.replace('"@"', opaque).encode())
        found = decode_plain_ack(one)
        if found is not None:
            assert (found.form.queue, *found[1:]) == generally(one)
            *words, tail = given["extraInfo"].split(" ")
            words = [*words[:4], offset, opaque]
            between = [tail.encode()] * 7
            for place, number in zip(found.form.numbers, words, strict=True):
                between[place] = number.encode()
            assert b"".join(map(b"".join, zip_longest(found.form.texts, between, fillvalue=b""))) == bytes(one)[8:]


@pytest.mark.parametrize(
    "one",
    [
        frame(flag=2),
        frame(flag=1),
        frame(code=RequestCode.HEART_BEAT),
        frame(opaque=-1),
        frame(offset="-1"),
        frame(offset="9" * 19),
        frame(extraInfo="1 2 3"),
        frame(extraInfo="1 2 3 4 0 b"),  # without its last word it names no broker
        frame(consumerGroup='g"'),
        frame(consumerGroup="g" * 1024),
        framed(b"{}"),
        framed(b"no JSON"),
        framed(bytes(frame())[8:], body=b"x"),
        memoryview(
            encode_command(
                RemotingCommand(
                    RequestCode.ACK_MESSAGE, 5, ext_fields=FIELDS, serialize_type=SerializeType.ROCKETMQ
                )
            )
        ),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_general_way(one: memoryview) -> None:
    assert decode_plain_ack(frame()) is not None
    assert decode_plain_ack(one) is None


def test_forms_are_bounded() -> None:
    for kept in (_form, _header):
        kept.cache_clear()
        assert kept.cache_parameters()["maxsize"] == 4096
    for number in range(5000):
        assert decode_plain_ack(frame(topic=f"t{number}", extraInfo=f"{number} 5 6 1 0 b 2 17")) is not None
    assert [kept.cache_info().currsize for kept in (_form, _header)] == [4096, 4096]


@pytest.mark.parametrize("opaque", [0, 7, 2**31 - 1])
def test_an_answer_is_the_one_of_the_general_way(opaque: int) -> None:
    answer = encode_command(RemotingCommand(RequestCode.ACK_MESSAGE, opaque).response())
    assert answer[FRAME_HEAD.size :] == b"%d".join(TAKEN) % opaque
