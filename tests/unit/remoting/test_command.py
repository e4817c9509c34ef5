"""RemotingCommand: recorded frames both ways, and each tolerance of docs/formats/remoting.md."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest

from reput.errors import RemotingDecodeError
from reput.formats.remoting import MAX_FRAME_SIZE, ONE_WAY_FLAG, RESPONSE_FLAG
from reput.remoting.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from reput.remoting.command import (
    MAX_FIELDS,
    MAX_HEADER_SIZE,
    RemotingCommand,
    decode_command,
    encode_command,
    frame_size,
)
from tests.support.frames import Recorded, binary_header, entry, frame_of, recorded_frames

RECORDED = recorded_frames()
BOTH = pytest.mark.parametrize("kind", list(SerializeType))


def as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def decoded(header: bytes, *, kind: int = 0) -> RemotingCommand:
    return decode_command(frame_of(header, kind=kind))


def decoded_json(**members: object) -> RemotingCommand:
    return decoded(json.dumps(members).encode())


# -- what real programs sent


@pytest.mark.parametrize("one", RECORDED, ids=[one.name for one in RECORDED])
def test_a_recorded_frame_is_read_as_it_was_meant(one: Recorded) -> None:
    command = decode_command(one.frame)
    header = one.header
    assert command.code == header["code"]
    assert (command.opaque, command.flag, command.version) == (header["opaque"], header["flag"], header["version"])
    assert (command.remark or None) == (header.get("remark") or None)
    assert (command.ext_fields or {}) == {name: as_text(value) for name, value in header.get("extFields", {}).items()}
    assert header["language"] in (command.language.name, command.language.value)
    assert command.serialize_type.name == one.serialize
    assert command.body == one.body


@pytest.mark.parametrize("one", RECORDED, ids=[one.name for one in RECORDED])
def test_a_recorded_frame_is_written_again(one: Recorded) -> None:
    command = decode_command(one.frame)
    again = encode_command(command)
    if one.is_written_as_java_does:
        assert again == one.frame
    assert decode_command(again) == command


def test_the_recorded_frames_are_of_all_clients_in_both_forms() -> None:
    assert len(RECORDED) == 171
    assert sum(one.is_written_as_java_does for one in RECORDED) == 142
    assert sum(one.serialize == "ROCKETMQ" for one in RECORDED) == 24
    for client in ("Java 4.9.7", "Java client 5.3.3", "Node", "C++", "client-go"):
        assert any(client in one.name for one in RECORDED), client


# -- answers


@BOTH
def test_an_answer_has_the_opaque_of_its_request_and_is_in_json_whatever_that_was_in(kind: SerializeType) -> None:
    answer = RemotingCommand(34, opaque=77, serialize_type=kind, language=LanguageCode.GO, version=317).response()
    assert (answer.code, answer.opaque, answer.flag) == (ResponseCode.SUCCESS, 77, RESPONSE_FLAG)
    assert (answer.serialize_type, answer.language, answer.version) == (SerializeType.JSON, LanguageCode.JAVA, 479)
    assert answer.is_response
    assert not answer.is_one_way


def test_the_flag_says_what_is_an_answer_and_what_nobody_answers() -> None:
    found = [(one.is_response, one.is_one_way) for one in (RemotingCommand(1, flag=flag) for flag in range(4))]
    assert found == [(False, False), (True, False), (False, True), (True, True)]
    assert RemotingCommand(1, flag=ONE_WAY_FLAG | 256).is_one_way


# -- the frame


def test_the_high_byte_of_the_header_word_is_the_serialize_type() -> None:
    header = binary_header()
    assert struct.unpack_from(">I", frame_of(header, kind=1), 4) == (0x01000000 | len(header),)
    assert decode_command(frame_of(header, kind=1)).serialize_type is SerializeType.ROCKETMQ


@pytest.mark.parametrize("kind", [2, 3, 127, 128, 255])
def test_another_serialize_type_is_refused(kind: int) -> None:
    with pytest.raises(RemotingDecodeError, match=f"serialize type {kind}"):
        frame_size(frame_of(b"{}", kind=kind))


def test_the_largest_frame_is_counted_with_its_length_word() -> None:
    header = b'{"code":10}'
    largest = frame_of(header, bytes(MAX_FRAME_SIZE - 8 - len(header)))
    assert len(largest) == frame_size(largest) == MAX_FRAME_SIZE == 16_777_216
    assert len(decode_command(largest).body) == MAX_FRAME_SIZE - 8 - len(header)
    with pytest.raises(RemotingDecodeError, match="frame length 16777213"):
        frame_size(struct.pack(">iI", MAX_FRAME_SIZE - 3, 2))


@BOTH
def test_a_frame_that_no_peer_takes_is_not_written(kind: SerializeType) -> None:
    small = len(encode_command(RemotingCommand(0, serialize_type=kind)))
    largest = RemotingCommand(0, serialize_type=kind, body=bytes(MAX_FRAME_SIZE - small))
    assert len(encode_command(largest)) == MAX_FRAME_SIZE
    largest.body += b"x"
    with pytest.raises(RemotingDecodeError, match="16777217 bytes"):
        encode_command(largest)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 3, 1 << 24, (1 << 31) - 1])
def test_a_length_of_no_frame_is_refused(length: int) -> None:
    with pytest.raises(RemotingDecodeError, match=f"frame length {length}"):
        frame_size(struct.pack(">iI", length, 0))


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(RemotingDecodeError, match="a header of 7 bytes in a frame of 10"):
        frame_size(struct.pack(">iI", 10, 7))


@pytest.mark.parametrize("change", [-1, 1])
def test_a_frame_of_another_size_than_it_says_is_refused(change: int) -> None:
    frame = frame_of(b'{"code":10}', b"body")
    with pytest.raises(RemotingDecodeError, match=f"a frame of {len(frame)} bytes in {len(frame) + change}"):
        decode_command((frame + b"x")[: len(frame) + change])


@pytest.mark.parametrize("size", range(8))
def test_fewer_bytes_than_two_words_are_no_frame(size: int) -> None:
    with pytest.raises(RemotingDecodeError, match=f"a frame of {size} bytes: expected 8 at least"):
        decode_command(frame_of(b"{}")[:size])


def test_a_memoryview_is_read_as_bytes_are() -> None:
    frame = frame_of(b'{"code":10}', b"body")
    assert decode_command(memoryview(frame)) == decode_command(frame)


# -- JSON


def test_an_empty_object_is_a_command_of_zeros() -> None:
    command = decoded(b"{}")
    assert (command.code, command.opaque, command.flag, command.version) == (0, 0, 0, 0)
    assert (command.remark, command.ext_fields, command.language) == (None, None, LanguageCode.JAVA)


def test_numbers_and_booleans_in_ext_fields_are_texts_and_null_is_none() -> None:
    command = decoded(b'{"extFields":{"a":0,"b":-7,"c":1795230747406,"d":true,"e":false,"f":null,"g":"x","h":1.5}}')
    assert command.ext_fields == {
        "a": "0", "b": "-7", "c": "1795230747406", "d": "true", "e": "false", "g": "x", "h": "1.5",
    }  # fmt: skip


def test_objects_in_ext_fields_are_their_json() -> None:
    assert decoded(b'{"extFields":{"a":{"b":[1,"2"]}}}').ext_fields == {"a": '{"b":[1,"2"]}'}


def test_no_ext_fields_null_and_an_empty_object() -> None:
    assert decoded(b"{}").ext_fields is None
    assert decoded(b'{"extFields":null}').ext_fields is None
    assert decoded(b'{"extFields":{}}').ext_fields == {}


def test_an_empty_object_of_ext_fields_is_written_and_none_is_not() -> None:
    assert b'"extFields":{},' in encode_command(RemotingCommand(34, ext_fields={}))
    assert b"extFields" not in encode_command(RemotingCommand(34))


def test_a_remark_may_be_empty_missing_or_null() -> None:
    assert decoded(b'{"remark":""}').remark == ""
    assert decoded(b"{}").remark is None
    assert decoded(b'{"remark":null}').remark is None
    assert b"remark" not in encode_command(RemotingCommand(0))


@pytest.mark.parametrize("language", ["KLINGON", "java", "", None, 9, ["JAVA"], {"a": 1}])
def test_an_unknown_language_is_no_error(language: object) -> None:
    assert decoded_json(code=105, language=language).language is LanguageCode.OTHER


@pytest.mark.parametrize("language", list(LanguageCode))
def test_a_language_goes_by_its_name_in_json_and_by_its_number_in_binary(language: LanguageCode) -> None:
    assert decoded_json(language=language.name).language is language
    assert decoded(binary_header(language=language), kind=1).language is language


def test_unknown_members_are_ignored() -> None:
    assert decoded_json(code=105, shoeSize=44, serializeTypeCurrentRPC="ROCKETMQ").serialize_type is SerializeType.JSON


@pytest.mark.parametrize("space", [b"\n", b"\r\n", b" \t\n"])
def test_white_space_around_the_header_is_ignored(space: bytes) -> None:
    assert decoded(space + b'{"code":41}' + space).code == 41


def test_of_a_repeated_key_the_last_value_counts() -> None:
    assert decoded(b'{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}').ext_fields == {"a": "2"}


def test_a_number_in_quotes_counts() -> None:
    assert decoded_json(code="105", opaque="-3").opaque == -3


@pytest.mark.parametrize("member", ["code", "opaque", "flag", "version"])
@pytest.mark.parametrize(
    "value",
    [
        "1e999",
        "NaN",
        "Infinity",
        "1.5",
        "true",
        '"x"',
        '""',
        "[]",
        "{}",
        "2147483648",
        "-2147483649",
        '"' + 40 * "1" + '"',
        "9" * 5000,
        "[" * 500 + "]" * 500,
    ],
)
def test_a_number_of_the_header_that_is_none_is_refused(member: str, value: str) -> None:
    with pytest.raises(RemotingDecodeError):
        decoded(f'{{"{member}":{value}}}'.encode())


@pytest.mark.parametrize("value", [-(1 << 31), (1 << 31) - 1])
def test_numbers_of_32_bits_are_taken(value: int) -> None:
    assert decoded_json(opaque=value).opaque == value


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\0",
        b"null",
        b"[]",
        b'"x"',
        b"7",
        b'{"code":1',
        b'{"code":1}}',
        b"{1:2}",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
        b'{"extFields":7}',
        b"\xff\xfe{\0}\0",
    ],
)
def test_a_header_that_is_no_json_object_is_refused(header: bytes) -> None:
    with pytest.raises(RemotingDecodeError):
        decoded(header)


@pytest.mark.parametrize("member", [b'"language":%s', b'"remark":%s', b'"extFields":{"a":%s}', b'"unknown":%s'])
def test_levels_of_any_number_are_refused_or_read(member: bytes) -> None:
    for depth in range(50, 1100, 3):
        with suppress(RemotingDecodeError):
            decoded(b"{" + member % (b"[" * depth + b"]" * depth) + b"}")


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert decoded(b'{"remark":"\xff\xc3"}').remark == "\ufffd\ufffd"
    assert decoded(binary_header(remark=b"a\xffb"), kind=1).remark == "a\ufffdb"


@BOTH
def test_a_lone_surrogate_is_written_as_a_question_mark_as_java_does(kind: SerializeType) -> None:
    command = decoded(b'{"code":1,"remark":"\\ud800","extFields":{"\\udfff":"a\\ud800b"}}')
    assert command.remark == "\ud800"
    command.serialize_type = kind
    again = decode_command(encode_command(command))
    assert (again.remark, again.ext_fields) == ("?", {"?": "a?b"})


def test_control_characters_in_texts_are_escaped_and_taken_bare() -> None:
    assert rb"KEYS\u0001a\u0002" in encode_command(RemotingCommand(10, ext_fields={"i": "KEYS\x01a\x02"}))
    assert decoded(b'{"extFields":{"i":"KEYS\x01a\x02\n"}}').ext_fields == {"i": "KEYS\x01a\x02\n"}


def test_characters_above_ascii_are_written_as_utf8() -> None:
    frame = encode_command(RemotingCommand(10, remark="ü😀"))
    assert "ü😀".encode() in frame
    assert decode_command(frame).remark == "ü😀"


# -- ROCKETMQ


@pytest.mark.parametrize("code", [code for code in RequestCode if code > 0x7FFF])
def test_a_code_of_pop_is_cut_to_16_bits_and_found_again(code: RequestCode) -> None:
    frame = encode_command(RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ))
    assert struct.unpack_from(">h", frame, 8) == (code - 3 * 65_536,)
    assert decode_command(frame).code == code


def test_the_codes_of_pop_are_what_the_protocol_says() -> None:
    cut = {code: decoded(binary_header(code), kind=1).code for code in (*range(3442, 3449), 3543, 3441, 3449)}
    assert cut == {**{3442 + i: 200_050 + i for i in range(7)}, 3543: 200_151, 3441: 3441, 3449: 3449}


@pytest.mark.parametrize("code", [-1, -32_768, 32_767])
def test_other_codes_of_16_bits_are_kept(code: int) -> None:
    assert decode_command(encode_command(RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ))).code == code


def test_a_remark_and_fields_of_no_bytes_are_none() -> None:
    command = decoded(binary_header(), kind=1)
    assert (command.remark, command.ext_fields) == (None, None)


def test_a_field_whose_name_or_value_has_no_bytes_is_none() -> None:
    entries = entry(b"", b"x") + entry(b"a", b"") + entry(b"", b"") + entry(b"b", b"1")
    assert decoded(binary_header(entries=entries), kind=1).ext_fields == {"b": "1"}


def test_an_empty_value_reaches_a_binary_peer_as_none() -> None:
    command = RemotingCommand(35, ext_fields={"a": "", "b": "1"}, serialize_type=SerializeType.ROCKETMQ)
    assert decode_command(encode_command(command)).ext_fields == {"b": "1"}


@pytest.mark.parametrize("language", [14, 127, 128, 255])
def test_an_unknown_number_of_a_language_is_no_error(language: int) -> None:
    assert decoded(binary_header(language=language), kind=1).language is LanguageCode.OTHER


def test_bytes_behind_the_fields_of_a_binary_header_are_ignored() -> None:
    assert decoded(binary_header(entries=entry(b"a", b"1")) + b"\xff\xff", kind=1).ext_fields == {"a": "1"}


LARGE = (1 << 31) - 1
A = entry(b"a", b"1")


@pytest.mark.parametrize(
    "header",
    [
        binary_header(remark_size=-1), binary_header(remark_size=5), binary_header(remark_size=LARGE),
        binary_header(remark_size=-LARGE - 1), binary_header(ext_size=-1), binary_header(ext_size=1),
        binary_header(ext_size=LARGE), binary_header(entries=A, ext_size=len(A) - 1),
        binary_header(entries=entry(b"a", b"1", name_size=-1)), binary_header(entries=entry(b"a", b"1", name_size=2)),
        binary_header(entries=entry(b"a", b"1", name_size=0x7FFF)),
        binary_header(entries=entry(b"a", b"1", value_size=-1)),
        binary_header(entries=entry(b"a", b"1", value_size=2)),
        binary_header(entries=entry(b"a", b"1", value_size=LARGE)), binary_header(entries=A + b"\0"),
        binary_header(entries=A + b"\0\1b"),
    ],
)  # fmt: skip
def test_a_size_beyond_its_header_is_refused(header: bytes) -> None:
    with pytest.raises(RemotingDecodeError):
        decode_command(frame_of(header, bytes(100), kind=1))


def test_a_binary_header_that_is_cut_short_is_refused_wherever() -> None:
    whole = binary_header(remark=b"remark", entries=A + A)
    for size in range(len(whole)):
        with pytest.raises(RemotingDecodeError):
            decoded(whole[:size], kind=1)
    assert decoded(whole, kind=1).ext_fields == {"a": "1"}


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(1, ext_fields={"x" * 32_768: "1"}), RemotingCommand(1, version=32_768),
        RemotingCommand(1, opaque=1 << 31), RemotingCommand(1, flag=1 << 31),
    ],
)  # fmt: skip
def test_what_has_no_binary_header_is_not_written(command: RemotingCommand) -> None:
    command.serialize_type = SerializeType.ROCKETMQ
    with pytest.raises(RemotingDecodeError, match="command 1 has no binary header"):
        encode_command(command)


@BOTH
def test_a_header_is_bounded_and_a_send_with_the_most_properties_fits(kind: SerializeType) -> None:
    properties = "a\x01b\x02" * 8191 + "a\x01b"
    assert len(properties) == (1 << 15) - 1
    fields = {"i": properties, "b": "t" * 127, "a": "g" * 255}
    send = RemotingCommand(310, ext_fields=fields, serialize_type=kind)
    assert decode_command(encode_command(send)).ext_fields == fields
    with pytest.raises(RemotingDecodeError, match=r"a header of \d+ bytes: expected 131072 at most"):
        encode_command(RemotingCommand(310, ext_fields={"i": "x" * MAX_HEADER_SIZE}, serialize_type=kind))


def test_a_header_that_is_too_large_is_refused_before_it_has_come() -> None:
    with pytest.raises(RemotingDecodeError, match="a header of 131073 bytes: expected 131072 at most"):
        frame_size(struct.pack(">iI", 1 << 20, MAX_HEADER_SIZE + 1))


def test_the_fields_of_a_header_are_bounded() -> None:
    names = [f"{number:x}" for number in range(MAX_FIELDS + 2)]
    assert len(decoded_json(code=1, extFields=dict.fromkeys(names[:MAX_FIELDS], "v")).ext_fields or {}) == MAX_FIELDS
    with pytest.raises(RemotingDecodeError, match="a header of 1026 fields: expected 1024 at most"):
        decoded_json(code=1, extFields=dict.fromkeys(names, "v"))
    entries = b"".join(entry(name.encode(), b"v") for name in names)
    with pytest.raises(RemotingDecodeError, match="a header of more than 1024 fields"):
        decoded(binary_header(entries=entries), kind=1)
