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
from reput.remoting.codes import RequestCode, ResponseCode
from reput.service.subscription_group_manager import check_policies
from reput.store.config_files import persist_metadata
from tests.support.broker import serving_broker, with_topic
from tests.support.pop import pop_command

#: Values that JSON has, and a file of fastjson's may not take as they are.
_ODD: tuple[str, ...] = (
    '{"$ref":"$.y"}', '{"$ref":"$"}', '{"$ref":".."}', '{"$ref":1}', "1" * 41, "-" + "9" * 40, "1e400", "NaN",
    "Infinity",
    "[" * 99 + "]" * 99, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101, '"\\ud800"', '"\\u0000"', "null",
    "[]", "[1,2]", "{}", '{"1":2}', "true", "1.5", '""',
)  # fmt: skip


def odd_object(random: Random, *members: str) -> str:
    """A JSON object with these members, and others of any name and value."""
    names = ["x", "$ref", "others", "groupRetryPolicy", "attributes", "dataVersion", "subscriptionDataSet"]
    more = [f'"{random.choice(names)}":{random.choice(_ODD)}' for _ in range(random.randrange(3))]
    both = [*members, *more]
    random.shuffle(both)
    return "{" + ",".join(both) + "}"


async def test_groups_modes_and_topics_that_were_made_are_there_after_a_restart(tmp_path: Path) -> None:
    random, groups, topics, modes = Random(5), set[str](), set[str](), set[str]()
    async with serving_broker(tmp_path) as served:
        client = await served.client()
        await with_topic(client, "orders")
        for number in range(150):
            name, kind = f"n{number}", random.randrange(4)
            if kind == 0:
                body = odd_object(random, f'"groupName":"{name}"')
                code, made = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, groups
            elif kind == 1:
                body = '{"groupConfigList":[' + odd_object(random, f'"groupName":"{name}"') + "]}"
                code, made = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups
            elif kind == 2:
                body = '{"topicConfigList":[' + odd_object(random, f'"topicName":"{name}"') + "]}"
                code, made = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics
            else:
                body = odd_object(random, '"topic":"orders"', f'"consumerGroup":"{name}"', '"mode":"POP"')
                code, made = RequestCode.SET_MESSAGE_REQUEST_MODE, modes
            if (await client.ask(code, body.encode())).code == 0:
                made.add(name)
    assert min(len(groups), len(topics), len(modes)) > 10
    async with serving_broker(tmp_path) as served:
        client = await served.client()

        async def body_of(code: RequestCode) -> Any:
            return json.loads((await client.ask(code)).body)

        found = (await body_of(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
        assert groups <= found.keys()
        assert topics <= (await body_of(RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"].keys()
        assert (
            modes <= (await body_of(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))["messageRequestModeMap"]["orders"].keys()
        )


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
