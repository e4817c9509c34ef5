"""Requests of consumers and what is sent with a delay or a time, each kind over one connection, 64 in flight."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from lab.bench.broker.brokers import BACKLOG, TOPIC, Brokers
from lab.bench.broker.frames import send
from lab.bench.broker.sides import Side, call, connect
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.extra_info import ExtraInfo, build_extra_info
from tests.support.broker import consumer, messages_of, pull_command, send_command

_SECONDS, _WARM_S = 1.5, 0.5
_IN_FLIGHT = 64
_LEAST = 5000
#: Frames that are made; numbers of seven digits make frames of one size.
_FRAMES, _FIRST_NUMBER = 256, 1_000_000
_GROUP, _QUEUE = "requests", {"consumerGroup": "requests", "topic": BACKLOG, "queueId": "0"}
_OFFSET = "10"
_HOUR_MS = 3_600_000


def measure(setting: Setting) -> list[Figure]:
    """Requests a second of each kind, and the broker's processor time of one."""
    brokers = Brokers.shared(setting)
    figures = []
    for kind, make in KINDS.items():
        name = f"broker, requests, {kind}"
        rate = brokers.figure(name, "requests/s")
        rate.goal = Goal(least=_LEAST)
        broker = brokers.figure(f"{name}, broker's CPU", "us")
        for side in brokers.turns():
            frames = make_frames(make(side))
            send(side.address, frames, _IN_FLIGHT, setting.seconds(_WARM_S))
            before = side.processor_seconds()
            count = send(side.address, frames, _IN_FLIGHT, setting.seconds(_SECONDS))
            broker_seconds = side.processor_seconds() - before
            brokers.count_failures(side, count.answers - count.good, count.answers, f"{kind}: not SUCCESS")
            side.add(rate, count.good / count.seconds)
            side.add(broker, broker_seconds / count.answers * 1e6)
        figures += [rate, broker]
    return [*figures, *brokers.failures("broker, requests")]


def make_frames(command: RemotingCommand) -> list[bytes]:
    """A request again and again, with its number; all frames have one size."""
    frames = []
    for number in range(_FIRST_NUMBER, _FIRST_NUMBER + _FRAMES):
        command.opaque = number
        frames.append(encode_command(command))
    return frames


def _request(code: int, fields: Mapping[str, object] | None = None, body: object = None) -> RemotingCommand:
    texts = None if fields is None else {name: str(value) for name, value in fields.items()}
    return RemotingCommand(code, ext_fields=texts, body=b"" if body is None else json.dumps(body).encode())


def _heartbeat(side: Side) -> RemotingCommand:
    group = consumer(_GROUP, BACKLOG)
    return _request(
        RequestCode.HEART_BEAT, {}, {"clientID": "bench", "consumerDataSet": [group], "producerDataSet": []}
    )


def _lock(side: Side) -> RemotingCommand:
    queue = {"topic": BACKLOG, "brokerName": "broker-a", "queueId": 0}
    return _request(RequestCode.LOCK_BATCH_MQ, {}, {"consumerGroup": _GROUP, "clientId": "bench", "mqSet": [queue]})


def _send_back(side: Side) -> RemotingCommand:
    with connect(side.address) as connection:
        (message,) = messages_of(call(connection, pull_command(BACKLOG, group="reader", maxMsgNums=1)))
    fields = {"offset": message.commit_log_offset, "group": _GROUP, "delayLevel": 18, "originTopic": BACKLOG}
    return _request(RequestCode.CONSUMER_SEND_MSG_BACK, fields | {"unitMode": "false", "maxReconsumeTimes": 16})


def _handle(side: Side) -> dict[str, str]:
    """Fields of a message that was popped a moment ago, as far as a broker sees."""
    info = ExtraInfo(int(_OFFSET), int(time.time() * 1000), _HOUR_MS, 0, "broker-a")
    return _QUEUE | {"offset": _OFFSET, "extraInfo": build_extra_info(info, BACKLOG, 0, int(_OFFSET))}


#: What is asked, by what it is called; the heartbeat makes the group, which has no offset before the update.
KINDS: dict[str, Callable[[Side], RemotingCommand]] = {
    "heartbeat": _heartbeat,
    "first offset": lambda _: _request(RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE),
    "update offset": lambda _: _request(RequestCode.UPDATE_CONSUMER_OFFSET, _QUEUE | {"commitOffset": _OFFSET}),
    "query offset": lambda _: _request(RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE),
    "max offset": lambda _: _request(RequestCode.GET_MAX_OFFSET, _QUEUE),
    "lock": _lock,
    "send back": _send_back,
    "send with a delay level": lambda _: send_command(TOPIC, properties={"DELAY": "18"}),
    "send with a time": lambda _: send_command(TOPIC, properties={"TIMER_DELAY_MS": str(_HOUR_MS)}),
    "ack": lambda side: _request(RequestCode.ACK_MESSAGE, _handle(side)),
    "change of invisible time": lambda side: _request(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME, _handle(side) | {"invisibleTime": str(_HOUR_MS)}
    ),
}
