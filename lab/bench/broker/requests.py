"""Messages sent back, and messages with a delay or a time: each kind over one connection, 64 in flight."""

from __future__ import annotations

from collections.abc import Callable

from lab.bench.broker.answers import send
from lab.bench.broker.brokers import BACKLOG, TOPIC, Brokers
from lab.bench.broker.sides import Side, call, connect
from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command
from tests.support.broker import messages_of, pull_command, send_command

_SECONDS, _WARM_S = 1.5, 0.5
_IN_FLIGHT = 64
_LEAST = 30_000
#: Frames that are made; numbers of seven digits make frames of one size.
_FRAMES, _FIRST_NUMBER = 256, 1_000_000
_GROUP = "requests"
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


def _send_back(side: Side) -> RemotingCommand:
    with connect(side.address) as connection:
        (message,) = messages_of(call(connection, pull_command(BACKLOG, group="reader", maxMsgNums=1)))
    fields: dict[str, object] = {
        "offset": message.commit_log_offset, "group": _GROUP, "delayLevel": 18, "originTopic": BACKLOG,
        "unitMode": "false", "maxReconsumeTimes": 16,
    }  # fmt: skip
    texts = {name: str(value) for name, value in fields.items()}
    return RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=texts)


#: What is asked, by what it is called.
KINDS: dict[str, Callable[[Side], RemotingCommand]] = {
    "send back": _send_back,
    "send with a delay level": lambda _: send_command(TOPIC, properties={"DELAY": "18"}),
    "send with a time": lambda _: send_command(TOPIC, properties={"TIMER_DELAY_MS": str(_HOUR_MS)}),
}
