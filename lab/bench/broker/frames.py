"""Sends as bytes that were made before, over one connection: what a broker takes from a client that costs little."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from lab.bench.broker.brokers import BATCH, QUEUES, Brokers
from lab.bench.broker.load import BODY_SIZE
from lab.bench.broker.sides import Side, ask, connect
from lab.bench.figures import Figure
from lab.bench.setting import Setting
from reput import Message
from reput.formats.message_batch import encode_batch
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.send_headers import V2_NAMES

_TOPIC = "frames"
_SECONDS, _WARM_S = 5.0, 1.0
_IN_FLIGHT = 64
#: Each answer has both once; the second one says SUCCESS. Both have nine bytes. What a broker asks has another flag.
_ANSWER, _GOOD = b'"flag":1,', b'"code":0,'
_KEPT = len(_ANSWER) - 1
_READ_SIZE = 1 << 18
#: Frames that are made; they are sent again and again. Numbers of seven digits make frames of one size.
_FRAMES, _FIRST_NUMBER = 1024, 1_000_000
_DISPATCHED_S = 60.0


class _Case(NamedTuple):
    """One kind of frame: messages in each, how many are answered at a time, times RocketMQ's rate, and a better one."""

    name: str
    batch: int
    in_flight: int
    least: float
    stretch: float


_CASES = (
    _Case(f"{_IN_FLIGHT} sends in flight", 1, _IN_FLIGHT, 5, 11),
    _Case(f"batches of {BATCH}, one in flight", BATCH, 1, 1.5, 1.8),
)


class Count(NamedTuple):
    """Answers to frames; of them good ones; seconds, and the client's processor time."""

    answers: int
    good: int
    seconds: float
    client_seconds: float


class Answers:
    """Answers that a connection brings. They are not read but looked through for what each has once.

    That costs a hundredth of a microsecond.

    Attributes:
        count, good: All that have come, and of them good ones.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._kept = b""
        self.count = self.good = 0

    def receive(self) -> int:
        """Wait for bytes; how many answers they ended.

        Raises TimeoutError where an answer does not come.
        """
        data = self._connection.recv(_READ_SIZE)
        if not data:
            raise ConnectionError("the broker closed the connection")
        found = self._kept + data
        self._kept = found[-_KEPT:]
        come = found.count(_ANSWER)
        self.good += found.count(_GOOD)
        self.count += come
        return come

    def receive_all(self, count: int) -> None:
        """Wait until so many have come."""
        while self.count < count:
            self.receive()


def measure(setting: Setting) -> list[Figure]:
    """Messages a second over one connection, and processor time of a frame at both ends."""
    brokers = Brokers.shared(setting)
    figures = []
    for case in _CASES:
        frames = make_frames(case.batch)
        name = f"broker, ready-made frames, {case.name}"
        row = [
            brokers.figure(name, "msg/s", least=case.least, stretch=case.stretch),
            brokers.figure(f"{name}, broker's CPU", "us"),
            brokers.figure(f"{name}, client's CPU", "us"),
        ]
        for side in brokers.turns():
            side.make_topic(_TOPIC, QUEUES)
            before = _messages(side)
            warm = send(side.address, frames, case.in_flight, setting.seconds(_WARM_S))
            broker_before = side.processor_seconds()
            count = send(side.address, frames, case.in_flight, setting.seconds(_SECONDS))
            broker_seconds = side.processor_seconds() - broker_before
            brokers.count_failures(side, count.answers - count.good, count.answers, "an answer other than SUCCESS")
            _wait_messages(side, before + (warm.good + count.good) * case.batch)
            side.add(row[0], count.good * case.batch / count.seconds)
            side.add(row[1], broker_seconds / count.answers * 1e6)
            side.add(row[2], count.client_seconds / count.answers * 1e6)
        figures += row
    return [*figures, *brokers.failures("broker, ready-made frames")]


def make_frames(batch: int) -> list[bytes]:
    """Sends as the Java client makes them, all of one size, to the topic's queues in turn."""
    frames = []
    for number in range(_FIRST_NUMBER, _FIRST_NUMBER + _FRAMES):
        messages = [_message(number * batch + i) for i in range(batch)]
        fields = {
            "producerGroup": "load", "topic": _TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
            "queueId": number % QUEUES, "sysFlag": 0, "bornTimestamp": time.time_ns() // 1_000_000, "flag": 0,
            "properties": _properties(messages[0]) if batch == 1 else "WAIT\x01true", "reconsumeTimes": 0,
            "unitMode": "false", "maxReconsumeTimes": 0, "batch": str(batch > 1).lower(), "brokerName": "broker-a",
        }  # fmt: skip
        code = RequestCode.SEND_MESSAGE_V2 if batch == 1 else RequestCode.SEND_BATCH_MESSAGE
        header = {short: str(fields[name]) for short, name in V2_NAMES.items() if name in fields}
        body = bytes(messages[0].body) if batch == 1 else encode_batch(messages)
        frames.append(encode_command(RemotingCommand(code, opaque=number, ext_fields=header, body=body)))
    if len(set(map(len, frames))) != 1:
        raise AssertionError("frames of several sizes")
    return frames


def _message(number: int) -> Message:
    digits = f"{number:010d}"
    return Message(_TOPIC, b"x" * BODY_SIZE, "paid", [f"order-{digits}"], unique_key="7F0000010001AABBCCDD00" + digits)


def _properties(message: Message) -> str:
    values = {"KEYS": message.keys[0], "UNIQ_KEY": message.unique_key, "WAIT": "true", "TAGS": message.tags}
    return "\x02".join(f"{name}\x01{value}" for name, value in values.items())


def send(address: str, frames: Sequence[bytes], in_flight: int, seconds: float) -> Count:
    """Send frames of one size for so many seconds, each answer followed by one more, and count the answers.

    Raises TimeoutError where an answer does not come.
    """
    size = len(frames[0])
    ring = memoryview(b"".join([*frames, *frames[:in_flight]]))
    position = 0
    processor = time.process_time()
    with connect(address) as connection:
        answers = Answers(connection)
        begun = time.perf_counter()
        end = begun + seconds
        sent = more = in_flight
        while answers.count < sent:
            connection.sendall(ring[position * size : (position + more) * size])
            position = (position + more) % len(frames)
            come = answers.receive()
            more = come if time.perf_counter() < end else 0
            sent += more
        return Count(answers.count, answers.good, time.perf_counter() - begun, time.process_time() - processor)


def _messages(side: Side) -> int:
    """Messages of the topic that are dispatched."""
    answers = (ask(side.address, RequestCode.GET_MAX_OFFSET, topic=_TOPIC, queueId=i) for i in range(QUEUES))
    return sum(int((answer.ext_fields or {})["offset"]) for answer in answers)


def _wait_messages(side: Side, expected: int) -> None:
    """Return when the queues have what was answered; raise AssertionError where they never do."""
    deadline = time.monotonic() + _DISPATCHED_S
    while (found := _messages(side)) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"{side.name} has {found} messages in its queues, and answered for {expected}")
        time.sleep(0.01)
