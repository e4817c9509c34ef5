"""What was published against Apache RocketMQ, tried against broker and name server (docs/access.md has the table).

Each test has the request of the report, and the rule behind it over all requests.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.namesrv.name_server import NameServer
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import LONG_MS, Client, Served, consumer, send_command, serving_broker
from tests.support.header_table import every_field
from tests.support.signed import ALICE_PASSWORD, AUTHORIZATION, ROOT_PASSWORD, as_root, entry, make_alice, signed

#: Without an answer: the end of a transaction that nobody has begun.
CODES = [code for code in RequestCode if code != RequestCode.END_TRANSACTION]
ADMIN_SECRET, PLAIN_SECRET, WHITE_SECRET = "admin-secret-of-tests", "plain-secret-of-tests", "white-secret-of-tests"
ACCOUNTS = f"""
accounts:
- {{accessKey: AdminAccount, secretKey: {ADMIN_SECRET}, admin: true}}
- {{accessKey: PlainAccount, secretKey: {PLAIN_SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: WhiteAccount, secretKey: {WHITE_SECRET}, whiteRemoteAddress: 127.0.0.1}}
"""


async def answers_of(client: Client, commands: list[RemotingCommand]) -> list[RemotingCommand]:
    return await asyncio.wait_for(asyncio.gather(*client.begin_all(commands)), LONG_MS / 1000)


# -- CVE-2019-17572: a topic's name is a folder's, and a send makes the topic


@pytest.mark.parametrize("name", ["../../../../topic2020", "..", ".", "a/b", "/tmp/x", "a\0b", "..%2f", "a\\b", "c:d"])
async def test_cve_2019_17572_a_topic_makes_no_folder_outside_of_the_store(tmp_path: Path, name: str) -> None:
    store = tmp_path / "1/2/3/4/store"
    async with serving_broker(store) as served:
        client = await served.client()
        assert (await client.send_message("orders")).code == 0
        assert (await client.send_message(name)).code != 0
        for more in ({}, {"defaultTopic": "TBW102"}, {"group": name, "consumerGroup": name}):
            fields = every_field(topic=name, **more)
            await answers_of(client, [RemotingCommand(code, ext_fields=fields) for code in CODES])
        listed = json.dumps({"topicConfigList": [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1}]})
        (answer,) = await answers_of(
            client, [RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=listed.encode())]
        )
        assert answer.code != 0
        await client.heartbeat("c", consumer(name, "orders"))
        assert (await client.send_message("orders")).code == 0
    made = [path.relative_to(store / "consumequeue") for path in (store / "consumequeue").rglob("*")]
    assert {re.sub(r"\A[%|a-zA-Z0-9_-]+/\d+/\d{20}\Z", "ok", str(path)) for path in made if len(path.parts) > 2} == {
        "ok"
    }
    assert {path.parts[0] for path in made if not re.fullmatch(r"[%|a-zA-Z0-9_-]+", path.parts[0])} == set()
    topics = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    assert "orders" in topics
    assert {topic for topic in topics if name in topic} == set()
    assert [
        path for path in tmp_path.rglob("*") if store not in (path, *path.parents) and path not in store.parents
    ] == []


# -- CVE-2023-33246, CVE-2023-37582: a request changes which program runs, or which file is written


async def test_cve_2023_33246_a_changed_configuration_of_a_broker_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "pwned"
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        shown = (await client.ask(RequestCode.GET_BROKER_CONFIG)).body
        for body in (
            f"filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch {mark};\n",
            f"rocketmqHome=`touch {mark}`",
            f"RocketmqHome=`touch {mark}`",
            f"rocketmq_home=`touch {mark}`",
            f"brokerConfigPath={mark}\nfilterServerNums=1\n",
            f"storePathRootDir={mark}",
        ):
            answer = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body.encode())
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION, "Can not update config in black list."
            ), body  # fmt: skip
            assert (await client.ask(RequestCode.GET_BROKER_CONFIG)).body == shown
        assert (
            await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"filterServerNums=1")
        ).code != 0  # there is no such key
        assert b"rocketmqHome" not in (await client.ask(RequestCode.GET_BROKER_CONFIG)).body
    assert not mark.exists()


async def test_cve_2023_37582_a_changed_configuration_of_a_name_server_writes_no_other_file(tmp_path: Path) -> None:
    mark, own = tmp_path / "pwned", tmp_path / "own"
    config = NamesrvConfig(
        kv_config_path=str(own / "kv.json"), config_store_path=str(own / "namesrv.properties"), listen_port=0
    )
    server = NameServer(config)
    client = Client(*await asyncio.open_connection("127.0.0.1", await server.start()))
    for name in ("configStorePath", "config_store_path", "ConfigStorePath", "config.store.path", "kvConfigPath",
                 "rocketmqHome", "configBlackList"):  # fmt: skip
        body = f"{name}={mark}\nproductEnvName=* * * * * root touch {mark}"
        answer = await client.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body.encode())
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "Can not update config in black list."), (
            name
        )
    await client.leave()
    await server.stop()
    assert list(tmp_path.iterdir()) == []


# -- CVE-2024-23321: who may little, or is on a white list, is told the secrets of others


async def all_that_is_told(client: Client, user: str | None, secret: str = "") -> str:
    """The answers to all requests of a user, or of one who does not sign."""
    fields = every_field(topic="orders", group="g", accessKeys="AdminAccount", username="root", subject="User:root")
    commands = [RemotingCommand(code, ext_fields=dict(fields)) for code in CODES]
    if user is not None:
        commands = [signed(command, user, secret) for command in commands]
    told = await answers_of(client, commands)
    return "".join(f"{one.remark} {one.ext_fields} {bytes(one.body)!r}" for one in told)


@pytest.mark.parametrize("user", [("PlainAccount", PLAIN_SECRET), ("WhiteAccount", ""), None])
@pytest.mark.parametrize("listed", [False, True])
async def test_cve_2024_23321_no_account_is_told_the_secret_of_another_one(
    tmp_path: Path, user: tuple[str, str] | None, *, listed: bool
) -> None:
    """`listed`: the client's address is on the white list of all accounts, and needs no signature at all."""
    path = tmp_path / "conf/plain_acl.yml"
    path.parent.mkdir()
    path.write_text(("globalWhiteRemoteAddresses: [127.0.0.1]\n" if listed else "") + ACCOUNTS)
    keys: dict[str, Any] = {
        "aclEnable": True, "rocketmqHome": str(tmp_path),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "AdminAccount", "secretKey": ADMIN_SECRET}),
    }  # fmt: skip
    async with serving_broker(tmp_path / "store", **keys) as served:
        told = await all_that_is_told(await served.client(), *(user or (None,)))
        assert ADMIN_SECRET not in told
        assert (WHITE_SECRET in told, PLAIN_SECRET in told) == (False, False)
        assert await _reads_secrets(served, "AdminAccount", ADMIN_SECRET, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)


async def test_cve_2024_23321_no_user_is_told_the_password_of_another_one(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **AUTHORIZATION) as served:
        client = await served.client()
        actions = ("Pub", "Sub", "Get", "List", "Update", "Create", "Delete")
        await make_alice(client, *(entry(resource, *actions) for resource in ("Topic:*", "Group:*")))
        for user in (("alice", ALICE_PASSWORD), (None,)):
            assert ROOT_PASSWORD not in await all_that_is_told(client, *user)
        assert ROOT_PASSWORD in bytes((await as_root(client, RequestCode.AUTH_GET_USER, username="root")).body).decode()


async def _reads_secrets(served: Served, user: str, secret: str, code: int) -> bool:
    """The oracle: who may read them gets them by the same way."""
    (answer,) = await answers_of(await served.client(), [signed(RemotingCommand(code, ext_fields={}), user, secret)])
    return secret in f"{answer.ext_fields} {bytes(answer.body)!r}"


# -- CVE-2022-25845, and those before it, of fastjson: a body names the class that it becomes


@pytest.mark.parametrize("name", ["java.lang.AutoCloseable", "builtins.open", "os.system", "reput.files.FileLayer"])
async def test_cve_2022_25845_a_body_chooses_no_class(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "pwned"
    odd = {"@type": name, "args": [f"touch {mark}"], "path": str(mark), "val": {"@type": name}}
    body = json.dumps({"clientID": odd | {"x": odd}, "consumerDataSet": [odd], "producerDataSet": [odd]} | odd).encode()
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        fields = every_field(topic="orders", group="g")
        await answers_of(client, [RemotingCommand(code, ext_fields=fields, body=body) for code in CODES])
        assert (await answers_of(client, [send_command("orders")]))[0].code == 0
    assert not mark.exists()
