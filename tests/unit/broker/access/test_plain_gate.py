"""plain_acl.yml: what its accounts may do, and what each rule refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from reput.broker.access import plain_gate as module
from reput.errors import ConfigError
from reput.remoting.acl import SIGNATURE, UNIQUE_KEY_QUERY
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    Client,
    Served,
    batch_command,
    consumer,
    controller_of,
    pull_command,
    send_command,
    serving_broker,
    texts,
)
from tests.support.signed import signed

SECRET, ADMIN_SECRET = "plain-secret-of-tests", "admin-secret-of-tests"
USER, ADMIN = ("RocketMQ", SECRET), ("RocketMQAdmin", ADMIN_SECRET)
FILE = f"""
globalWhiteRemoteAddresses: []
accounts:
- accessKey: RocketMQ
  secretKey: {SECRET}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB|SUB, sent=PUB, got=SUB]
  groupPerms: [g=SUB, denied=DENY]
- accessKey: RocketMQAdmin
  secretKey: {ADMIN_SECRET}
  admin: true
"""


def write(home: Path, text: str = FILE, name: str = "plain_acl.yml") -> dict[str, object]:
    """The keys of a broker with this file."""
    path = home / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)  # a broker may look at any time
    return {"aclEnable": True, "rocketmqHome": str(home)}


def request(code: int, **fields: object) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=texts(fields))


def heartbeat(group: str, topic: str) -> RemotingCommand:
    body = {"clientID": "c", "consumerDataSet": [consumer(group, topic)], "producerDataSet": []}
    return RemotingCommand(RequestCode.HEART_BEAT, ext_fields={}, body=json.dumps(body).encode())


async def answer(client: Client, command: RemotingCommand, account: tuple[str, str] = USER) -> RemotingCommand:
    return await client.begin_all([signed(command, *account)])[0]


def is_refused(one: RemotingCommand) -> bool:
    return one.code == 1 and str(one.remark).startswith("org.apache.rocketmq.acl.common.AclException: ")


RULES = [
    (lambda: send_command("sent"), lambda: send_command("got"), "No permission for topic:got"),
    (
        lambda: send_command("sent", code=RequestCode.SEND_MESSAGE),
        lambda: send_command("other", code=RequestCode.SEND_MESSAGE),
        "No default permission for topic:other",
    ),
    (lambda: batch_command("sent", [b"a"]), lambda: batch_command("got", [b"a"]), "No permission for topic:got"),
    (lambda: pull_command("got"), lambda: pull_command("sent"), "No permission for topic:sent"),
    (lambda: pull_command("got"), lambda: pull_command("got", group="denied"), "No permission for group:denied"),
    (
        lambda: pull_command("got", code=RequestCode.LITE_PULL_MESSAGE),
        lambda: pull_command("got", code=RequestCode.LITE_PULL_MESSAGE, group="x"),
        "No default permission for group:x",
    ),
    (lambda: heartbeat("g", "got"), lambda: heartbeat("g", "sent"), "No permission for topic:sent"),
    (lambda: heartbeat("g", "got"), lambda: heartbeat("denied", "got"), "No permission for group:denied"),
    (
        lambda: request(RequestCode.UNREGISTER_CLIENT, clientID="c", consumerGroup="g"),
        lambda: request(RequestCode.UNREGISTER_CLIENT, clientID="c", consumerGroup="denied"),
        "No permission for group:denied",
    ),
    (
        lambda: request(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="got", queueId=0, commitOffset=0),
        lambda: request(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="sent", queueId=0, commitOffset=0),
        "No permission for topic:sent",
    ),
    (
        lambda: request(RequestCode.GET_MAX_OFFSET, topic="other", queueId=0),
        lambda: request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"),
        "Need admin permission for request code=215, but accessKey=RocketMQ is not",
    ),
    (
        lambda: request(RequestCode.GET_BROKER_RUNTIME_INFO),
        lambda: request(RequestCode.UPDATE_BROKER_CONFIG),
        "Need admin permission for request code=25, but accessKey=RocketMQ is not",
    ),
    (
        lambda: request(RequestCode.GET_BROKER_CONFIG),
        lambda: request(RequestCode.AUTH_LIST_USER),
        "Need admin permission for request code=3005, but accessKey=RocketMQ is not",
    ),
    (
        lambda: request(RequestCode.GET_BROKER_CONFIG),
        lambda: request(RequestCode.AUTH_GET_USER, username="root"),
        "Need admin permission for request code=3004, but accessKey=RocketMQ is not",
    ),
]


@pytest.mark.parametrize("number", range(len(RULES)))
async def test_an_account_may_what_its_permissions_say_and_an_admin_everything(tmp_path: Path, number: int) -> None:
    allowed, refused, why = RULES[number]

    async with serving_broker(tmp_path / "store", **write(tmp_path)) as served:
        client = await served.client()
        assert not is_refused(await answer(client, allowed()))
        found = await answer(client, refused())
        assert (is_refused(found), str(found.remark).partition(": ")[2]) == (True, why)
        assert not is_refused(await answer(client, refused(), ADMIN))


async def test_keys_and_signatures_have_to_be_right_and_no_log_has_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    await _unsigned(tmp_path)
    assert "request refused" in caplog.text
    assert SECRET not in caplog.text
    assert ADMIN_SECRET not in caplog.text


async def _unsigned(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **write(tmp_path)) as served:
        client = await served.client()
        wrong = signed(send_command("orders"), "RocketMQ", ADMIN_SECRET)
        for command, why in (
            (send_command("orders"), "No accessKey is configured"),
            (signed(send_command("orders"), "Nobody", "x"), "No acl config for Nobody"),
            (wrong, "Check signature failed for accessKey=RocketMQ"),
        ):
            found = await client.begin_all([command])[0]
            assert (is_refused(found), str(found.remark).partition(": ")[2]) == (True, why)


async def test_a_query_by_unique_key_is_signed_with_its_field_or_without(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **write(tmp_path)) as served:
        client = await served.client()
        fields = {"topic": "orders", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}
        old = signed(request(RequestCode.QUERY_MESSAGE, **fields), *USER)
        assert old.ext_fields is not None
        old.ext_fields[UNIQUE_KEY_QUERY] = "true"
        new = signed(request(RequestCode.QUERY_MESSAGE, **fields, _UNIQUE_KEY_QUERY="true"), *USER)
        for command in (old, new):
            assert not is_refused(await client.begin_all([command])[0])
        old.ext_fields[SIGNATURE] = "x"
        assert is_refused(await client.begin_all([old])[0])


@pytest.mark.parametrize(
    ("before", "after", "is_open"),
    [
        ("globalWhiteRemoteAddresses: []", "globalWhiteRemoteAddresses: [127.0.0.*]", True),
        ("globalWhiteRemoteAddresses: []", "globalWhiteRemoteAddresses: [10.0.0.*]", False),
    ],
)
async def test_nothing_is_asked_of_addresses_of_the_global_white_list(
    tmp_path: Path, before: str, after: str, is_open: bool
) -> None:
    async with serving_broker(tmp_path / "store", **write(tmp_path, FILE.replace(before, after))) as served:
        client = await served.client()
        assert is_refused(await client.send_message("other")) is not is_open
        for code in (RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, RequestCode.AUTH_CREATE_USER):
            assert is_refused(await client.ask(code))  # shows or changes secrets
            assert is_refused(await answer(client, request(code)))


@pytest.mark.parametrize(("address", "is_open"), [("127.0.0.1", True), ("10.0.0.1", False)])
async def test_an_account_with_a_trusted_address_needs_no_signature(
    tmp_path: Path, address: str, is_open: bool
) -> None:
    text = FILE.replace("  defaultTopicPerm", f"  whiteRemoteAddress: {address}\n  defaultTopicPerm")

    async with serving_broker(tmp_path / "store", **write(tmp_path, text)) as served:
        client = await served.client()
        found = await client.begin_all([signed(send_command("other"), "RocketMQ", "wrong")])[0]
        assert is_refused(found) is not is_open
        about_access = signed(request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG), "RocketMQAdmin", "wrong")
        assert is_refused(await client.begin_all([about_access])[0])
        assert is_refused(await client.send_message("other"))  # without its key


async def test_changed_files_count_at_once_and_wrong_ones_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RELOAD_S", 0.001)
    caplog.set_level(logging.INFO)

    async def until(served: Served, command: RemotingCommand, expected: bool) -> None:
        client = await served.client()
        while is_refused(await client.begin_all([command])[0]) is not expected:
            pass

    async with serving_broker(tmp_path / "store", **write(tmp_path)) as served:
        client = await served.client()
        new = ("SecondUser", SECRET)
        assert is_refused(await answer(client, send_command("orders"), new))
        more = f"accounts: [{{accessKey: SecondUser, secretKey: {SECRET}, defaultTopicPerm: PUB}}]"
        write(tmp_path, more, "acl/second.yml")
        await until(served, signed(send_command("orders"), *new), False)
        write(tmp_path, "accounts: [{secretKey: " + SECRET)
        while "no YAML in line 1" not in caplog.text:
            await client.round_trip()
        assert not is_refused(await answer(client, send_command("orders"), new))
        assert not is_refused(await answer(client, send_command("orders")))
        write(tmp_path, FILE.replace("orders=PUB|SUB", "orders=SUB"))
        await until(served, signed(send_command("orders"), *USER), True)
    assert "no YAML in line 1" in caplog.text
    assert SECRET not in caplog.text


async def test_what_nobody_reads_of_accounts_is_told_at_the_start_and_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RELOAD_S", 0.001)
    keys = write(tmp_path, FILE.replace("sent=PUB,", "sent=PUP,"))
    async with serving_broker(tmp_path / "store", **keys) as served:
        assert "topicPerms: sent: 'PUP' counts as DENY" in caplog.text
        client = await served.client()
        write(tmp_path, FILE.replace("admin: true", "admn: true"))
        while "'admn' is ignored" not in caplog.text:
            await client.round_trip()
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, r"plain_acl\.yml is missing"),
        ("accounts: [{secretKey: plain-secret-of-tests", r"plain_acl\.yml: no YAML in line 1"),
        ("!!python/object/apply:os.system [plain-secret-of-tests]", "no YAML in line 1"),
        ("- plain-secret-of-tests", "expected globalWhiteRemoteAddresses or accounts"),
    ],
)
async def test_a_file_that_is_missing_or_wrong_stops_the_start(tmp_path: Path, text: str | None, expected: str) -> None:
    keys = write(tmp_path, text or "")
    if text is None:
        (tmp_path / "conf/plain_acl.yml").unlink()
    with pytest.raises(ConfigError, match=expected) as caught:
        await controller_of(tmp_path / "store", **keys).start()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"aclEnable": True}, "aclEnable=true needs rocketmqHome"),
        ({"aclEnable": True, "rocketmqHome": "/x", "authenticationEnabled": True}, "choose plain_acl.yml, or users"),
    ],
)
async def test_keys_that_contradict_each_other_stop_the_start(
    tmp_path: Path, keys: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        await controller_of(tmp_path / "store", **keys).start()
