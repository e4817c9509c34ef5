"""Users and policies, made and changed by an operator's requests: answers as 5.3.3's, and what is on the disk."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from reput.errors import CorruptMetadataError
from reput.remoting.codes import RequestCode as Code
from reput.remoting.command import RemotingCommand
from tests.support.broker import controller_of, serving_broker
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
)

KEPT = {"authenticationMetadataProvider": "local", "initAuthenticationUser": AUTHENTICATION["initAuthenticationUser"]}
FILE = Path("config/reputAccess.json")
ACL = {"subject": "User:alice", "policies": [{"entries": [entry("Topic:abc*", "Pub", "Sub", ips=("192.168.0.0/24",))]}]}


def body(answer: RemotingCommand) -> Any:
    return json.loads(bytes(answer.body)) if answer.body else None


async def test_answers_are_those_that_rocketmqs_broker_gave(tmp_path: Path) -> None:
    alice = {"password": "newpassword1", "userStatus": "disable", "userType": "Normal", "username": "alice"}
    steps: list[tuple[int, dict[str, str], Any, int, str | None, Any]] = [
        (Code.AUTH_CREATE_USER, {"username": "alice"}, {"password": "p", "userType": "Normal"}, 0, None, None),
        (Code.AUTH_CREATE_USER, {"username": "alice"}, {"password": "p"}, 16, "The user is existed", None),
        (Code.AUTH_CREATE_USER, {"username": ""}, {"password": "x"}, 29, "The username is blank", None),
        (Code.AUTH_UPDATE_USER, {"username": "alice"}, alice, 0, None, None),
        (Code.AUTH_UPDATE_USER, {"username": "nobody"}, {"password": "x"}, 16, "The user is not exist", None),
        (Code.AUTH_GET_USER, {"username": "alice"}, None, 0, None, alice),
        (Code.AUTH_GET_USER, {"username": "nobody"}, None, 0, None, None),
        (Code.AUTH_LIST_USER, {"filter": "ali"}, None, 0, None, [alice]),
        (Code.AUTH_LIST_USER, {"filter": "zzz"}, None, 0, None, None),
        (Code.AUTH_CREATE_ACL, {"subject": "User:alice"}, ACL, 0, None, None),
        (Code.AUTH_GET_ACL, {"subject": "User:nobody"}, None, 16, "The subject is not exist.", None),
        (Code.AUTH_DELETE_ACL, {"subject": "User:nobody"}, None, 16, "The subject is not exist.", None),
        (Code.AUTH_CREATE_ACL, {"subject": "User:alice"}, None, 1, None, None),
        (Code.AUTH_DELETE_USER, {"username": "nobody"}, None, 0, None, None),
    ]

    async with serving_broker(tmp_path, **KEPT) as served:
        client = await served.client()
        for code, fields, sent, expected, remark, found in steps:
            answer = await client.ask(code, b"" if sent is None else json.dumps(sent).encode(), **fields)
            assert answer.code == expected, (code, fields, answer)
            assert remark is None or answer.remark == remark
            assert expected or body(answer) == found


async def test_policies_are_merged_by_resource_shown_and_deleted_one_by_one(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("Topic:a", "Pub"), entry("Group:g*", "Sub", ips=("10.0.0.1",)))
        await make_alice(client, entry("Topic:a", "Sub", decision="Deny"))
        await make_alice(client, entry("*", "All"), policy_type="Default")
        expected = {
            "policies": [
                {
                    "policyType": "Custom",
                    "entries": [
                        {"resource": "Topic:a", "actions": ["Sub"], "decision": "Deny"},
                        {
                            "resource": "Group:g*",
                            "actions": ["Sub"],
                            "decision": "Allow",
                            "sourceIps": ["10.0.0.1"],
                        },
                    ],
                },
                {"policyType": "Default", "entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]},
            ],
            "subject": "User:alice",
        }
        assert body(await as_root(client, Code.AUTH_GET_ACL, subject="User:alice")) == expected
        listed = body(await as_root(client, Code.AUTH_LIST_ACL, subjectFilter="ali", resourceFilter="Group"))
        assert [one["entries"][0]["resource"] for one in listed[0]["policies"]] == ["Group:g*"]
        await as_root(client, Code.AUTH_DELETE_ACL, subject="User:alice", resource="Group:g*")
        await as_root(client, Code.AUTH_DELETE_ACL, subject="User:alice", resource="*", policyType="Default")
        left = body(await as_root(client, Code.AUTH_GET_ACL, subject="User:alice"))
        assert [one["entries"] for one in left["policies"]] == [expected["policies"][0]["entries"][:1]]  # type: ignore[index]
        await as_root(client, Code.AUTH_DELETE_ACL, subject="User:alice")
        assert body(await as_root(client, Code.AUTH_GET_ACL, subject="User:alice")) is None


async def test_users_and_policies_outlive_the_broker_and_their_file_is_its_owners_alone(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("Topic:orders", "Get"))
        mode = stat.S_IMODE((tmp_path / FILE).stat().st_mode)
        assert mode == 0o600
    keys = AUTHORIZATION | {"initAuthenticationUser": '{"username":"root","password":"another"}'}
    async with serving_broker(tmp_path, **keys) as served:  # the first start alone makes it
        client = await served.client()
        assert (await ask_as(client, "alice", ALICE_PASSWORD, Code.GET_MAX_OFFSET, topic="orders", queueId=0)).code == 0
        await as_root(client, Code.AUTH_DELETE_USER, username="alice")
        await make_alice(client)
        answer = await ask_as(client, "alice", ALICE_PASSWORD, Code.GET_MAX_OFFSET, topic="orders", queueId=0)
        assert answer.code == 16  # the policies went with the user


@pytest.mark.parametrize(
    ("code", "fields", "sent"),
    [
        (Code.AUTH_CREATE_USER, {"username": "eve"}, {"password": "x", "userType": "Super"}),
        (Code.AUTH_UPDATE_USER, {"username": "alice"}, {"userType": "Super"}),
        (Code.AUTH_UPDATE_USER, {"username": "root"}, {"password": "mine"}),
        (Code.AUTH_DELETE_USER, {"username": "root"}, None),
    ],
)
async def test_super_users_are_for_super_users(tmp_path: Path, code: int, fields: dict[str, str], sent: Any) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("Cluster:*", "All"))
        assert (await ask_as(client, "alice", ALICE_PASSWORD, code, sent, **fields)).code == 16
        assert (await as_root(client, Code.AUTH_LIST_USER)).code == 0


BAD_ENTRIES: list[Any] = [
    entry("Topic", "Pub"),
    entry("Nothing:a", "Pub"),
    entry("Topic:a", "Dance"),
    entry("Topic:a"),
    entry("Topic:a", "Any"),
    entry("Topic:a", "Pub", decision="Maybe"),
    entry("Topic:a", "Pub", ips=("nowhere",)),
    "text",
    {"resource": 5},
]


@pytest.mark.parametrize(
    "sent", [{"policies": [{"entries": [one]}]} for one in BAD_ENTRIES] + [{}, [], "x", {"policies": 5}]
)
async def test_bad_policies_change_nothing(tmp_path: Path, sent: Any) -> None:
    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client)
        before = (tmp_path / FILE).read_bytes()
        answer = await ask_as(client, "root", ROOT_PASSWORD, Code.AUTH_CREATE_ACL, sent, subject="User:alice")
        assert answer.code in (1, 29)
        assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"users":{"a":{}},"acls":{}}', b'{"users": {"a": "alice-secret-of-tests']
)
async def test_a_damaged_file_stops_the_start_and_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CorruptMetadataError, match=r"reputAccess\.json") as caught:
        await controller_of(tmp_path, **AUTHENTICATION).start()
    assert ALICE_PASSWORD not in str(caught.value)
    assert (tmp_path / FILE).read_bytes() == content


async def test_a_broker_that_keeps_no_users_says_so(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        answer = await (await served.client()).ask(Code.AUTH_LIST_USER)
        assert (answer.code, answer.remark) == (1, "An system error occurred, please try again later.")


async def test_no_log_has_a_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async with serving_broker(tmp_path, **AUTHORIZATION) as served:
        client = await served.client()
        await make_alice(client, entry("Topic:orders", "Pub"))
        broken = b'{"password":"' + ALICE_PASSWORD.encode()
        answer = await ask_as(client, "root", ROOT_PASSWORD, Code.AUTH_CREATE_USER, broken, username="bob")
        assert answer.code == 29
        assert ALICE_PASSWORD not in str(answer.remark)
    assert "access changed" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)
