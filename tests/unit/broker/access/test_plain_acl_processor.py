"""Accounts of plain_acl.yml, changed and shown by requests of administrators (4.9's codes 50 to 54)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from reput.remoting.codes import RequestCode as Code
from reput.remoting.command import RemotingCommand
from tests.support.broker import Client, send_command, serving_broker, texts
from tests.support.signed import signed

SECRET, ADMIN_SECRET = "plain-secret-of-tests", "admin-secret-of-tests"
ADMIN, USER = ("RocketMQAdmin", ADMIN_SECRET), ("RocketMQ", SECRET)
FILE = f"""accounts:
- {{accessKey: RocketMQAdmin, secretKey: {ADMIN_SECRET}, admin: true}}
- {{accessKey: RocketMQ, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB, topicPerms: [a=PUB]}}
"""
NEW = ("NewUser", SECRET)
PUT = {"accessKey": "NewUser", "secretKey": SECRET, "topicPerms": "orders=PUB", "admin": "false"}
ASKED: list[tuple[int, dict[str, str]]] = [
    (Code.UPDATE_AND_CREATE_ACL_CONFIG, PUT),
    (Code.DELETE_ACL_CONFIG, {"accessKey": "RocketMQ"}),
    (Code.GET_BROKER_CLUSTER_ACL_INFO, {}),
    (Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0.0.1"}),
    (Code.GET_BROKER_CLUSTER_ACL_CONFIG, {}),
]


def keys(home: Path) -> dict[str, object]:
    path = home / "conf/plain_acl.yml"
    path.parent.mkdir(parents=True)
    path.write_text(FILE)
    return {"aclEnable": True, "rocketmqHome": str(home)}


async def ask(client: Client, account: tuple[str, str], code: int, fields: dict[str, str]) -> RemotingCommand:
    return await client.begin_all([signed(RemotingCommand(code, ext_fields=texts(fields)), *account)])[0]


async def test_an_administrator_changes_accounts_which_count_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async with serving_broker(tmp_path / "store", **keys(tmp_path)) as served:
        client = await served.client()

        async def sent() -> Any:
            return (await client.begin_all([signed(send_command("orders"), *NEW)])[0]).remark

        assert "No acl config for NewUser" in str(await sent())
        assert (await ask(client, ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, PUT)).code == 0
        assert await sent() is None
        less = PUT | {"topicPerms": "orders=SUB"}
        assert (await ask(client, ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, less)).code == 0
        assert "No permission for topic:orders" in str(await sent())
        assert (await ask(client, ADMIN, Code.DELETE_ACL_CONFIG, {"accessKey": "NewUser"})).code == 0
        assert "No acl config for NewUser" in str(await sent())
        white = {"globalWhiteAddrs": "10.0.0.1,127.0.0.*"}
        assert (await ask(client, ADMIN, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, white)).code == 0
        assert (await client.send_message("orders")).remark is None
    assert caplog.text.count("accounts changed") == 4
    assert SECRET not in caplog.text
    assert ADMIN_SECRET not in caplog.text


async def test_an_administrator_sees_accounts_and_versions_as_of_4_9(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **keys(tmp_path)) as served:
        client = await served.client()
        await ask(client, ADMIN, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0.0.1"})
        found = await ask(client, ADMIN, Code.GET_BROKER_CLUSTER_ACL_CONFIG, {})
        assert json.loads(bytes(found.body)) == {
            "globalWhiteAddrs": ["10.0.0.1"],
            "plainAccessConfigs": [
                {"accessKey": "RocketMQAdmin", "secretKey": ADMIN_SECRET, "admin": True},
                {
                    "accessKey": "RocketMQ", "secretKey": SECRET, "defaultTopicPerm": "PUB|SUB",
                    "defaultGroupPerm": "SUB", "topicPerms": ["a=PUB"], "admin": False,
                },
            ],
        }  # fmt: skip
        fields = (await ask(client, ADMIN, Code.GET_BROKER_CLUSTER_ACL_INFO, {})).ext_fields or {}
        version = json.loads(fields["version"])
        assert (version["counter"], version["timestamp"] > 1_700_000_000_000) == (1, True)
        assert json.loads(fields["allAclFileVersion"]) == {str(tmp_path / "conf/plain_acl.yml"): version}
        names = fields["brokerName"], fields["clusterName"], fields["brokerAddr"]
        assert names == ("broker-a", "DefaultCluster", served.controller.address)


@pytest.mark.parametrize(("code", "fields"), ASKED)
async def test_these_requests_are_for_administrators(tmp_path: Path, code: int, fields: dict[str, str]) -> None:
    async with serving_broker(tmp_path / "store", **keys(tmp_path)) as served:
        client = await served.client()
        why = f"Need admin permission for request code={code}, but accessKey=RocketMQ is not"
        found = await ask(client, USER, code, fields)
        assert (found.code, str(found.remark).partition(": ")[2]) == (1, why)
        unsigned = await client.begin_all([RemotingCommand(code, ext_fields=texts(fields))])[0]
        assert "No accessKey is configured" in str(unsigned.remark)
        assert (tmp_path / "conf/plain_acl.yml").read_text() == FILE
        assert (await ask(client, ADMIN, code, fields)).code == 0


@pytest.mark.parametrize(
    ("code", "fields", "expected", "remark"),
    [
        (Code.UPDATE_AND_CREATE_ACL_CONFIG, PUT | {"secretKey": "short"}, 209, "more than 6 characters"),
        (Code.UPDATE_AND_CREATE_ACL_CONFIG, PUT | {"topicPerms": "a=ALL"}, 209, "found 'ALL'"),
        (Code.DELETE_ACL_CONFIG, {"accessKey": "Nobody-1"}, 210, "there is no account"),
        (Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {}, 211, "expected globalWhiteAddrs"),
        (Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0"}, 211, "is no address"),
    ],
)
async def test_a_wrong_change_is_refused_with_4_9s_code(
    tmp_path: Path, code: int, fields: dict[str, str], expected: int, remark: str
) -> None:
    async with serving_broker(tmp_path / "store", **keys(tmp_path)) as served:
        found = await ask(await served.client(), ADMIN, code, fields)
        assert (found.code, remark in str(found.remark)) == (expected, True)
        assert (tmp_path / "conf/plain_acl.yml").read_text() == FILE


async def test_without_accounts_these_requests_are_not_supported_as_on_5_3_3(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.client()
        for code, fields in ASKED:
            assert (await client.begin_all([RemotingCommand(code, ext_fields=texts(fields))])[0]).code == 3
