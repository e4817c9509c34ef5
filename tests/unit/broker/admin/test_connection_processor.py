"""Who is connected, over sockets."""

from __future__ import annotations

import json
from pathlib import Path

from reput.remoting.codes import RequestCode
from tests.support.broker import consumer, serving_broker


async def test_connections_of_a_group_and_what_it_subscribes_to(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.heartbeat("c@1", consumer("g", "orders"), producers=["p"])
        host, port = client.writer.get_extra_info("sockname")[:2]
        member = {"clientAddr": f"{host}:{port}", "clientId": "c@1", "language": "JAVA", "version": 479}
        answer = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
        told = json.loads(answer.body)
        assert told["connectionSet"] == [member]
        assert (told["consumeType"], told["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        (topic,) = told["subscriptionTable"]
        assert topic == "orders"
        assert told["subscriptionTable"][topic].keys() == {
            "classFilterMode", "codeSet", "expressionType", "subString", "subVersion", "tagsSet", "topic",
        }  # fmt: skip
        answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
        assert json.loads(answer.body) == {"connectionSet": [member]}
        answer = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="none")
        assert (answer.code, answer.remark) == (206, "the consumer group[none] not online")
        answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="none")
        assert (answer.code, answer.remark) == (1, "the producer group[none] not exist")


async def test_members_of_all_groups_of_producers(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.heartbeat("c@1", producers=["p", "q"])
        host, port = client.writer.get_extra_info("sockname")[:2]
        data = json.loads((await client.ask(RequestCode.GET_ALL_PRODUCER_INFO)).body)["data"]
        assert data.keys() == {"p", "q"}
        (member,) = data["p"]
        assert member.pop("lastUpdateTimestamp") > 0
        assert member == {"clientId": "c@1", "language": "JAVA", "remoteIP": f"{host}:{port}", "version": 479}
