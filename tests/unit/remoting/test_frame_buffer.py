"""FrameBuffer: whole frames from any reads, in memory that the bytes that came bound."""

from __future__ import annotations

import struct

import pytest

from reput.errors import RemotingDecodeError
from reput.remoting.frame_buffer import FrameBuffer
from tests.support.frames import frame_of, recorded_frames

FRAMES = [one.frame for one in recorded_frames()]
SMALL = frame_of(b'{"code":34}')


def feed(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """The frames that come out while a socket reads these bytes."""
    found: list[bytes] = []
    position = 0
    while position < len(data):
        room = buffer.room()
        size = min(len(room), len(data) - position)
        room[:size] = data[position : position + size]
        buffer.received(size)
        position += size
        found += [bytes(frame) for frame in buffer.frames()]
    return found


def test_frames_come_out_whole_whatever_the_reads_were() -> None:
    stream = b"".join(FRAMES)
    assert feed(FrameBuffer(), stream) == FRAMES
    buffer = FrameBuffer()
    assert [frame for byte in stream for frame in feed(buffer, bytes([byte]))] == FRAMES
    assert len(buffer) == 0


def test_a_part_of_a_frame_waits_for_the_rest() -> None:
    buffer = FrameBuffer()
    assert feed(buffer, SMALL + SMALL[:-1]) == [SMALL]
    assert len(buffer) == len(SMALL) - 1
    assert feed(buffer, SMALL[-1:]) == [SMALL]


def test_a_promised_length_takes_no_memory() -> None:
    buffer = FrameBuffer()
    first = buffer.capacity
    assert feed(buffer, struct.pack(">iI", 16_777_212, 100) + bytes(1000)) == []
    assert buffer.capacity == first


def test_memory_grows_with_what_came_and_goes_with_the_frame() -> None:
    buffer = FrameBuffer()
    first = buffer.capacity
    large = frame_of(b'{"code":10}', bytes(8 << 20))
    for position in range(0, len(large) - 1, 4096):
        assert feed(buffer, large[position : min(position + 4096, len(large) - 1)]) == []
        assert buffer.capacity <= first + 2 * len(buffer)
    assert feed(buffer, large[-1:]) == [large]
    assert buffer.capacity == first


def test_a_read_brings_a_bounded_part_of_a_large_frame() -> None:
    """One turn of the loop writes to so many new pages, and no more."""
    buffer, came = FrameBuffer(), 0
    large = frame_of(b'{"code":10}', bytes(8 << 20))
    while came < len(large):
        room = buffer.room()
        assert 0 < len(room) <= 1 << 20
        size = min(len(room), len(large) - came)
        room[:size] = large[came : came + size]
        buffer.received(size)
        came += size
    assert [bytes(frame) for frame in buffer.frames()] == [large]


def test_memory_goes_though_the_stream_never_pauses_between_two_frames() -> None:
    buffer = FrameBuffer()
    first = buffer.capacity
    assert len(feed(buffer, frame_of(b'{"code":10}', bytes(8 << 20)) + SMALL[:5])) == 1
    for _ in range(10_000):
        assert feed(buffer, SMALL[5:] + SMALL[:5]) == [SMALL]
    assert buffer.capacity <= 2 * first


def test_there_is_always_room() -> None:
    buffer = FrameBuffer()
    for size in (1, 40_000, 10_000, 16_000, 65_536, 1, 100_000):
        frame = frame_of(b"{}", bytes(size))
        half = len(frame) // 2
        assert feed(buffer, frame[:half]) == []
        assert len(buffer.room()) > 0
        assert feed(buffer, frame[half:]) == [frame]


def test_frames_before_bytes_that_begin_none_come_out() -> None:
    buffer = FrameBuffer()
    found: list[bytes] = []
    data = SMALL + b"GET / HTTP/1.1\r\n"
    buffer.room()[: len(data)] = data
    buffer.received(len(data))
    with pytest.raises(RemotingDecodeError, match="this is HTTP"):
        found.extend(bytes(frame) for frame in buffer.frames())
    assert found == [SMALL]


def test_frames_that_were_not_asked_for_stay() -> None:
    buffer = FrameBuffer()
    data = SMALL * 3
    buffer.room()[: len(data)] = data
    buffer.received(len(data))
    assert bytes(next(buffer.frames())) == SMALL
    assert len(buffer) == 2 * len(SMALL)
    assert [bytes(frame) for frame in buffer.frames()] == [SMALL, SMALL]


def test_a_frame_that_was_put_back_is_the_next_one_again() -> None:
    buffer = FrameBuffer()
    buffer.room()[: 2 * len(SMALL)] = SMALL + SMALL[::-1]
    buffer.received(2 * len(SMALL))
    for _ in range(2):
        frame = buffer.frame()
        assert frame is not None
        assert bytes(frame) == SMALL
        buffer.put_back(len(frame))
    assert len(buffer) == 2 * len(SMALL)
