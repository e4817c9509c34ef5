"""Acks that a kernel takes: the frames, records and answers are those that `encode_command` and `pack_record` make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
from reput.kernels.records.record_form import RecordForm
from reput.kernels.wire.ack_frames import NUMBERS, AckForm
from reput.remoting.ack_frames import TAKEN, decode_plain_ack
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command

HOST = encode_host("127.0.0.1:10911")
POP_TIME, INVISIBLE_TIME = 1_795_386_593_472, 60_000
BORN_MS, STORED_MS, LOG_OFFSET, FIRST, QUEUE, REVIVE_QIDS = 777, 888, 5000, 42, 3, 8
SLOT_MS = 1_795_386_653_000
#: Pop times for which a message is visible again in the slot's time.
POP_TIMES = SLOT_MS + 1 - INVISIBLE_TIME, SLOT_MS + 1000 - INVISIBLE_TIME
MOST_OFFSET = 10**18 - 1
OFFSETS = st.one_of(st.integers(0, MOST_OFFSET), st.integers(0, 18).map(lambda digits: max(10**digits - 1, 0)))


class One(NamedTuple):
    """The numbers of an ack."""

    offset: int
    opaque: int = 1
    start: int = 5
    pop_time: int = POP_TIME
    invisible_time: int = INVISIBLE_TIME
    revive_qid: int = 1


ACKS = st.builds(
    One, OFFSETS, st.integers(0, 2**31 - 1), OFFSETS, st.integers(*POP_TIMES), st.just(INVISIBLE_TIME),
    st.integers(0, REVIVE_QIDS - 1),
)  # fmt: skip


def frame(offset: object, opaque: int = 1, word: object = None, handle: str | None = None, **fields: str) -> bytes:
    if handle is None:
        handle = f"5 {POP_TIME} {INVISIBLE_TIME} 1 0 broker-a 2"
    handle = f"{handle} {offset if word is None else word}"
    given = {"consumerGroup": "g", "topic": "orders", "queueId": "2", "extraInfo": handle, "offset": str(offset)}
    return encode_command(RemotingCommand(RequestCode.ACK_MESSAGE, opaque, ext_fields=given | fields))


def frame_of(one: One) -> bytes:
    handle = f"{one.start} {one.pop_time} {one.invisible_time} {one.revive_qid} 0 broker-a 2"
    return frame(one.offset, one.opaque, handle=handle)


def with_opaque(opaque: bytes) -> bytes:
    header = frame(8, 1)[FRAME_HEAD.size :].replace(b'"opaque":1,', b'"opaque":%b,' % opaque)
    return FRAME_HEAD.pack(4 + len(header), len(header)) + header


def record(one: One, number: int = 0, log_offset: int = 0) -> bytes:
    return pack(
        [*one[2:6], one.offset, 0, one.pop_time + one.invisible_time, SLOT_MS], FIRST + number, log_offset, BORN_MS,
        STORED_MS,
    )  # fmt: skip


def pack(numbers: Sequence[int], queue_offset: int = 0, log_offset: int = 0, born: int = 0, stored: int = 0) -> bytes:
    start, pop_time, _, revive_qid, offset, _, deliver_ms, slot_ms = numbers
    key = CheckPointKey("orders", "g", 2, start, pop_time, "broker-a")
    (body,), (magic, topic) = encode_acks(key, [offset]), encode_topic("rmq_sys_wheel_timer")
    properties = (
        f"TIMER_DELIVER_MS\x01{deliver_ms}\x02UNIQ_KEY\x01{ack_unique_key(key, offset)}\x02TAGS\x01ack\x02"
        f"TIMER_OUT_MS\x01{slot_ms}\x02REAL_QID\x01{revive_qid}\x02"
    ).encode()
    return pack_record(
        magic, body_crc(body), 0, 0, queue_offset, log_offset, 0, born, HOST, stored, HOST, 0, 0, body, topic,
        properties,
    )  # fmt: skip


def answer(opaque: int) -> bytes:
    return encode_command(RemotingCommand(RequestCode.ACK_MESSAGE, opaque).response())


class Taken:
    """What a call has done."""

    def __init__(
        self, frames: bytes, *, room: int = 1 << 16, bounds: tuple[int, int] = (0, MOST_OFFSET), answers: int = 1 << 14
    ) -> None:
        ack = decode_plain_ack(memoryview(frame(17, 5)))
        assert ack is not None
        form = AckForm(
            texts=ack.form.texts, numbers=ack.form.numbers, record=RecordForm(pack, NUMBERS), queue=QUEUE,
            answer=TAKEN, answers=np.empty(answers, np.uint8),
        )  # fmt: skip
        form.begin(BORN_MS, bounds, REVIVE_QIDS, SLOT_MS, (SLOT_MS + 1, SLOT_MS + 1000))
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


def records(acks: Sequence[One]) -> bytes:
    log = b""
    for number, one in enumerate(acks):
        log += record(one, number, LOG_OFFSET + len(log))
    return log


@given(st.lists(ACKS, max_size=9), st.integers(0, 400))
def test_records_and_answers_are_those_of_the_plain_way(acks: list[One], cut: int) -> None:
    whole = [frame_of(one) for one in acks]
    frames = b"".join(whole)
    frames = frames[: max(len(frames) - cut, 0)]
    count = sum(len(b"".join(whole[: number + 1])) <= len(frames) for number in range(len(whole)))
    taken = Taken(frames)
    assert taken.count == count
    assert taken.log == records(acks[:count])
    assert taken.answers == b"".join([answer(one.opaque) for one in acks[:count]])
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
        frame(8, handle=f"05 {POP_TIME} {INVISIBLE_TIME} 1 0 broker-a 2"),
        frame(8, handle=f"-5 {POP_TIME} {INVISIBLE_TIME} 1 0 broker-a 2"),
        frame(8, handle=f"{10**18} {POP_TIME} {INVISIBLE_TIME} 1 0 broker-a 2"),
        frame(8, handle=f"5 {POP_TIME} {INVISIBLE_TIME} 1 1 broker-a 2"),
        frame(8, handle=f"5 {POP_TIME} {INVISIBLE_TIME} 1 0 broker-b 2"),
        frame(8, handle=f"5 {POP_TIME}  {INVISIBLE_TIME} 1 0 broker-a 2"),
        frame_of(One(8, revive_qid=REVIVE_QIDS)),
        frame_of(One(8, pop_time=POP_TIMES[0] - 1)),
        frame_of(One(8, pop_time=POP_TIMES[1] + 1)),
        frame_of(One(8, pop_time=MOST_OFFSET, invisible_time=MOST_OFFSET)),
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
    assert (taken.count, taken.log, taken.needed) == (1, records([One(7)]), 0)
    assert taken.frames_left == odd + frame(9, 1)


def test_any_opaque_of_a_request_is_taken() -> None:
    assert Taken(with_opaque(b"2147483647")).answers == answer(2**31 - 1)


def test_an_offset_that_the_queue_has_not_is_left() -> None:
    frames = b"".join([frame(offset, 1) for offset in (5, 9, 10, 5)])
    assert Taken(frames, bounds=(5, 9)).count == 2
    assert Taken(frames, bounds=(6, 9)).count == 0


def test_a_record_without_room_is_left_and_says_what_it_needs() -> None:
    frames, log = frame(7, 1) + frame(10, 2), records([One(7), One(10)])
    assert Taken(frames, room=len(log)).log == log
    taken = Taken(frames, room=len(log) - 1)
    assert (taken.count, taken.needed, taken.frames_left) == (1, len(record(One(10))), frame(10, 2))


def test_no_more_acks_are_taken_than_have_room_for_their_answers() -> None:
    room = max(len(answer(2**31 - 1)), len(answer(0)) + 9)
    frames = b"".join([frame(number, 2**31 - 1) for number in range(5)])
    assert Taken(frames, answers=3 * room).count == 3
    assert Taken(frames, answers=3 * room - 1).count == 2
