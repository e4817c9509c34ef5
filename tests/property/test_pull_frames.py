"""A decoder of pulls gives what the general one gives, whatever a client writes, and answers are the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.errors import RemotingDecodeError
from reput.formats.java import INT32_MAX, INT64_MAX
from reput.kernels.wire import pull_frames as kernels
from reput.kernels.wire.pull_frames import ANSWER_ROOM, MARK, AnswerTexts, PullReader
from reput.remoting import pull_frames
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pull_frames import PullDecoder, encode_found, found_texts, prove_form
from reput.remoting.pull_headers import PullMessageRequestHeader, PullMessageResponseHeader
from tests.support.frames import frame_of, recorded_frames

NAMES = ["consumerGroup", "topic", "queueId", "maxMsgNums", "sysFlag", "suspendTimeoutMillis", "subVersion"]
TEXTS = st.sampled_from(["", "0", "1", "7", "-1", "007", "t", '"', '\\"queueOffset', ',"opaque":', "é", "%d", "%b"])
NUMBERS = st.integers(-2, 10**20) | st.sampled_from([0, 9, 10**9, (1 << 31) - 1, 1 << 31, 10**18 - 1, 10**18])
#: How a number may be written where text is expected, and where a number is.
AS_TEXT = st.builds(lambda number, zeros: "0" * zeros + str(number), NUMBERS, st.sampled_from([0, 0, 1, 12]))
AS_NUMBER = NUMBERS.map(str) | st.sampled_from(["05", "5.5", "null", '"5"', "5e3", "[5]", "-0", "true"])


#: What may come before the real offset, or after it: text that looks like one of the three numbers.
DECOYS = ["", "", '"queueOffset":"77",', '"opaque":3,', '"a":{"queueOffset":"5"},', '"a\\"queueOffset":"5",']


_REQUIRED = b",".join(b'"%b":"1"' % name.encode() for name in NAMES)
PLAIN = b'{"code":11,"extFields":{' + _REQUIRED + b',"queueOffset":"3","commitOffset":"4"},"opaque":%b}'
#: Pulls with three numbers that look like theirs, of which one is another.
LOOKALIKES = [
    b'{"code":11,"extFields":{' + _REQUIRED + b"," + fields + b"}," + rest + b"}"
    for fields, rest in (
        (b'"queueOffset":"%b","queueOffset": "3","commitOffset":"4"', b'"opaque":5'),
        (b'"a":{"queueOffset":"%b"},"queueOffset": "3","commitOffset":"4"', b'"opaque":5'),
        (b'"queueOffset":"3","commitOffset":"4","opaque":%b', b'"opaque": 5'),
        (b'"queueOffset":"3","commitOffset":"4"', b'"queueOffset":"%b","opaque": 5'),
        (b'"queueOffset":"3","commitOffset":"4","a":"%b"', b'"flag":0,"opaque":5'),
        (b'"queueOffset":"%b","queueOffset":"3","commitOffset": "8"', b'"opaque":5'),
        (b'"queueOffset":"%b","queueOffset":"3","commitOffset": "1000000001"', b'"opaque":5'),
    )
]


@st.composite
def texts_of_headers(draw: st.DrawFn) -> list[bytes]:
    """Headers of one client, a plain one first: the others are the same but for the three numbers, or nearly."""
    names = draw(st.permutations([*NAMES, "queueOffset", "commitOffset"]))
    values = dict.fromkeys(names, '"1"')
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=2)):
        values[name] = json.dumps(draw(TEXTS), ensure_ascii=draw(st.booleans()))
    blank = {name: draw(st.sampled_from(["", "", "", " "])) for name in names}
    decoys = draw(st.sampled_from(DECOYS)), draw(st.sampled_from(DECOYS))
    code, flag = draw(st.sampled_from([11, 11, 361, 10])), draw(st.integers(0, 3))
    found = []
    for opaque in ["8", *draw(st.lists(AS_NUMBER, max_size=3))]:
        fields = ",".join(f'"{name}":{blank[name]}{value}' for name, value in values.items())
        fields = f"{decoys[0]}{fields}{decoys[1] and ','}{decoys[1].rstrip(',')}"
        found.append(f'{{"code":{code},"extFields":{{{fields}}},"flag":{flag},"opaque":{opaque}}}'.encode())
        values["queueOffset"], values["commitOffset"] = f'"{draw(AS_TEXT)}"', f'"{draw(AS_TEXT)}"'
    return found


def decoded(decode: object, frame: bytes) -> RemotingCommand | str:
    try:
        return decode(memoryview(frame))  # type: ignore[operator, no-any-return]
    except RemotingDecodeError as error:
        return str(error)


def check(decoder: PullDecoder, frame: bytes) -> bool:
    """Compare the decoder with the general way; whether it knew the frame's form."""
    command = decoded(decoder.decode, frame)
    assert command == decoded(decode_command, frame)
    if isinstance(command, str) or command.cached_header is None:
        return False
    assert command.cached_header == decode_header(PullMessageRequestHeader, command.ext_fields)
    return True


@given(headers=texts_of_headers(), body=st.sampled_from([b"", b"", b"", b"x"]))
@example([text % number for text in LOOKALIKES for number in (b"8", b"9")], b"")
@example([PLAIN % number for number in (b"8", b"08", b"2147483648", b"9" * 18, b"8.5", b"-8", b'"8"', b"8")], b"")
def test_a_decoder_of_pulls_gives_what_the_general_one_gives(headers: list[bytes], body: bytes) -> None:
    decoder = PullDecoder()
    for header in [*headers, *headers]:
        check(decoder, frame_of(header, body))


def check_reader(reader: PullReader, frame: bytes) -> bool:
    """Compare the numbers that the kernel reads with the general decoder's; whether the frame has a proven form."""
    received = np.frombuffer(frame + b"\0", np.uint8)
    begin = received.ctypes.data
    text = reader.read(begin, begin + len(frame))
    form = None if text is None else prove_form(text.split(MARK))
    if form is None or reader.number(form.places[2]) > INT32_MAX:
        return False
    command = decode_command(frame)
    header = decode_header(PullMessageRequestHeader, command.ext_fields)
    numbers = header.queue_offset, header.commit_offset, command.opaque
    assert tuple(map(reader.number, form.places)) == numbers
    proven = replace(PullMessageRequestHeader(*form.header), queue_offset=numbers[0], commit_offset=numbers[1])
    assert proven == header
    assert (form.command.code, form.command.flag) == (command.code, command.flag)
    assert reader.end == begin + len(frame)
    return True


@given(headers=texts_of_headers(), body=st.sampled_from([b"", b"", b"", b"x"]))
@example([text % number for text in LOOKALIKES for number in (b"8", b"9")], b"")
@example([PLAIN % number for number in (b"8", b"08", b"2147483648", b"9" * 18, b"8.5", b"-8", b'"8"', b"8")], b"")
def test_a_kernel_reads_the_numbers_that_the_general_decoder_reads(headers: list[bytes], body: bytes) -> None:
    reader = PullReader()
    for header in headers:
        check_reader(reader, frame_of(header, body))


def test_a_kernel_reads_recorded_pulls_and_those_of_any_size_of_number() -> None:
    reader = PullReader()
    assert sum(check_reader(reader, one.frame) for one in recorded_frames()) >= 4
    for digits in range(1, 19):
        fields = dict.fromkeys(NAMES, "1") | {"queueOffset": "9" * digits, "commitOffset": "1" + "0" * (digits - 1)}
        assert check_reader(reader, encode_command(RemotingCommand(11, min(10**digits, INT32_MAX), ext_fields=fields)))
        longer = fields | {"queueOffset": "1" * 19}
        assert not check_reader(reader, encode_command(RemotingCommand(11, ext_fields=longer)))


@pytest.mark.parametrize("size", [1023, 1024, 1025])
def test_a_kernel_reads_headers_up_to_a_size(size: int) -> None:
    header = PLAIN % b"7"
    header = header.replace(b'"topic":"1"', b'"topic":"%b"' % (b"t" * (size - len(header) + 1)))
    assert len(header) == size
    assert check_reader(PullReader(), frame_of(header)) == (size <= 1024)


def test_recorded_pulls_are_decoded_alike_and_known_the_second_time() -> None:
    decoder, known = PullDecoder(), []
    for one in [*recorded_frames(), *recorded_frames()]:
        if check(decoder, one.frame):
            known.append(one.name)
    assert len(known) >= 4, known


def test_a_pull_of_a_known_form_has_its_own_numbers() -> None:
    decoder = PullDecoder()
    for number in range(3):
        fields = dict.fromkeys(NAMES, "1") | {"queueOffset": str(10**number), "commitOffset": "0" * number + "4"}
        frame = encode_command(RemotingCommand(11, 7 * number, ext_fields=fields))
        assert check(decoder, frame) == (number > 0)


class Looked(bytes):
    """A frame whose slices are noted."""

    largest = 0

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        found = super().__getitem__(key)
        Looked.largest = max(Looked.largest, len(found) if isinstance(found, bytes) else 1)
        return found


def test_a_body_is_not_looked_through_for_the_numbers_of_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends that are not plain come here, too, with bodies of megabytes."""
    decoded: list[bytes] = []
    monkeypatch.setattr(pull_frames, "decode_command", decoded.append)
    for header, body in ((PLAIN % b"1", bytes(1 << 20)), (PLAIN % b"1" + b" " * (1 << 20), b"")):
        frame = Looked(frame_of(header, body))
        PullDecoder().decode(frame)  # type: ignore[arg-type]
        assert decoded.pop() is frame
        assert Looked.largest <= 8


def test_a_header_that_has_no_form_is_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, frame = PullDecoder(), frame_of(LOOKALIKES[0] % b"8", b"")
    assert not check(decoder, frame)
    decoded: list[bytes] = []
    monkeypatch.setattr(pull_frames, "decode_command", decoded.append)
    decoder.decode(memoryview(frame))
    assert len(decoded) == 1


def test_a_decoder_holds_so_many_forms_and_forgets_them_after_many_frames_of_others() -> None:
    decoder = PullDecoder()
    frames = [
        encode_command(
            RemotingCommand(11, ext_fields=dict.fromkeys(NAMES, str(one)) | {"queueOffset": "1", "commitOffset": "0"})
        )
        for one in range(4097)
    ]
    for frame in frames:
        assert not check(decoder, frame)
    assert check(decoder, frames[0])
    assert len(decoder._forms) == 4096
    last = memoryview(frames[-1])
    for _ in range(16 * 4096 - 1):
        decoder.decode(last)
    assert check(decoder, frames[-1])
    assert not check(decoder, frames[0])
    assert len(decoder._forms) == 2


@given(opaque=st.integers(-(1 << 31), (1 << 31) - 1), offsets=st.tuples(*[st.integers(0, INT64_MAX)] * 3),
       flags=st.tuples(st.integers(0, 9), st.integers(0, 9)), records=st.binary(max_size=50))  # fmt: skip
def test_an_answer_with_messages_is_what_the_general_encoder_writes(
    opaque: int, offsets: tuple[int, int, int], flags: tuple[int, int], records: bytes
) -> None:
    header = PullMessageResponseHeader(0, *offsets, topic_sys_flag=flags[0], group_sys_flag=flags[1])
    general = RemotingCommand(11, opaque).response(0, "FOUND", encode_header(header), records)
    assert encode_found(opaque, header, records) == encode_command(general)


@given(opaque=st.integers(0, INT32_MAX), offsets=st.tuples(*[st.integers(0, INT64_MAX)] * 3),
       flags=st.tuples(*[st.integers(-1, 1 << 31)] * 2), suggested=st.integers(0, INT64_MAX),
       records=st.lists(st.binary(max_size=50), min_size=1, max_size=4))  # fmt: skip
def test_a_kernel_writes_the_answer_that_the_encoder_writes(
    opaque: int, offsets: tuple[int, int, int], flags: tuple[int, int], suggested: int, records: list[bytes]
) -> None:
    header = PullMessageResponseHeader(suggested, *offsets, topic_sys_flag=flags[0], group_sys_flag=flags[1])
    stored = [np.frombuffer(record + b"\0", np.uint8) for record in records]
    segments = np.array([(one.ctypes.data, one.size - 1) for one in stored], np.int64)
    room = np.full(ANSWER_ROOM + sum(map(len, records)), 0xAA, np.uint8)
    texts = AnswerTexts(found_texts(suggested, *flags))
    size = kernels.write_found(texts.address, *offsets, opaque, segments.ctypes.data, len(records), room.ctypes.data)
    assert room[:size].tobytes() == encode_found(opaque, header, b"".join(records))
    assert not (room[size:] != 0xAA).any()
