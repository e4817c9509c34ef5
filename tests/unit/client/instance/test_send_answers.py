"""SendAnswers: as `decode_command`, whatever a peer answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.client.instance.send_answers import SendAnswers
from reput.errors import RemotingDecodeError
from reput.formats.remoting import FRAME_HEAD
from reput.remoting.command import RemotingCommand, decode_command
from reput.remoting.header import decode_header
from reput.remoting.send_headers import SendMessageResponseHeader

MSG_ID = "7F00000100002A9F0000000000000123"
JAVA = (
    '{"code":0,"extFields":{"queueId":"3","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"%s",'
    '"queueOffset":"%s"},"flag":1,"language":"JAVA","opaque":%s,"serializeTypeCurrentRPC":"JSON","version":475}'
)


def framed(header: str | bytes, body: bytes = b"", serialize_type: int = 0) -> memoryview:
    data = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    return memoryview(FRAME_HEAD.pack(len(data) + len(body) + 4, serialize_type << 24 | len(data)) + data + body)


def outcome(decode: object, frame: memoryview) -> RemotingCommand | str:
    try:
        return decode(frame)  # type: ignore[operator,no-any-return]
    except RemotingDecodeError as error:
        return str(error)


def check(answers: SendAnswers, frame: memoryview) -> RemotingCommand | str:
    """Check that a frame is decoded as always; returns what it is."""
    expected, found = outcome(decode_command, frame), outcome(answers.decode, frame)
    assert found == expected
    if isinstance(found, RemotingCommand) and found.cached_header is not None:
        assert found.cached_header == decode_header(SendMessageResponseHeader, found.ext_fields)
    return found


def is_known(answers: SendAnswers, frame: memoryview) -> bool:
    return answers.decode(frame).cached_header is not None


def test_the_second_answer_of_a_broker_is_of_a_known_form_and_keeps_nothing_of_the_first() -> None:
    answers = SendAnswers()
    assert not is_known(answers, framed(JAVA % (MSG_ID, "17", "5")))
    second = answers.decode(framed(JAVA % ("0A" * 16, "123456789012345678", "999999999")))
    assert second.cached_header == SendMessageResponseHeader("0A" * 16, 3, 123456789012345678)
    assert second.opaque == 999999999
    assert second.ext_fields == {
        "queueId": "3", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "msgId": "0A" * 16,
        "queueOffset": "123456789012345678",
    }  # fmt: skip
    second.ext_fields["msgId"] = "changed"
    check(answers, framed(JAVA % (MSG_ID, "18", "6")))


@pytest.mark.parametrize(
    "header",
    [
        JAVA % (MSG_ID, "18", "2147483647"),
        JAVA % (MSG_ID, "18", "2147483648"),
        JAVA % (MSG_ID, "18", "-1"),
        JAVA % (MSG_ID, "18", "007"),
        JAVA % (MSG_ID, "-1", "7"),
        JAVA % (MSG_ID, "9999999999999999999", "7"),
        JAVA % ("", "1", "7"),
        JAVA % (f"{MSG_ID},{MSG_ID}", "1", "7"),
        JAVA % ("\\u0041", "1", "7"),
        JAVA % ("\u0661", "\u0661", "7"),
        JAVA % (MSG_ID, "1", "7") + " ",
        (JAVA % (MSG_ID, "1", "7")).replace('"code":0', '"code":10'),
        (JAVA % (MSG_ID, "1", "7")).replace('"flag":1', '"flag":1,"remark":"x"'),
        (JAVA % (MSG_ID, "1", "7")).replace('"queueOffset"', '"transactionId":"T","queueOffset"'),
        (JAVA % (MSG_ID, "1", "7")).replace("{", '{"opaque":8,', 1),
        (JAVA % (MSG_ID, "1", "7")).replace('"flag":1', '"flag":1,"extFields":{"queueOffset":"2"}'),
    ],
)
def test_what_differs_in_more_is_decoded(header: str) -> None:
    answers = SendAnswers()
    check(answers, framed(header))  # a form, or none
    check(answers, framed(header))
    check(answers, framed(JAVA % (MSG_ID, "17", "5")))
    check(answers, framed(header))
    check(answers, framed(header, b"body"))
    check(answers, framed(header, serialize_type=1))


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("opaque", '"opaque": %s'),
        ("opaque", '"opaqu\\u0065":%s'),
        ("queueId", '"queueId": "%s"'),
        ("queueOffset", '"queueOffse\\u0074":"%s"'),
        ("queueId", '"x":{"queueId": "%s"}'),
    ],
)
def test_of_a_name_that_stands_there_twice_the_last_one_counts(name: str, again: str) -> None:
    places = {"opaque": '"serializeTypeCurrentRPC"', "queueId": '"TRACE_ON"', "queueOffset": '"msgId"'}
    if name == "queueOffset":  # behind it, too
        header = (JAVA % (MSG_ID, "6", "6")).replace('"6"},', '"6",' + again % "6" + "},")
    else:
        header = (JAVA % (MSG_ID, "6", "3")).replace(places[name], again % "3" + "," + places[name])
    answers = SendAnswers()
    check(answers, framed(header))
    check(answers, framed(header.replace('"opaque":3', '"opaque":9').replace('"opaque":6', '"opaque":9')))
    check(answers, framed(header.replace('"queueId":"3"', '"queueId":"9"')))
    check(answers, framed(header.replace('"queueOffset":"6"', '"queueOffset":"9"')))


def test_a_peer_whose_answers_all_differ_makes_few_forms() -> None:
    answers = SendAnswers()
    frames = [framed((JAVA % (MSG_ID, "17", "5")).replace("475", str(version))) for version in range(20)]
    for frame in frames:
        check(answers, frame)
    assert [is_known(answers, frame) for frame in frames] == [True] * 8 + [False] * 12


NUMBERS = st.one_of(st.integers(0, 50), st.integers(-(2**65), 2**65)).map(str)
TEXTS = st.one_of(st.just(MSG_ID), NUMBERS, st.text(st.characters(codec="utf-8"), max_size=8))
FIELDS = st.dictionaries(
    st.sampled_from(
        ["msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON", "transactionId", "recallHandle", "x"]
    ),
    TEXTS,
)
WHOLE = st.fixed_dictionaries({"msgId": st.just(MSG_ID), "queueId": st.just("3"), "queueOffset": NUMBERS})


@given(
    st.lists(
        st.tuples(
            st.one_of(WHOLE, FIELDS), st.one_of(st.just("5"), NUMBERS),
            st.permutations(["code", "extFields", "opaque"]),
            st.sampled_from([0, 0, 0, 1, 10]), st.sampled_from([1, 1, 0, 3]),
        ),
        min_size=1, max_size=12,
    ),
    st.integers(0, 400), st.integers(0, 255),
)  # fmt: skip
def test_any_answers_are_decoded_as_by_decode_command(
    drawn: list[tuple[dict[str, str], str, list[str], int, int]], place: int, byte: int
) -> None:
    answers = SendAnswers()
    for fields, opaque, order, code, flag in drawn:
        parts = {"code": str(code), "extFields": json.dumps(fields, separators=(",", ":")), "opaque": opaque}
        header = ",".join(f'"{name}":{parts[name]}' for name in order)
        frame = framed(f'{{{header},"flag":{flag}}}')
        check(answers, frame)
        check(answers, frame)
        changed = bytearray(frame)
        changed[8 + place % (len(changed) - 8)] = byte
        check(answers, memoryview(changed))
