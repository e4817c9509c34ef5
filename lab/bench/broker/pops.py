"""Messages that are popped and acked one by one, over one connection from Python: a client that costs little."""

from __future__ import annotations

import time

from lab.bench.broker.answers import Answers, Count
from lab.bench.broker.brokers import BACKLOG, BATCH, Brokers
from lab.bench.broker.sides import call, connect
from lab.bench.figures import Figure
from lab.bench.setting import Setting
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.extra_info import ExtraInfo, build_extra_info
from tests.support.pop import pop_command

#: The first warm-up of each broker is a long one: a JVM has compiled nothing of POP yet.
_SECONDS, _WARM_S, _FIRST_WARM_S = 5.0, 1.0, 15.0
#: Times RocketMQ's rate.
_TIMES = 1.2


def measure(setting: Setting) -> list[Figure]:
    """Messages a second, and the broker's processor time of a message, its check point's part and its ack."""
    brokers = Brokers.shared(setting)
    name = f"broker, pops of {BATCH}, each message acked"
    rate = brokers.figure(name, "msg/s", least=_TIMES)
    rate.note = "pop, then its acks in one write; the timers of acks and check points run meanwhile"
    broker = brokers.figure(f"{name}, broker's CPU of a message", "us")
    for number, side in enumerate(brokers.turns()):
        warm_s = _FIRST_WARM_S if number < len(brokers.kinds) else _WARM_S
        pop_and_ack(side.address, f"warm-{number}", setting.seconds(warm_s))
        before = side.processor_seconds()
        count = pop_and_ack(side.address, f"popper-{number}", setting.seconds(_SECONDS))
        broker_seconds = side.processor_seconds() - before
        brokers.count_failures(side, count.answers - count.good, count.answers, "an ack that was not taken")
        side.add(rate, count.good / count.seconds)
        side.add(broker, broker_seconds / count.answers * 1e6)
    return [rate, broker, *brokers.failures("broker, pops")]


def pop_and_ack(address: str, group: str, seconds: float) -> Count:
    """Pop messages of `BACKLOG` and ack each, for some seconds; answers to acks are counted.

    Where a group has popped all messages, another one begins.

    Raises AssertionError where a new group gets none.
    """
    groups = popped = 0
    with connect(address) as connection:
        answers = Answers(connection)
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            name = f"{group}-{groups}"
            answer = call(connection, pop_command(BACKLOG, name))
            if answer.code != ResponseCode.SUCCESS:
                assert popped, f"{address}: a new group pops nothing: {answer.code} {answer.remark}"
                groups, popped = groups + 1, 0
                continue
            acks = _acks(name, answer.ext_fields or {})
            popped += len(acks)
            connection.sendall(b"".join(acks))
            answers.receive_all(answers.count + len(acks))
        return Count(answers.count, answers.good, time.perf_counter() - begun)


def _acks(group: str, fields: dict[str, str]) -> list[bytes]:
    """The frame of an ack for each message of a pop's answer."""
    starts = {tuple(part.split(" ")[:2]): int(part.split(" ")[2]) for part in fields["startOffsetInfo"].split(";")}
    times = int(fields["popTime"]), int(fields["invisibleTime"]), int(fields["reviveQid"])
    frames: list[bytes] = []
    for part in fields["msgOffsetInfo"].split(";"):
        kind, queue_id, offsets = part.split(" ")
        info = ExtraInfo(starts[kind, queue_id], *times, "broker-a")
        for offset in offsets.split(","):
            handle = build_extra_info(info, BACKLOG, int(queue_id), int(offset))
            ack = {"consumerGroup": group, "topic": BACKLOG, "queueId": queue_id, "extraInfo": handle, "offset": offset}
            frames.append(encode_command(RemotingCommand(RequestCode.ACK_MESSAGE, len(frames), ext_fields=ack)))
    return frames
