"""What a request that is answered SUCCESS has changed is there after a restart, whatever else it holds."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reput.errors import ConfigError, StoreError
from reput.files import DISK
from reput.formats.metadata import ConsumerOrderInfos, OrderInfo, SubscriptionGroupConfig
from reput.namesrv.kv_config_manager import KVConfigManager
from reput.remoting.acl import signature
from reput.remoting.codes import RequestCode, ResponseCode
from reput.service.subscription_group_manager import check_policies
from reput.store.config_files import persist_metadata
from tests.support.broker import fill, serving_broker, with_topic
from tests.support.odd_state import KEYS, OddState
from tests.support.pop import pop_command


@pytest.mark.parametrize("seed", range(2))
async def test_what_requests_have_made_is_there_after_a_restart(tmp_path: Path, seed: int) -> None:
    state = OddState(Random(seed))
    async with serving_broker(tmp_path, **KEYS) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a", "b")
        await state.write(served, client, 200)
    made = {kind: len(names) for kind, names in state.made.items()}
    assert min(made[kind] for kind in ("groups", "topics", "modes", "offsets", "key values", "users", "filters")) > 0
    async with serving_broker(tmp_path, **KEYS) as served:
        await state.check(served, await served.client())


async def test_a_password_with_half_of_a_character_stops_no_list_of_users(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **KEYS) as served:
        client = await served.client()
        body = b'{"password":"a\\ud800","userType":"Normal"}'
        assert (await client.ask(RequestCode.AUTH_CREATE_USER, body, username="u")).code == 0
        answer = await client.ask(RequestCode.AUTH_LIST_USER)
        assert [one["password"] for one in json.loads(answer.body)] == ["a?"]
        signature({}, b"", "a\ud800")


def _deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    "policy", [{"$ref": "y"}, {"x": {"$ref": "$"}}, {"x": 10**40}, {"x": float("inf")}, {"x": _deep(900)}]
)
def test_a_group_that_cannot_be_read_again_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="could not be read again"):
        check_policies([SubscriptionGroupConfig("g"), SubscriptionGroupConfig("g", group_retry_policy=policy)])


def test_a_file_is_not_replaced_by_what_nobody_can_read(tmp_path: Path) -> None:
    good = ConsumerOrderInfos({"t@g": {0: OrderInfo(pop_time=1)}})
    persist_metadata(str(tmp_path), good, DISK)
    before = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
    with pytest.raises(StoreError, match=r"consumerOrderInfo.json: not replaced, as what is to be written"):
        persist_metadata(str(tmp_path), ConsumerOrderInfos({"t@g": {0: OrderInfo(ot={0: 1 << 63})}}), DISK)
    assert {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()} == before


@pytest.mark.parametrize("invisible_ms", [(1 << 63) - 1, (1 << 63) - 10**9])
async def test_an_invisible_time_beyond_64_bits_is_refused(tmp_path: Path, invisible_ms: int) -> None:
    async with serving_broker(tmp_path) as served:
        client = await served.client()
        await with_topic(client, "orders")
        assert (await client.send_message("orders")).code == 0
        popped = await client.begin_all([pop_command("orders", "g", order=True)])[0]
        fields = popped.ext_fields or {}
        start = fields["startOffsetInfo"].split(" ")[2]
        extra = f"{start} {fields['popTime']} {fields['invisibleTime']} 999 0 broker-a 0 0"
        answer = await client.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, consumerGroup="g", topic="orders", queueId=0, extraInfo=extra,
            offset=0, invisibleTime=invisible_ms,
        )  # fmt: skip
        assert answer.code == ResponseCode.INVALID_PARAMETER
    async with serving_broker(tmp_path):
        pass


@pytest.mark.parametrize(("key", "value"), [("$ref", "v"), ("k", "\ud800")])
async def test_a_key_value_that_cannot_be_read_again_is_refused(tmp_path: Path, key: str, value: str) -> None:
    manager = KVConfigManager(str(tmp_path / "kv.json"))
    await manager.put("a", "b", "c")
    with pytest.raises(ConfigError, match="could not be read again"):
        await manager.put("n", key, value)
    again = KVConfigManager(str(tmp_path / "kv.json"))
    again.load()
    assert again.get("a", "b") == "c"
    assert again.namespace("n") == manager.namespace("n") is None
