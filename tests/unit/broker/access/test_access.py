"""migrateAuthFromV1Enabled: accounts of plain_acl.yml become users at the start, once."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from reput.broker.access.access import Access
from reput.config.broker import BrokerConfig
from reput.errors import ConfigError
from reput.files import DISK
from reput.remoting.codes import RequestCode as Code
from tests.support.broker import controller_of, pull_command, send_command, serving_broker
from tests.support.signed import AUTHENTICATION, AUTHORIZATION, ROOT_PASSWORD, as_root, ask_as, signed

SECRET, ADMIN_SECRET = "plain-secret-of-tests", "admin-secret-of-tests"
FILE = f"""accounts:
- {{accessKey: AdminAccount, secretKey: {ADMIN_SECRET}, admin: true}}
- {{accessKey: PlainAccount, secretKey: {SECRET}, topicPerms: [sent=PUB, got=SUB], defaultTopicPerm: SUB}}
"""


def keys(home: Path, **more: object) -> dict[str, object]:
    path = home / "conf/plain_acl.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FILE)
    return {"migrateAuthFromV1Enabled": True, "rocketmqHome": str(home)} | more


async def test_accounts_become_users_with_policies_and_stay_what_they_are_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store, given = tmp_path / "store", keys(tmp_path, **AUTHORIZATION)

    async with serving_broker(store, **given) as served:
        client = await served.client()
        for command, name, secret, code in (
            (send_command("sent"), "PlainAccount", SECRET, 0),
            (send_command("got"), "PlainAccount", SECRET, 16),
            (send_command("sent"), "PlainAccount", ADMIN_SECRET, 16),
            (pull_command("got", group="g"), "PlainAccount", SECRET, 16),
            (send_command("got"), "AdminAccount", ADMIN_SECRET, 0),
        ):
            assert (await client.begin_all([signed(command, name, secret)])[0]).code == code
        found = await as_root(client, Code.AUTH_GET_ACL, subject="User:PlainAccount")
        assert {one["policyType"] for one in json.loads(bytes(found.body))["policies"]} == {"Custom", "Default"}
        await as_root(client, Code.AUTH_UPDATE_USER, {"password": ROOT_PASSWORD}, username="PlainAccount")
        await as_root(client, Code.AUTH_DELETE_ACL, subject="User:PlainAccount")
    assert caplog.text.count("account became a user") == 2
    assert "a user may do more than its account might user=PlainAccount resources=Topic:sent" in caplog.text
    caplog.clear()
    async with serving_broker(store, **given) as served:
        client = await served.client()
        asked = await ask_as(client, "PlainAccount", ROOT_PASSWORD, Code.GET_MAX_OFFSET, topic="sent", queueId=0)
        assert (asked.code, "no matched policies" in asked.remark) == (16, True)
    assert "account became a user" not in caplog.text
    assert SECRET not in caplog.text
    assert ADMIN_SECRET not in caplog.text


async def test_a_user_of_the_configuration_goes_before_an_account_of_its_name(tmp_path: Path) -> None:
    mine = {"initAuthenticationUser": json.dumps({"username": "AdminAccount", "password": ROOT_PASSWORD})}

    async with serving_broker(tmp_path / "store", **keys(tmp_path, **(AUTHENTICATION | mine))) as served:
        client = await served.client()
        for secret, code in ((ROOT_PASSWORD, 0), (ADMIN_SECRET, 16)):
            assert (await ask_as(client, "AdminAccount", secret, Code.AUTH_LIST_USER)).code == code


async def test_users_are_made_while_accounts_are_still_asked(tmp_path: Path) -> None:
    kept = {"aclEnable": True, "authenticationMetadataProvider": "local"}

    async with serving_broker(tmp_path / "store", **keys(tmp_path, **kept)) as served:
        client = await served.client()
        found = await ask_as(client, "AdminAccount", ADMIN_SECRET, Code.AUTH_LIST_USER)
        assert [one["username"] for one in json.loads(bytes(found.body))] == ["AdminAccount", "PlainAccount"]
        assert (await ask_as(client, "PlainAccount", SECRET, Code.AUTH_LIST_USER)).code == 1
        assert (await client.begin_all([signed(send_command("sent"), "PlainAccount", SECRET)])[0]).code == 0


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "migrateAuthFromV1Enabled=true needs authenticationEnabled or authenticationMetadataProvider"),
        ({"authenticationMetadataProvider": "local"}, "else anybody may ask for users and passwords"),
        (AUTHENTICATION | {"rocketmqHome": None}, "migrateAuthFromV1Enabled=true needs rocketmqHome"),
        (AUTHENTICATION | {"rocketmqHome": "/nowhere"}, r"migrateAuthFromV1Enabled=true: .*plain_acl\.yml is missing"),
    ],
)
async def test_keys_that_cannot_be_meant_stop_the_start(tmp_path: Path, more: dict[str, object], expected: str) -> None:
    given = {key: value for key, value in keys(tmp_path, **more).items() if value is not None}
    with pytest.raises(ConfigError, match=expected):
        await controller_of(tmp_path / "store", **given).start()


async def test_a_wrong_file_stops_the_start_and_makes_no_user(tmp_path: Path) -> None:
    given = keys(tmp_path, **AUTHENTICATION)
    (tmp_path / "conf/plain_acl.yml").write_text(FILE + "- {accessKey: x}\n")
    with pytest.raises(ConfigError, match="more than 6 characters"):
        await controller_of(tmp_path / "store", **given).start()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [
        ({"bind_address": "127.0.0.1"}, False), ({"bind_address": "::1"}, False),
        ({"bind_address": "localhost"}, False), ({}, False), ({"bind_address": "::"}, True),
        ({"bind_address": "0.0.0.0"}, True), (AUTHENTICATION | {"bind_address": "0.0.0.0"}, False),
    ],
)  # fmt: skip
def test_a_broker_that_asks_nobody_and_is_reached_by_others_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, Any], *, is_told: bool
) -> None:
    Access(str(tmp_path), BrokerConfig.from_mapping(keys), DISK).create_first()
    assert ("whoever reaches the broker may read, send, delete and change its keys" in caplog.text) == is_told
