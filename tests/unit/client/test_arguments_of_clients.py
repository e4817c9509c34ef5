"""Arguments of all clients, and of all that they are asked: what is none is refused by its name when it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import reput.client
from reput.client import (
    ClientTls,
    LocalTransactionState,
    Message,
    MessageClientExt,
    MessageQueue,
    MessageSelector,
    Producer,
    PullConsumer,
    PullLimits,
    PushConsumer,
    SessionCredentials,
    sync,
)
from reput.errors import ConfigError, MessageIllegalError
from reput.testing import broker
from tests.support.bad_arguments import bad_values, check_refused, names_in, parameters

NAMESRV = {"namesrv": "127.0.0.1:9876", "group": "g"}
PUSH: dict[str, Any] = NAMESRV | {"topics": {"orders": "*"}, "on_message": print}
#: Right arguments of each class that programs make; a face without asyncio has the arguments of its client.
GOOD: dict[Callable[..., Any], dict[str, Any]] = {
    Producer: NAMESRV,
    PullConsumer: NAMESRV,
    PushConsumer: PUSH,
    ClientTls: {},
    PullLimits: {},
    SessionCredentials: {"access_key": "a", "secret_key": "b"},
    MessageSelector: {"expression": "a"},
    MessageSelector.by_tag: {"expression": "a"},
    MessageSelector.by_sql: {"expression": "a"},
}
FACES: dict[type, type] = {Producer: sync.Producer, PullConsumer: sync.PullConsumer, PushConsumer: sync.PushConsumer}
#: A topic that traces go to may have any name; RocketMQ takes -1 for its default; no topics are none to warm up.
TAKEN: dict[str, list[Any]] = {"trace": [], "max_reconsume_times": [-1]}
#: Of messages MessageIllegalError tells what is wrong.
MESSAGES = {"message", "messages", "rows", "body"}
DELAYS = {"delay_ms", "delay_level"}
#: What a client is asked, but for its begin and its end: with right arguments, if it needs some.
ASKED: dict[type, dict[str, dict[str, Any]]] = {
    sync.Producer: {
        "queues": {}, "recall": {"topic": "orders", "recall_handle": "x"}, "reply": {"body": b"x"}, "send": {},
        "send_arrow": {}, "send_batch": {}, "send_in_transaction": {}, "send_oneway": {}, "request": {},
    },
    sync.PullConsumer: {
        "assign": {}, "commit": {}, "committed": {}, "offset_of_time": {}, "poll": {}, "poll_arrow": {}, "position": {},
        "queues": {}, "seek": {}, "seek_to_begin": {}, "seek_to_end": {}, "tail": {}, "pause": {}, "resume": {},
    },
    sync.PushConsumer: {},
}  # fmt: skip


def check(call: Callable[..., Any], of: Callable[..., Any], good: dict[str, Any], name: str) -> None:
    values = [value for value in bad_values(of, name) if value not in TAKEN.get(name, ())]
    error = MessageIllegalError if name in DELAYS else ConfigError
    check_refused(call, good, name, values, error)


@pytest.mark.parametrize(
    ("made", "name"), [pytest.param(one, name, id=f"{one.__name__}-{name}") for one in GOOD for name in parameters(one)]
)
def test_what_is_no_argument_of_a_client_is_refused_and_nothing_is_made(
    made: Callable[..., Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check(made, made, GOOD[made], name)
    if isinstance(made, type) and made in FACES:
        check(FACES[made], made, GOOD[made], name)
    assert not names_in(tmp_path)


class Running(NamedTuple):
    """Clients of a broker, and right arguments of what they are asked."""

    clients: dict[type, Any]
    good: dict[str, Any]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    def committed(_: Message) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    with (
        broker() as rocketmq,
        sync.Producer(rocketmq.namesrv, group="p", check_transaction=committed) as producer,
        sync.PullConsumer(rocketmq.namesrv, group="g", consume_from="first") as consumer,
    ):
        message = Message("orders", b"x")
        queue = producer.send(message).queue
        consumer.assign([queue])
        (polled,) = consumer.poll(timeout=30)
        good = {
            "message": message, "messages": [message], "topic": "orders", "queue": queue, "queues": [queue],
            "execute": committed, "offset": 0, "moment": polled.store_timestamp, "request": polled,
        }  # fmt: skip
        yield Running({sync.Producer: producer, sync.PullConsumer: consumer}, good)


@pytest.mark.parametrize(
    ("face", "asked", "name"),
    [
        pytest.param(face, asked, name, id=f"{face.__name__}-{asked}-{name}")
        for face, verbs in ASKED.items()
        for asked in verbs
        for name in parameters(getattr(face, asked))
        if name not in {"self", *MESSAGES}
    ],
)
def test_what_is_no_argument_of_what_a_client_is_asked_is_refused(
    running: Running, face: type, asked: str, name: str
) -> None:
    function = getattr(running.clients[face], asked)
    needed = {name for name, one in inspect.signature(function).parameters.items() if one.default is one.empty}
    good = {name: value for name, value in running.good.items() if name in needed} | ASKED[face][asked]
    check(function, function, good, name)


@pytest.mark.parametrize("asked", ["pause", "resume"])
def test_what_is_no_queue_is_not_paused(running: Running, asked: str) -> None:
    for value in bad_values(PullConsumer.position, "queue"):
        with pytest.raises(ConfigError, match=r"^queue "):
            getattr(running.clients[sync.PullConsumer], asked)(value)


def test_all_that_clients_have_is_in_the_tables() -> None:
    for client, face in FACES.items():
        for one in (client, face):
            verbs = {name for name, _ in inspect.getmembers(one, inspect.isfunction) if not name.startswith("_")}
            assert verbs - {"start", "close"} == set(ASKED[face])
    public = {getattr(reput.client, name) for name in reput.client.__all__}
    classes = {one for one in public if not issubclass(one, Exception | Enum)}
    results = {MessageClientExt, reput.client.SendResult, reput.client.TransactionSendResult}
    assert classes - results - {Message, MessageQueue} == {one for one in GOOD if inspect.isclass(one)}
