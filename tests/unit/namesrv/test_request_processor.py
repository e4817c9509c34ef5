"""Requests over a socket, and their answers."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from reput.errors import RemotingCommandError
from reput.formats.metadata import DataVersion
from reput.remoting.body import decode_body, decode_json, encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.header import encode_header
from reput.remoting.namesrv_headers import QueryDataVersionRequestHeader
from reput.remoting.route_bodies import (
    QueueData,
    RegisterBrokerBody,
    TopicRouteData,
    decode_register_body,
    encode_register_body,
)
from reput.transport.client import RemotingClient
from tests.support.loop_gaps import loop_gaps
from tests.support.namesrv import CLUSTER, Asked, asked_name_server, broker_header, leaving, topics_body
from tests.support.worst_frames import exchange

BAD_MAPPING = b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"t":1}}}'


async def register(
    asked: Asked, header: Any = None, *, body: Any = None, compressed: bool = False, **fields: str
) -> RemotingCommand:
    header = header or broker_header(compressed=compressed)
    data = encode_register_body(body or topics_body("orders", "payments"), compressed=compressed)
    return await asked.ask(RequestCode.REGISTER_BROKER, header, data, **fields)


async def route(asked: Asked, topic: str = "orders", **fields: str) -> Any:
    answer = await asked.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **fields)
    return json.loads(answer.body) if answer.code == ResponseCode.SUCCESS else (answer.code, answer.remark)


async def test_a_registered_topic_has_a_route_in_standard_json(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        answer = await register(asked)
        assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, None, {}, b"")
        expected = (
            '{"brokerDatas":[{"brokerAddrs":{"0":"broker-a-0:10911"},"brokerName":"broker-a",'
            '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
            '"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )
        for version in (63, 121, 407, 479):
            command = RemotingCommand(105, ext_fields={"topic": "orders"}, version=version)
            assert (await asked.ask(command)).body.decode() == expected
        assert await route(asked, "unknown") == (
            17,
            "No topic route info in name server for the topic: unknown\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
        )


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_registration_is_checked_by_its_crc(tmp_path: Path, compressed: bool) -> None:
    async with asked_name_server(tmp_path) as asked:
        crc = zlib.crc32(encode_register_body(topics_body("orders", "payments"), compressed=compressed)) & 0x7FFFFFFF
        refused = await register(asked, broker_header(body_crc32=crc ^ 1), compressed=compressed)
        assert (refused.code, refused.remark) == (1, "crc32 not match")
        assert (await route(asked))[0] == 17
        header = broker_header(body_crc32=crc, compressed=compressed)
        assert (await register(asked, header, compressed=compressed)).code == 0
        assert (await route(asked))["queueDatas"][0]["writeQueueNums"] == 4


async def test_damaged_registrations_are_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        for compressed, body in (
            (False, b"{"),
            (False, b'{"topicConfigSerializeWrapper":1}'),
            (False, BAD_MAPPING),
            (True, b"\x78\x9c"),
        ):
            answer = await asked.ask(103, broker_header(compressed=compressed), body)
            assert answer.code == 1
            assert "RegisterBrokerBody" in str(answer.remark) or "no JSON" in str(answer.remark)
        assert "brokerName is missing" in str((await asked.ask(103)).remark)
        one_topic = await register(asked, body=topics_body("orders"))
        assert (one_topic.code, one_topic.remark) == (1, "register broker failed")


async def test_a_compressed_registration_that_says_it_is_not_is_taken_as_from_5_3_3(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        body = encode_register_body(topics_body("orders", "payments"), compressed=True)
        assert (await asked.ask(103, broker_header(compressed=False), body)).code == 0
        assert (await route(asked))["brokerDatas"]


async def test_the_same_body_again_is_not_decoded_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    def decode(body: bytes, *, compressed: bool) -> RegisterBrokerBody:
        decoded.append(body)
        return decode_register_body(body, compressed=compressed)

    monkeypatch.setattr("reput.namesrv.request_processor.decode_register_body", decode)

    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        await asked.ask(216, topic="orders")
        await register(asked)
        assert (await route(asked))["brokerDatas"]
        await register(asked, body=topics_body("orders", "new", version=2))
        assert (await route(asked, "new"))["brokerDatas"]
        assert len(decoded) == 2


async def test_a_broker_before_3_0_11_registers_its_topics_alone(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        body = encode_body(topics_body("orders", "payments").topic_config_serialize_wrapper)
        fields = encode_header(broker_header())
        assert (await asked.ask(RemotingCommand(103, ext_fields=fields, body=body, version=36))).code == 0
        assert (await route(asked))["brokerDatas"]


async def test_slaves_learn_master_and_order_topics(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        await asked.ask(100, namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
        answer = await register(asked, broker_header("broker-a", 1))
        expected = {"haServerAddr": "ha-of-broker-a-0:10911", "masterAddr": "broker-a-0:10911"}
        assert answer.ext_fields == expected
        assert json.loads(answer.body) == {"table": {"orders": "broker-a:4"}}
        assert "orderTopicConf" not in await route(asked)
        await asked.ask(318, body=b"orderMessageEnable=true\nreturnOrderTopicConfigToBroker=false")
        assert (await route(asked))["orderTopicConf"] == "broker-a:4"
        assert "orderTopicConf" not in await route(asked, "payments")
        assert (await register(asked)).body == b""


async def test_zones_are_registered_and_asked_for(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked, __ZONE_NAME="z1")
        await register(asked, broker_header("broker-b"), __ZONE_NAME="z2")
        whole = await route(asked)
        assert [one["zoneName"] for one in whole["brokerDatas"]] == ["z1", "z2"]
        near = await route(asked, __ZONE_NAME="z2", __ZONE_MODE="true")
        assert [one["brokerName"] for one in near["brokerDatas"] + near["queueDatas"]] == ["broker-b"] * 2


async def test_a_broker_unregisters(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        assert (await asked.ask(104, leaving())).code == 0
        assert (await route(asked))[0] == 17


async def test_data_versions_are_compared(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        header = QueryDataVersionRequestHeader("broker-a", "broker-a-0:10911", CLUSTER, 0)
        same = encode_body(DataVersion(1, 0, 1001))
        answer = await asked.ask(322, header, same)
        assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
        await register(asked)
        answer = await asked.ask(322, header, same)
        assert answer.ext_fields == {"changed": "false"}
        assert decode_body(DataVersion, answer.body) == DataVersion(1, 0, 1001)
        assert (await asked.ask(322, header, encode_body(DataVersion(2)))).ext_fields == {"changed": "true"}


async def test_clusters_members_and_lists(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked, body=topics_body("orders", "unit", flag=3))
        data = {"brokerAddrs": {"0": "broker-a-0:10911"}, "brokerName": "broker-a", "cluster": CLUSTER}
        assert json.loads((await asked.ask(106)).body) == {
            "brokerAddrTable": {"broker-a": data | {"enableActingMaster": False}},
            "clusterAddrTable": {CLUSTER: ["broker-a"]},
        }
        member_group = await asked.ask(901, clusterName=CLUSTER, brokerName="broker-a")
        assert json.loads(member_group.body) == {"brokerMemberGroup": data}
        topics = {"topicList": ["orders", "unit"]}
        for code, fields, expected in (
            (206, {}, topics),
            (224, {"cluster": CLUSTER}, topics),
            (224, {"cluster": "unknown"}, {"topicList": []}),
            (304, {}, {"brokerAddr": "broker-a-0:10911", "topicList": [CLUSTER, "broker-a"]}),
            (311, {}, topics),
            (312, {}, topics),
            (313, {}, {"topicList": []}),
        ):
            assert json.loads((await asked.ask(code, **fields)).body) == expected
        await asked.ask(318, body=b"enableAllTopicList=false\nenableTopicList=false")
        for code in (206, 224, 311, 312, 313):
            refused = await asked.ask(code, cluster=CLUSTER)
            assert (refused.code, refused.remark) == (1, "disable")


async def test_lost_brokers_are_told_to_those_alone_who_ask_for_them(tmp_path: Path) -> None:
    """RocketMQ's clients and mqadmin do not: they are answered as though the broker had never been there."""
    requests: list[tuple[int, dict[str, str]]] = [
        (105, {"topic": "orders"}), (105, {"topic": "of-b"}), (106, {}), (206, {}), (304, {}),
        (224, {"cluster": CLUSTER}), (224, {"cluster": "of-b"}), (205, {"brokerName": "broker-c"}),
        (901, {"clusterName": CLUSTER, "brokerName": "broker-b"}),
    ]  # fmt: skip

    async def answers(asked: Asked, **more: str) -> list[tuple[Any, ...]]:
        found = [await asked.ask(code, **fields, **more) for code, fields in requests]
        return [(one.code, one.remark, one.ext_fields, one.body) for one in found]

    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        before = await answers(asked)
        assert await answers(asked, withLostBrokers="true") == before
        other = RemotingClient()
        body, header = encode_register_body(topics_body("orders", "of-b")), broker_header("broker-b")
        command = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=encode_header(header), body=body)
        await other.call(asked.address, command)
        assert await answers(asked) != before
        other.close()
        while await answers(asked) != before:
            pass
        assert await answers(asked, withLostBrokers="false") == before
        told = [json.loads(body or b"null") for *_, body in await answers(asked, withLostBrokers="true")]
        lost = {"brokerAddrs": {}, "brokerName": "broker-b", "cluster": CLUSTER}
        assert [route["brokerDatas"][-1] for route in told[:2]] == [lost, lost]
        assert [len(route["queueDatas"]) for route in told[:2]] == [2, 1]
        assert told[2]["brokerAddrTable"]["broker-b"] == lost
        assert told[3]["topicList"] == ["orders", "payments", "of-b"]
        assert told[4]["topicList"] == [CLUSTER, "broker-a", "broker-b"]


async def test_write_perm_is_wiped_and_added(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        assert (await asked.ask(205, brokerName="broker-a")).ext_fields == {"wipeTopicCount": "2"}
        assert (await route(asked))["queueDatas"][0]["perm"] == 4
        assert (await asked.ask(327, brokerName="broker-a")).ext_fields == {"addTopicCount": "2"}
        assert (await route(asked))["queueDatas"][0]["perm"] == 6


async def test_the_write_perm_of_a_broker_that_is_there_stays_where_a_lost_one_alone_is_meant(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        answer = await asked.ask(205, brokerName="broker-a", lostOnly="true")
        assert answer.ext_fields == {"wipeTopicCount": "0"}
        assert (await route(asked))["queueDatas"][0]["perm"] == 6


async def test_topics_are_registered_and_deleted(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked)
        body = encode_body(TopicRouteData((QueueData("broker-a", 2, 2, 6),)))
        assert (await asked.ask(217, None, body, topic="new")).code == 0
        assert (await asked.ask(217, topic="nothing")).code == 0
        assert (await route(asked, "new"))["queueDatas"][0]["readQueueNums"] == 2
        assert (await asked.ask(216, topic="new", clusterName=CLUSTER)).code == 0
        assert (await asked.ask(216, topic="orders")).code == 0
        assert [(await route(asked, topic))[0] for topic in ("new", "orders")] == [17, 17]


async def test_kv_values_are_kept_and_forgotten(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        value = {"namespace": "NS", "key": "k"}
        assert (await asked.ask(100, value="v", **value)).code == 0
        assert json.loads((tmp_path / "ns/kvConfig.json").read_text()) == {"configTable": {"NS": {"k": "v"}}}
        assert (await asked.ask(101, **value)).ext_fields == {"value": "v"}
        assert json.loads((await asked.ask(219, namespace="NS")).body) == {"table": {"k": "v"}}
        assert (await asked.ask(102, **value)).code == 0
        missing = await asked.ask(101, **value)
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: NS Key: k")
        missing = await asked.ask(219, namespace="unknown")
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: unknown")


async def test_a_value_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ns").write_text("a file where the folder should be")

    async with asked_name_server(tmp_path) as asked:
        answer = await asked.ask(100, namespace="NS", key="k", value="v")
        assert answer.code == 1
        assert str(tmp_path / "ns") in str(answer.remark)
        assert (await asked.ask(101, namespace="NS", key="k")).code == 22


async def test_the_configuration_is_shown_and_changed(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        await register(asked, broker_header("broker-a", 1, enable_acting_master=True), body=topics_body("orders", "p"))
        assert (await route(asked))["brokerDatas"][0]["brokerAddrs"].keys() == {"1"}
        assert (await asked.ask(318, body=b"supportActingMaster=true")).code == 0
        assert (await route(asked))["brokerDatas"][0]["brokerAddrs"].keys() == {"0"}
        assert b"\nsupportActingMaster=true\n" in (await asked.ask(319)).body
        assert (tmp_path / "ns/namesrv.conf").read_text() == "supportActingMaster=true\n"
        refused = await asked.ask(318, body=b"kvConfigPath=/x")
        assert (refused.code, refused.remark) == (16, "Can not update config in black list.")
        refused = await asked.ask(318, body=b"noSuchKey=1")
        assert refused.code == 1
        assert "noSuchKey" in str(refused.remark)


async def test_no_route_is_answered_before_brokers_had_time_to_register(tmp_path: Path) -> None:
    now_ms = [1_000_000]

    async with asked_name_server(tmp_path, lambda: now_ms[0], needWaitForService=True) as asked:
        await register(asked)
        now_ms[0] += 44_999
        assert await route(asked) == (1, "name server not ready")
        now_ms[0] += 1
        assert (await route(asked))["brokerDatas"]


async def test_an_unknown_request_is_answered(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:
        answer = await asked.ask(RequestCode.SEND_MESSAGE)
        assert (answer.code, answer.remark) == (3, " request type 10 not supported")


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_broker_with_many_topics_holds_nobody_up(tmp_path: Path, compressed: bool) -> None:
    body = topics_body(*(f"topic-{number}" for number in range(4000)))
    async with asked_name_server(tmp_path) as asked:
        header = broker_header(compressed=compressed)
        frame = RemotingCommand(
            RequestCode.REGISTER_BROKER,
            1,
            ext_fields=encode_header(header),
            body=encode_register_body(body, compressed=compressed),
        )
        with loop_gaps() as gaps:
            answer = await asyncio.to_thread(exchange, asked.address, encode_command(frame))
        assert b'"code":0' in answer
        assert gaps.worst < 0.05
        assert await route(asked, "topic-3999") != await route(asked, "unknown")


def test_what_is_read_beside_others_is_read_as_all_else() -> None:
    texts = [
        b"",
        b"[" * 100_000,
        b'{"a":[1,2.5,"\\u00e4",null,true],"b":{}}',
        b'{1:{"x":[]}}',
        b'{"a":1',
        b'"\x01"',
        b"\xff",
    ]

    def read(text: bytes, **how: bool) -> object:
        try:
            return decode_json(text, **how)
        except RemotingCommandError as error:
            return error.remark

    assert [read(text, is_beside=True) for text in texts] == [read(text) for text in texts]
