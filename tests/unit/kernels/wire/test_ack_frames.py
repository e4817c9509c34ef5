"""Acks that a kernel takes: the frames, records and answers are those that `encode_command` and `pack_record` make."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.hosts import encode_host
from reput.formats.java import body_crc
from reput.formats.pop_messages import CheckPointKey, ack_unique_key, encode_acks
from reput.formats.record_layout import encode_topic, pack_record
from reput.formats.remoting import FRAME_HEAD
from reput.kernels.records.log_room import LogRoom
from reput.kernels.wire.ack_frames import MARK, AckForm
from reput.remoting.ack_frames import TAKEN, decode_plain_ack
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command

KEY = CheckPointKey("orders", "g", 2, 5, 1_795_386_593_472, "broker-a")
HOST = encode_host("127.0.0.1:10911")
HANDLE = "5 1795386593472 60000 1 0 broker-a 2"
BORN_MS, STORED_MS, LOG_OFFSET, FIRST, QUEUE = 777, 888, 5000, 42, 3
MOST_OFFSET = 10**18 - 1
OFFSETS = st.one_of(st.integers(0, MOST_OFFSET), st.integers(0, 18).map(lambda digits: max(10**digits - 1, 0)))


def frame(offset: object, opaque: int, word: object = None, **fields: str) -> bytes:
    handle = f"{HANDLE} {offset if word is None else word}"
    given = {"consumerGroup": "g", "topic": "orders", "queueId": "2", "extraInfo": handle, "offset": str(offset)}
    return encode_command(RemotingCommand(RequestCode.ACK_MESSAGE, opaque, ext_fields=given | fields))


def with_opaque(opaque: bytes) -> bytes:
    header = frame(8, 1)[FRAME_HEAD.size :].replace(b'"opaque":1,', b'"opaque":%b,' % opaque)
    return FRAME_HEAD.pack(4 + len(header), len(header)) + header


def record(offset: int, number: int = 0, log_offset: int = 0) -> bytes:
    (body,), (magic, topic) = encode_acks(KEY, [offset]), encode_topic("rmq_sys_wheel_timer")
    properties = f"UNIQ_KEY\x01{ack_unique_key(KEY, offset)}\x02TAGS\x01ack\x02".encode()
    return pack_record(
        magic, body_crc(body), 0, 0, FIRST + number, log_offset, 0, BORN_MS, HOST, STORED_MS, HOST, 0, 0, body, topic,
        properties,
    )  # fmt: skip


def answer(opaque: int) -> bytes:
    return encode_command(RemotingCommand(RequestCode.ACK_MESSAGE, opaque).response())


class Taken:
    """What a call has done."""

    def __init__(
        self, frames: bytes, *, room: int = 1 << 16, bounds: tuple[int, int] = (0, MOST_OFFSET), answers: int = 1 << 14
    ) -> None:
        template, ack = record(MARK), decode_plain_ack(memoryview(frame(17, 5)))
        assert ack is not None
        mark, unique_key = b"%d" % MARK, ack_unique_key(KEY, MARK).encode()
        form = AckForm(
            texts=ack.texts, numbers=ack.numbers, record=template,
            offsets_at=(template.index(mark), template.index(unique_key) + len("orders@2@")), queue=QUEUE,
            answer=TAKEN, answers=np.empty(answers, np.uint8),
        )  # fmt: skip
        form.begin(BORN_MS, bounds)
        received, log = np.frombuffer(frames + b"\0", np.uint8), np.full(room + 8, 0xAA, np.uint8)
        next_offsets = np.array([0, 0, 0, FIRST, 0], np.int64)
        begin, end = received.ctypes.data, received.ctypes.data + len(frames)
        self.count = form.take(
            begin, end, LogRoom(log.data[:room], log.ctypes.data, LOG_OFFSET, STORED_MS, next_offsets.ctypes.data)
        )
        size = form.log_address - log.ctypes.data
        self.log, self.rest, self.needed = log[:size].tobytes(), log[size:].tobytes(), form.needed
        self.frames_left, self.answers = frames[form.at - begin :], form.take_answers()
        assert self.rest == b"\xaa" * len(self.rest)
        assert next_offsets.tolist() == [0, 0, 0, FIRST + self.count, 0]
        assert form.take_answers() == b""


def records(offsets: list[int]) -> bytes:
    log = b""
    for number, offset in enumerate(offsets):
        log += record(offset, number, LOG_OFFSET + len(log))
    return log


@given(st.lists(st.tuples(OFFSETS, st.integers(0, 2**31 - 1)), max_size=9), st.integers(0, 400))
def test_records_and_answers_are_those_of_the_plain_way(acks: list[tuple[int, int]], cut: int) -> None:
    whole = [frame(*ack) for ack in acks]
    frames = b"".join(whole)
    frames = frames[: max(len(frames) - cut, 0)]
    count = sum(len(b"".join(whole[: number + 1])) <= len(frames) for number in range(len(whole)))
    taken = Taken(frames)
    assert taken.count == count
    assert taken.log == records([offset for offset, _ in acks[:count]])
    assert taken.answers == b"".join([answer(opaque) for _, opaque in acks[:count]])
    assert taken.frames_left == frames[len(b"".join(whole[:count])) :]


@pytest.mark.parametrize(
    "odd",
    [
        frame("007", 1),
        frame(8, 1, "08"),
        frame(8, 1, "x"),
        frame(8, 1, ""),
        frame(-8, 1),
        frame("", 1),
        frame(10**18, 1),
        frame(8, -1),
        with_opaque(b"2147483648"),
        with_opaque(b"01"),
        frame(8, 1, topic="others"),
        frame(8, 1, topic="orderz"),
        frame(8, 1, further="x"),
        frame(8, 1)[:-1] + b"]",
        frame(8, 1)[:7] + b"\0" + frame(8, 1)[8:],
        frame(8, 1)[:4] + b"\1" + frame(8, 1)[5:],
        b"\xff" * 300,
        b"\0" * 300,
        b"\x7f\xff\xff\xff\0\0\0\5" + bytes(300),
    ],
)  # fmt: skip
def test_what_differs_in_anything_else_is_left(odd: bytes) -> None:
    taken = Taken(frame(7, 1) + odd + frame(9, 1))
    assert (taken.count, taken.log, taken.needed) == (1, records([7]), 0)
    assert taken.frames_left == odd + frame(9, 1)


def test_any_opaque_of_a_request_is_taken() -> None:
    assert Taken(with_opaque(b"2147483647")).answers == answer(2**31 - 1)


def test_an_offset_that_the_queue_has_not_is_left() -> None:
    frames = b"".join([frame(offset, 1) for offset in (5, 9, 10, 5)])
    assert Taken(frames, bounds=(5, 9)).count == 2
    assert Taken(frames, bounds=(6, 9)).count == 0


def test_a_record_without_room_is_left_and_says_what_it_needs() -> None:
    frames, log = frame(7, 1) + frame(10, 2), records([7, 10])
    assert Taken(frames, room=len(log)).log == log
    taken = Taken(frames, room=len(log) - 1)
    assert (taken.count, taken.needed, taken.frames_left) == (1, len(record(10)), frame(10, 2))


def test_no_more_acks_are_taken_than_have_room_for_their_answers() -> None:
    room = max(len(answer(2**31 - 1)), len(answer(0)) + 9)
    frames = b"".join([frame(number, 2**31 - 1) for number in range(5)])
    assert Taken(frames, answers=3 * room).count == 3
    assert Taken(frames, answers=3 * room - 1).count == 2
