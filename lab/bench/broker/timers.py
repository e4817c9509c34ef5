"""Messages with a time: what those cost that wait, and how late the others are."""

from __future__ import annotations

import json
import time

from lab.bench.broker.answers import Answers
from lab.bench.broker.brokers import Brokers
from lab.bench.broker.requests import make_frames
from lab.bench.broker.sides import Side, ask, call, connect
from lab.bench.figures import Figure, Goal, percentile
from lab.bench.setting import Setting
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import encode_command
from tests.support.broker import messages_of, pull_command, send_command

_PENDING = 100_000
#: The next messages, so many a second; each waits so long.
_DUE, _RATE, _WAIT_MS = 2000, 200, 3000
_TOPIC, _LATE_TOPIC, _QUEUES = "waiting", "due", 1
_IN_FLIGHT = 64
_HOUR_MS = 3_600_000
_DELIVERED_S = 60.0

#: Times are whole ms, and memory comes in pages: less than these is told as these, for nothing has a ratio to 0.
_LEAST_MS, _LEAST_MB = 0.5, 0.01


def measure(setting: Setting) -> list[Figure]:
    """MB of a new process while messages wait, and milliseconds that others are late meanwhile; once a broker."""
    brokers = Brokers(setting)
    pending, due = setting.count(_PENDING), setting.count(_DUE)
    memory = brokers.figure(f"broker, timers, anonymous memory of {_PENDING:,} that wait", "MB")
    memory.goal = Goal(most=50)
    memory.note = f"{pending:,} were sent"
    late = [brokers.figure(f"broker, timers, late, {which}", "ms") for which in ("p50", "p99", "the latest")]
    late[1].goal = Goal(most=100)
    late[0].note = f"{due:,} messages, {_RATE} a second, from their time to their store time, while {pending:,} wait"
    for kind in brokers.kinds:
        path = setting.folder("timers")
        side = kind(path, "ASYNC_FLUSH")
        try:
            for topic in (_TOPIC, _LATE_TOPIC):
                side.make_topic(topic, _QUEUES)
            _send_pending(side, 1000)  # what the first messages need is not what each costs
            _wait_for_slots(side)
            before = side.memory_mb("RssAnon")
            _send_pending(side, pending)
            _wait_for_slots(side)
            grown = (side.memory_mb("RssAnon") - before) * _PENDING / pending
            side.add(memory, max(grown, _LEAST_MB))
            found = _late_ms(side, due)
            for figure, share in zip(late, (0.5, 0.99, 1), strict=True):
                side.add(figure, max(percentile(found, share), _LEAST_MS))
        finally:
            side.kill()
            setting.remove(path)
    return [memory, *late]


def _send_pending(side: Side, count: int) -> None:
    """Messages that wait for an hour."""
    frames = make_frames(send_command(_TOPIC, properties={"TIMER_DELAY_MS": str(_HOUR_MS)}))[:_IN_FLIGHT]
    with connect(side.address) as connection:
        answers = Answers(connection)
        while answers.count < count:
            some = frames[: count - answers.count]
            connection.sendall(b"".join(some))
            answers.receive_all(answers.count + len(some))
    assert answers.good == count, f"{side.name}: {count - answers.good} messages with a time were refused"


def _wait_for_slots(side: Side) -> None:
    """Return when each message has its slot of the wheel; a broker that has just started may not tell yet."""
    deadline = time.monotonic() + _DELIVERED_S
    while True:
        answer = ask(side.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        if answer.code == ResponseCode.SUCCESS and json.loads(answer.body)["table"]["timerOffsetBehind"] == "0":
            return
        assert time.monotonic() < deadline, f"{side.name} has not taken all messages with a time: {answer}"
        time.sleep(0.1)


def _late_ms(side: Side, count: int) -> list[float]:
    """Delay in ms of messages in their topic; they come steadily, each with its own millisecond."""
    with connect(side.address) as connection:
        answers, begun = Answers(connection), time.time()
        while answers.count < count:
            due = min(int((time.time() - begun) * _RATE), count) - answers.count
            at_ms = int(time.time() * 1000) + _WAIT_MS
            frames = [
                encode_command(send_command(_LATE_TOPIC, properties={"TIMER_DELIVER_MS": str(at_ms + number)}))
                for number in range(due)
            ]
            connection.sendall(b"".join(frames))
            answers.receive_all(answers.count + due)
            time.sleep(0.01)
    assert answers.good == count, f"{side.name}: {count - answers.good} messages with a time were refused"
    deadline = time.monotonic() + _DELIVERED_S
    found: list[float] = []
    with connect(side.address) as connection:
        while len(found) < count:
            answer = call(connection, pull_command(_LATE_TOPIC, len(found)))
            if answer.code == ResponseCode.SUCCESS:
                found += [one.store_timestamp - int(one.properties["TIMER_DELIVER_MS"]) for one in messages_of(answer)]
            else:
                assert time.monotonic() < deadline, f"{side.name} has delivered {len(found)} of {count} messages"
                time.sleep(0.1)
    return found
