"""Who may do what: a request that each rule refuses, beside one that it allows."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from reput.errors import ConfigError
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    SYNCED,
    batch_command,
    consumer,
    controller_of,
    pull_command,
    send_command,
    serving_broker,
    texts,
)
from tests.support.signed import (
    ALICE_PASSWORD,
    AUTHENTICATION,
    AUTHORIZATION,
    ROOT_PASSWORD,
    SECRETS,
    as_root,
    ask_as,
    entry,
    make_alice,
    signed,
)

NO_PERMISSION = 16


def heartbeat(*groups: dict[str, object]) -> RemotingCommand:
    body = {"clientID": "c", "consumerDataSet": list(groups), "producerDataSet": []}
    return RemotingCommand(RequestCode.HEART_BEAT, ext_fields={}, body=json.dumps(body).encode())


def request(code: int, **fields: object) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=texts(fields))


@pytest.mark.parametrize("keys", [{}, SYNCED])
async def test_nothing_unsigned_is_stored_not_even_by_the_kernel(tmp_path: Path, keys: dict[str, object]) -> None:
    async with serving_broker(tmp_path, **AUTHENTICATION, **keys) as served:
        client = await served.client()
        mine = signed(send_command("orders", b"mine"), "root", ROOT_PASSWORD)
        assert (await client.begin_all([mine])[0]).code == 0
        plain = [send_command("orders", b"x") for _ in range(20)]
        again = [signed(send_command("orders", b"mine"), "root", ROOT_PASSWORD) for _ in range(20)]
        one_way = send_command("orders", b"x", one_way=True)
        mixed = [one for pair in zip(plain, again, strict=True) for one in pair]
        answers = [await one for one in client.begin_all([one_way, *mixed])[1:]]
        assert [one.code for one in answers] == [NO_PERMISSION, 0] * 20
        stored = await as_root(client, RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        assert stored.ext_fields["offset"] == "21"


async def test_a_signature_has_to_be_right_and_to_belong_to_a_user_that_is_enabled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async with serving_broker(tmp_path, **AUTHENTICATION) as served:
        client = await served.client()
        get = RequestCode.GET_MAX_OFFSET

        async def remark(command: RemotingCommand) -> str:
            answer = await client.begin_all([command])[0]
            assert answer.code == NO_PERMISSION
            return str(answer.remark)

        fields = {"topic": "orders", "queueId": 0}
        assert await remark(RemotingCommand(get)) == "authentication field is null"
        assert await remark(request(get, **fields)) == "username cannot be null."
        assert await remark(signed(request(get, **fields), "bob", "x")) == "User:bob is not found."
        assert await remark(signed(request(get, **fields), "root", "wrong")) == "check signature failed."
        late = signed(request(get, **fields), "root", ROOT_PASSWORD)
        assert late.ext_fields is not None
        late.ext_fields["queueId"] = "1"
        assert await remark(late) == "check signature failed."
        body = signed(heartbeat(), "root", ROOT_PASSWORD)
        body.body += b" "
        assert await remark(body) == "check signature failed."
        await make_alice(client)
        assert (await ask_as(client, "alice", ALICE_PASSWORD, get, **fields)).code == 0
        await as_root(client, RequestCode.AUTH_UPDATE_USER, {"userStatus": "disable"}, username="alice")
        assert await remark(signed(request(get, **fields), "alice", ALICE_PASSWORD)) == "User:alice is disabled."
    assert "request refused" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)


TOPIC, GROUP = entry("Topic:orders", "Pub"), entry("Group:g", "Sub")
SUB = entry("Topic:orders", "Sub")
CASES = [
    (lambda: send_command("orders"), [TOPIC]),
    (lambda: send_command("orders", code=RequestCode.SEND_MESSAGE), [TOPIC]),
    (lambda: batch_command("orders", [b"a", b"b"]), [TOPIC]),
    (lambda: pull_command("orders", group="g"), [SUB, GROUP]),
    (lambda: pull_command("orders", group="g", code=RequestCode.LITE_PULL_MESSAGE), [SUB, GROUP]),
    (lambda: pull_command("%RETRY%g", group="g"), [GROUP]),
    (lambda: heartbeat(consumer("g", "orders")), [SUB, GROUP]),
    (lambda: request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0), [entry("Topic:orders", "Get")]),
    (
        lambda: request(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="orders", queueId=0, commitOffset=1
        ),
        [SUB, GROUP],
    ),
    (lambda: request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g"), [GROUP]),
    (lambda: request(RequestCode.UNREGISTER_CLIENT, clientID="c", consumerGroup="g"), [GROUP]),
    (lambda: request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"), [entry("Topic:orders", "Delete")]),
    (lambda: request(RequestCode.GET_BROKER_RUNTIME_INFO), [entry("Cluster:DefaultCluster", "Get")]),
    (lambda: request(RequestCode.AUTH_LIST_USER), [entry("Cluster:*", "Get")]),
    (
        lambda: RemotingCommand(
            RequestCode.LOCK_BATCH_MQ, ext_fields={}, body=b'{"clientId":"c","consumerGroup":"g","mqSet":[]}'
        ),
        [GROUP],
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
async def test_each_request_needs_all_of_its_policies(tmp_path: Path, number: int) -> None:
    make, entries = CASES[number]

    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client)

        async def code() -> int:
            return int((await client.begin_all([signed(make(), "alice", ALICE_PASSWORD)])[0]).code)

        for one in entries:
            assert await code() == NO_PERMISSION
            await make_alice(client, one)
        assert await code() != NO_PERMISSION


async def test_a_request_without_a_rule_is_for_super_users(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("*", "All"))
        code = RequestCode.RESUME_CHECK_HALF_MESSAGE
        answer = await ask_as(client, "alice", ALICE_PASSWORD, code, topic="t", msgId="x")
        assert answer.code in (3, NO_PERMISSION)  # 3: nobody takes it
        assert (await ask_as(client, "alice", ALICE_PASSWORD, RequestCode.HEART_BEAT, b"no json")).remark == (
            "parse authorization context error"
        )


async def test_a_refusal_names_user_resource_address_and_reason(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("Topic:denied", "All", decision="Deny"))
        for topic, why in (("orders", "no matched policies."), ("denied", "the decision is deny.")):
            answer = await client.begin_all([signed(send_command(topic), "alice", ALICE_PASSWORD)])[0]
            assert answer.remark == f"User:alice has no permission to access Topic:{topic} from 127.0.0.1, {why}"


async def test_white_lists_let_requests_in_by_their_codes(tmp_path: Path) -> None:
    keys = {"authenticationWhitelist": "30, 34", "authorizationWhitelist": "30"}
    async with serving_broker(tmp_path, **AUTHORIZATION, **keys) as served:
        client = await served.client()
        fields = {"topic": "orders", "queueId": 0}
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, **fields)).code == 0
        assert (await client.ask(RequestCode.GET_MIN_OFFSET, **fields)).code == NO_PERMISSION
        unsigned = heartbeat(consumer("g", "orders"))  # no signature is asked for, and a policy is
        assert (await client.begin_all([unsigned])[0]).code == NO_PERMISSION


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"authorizationEnabled": True}, "authorizationEnabled needs authenticationEnabled"),
        ({"initAuthenticationUser": '{"username":"root-of-tests"}'}, "initAuthenticationUser: expected"),
        ({"initAuthenticationUser": "root-of-tests"}, "initAuthenticationUser: expected"),
        ({"innerClientAuthenticationCredentials": '["root-of-tests"]'}, "innerClientAuthenticationCredentials: expec"),
        ({"authenticationWhitelist": "34;38"}, "authenticationWhitelist=34;38: expected request codes"),
    ],
)
async def test_keys_that_are_wrong_stop_the_start_and_no_error_has_the_secret(
    tmp_path: Path, keys: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        await controller_of(tmp_path / "store", **keys).start()
    assert "root-of-tests" not in str(caught.value)
    assert not (tmp_path / "store").exists()


async def test_keys_of_access_are_not_changed_by_requests_and_secrets_not_shown(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHENTICATION) as served:
        client = await served.client()
        shown = bytes((await as_root(client, RequestCode.GET_BROKER_CONFIG)).body).decode()
        assert "initAuthenticationUser=******" in shown
        assert ROOT_PASSWORD not in shown
        for text in ("authenticationEnabled=false", "authentication_enabled=false", "initAuthenticationUser={}"):
            answer = await ask_as(client, "root", ROOT_PASSWORD, RequestCode.UPDATE_BROKER_CONFIG, text.encode())
            assert (answer.code, answer.remark) == (NO_PERMISSION, "Can not update config in black list.")
