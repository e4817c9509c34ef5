"""Whatever a command is, it survives both forms; whatever bytes a peer sends, commands or one error come out."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.formats.java import INT32_MAX, INT32_MIN
from reput.remoting.body import decode_body, decode_json
from reput.remoting.client_bodies import decode_heartbeat
from reput.remoting.codes import LanguageCode, RequestCode, SerializeType
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from reput.remoting.frame_buffer import FrameBuffer
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pull_headers import PullMessageRequestHeader
from reput.remoting.route_bodies import RegisterBrokerBody, decode_register_body
from tests.support.frames import binary_header, frame_of, recorded_frames

INT32 = st.integers(INT32_MIN, INT32_MAX)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
CODES = st.sampled_from([int(code) for code in RequestCode]) | INT16.filter(lambda code: not 3442 <= code <= 3543)
TEXTS = st.text(max_size=20) | st.sampled_from(["a\x01b\x02", '"', "\\", "\x00\x7f\x85\u2028", "😀", "true"])
COMMANDS = st.builds(
    RemotingCommand,
    code=CODES,
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXTS,
    ext_fields=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=5),
    body=st.binary(max_size=50),
    language=st.sampled_from(list(LanguageCode)),
    version=INT16,
)
#: What a peer may find in JSON.
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ("code", "language", "version", "opaque", "flag", "remark", "extFields", "serializeTypeCurrentRPC")
#: Bytes of an enemy: noise, noise with right lengths, JSON with right names, and pieces of real frames.
HEADERS = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(MEMBERS), PLAIN).map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda entries, remark, size: binary_header(remark=remark, entries=entries, ext_size=size),
        st.binary(max_size=40), st.binary(max_size=5), st.none() | st.integers(-1, 60),
    ),
)  # fmt: skip
PIECES = st.one_of(
    st.builds(frame_of, HEADERS, st.binary(max_size=30), kind=st.integers(0, 2)),
    st.sampled_from([one.frame for one in recorded_frames()]),
    COMMANDS.map(encode_command),
    st.binary(max_size=20),
)
STREAMS = st.lists(PIECES, max_size=4).map(b"".join)


def taken(stream: bytes, sizes: list[int]) -> tuple[list[RemotingCommand], str]:
    """The commands of a stream that comes in reads of these sizes, again and again, and the error that ended it."""
    buffer, position, turn = FrameBuffer(), 0, 0
    found: list[RemotingCommand] = []
    while position < len(stream):
        room = buffer.room()
        size = min(len(room), len(stream) - position, sizes[turn % len(sizes)])
        room[:size] = stream[position : position + size]
        buffer.received(size)
        position, turn = position + size, turn + 1
        assert len(buffer) <= position
        assert buffer.capacity <= (192 << 10) + 2 * len(buffer)
        try:
            found.extend(map(decode_command, buffer.frames()))
        except RemotingDecodeError as error:
            return found, str(error)
    return found, ""


@given(COMMANDS)
def test_a_command_survives_json(command: RemotingCommand) -> None:
    assert decode_command(encode_command(command)) == command


@given(COMMANDS)
def test_a_command_survives_the_binary_form_but_for_what_is_empty(command: RemotingCommand) -> None:
    command.serialize_type = SerializeType.ROCKETMQ
    again = decode_command(encode_command(command))
    command.remark = command.remark or None
    given_fields = command.ext_fields or {}
    command.ext_fields = {name: value for name, value in given_fields.items() if name and value}
    if not given_fields:
        command.ext_fields = None
    assert again == command


@given(STREAMS, st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_any_bytes_are_commands_or_one_error_in_any_reads(stream: bytes, sizes: list[int]) -> None:
    at_once, error = taken(stream, [len(stream) or 1])
    assert taken(stream, sizes) == (at_once, error)
    assert taken(stream, [1]) == (at_once, error)


@given(PIECES)
def test_what_was_understood_is_written_and_understood_again(frame: bytes) -> None:
    with suppress(RemotingDecodeError):
        command = decode_command(frame)
        again = encode_command(command)
        assert encode_command(decode_command(again)) == again


@given(st.dictionaries(st.sampled_from(["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
                                        "commitOffset", "suspendTimeoutMillis", "subVersion", "subscription"]),
                       TEXTS | st.integers().map(str)))  # fmt: skip
def test_a_header_is_read_or_refused_and_what_was_read_is_written_again(given_fields: dict[str, str]) -> None:
    with suppress(RemotingCommandError):
        header = decode_header(PullMessageRequestHeader, given_fields)
        assert decode_header(PullMessageRequestHeader, encode_header(header)) == header
        for one in fields(PullMessageRequestHeader):
            value = getattr(header, one.name)
            assert value is None or type(value).__name__ == str(one.type).removesuffix(" | None").replace(
                "Int32", "int"
            ).replace("Int64", "int")


@pytest.mark.parametrize("compressed", [False, True])
@given(body=st.binary(max_size=60) | PLAIN.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_read_or_refused(body: bytes, compressed: bool) -> None:
    with suppress(RemotingCommandError):
        decode_json(body)
    with suppress(RemotingCommandError):
        decode_heartbeat(body)
    with suppress(RemotingCommandError):
        decode_body(RegisterBrokerBody, body)
    with suppress(RemotingCommandError):
        decode_register_body(body, compressed=compressed)
