"""Arguments of all clients: one that is none is refused when it is given, by its name, with what is allowed."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pytest

import reput.client.sync as sync
from reput.admin.admin_client import AdminClient
from reput.client import (
    ClientTls,
    Message,
    MessageQueue,
    MessageSelector,
    Producer,
    PullConsumer,
    PullLimits,
    PushConsumer,
    SessionCredentials,
)
from reput.errors import ConfigError, MessageIllegalError


def _generator(_: object) -> Iterator[None]:
    yield


async def _asynchronous_generator(_: object) -> AsyncIterator[None]:
    yield


class _Generator:
    def __call__(self, _: object) -> Iterator[None]:
        yield


#: What runs nothing when it is called: each message would count as handled.
_GENERATORS = [_generator, _asynchronous_generator, _Generator(), partial(_generator)]
CLIENTS: list[type] = [Producer, PullConsumer, PushConsumer, AdminClient]
FACES: list[tuple[type, type]] = [
    (sync.Producer, Producer),
    (sync.PullConsumer, PullConsumer),
    (sync.PushConsumer, PushConsumer),
]
FINE: dict[str, object] = {
    "namesrv": "127.0.0.1:9876",
    "group": "billing",
    "topics": {"orders": "*"},
    "on_message": print,
}
_NO_NUMBER: list[object] = ["3", None, True, float("nan"), b"1", [1], np.array([1, 2])]
#: A number that no float, and one that no text of Python holds.
_ENDLESS: list[object] = [10**400, 10**5000]
_NO_SECONDS = [*_NO_NUMBER, *_ENDLESS, -1, 0]
_NO_FLAG = [None, 0, 1, "no", "false"]
#: What is none, by the name of an argument.
BAD: dict[str, list[object]] = {
    "namesrv": [
        "",
        ";",
        "127.0.0.1",
        ":9876",
        "x:0",
        "x:65536",
        "x:y",
        "http://x:1",
        "a b:1",
        "x:1;y",
        None,
        5,
        ["x:1"],
    ],
    "group": ["", "billing.v2", "has blank", "g" * 256, None, 3],
    "topics": ["orders", ["orders"], {}, {1: "*"}, {"orders": 5}],
    "on_message": [None, 5, "print", *_GENERATORS],
    "check_transaction": [5, "print", *_GENERATORS],
    "consume_from": ["begin", None, 0, np.array(["first", "last"])],
    "timeout": _NO_SECONDS,
    "consume_timeout": _NO_SECONDS,
    "close_timeout": [*_NO_NUMBER, *_ENDLESS, -1],
    "retries": [*_NO_NUMBER, -1, 1.5],
    "concurrency": [*_NO_NUMBER, -1, 0, 1.5],
    "max_reconsume_times": ["3", True, -2, 1.5, 1 << 31],
    "auto_batch": _NO_FLAG,
    "orderly": _NO_FLAG,
    "broadcasting": _NO_FLAG,
    "trace": [None, 0, 1, "", "has blank", "a.b"],
    "namespace": [5, "a%b", "a b", True, "n" * 126],
    "offsets_path": ["", 5, True, "a\0b", "\ud800"],
    "tls": [True, "cert.pem", {}],
    "credentials": ["alice", ("alice", "secret"), True],
    "limits": [1000, {"count": 5}],
    "count": [*_NO_NUMBER, 0, -1],
    "bytes": [*_NO_NUMBER, 0, -1],
    "span": ["3", True, 0, -1],
    "batch": [*_NO_NUMBER, 0, -1, 1 << 31],
    "access_key": ["", None, 5, "\ud800"],
    "secret_key": ["", None, 5],
    "security_token": ["", 5],
    "auth_server": _NO_FLAG,
    "trust_cert_path": [5, True],
    "cert_path": [5, True],
    "key_path": [5, True],
    "key_password": [5, True],
    "expression": [None, 5, ["a"]],
    "expression_type": ["SQL", None],
}
#: Of an argument that is another one elsewhere.
BAD_OF: dict[tuple[type, str], list[object]] = {
    (Producer, "topics"): ["orders", b"orders", None, 5, [5], ["has blank"], ["orders", ""]],
}
PARTS: list[tuple[type, Mapping[str, object]]] = [
    (PullLimits, {}),
    (SessionCredentials, {"access_key": "alice", "secret_key": "secret"}),
    (ClientTls, {"cert_path": "cert.pem", "key_path": "key.pem"}),
    (MessageSelector, {"expression": "paid"}),
]


def names_of(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)


def made(kind: Callable[..., object], given: Mapping[str, object], name: str, value: object) -> object:
    return kind(**{**given, name: value})


@pytest.mark.parametrize("kind", [*CLIENTS, *(kind for kind, _ in PARTS)])
def test_every_argument_refuses_what_is_none_by_its_name(kind: type) -> None:
    fine = {name: value for name, value in FINE.items() if name in names_of(kind)} | dict(PARTS).get(kind, {})
    kind(**fine)
    for name in names_of(kind):
        for value in BAD_OF.get((kind, name), BAD[name]):  # a new argument is in this table, too
            with pytest.raises(ConfigError, match=name):
                made(kind, fine, name, value)


@pytest.mark.parametrize(("face", "client"), FACES)
def test_a_face_without_asyncio_refuses_the_same(face: type, client: type) -> None:
    fine = {name: value for name, value in FINE.items() if name in names_of(client)}
    face(**fine)
    for name in names_of(client):
        for value in BAD_OF.get((client, name), BAD[name]):
            with pytest.raises(ConfigError, match=name):
                made(face, fine, name, value)


@pytest.mark.parametrize("execute", [None, 5, *_GENERATORS])
def test_a_face_without_asyncio_refuses_what_runs_no_transaction_before_its_message_is_sent(execute: Any) -> None:
    with (
        sync.Producer("127.0.0.1:1", group="g", check_transaction=print) as producer,
        pytest.raises(ConfigError, match="execute"),
    ):
        producer.send_in_transaction(MESSAGE, execute)


@pytest.mark.parametrize(
    ("kind", "name", "value", "text"),
    [
        (PushConsumer, "concurrency", 0, "concurrency 0: expected a whole number, 1 or more"),
        (PushConsumer, "max_reconsume_times", "3", "max_reconsume_times '3': expected a whole number, -1 or more"),
        (
            PushConsumer,
            "max_reconsume_times",
            1 << 31,
            "max_reconsume_times 2147483648: expected a whole number, -1 to 2147483647",
        ),
        (PushConsumer, "on_message", None, "on_message None: expected a function"),
        (Producer, "timeout", 0, "timeout 0: expected seconds, more than 0"),
        (Producer, "auto_batch", "no", "auto_batch 'no': expected True or False"),
        (Producer, "tls", True, "tls True: expected None or an object of reput.client.ClientTls"),
        (
            Producer,
            "namesrv",
            "http://x:1",
            "namesrv: name server 'http://x:1': expected HOST:PORT, as in 127.0.0.1:9876",
        ),
    ],
)
def test_the_error_tells_what_was_given_and_what_is_allowed(kind: type, name: str, value: object, text: str) -> None:
    fine = {name: value for name, value in FINE.items() if name in names_of(kind)}
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        made(kind, fine, name, value)


def test_what_rocketmq_takes_is_taken() -> None:
    """Java's -1 for the times, an orderly consumer that broadcasts, and NumPy's numbers."""
    PushConsumer(
        "a:1,b:2; [::1]:9876", group="g", topics={"o": "a||b"}, on_message=print, orderly=True, broadcasting=True,
        max_reconsume_times=-1, concurrency=np.int64(3), close_timeout=0, consume_timeout=np.float32(1.5),
        trace="traces", namespace="", limits=PullLimits(span=None),
    )  # fmt: skip


@pytest.mark.parametrize("tags", ["a && b", "a,b", "a | b", "a || b;c"])
@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_tags_that_seem_to_be_several_are_told(kind: type, tags: str, caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ takes them for one tag without a word."""
    fine = {name: value for name, value in FINE.items() if name in names_of(kind)}
    kind(**fine | {"topics": {"orders": tags}})
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("reput.client", "WARNING")
    assert "|| alone separates tags" in record.getMessage()


@pytest.mark.parametrize("tags", ["*", "", "a || b", "a-b_c.d", MessageSelector.by_sql("a IN ('x', 'y')")])
def test_other_tags_are_taken_without_a_word(tags: str | MessageSelector, caplog: pytest.LogCaptureFixture) -> None:
    PullConsumer("x:1", group="g", topics={"orders": tags})
    assert not caplog.records


async def test_arguments_of_a_poll_are_checked() -> None:
    consumer = PullConsumer("x:1", group="g", topics={"orders": "*"})
    for count in (0, -1, "5", 1.5, None):
        with pytest.raises(ConfigError, match="max_messages"):
            await consumer.poll(count)  # type: ignore[arg-type]
    for timeout in (-1, "1", True, float("nan"), 10**400):
        for ask in (consumer.poll, consumer.poll_arrow):
            with pytest.raises(ConfigError, match="timeout"):
                await ask(timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="timeout"):
            consumer.tail(timeout)  # type: ignore[arg-type]


#: Queues of which a part is none.
_ODD_QUEUES: list[object] = [
    MessageQueue("", "broker-a", 0), MessageQueue(None, "broker-a", 0), MessageQueue("orders", "", 0),  # type: ignore[arg-type]
    MessageQueue("orders", 5, 0), MessageQueue("orders", "broker-a", -1), MessageQueue("orders", "broker-a", True),  # type: ignore[arg-type]
    MessageQueue("orders", "broker-a", "0"), MessageQueue("orders", "broker-a", 1 << 31),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("queue", ["orders", ("orders", "broker-a", 0), 5])
async def test_what_is_no_queue_is_refused_where_it_is_given(queue: Any) -> None:
    expected = r"queue .*: expected a reput\.client\.MessageQueue"
    consumer = PullConsumer("x:1", group="g")
    with pytest.raises(ConfigError, match=expected):
        consumer.assign([queue])
    with pytest.raises(ConfigError, match=expected):
        await consumer.commit({queue: 1})
    async with Producer("127.0.0.1:1", group="g") as producer:
        with pytest.raises(ConfigError, match=expected):
            await producer.send(Message("orders", b"x"), queue=queue)
        with pytest.raises(ConfigError, match=expected):
            await producer.send_batch([Message("orders", b"x")], queue=queue)


@pytest.mark.parametrize("namespace", [None, "ns"])
@pytest.mark.parametrize("auto_batch", [False, True])
async def test_a_message_goes_to_no_queue_of_another_topic(namespace: str | None, *, auto_batch: bool) -> None:
    """As Java's "message's topic not equal mq's topic": the message went to its own topic, and the result lied."""
    text = "queue .*'bills'.*: expected a queue of the message's topic orders$"
    async with Producer("127.0.0.1:1", group="g", namespace=namespace, auto_batch=auto_batch) as producer:
        with pytest.raises(ConfigError, match=text):
            await producer.send(MESSAGE, queue=MessageQueue("bills", "broker-a", 0))
        with pytest.raises(ConfigError, match=text):
            await producer.send_batch([MESSAGE], queue=MessageQueue("bills", "broker-a", 0))


@pytest.mark.parametrize("offset", ["5", -1, 1.5, None, True])
async def test_what_is_no_offset_is_refused_where_it_is_given(offset: Any) -> None:
    consumer = PullConsumer("x:1", group="g")
    with pytest.raises(ConfigError, match=r"offset .*: expected a whole number, 0 or more"):
        consumer.seek(MessageQueue("orders", "broker-a", 0), offset)
    with pytest.raises(ConfigError, match=r"offset .*: expected a whole number, 0 or more"):
        await consumer.commit({MessageQueue("orders", "broker-a", 0): offset})


_NO_QUEUE: list[object] = [*_ODD_QUEUES, "orders", ("orders", "broker-a", 0), 5, None]
_NO_TOPIC: list[object] = ["", "has blank", 5, None, b"orders", ["orders"]]
_NO_MOMENT: list[object] = [0, "now", None, datetime(2026, 1, 1)]
_NO_FUNCTION: list[object] = [None, 5, "print", *_GENERATORS]
QUEUE = MessageQueue("orders", "broker-a", 0)
MESSAGE = Message("orders", b"x")
#: Of methods: what is fine, and what is none by the name of an argument.
METHODS: list[tuple[type, str, dict[str, object], dict[str, list[object]]]] = [
    (
        PullConsumer,
        "poll",
        {},
        {"max_messages": [0, -1, "5", 1.5, None], "timeout": [-1, "1", True, float("nan"), None]},
    ),
    (PullConsumer, "poll_arrow", {}, {"timeout": [-1, "1", True, None]}),
    (PullConsumer, "tail", {}, {"timeout": [-1, "1", True]}),
    (
        PullConsumer,
        "seek",
        {"queue": QUEUE, "offset": 0},
        {"queue": _NO_QUEUE, "offset": ["5", -1, 1.5, None, True, 1 << 63]},
    ),
    (PullConsumer, "seek_to_begin", {}, {"queue": _NO_QUEUE}),
    (PullConsumer, "seek_to_end", {}, {"queue": _NO_QUEUE}),
    (PullConsumer, "position", {}, {"queue": _NO_QUEUE}),
    (PullConsumer, "committed", {}, {"queue": _NO_QUEUE}),
    (PullConsumer, "queues", {}, {"topic": _NO_TOPIC}),
    (PullConsumer, "assign", {}, {"queues": [5, None, ["orders"]]}),
    (PullConsumer, "commit", {}, {"offsets": [5, [QUEUE], {QUEUE: -1}, {QUEUE: "1"}, {QUEUE: 1 << 63}]}),
    (
        PullConsumer,
        "offset_of_time",
        {"queue": QUEUE, "moment": datetime.now(UTC)},
        {"queue": _NO_QUEUE, "moment": _NO_MOMENT},
    ),
    (Producer, "send", {"message": MESSAGE}, {"queue": _NO_QUEUE[:-1], "sharding_key": [5, b"k", ["k"]]}),
    (Producer, "send_oneway", {"message": MESSAGE}, {"sharding_key": [5, b"k"]}),
    (Producer, "send_batch", {"messages": [MESSAGE]}, {"queue": _NO_QUEUE[:-1]}),
    (Producer, "queues", {}, {"topic": _NO_TOPIC}),
    (
        Producer,
        "recall",
        {"topic": "orders", "recall_handle": "x"},
        {"topic": _NO_TOPIC, "recall_handle": [5, None, b"x"]},
    ),
    (Producer, "request", {"message": MESSAGE}, {"timeout": [*_NO_SECONDS, float("inf")]}),
    (Producer, "reply", {"body": b"x"}, {"request": [MESSAGE, None, 5, b"x"]}),
    (Producer, "send_in_transaction", {"message": MESSAGE}, {"execute": _NO_FUNCTION}),
]


async def called(client: object, method: str, given: Mapping[str, object]) -> None:
    result = getattr(client, method)(**given)
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize(
    ("kind", "method", "fine", "bad"), METHODS, ids=[f"{one[0].__name__}.{one[1]}" for one in METHODS]
)
async def test_every_argument_of_a_method_refuses_what_is_none_by_its_name(
    kind: type, method: str, fine: dict[str, object], bad: dict[str, list[object]]
) -> None:
    async with kind("127.0.0.1:1", group="g") as client:
        for name, values in bad.items():
            for value in values:
                with pytest.raises(ConfigError, match=f"^({name}|queue|offset) "):
                    await called(client, method, fine | {name: value})


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [(Producer, {"close", "start", "send_arrow"}), (PullConsumer, {"close", "start", "pause", "resume"})],
)
def test_each_public_method_is_in_the_table(kind: type, left_out: set[str]) -> None:
    """But for those without an argument, those that take any number of queues, and rows, which have their own tests."""
    public = {name for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")}
    assert public - left_out == {method for of, method, *_ in METHODS if of is kind}


@pytest.mark.parametrize("given", [[MESSAGE], (MESSAGE,)])
@pytest.mark.parametrize("method", ["send", "send_oneway", "request"])
@pytest.mark.parametrize("namespace", [None, "ns"])
async def test_a_list_of_messages_where_one_is_sent_is_told_of_send_batch(
    given: Any, method: str, namespace: str
) -> None:
    async with Producer("127.0.0.1:1", group="g", namespace=namespace) as producer:
        with pytest.raises(MessageIllegalError, match="send it with send_batch"):
            await getattr(producer, method)(given)


@pytest.mark.parametrize("given", [5, None, "x", MESSAGE, {}])
async def test_what_is_no_list_of_messages_is_told(given: Any) -> None:
    async with Producer("127.0.0.1:1", group="g") as producer:
        with pytest.raises(MessageIllegalError, match="a batch is a list of messages"):
            await producer.send_batch(given)


async def test_an_error_shows_the_begin_of_a_long_argument() -> None:
    async with Producer("127.0.0.1:1", group="g") as producer:
        with pytest.raises(ConfigError, match=r"^request 'x{199}\.\.\.: expected the message"):
            await producer.reply("x" * 100_000, b"")  # type: ignore[arg-type]
