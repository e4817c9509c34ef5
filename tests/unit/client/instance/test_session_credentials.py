"""Clients with credentials against brokers that check who asks, by users (ACL 2.0) and by accounts (ACL 1.0)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.client import (
    AccessDeniedError,
    LocalTransactionState,
    Message,
    MQBrokerError,
    MQClientError,
    Producer,
    PullConsumer,
    PushConsumer,
    SessionCredentials,
    sync,
)
from reput.client.instance.mq_client_api import refusal
from reput.errors import ConfigError
from reput.remoting.acl import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, is_signed
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import SMALL, Served, serving_broker, with_topic
from tests.support.signed import ALICE_PASSWORD, AUTHORIZATION, SECRETS, entry, make_alice

ALICE = SessionCredentials("alice-1", ALICE_PASSWORD)
WRONG = SessionCredentials("alice-1", "a wrong secret of tests")
TO_DO = "give the access key and the secret key of a user who may do this"


def plain_acl(path: Path) -> dict[str, Any]:
    """The keys of a broker with accounts of plain_acl.yml."""
    (path / "conf").mkdir(parents=True)
    account = f"{{accessKey: alice-1, secretKey: {ALICE_PASSWORD}, topicPerms: [orders=PUB|SUB], groupPerms: [g=SUB]}}"
    (path / "conf/plain_acl.yml").write_text(f"accounts: [{account}]")
    return {"aclEnable": True, "rocketmqHome": str(path)}


@asynccontextmanager
async def checking_broker(path: Path, kind: str, **more: object) -> AsyncIterator[Served]:
    """A broker that knows alice, who may do all with the topic orders and the group g; the topic is there."""
    async with serving_broker(path / "store") as before:
        await with_topic(await before.client(), "orders")
    keys = AUTHORIZATION if kind == "2.0" else plain_acl(path)
    async with serving_broker(path / "store", **keys, **more) as served:
        if kind == "2.0":
            client = await served.client()
            await make_alice(
                client, entry("Topic:orders", "Pub", "Sub"), entry("Group:g", "Sub"), name=ALICE.access_key
            )
        yield served


@pytest.fixture(autouse=True)
def no_secret_in_a_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert not any(secret in caplog.text for secret in (*SECRETS, WRONG.secret_key))


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
async def test_what_is_signed_is_sent_pulled_pushed_and_committed(tmp_path: Path, kind: str) -> None:
    pushed: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: Any) -> None:
        pushed.put_nowait(message.body)

    async with checking_broker(tmp_path, kind) as served:
        where = served.controller.namesrv
        async with Producer(where, group="g", credentials=ALICE) as producer:
            await producer.send(Message("orders", b"one"))
            await producer.send_batch([Message("orders", b"two"), Message("orders", b"three")])
            await producer.send_oneway(Message("orders", b"four"))
        given = {"group": "g", "topics": {"orders": "*"}, "consume_from": "first", "credentials": ALICE}
        async with PullConsumer(where, **given) as consumer:
            bodies: list[bytes] = []
            while len(bodies) < 4:
                bodies += [message.body for message in await consumer.poll(timeout=30)]
            assert bodies == [b"one", b"two", b"three", b"four"]
            (queue,) = consumer.assignment
            await consumer.commit({queue: 3})
            assert await consumer.committed(queue) == 3
        async with PushConsumer(where, on_message=handle, **given):
            assert await pushed.get() == b"four"


@pytest.mark.parametrize("kind", ["1.0", "2.0"])
@pytest.mark.parametrize(
    ("credentials", "topic"),
    [
        (None, "orders"),
        (WRONG, "orders"),
        (SessionCredentials("nobody-1", ALICE_PASSWORD), "orders"),
        (ALICE, "TBW102"),
    ],
    ids=["no credentials", "a wrong secret", "an unknown user", "another topic"],
)
async def test_a_refusal_says_what_to_do_and_is_not_tried_again(
    tmp_path: Path, kind: str, credentials: SessionCredentials | None, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with checking_broker(tmp_path, kind) as served:
        where = served.controller.namesrv
        caplog.clear()
        async with Producer(where, group="g", credentials=credentials, retries=5) as producer:
            with pytest.raises(AccessDeniedError, match=TO_DO) as raised:
                await producer.send(Message(topic, b"one"))
            assert not raised.value.retriable
            sends = [one for one in caplog.messages if "request refused" in one and "code=310" in one]
            assert len(sends) == 1
        for consumer in (
            PullConsumer(where, group="g", topics={topic: "*"}, credentials=credentials),
            PushConsumer(where, group="g", topics={topic: "*"}, on_message=print, credentials=credentials),
        ):
            with pytest.raises(AccessDeniedError, match=TO_DO):
                await consumer.start()
            await consumer.close()


async def test_the_end_of_a_transaction_is_signed_when_a_broker_asks_for_it(tmp_path: Path) -> None:
    async with checking_broker(tmp_path, "2.0", transaction_check_interval=100, transaction_time_out=100) as served:
        where, asked = served.controller.namesrv, asyncio.Event()

        def check(message: Message) -> LocalTransactionState:
            asked.set()
            return LocalTransactionState.COMMIT_MESSAGE

        given = {"group": "g", "topics": {"orders": "*"}, "consume_from": "first", "credentials": ALICE}
        async with (
            Producer(where, group="g", check_transaction=check, credentials=ALICE) as producer,
            PullConsumer(where, **given) as consumer,
        ):
            await producer.send_in_transaction(Message("orders", b"paid"), lambda _: LocalTransactionState.UNKNOW)
            assert {message.body for message in await consumer.poll(timeout=30)} == {b"paid"}
            assert asked.is_set()


def test_a_face_without_asyncio_takes_credentials_too(tmp_path: Path) -> None:
    with Broker.start(
        tmp_path / "store", bind_address="127.0.0.1", brokerIP1="127.0.0.1", **SMALL, **AUTHORIZATION
    ) as it:
        with sync.Producer(it.namesrv, group="g") as producer, pytest.raises((AccessDeniedError, MQClientError)):
            producer.send(Message("orders", b"one"))
        root = SessionCredentials("root", SECRETS[0])
        with sync.Producer(it.namesrv, group="g", credentials=root) as producer:
            assert producer.send(Message("orders", b"one")).queue_offset == 0


def test_a_request_has_key_token_and_signature_and_never_the_secret() -> None:
    credentials = SessionCredentials("alice-1", ALICE_PASSWORD, "a token of tests")
    command = RemotingCommand(RequestCode.HEART_BEAT, body=b"{}")
    for _ in range(2):  # the next name server is asked with the same request
        credentials.sign(command)
        fields = dict(command.ext_fields or {})
        assert (fields[ACCESS_KEY], fields[SECURITY_TOKEN]) == ("alice-1", "a token of tests")
        assert is_signed(fields, b"{}", ALICE_PASSWORD)
    assert set(fields) == {ACCESS_KEY, SECURITY_TOKEN, SIGNATURE}
    assert ALICE_PASSWORD not in str(fields)


def test_secrets_are_in_no_repr_and_no_error() -> None:
    assert repr(SessionCredentials("alice-1", ALICE_PASSWORD, "a token")) == "SessionCredentials(access_key='alice-1')"
    for given, reason in (
        (("", ALICE_PASSWORD), "access_key is empty"),
        (("alice-1", ""), "secret_key is empty"),
        (("alice-1", ALICE_PASSWORD + "\udc80"), "secret_key is no text in UTF-8"),
        (("alice-1", ALICE_PASSWORD, ""), "security_token is empty"),
    ):
        with pytest.raises(ConfigError, match=reason) as raised:
            SessionCredentials(*given)
        assert ALICE_PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (16, "the topic[orders] sending message is forbidden", MQBrokerError),
        (16, "the topic[User: authentication] sending message is forbidden", MQBrokerError),
        (16, "the broker[10.0.0.1] pulling message is forbidden", MQBrokerError),
        (16, "subscription group no permission, username ", MQBrokerError),
        (1, "something else", MQBrokerError),
        (1, "User:alice", MQBrokerError),
        (14, "User:alice is not found.", MQBrokerError),
        # of 5.3.3, by its broker or by the texts of its classes
        (16, "authentication field is null", AccessDeniedError),
        (16, "username cannot be null.", AccessDeniedError),
        (16, "User:alice is not found.", AccessDeniedError),
        (16, "check signature failed.", AccessDeniedError),
        (16, "User:alice has no permission to access Topic:a from 10.0.0.1, no matched policies.", AccessDeniedError),
        (16, "create authentication context error.", AccessDeniedError),
        (16, "parse authorization context error.", AccessDeniedError),
        (16, "Authentication failed. Please verify the credentials and try again.", AccessDeniedError),
        (16, "Authorization failed. Please verify your access rights and try again.", AccessDeniedError),
        (16, "The authorizationMetadataProvider is not configured", AccessDeniedError),
        # of 4.9.7
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, org.a.B.c(B.java:1)",
         AccessDeniedError),
    ],
)  # fmt: skip
def test_only_a_question_of_who_asks_is_an_access_denied_error(
    code: int, remark: str, kind: type[MQBrokerError]
) -> None:
    assert type(refusal("10.0.0.1:10911", RemotingCommand(code, remark=remark))) is kind
