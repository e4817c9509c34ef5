"""The name server beside Apache's: Apache's broker and client with ours, and the same requests to both."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from reput import MessageStore
from reput.formats.kv_config import decode_kv_config, encode_kv_config
from reput.formats.metadata import TopicConfig
from reput.remoting.body import decode_json, encode_body
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.namesrv_headers import UnRegisterBrokerRequestHeader
from reput.remoting.route_bodies import QueueData, TopicRouteData, encode_register_body
from reput.transport.client import RemotingClient
from tests.support.async_tests import run
from tests.support.broker import SMALL, serving_broker, with_topic
from tests.support.namesrv import CLUSTER, asked_name_server, broker_header, leaving, topics_body
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

#: Between two looks at what a name server knows: the other process needs the processor.
PAUSE_S = 0.05


@pytest.mark.parametrize(("version", "compressed", "is_killed"), [("4.9.7", True, True), ("5.3.3", False, False)])
def test_apaches_broker_registers_here_and_its_client_finds_it(
    tmp_path: Path, version: str, compressed: bool, is_killed: bool
) -> None:
    async def check(apache: Apache) -> None:
        async with asked_name_server(tmp_path) as asked:

            async def route(topic: str, **fields: str) -> Any:
                answer = await asked.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **fields)
                return json.loads(answer.body) if answer.code == 0 else answer.code

            address = await asyncio.to_thread(
                apache.run, "start-broker", path=str(tmp_path / "store"), namesrv=asked.address, name="broker-j",
                compressed=compressed,
            )  # fmt: skip
            while (template := await route("TBW102")) == 17:
                await asyncio.to_thread(apache.run, "register")
            (broker,), (queues,) = template["brokerDatas"], template["queueDatas"]
            assert (broker["brokerName"], broker["brokerAddrs"]) == ("broker-j", {"0": address})
            assert (queues["perm"], queues["writeQueueNums"]) == (7, 8)
            assert await route("orders") == 17
            sent = await asyncio.to_thread(apache.run, "send", namesrv=asked.address, topic="orders")
            assert sent == "broker-j"
            assert (await route("orders"))["queueDatas"][0]["writeQueueNums"] == 4
            if is_killed:
                apache.kill()
            else:
                await asyncio.to_thread(apache.run, "stop-broker")
            while await route("orders") != 17:
                await asyncio.sleep(PAUSE_S)
            told = await route("orders", withLostBrokers="true")
            assert (told["brokerDatas"][0]["brokerAddrs"] if is_killed else told) == ({} if is_killed else 17)

    with Apache(version) as apache:
        run(check(apache))


def _register(header: Any, *, compressed: bool = False, **body: Any) -> tuple[int, dict[str, str], bytes]:
    topics = body.pop("topics", ("orders", "payments"))
    data = encode_register_body(topics_body(*topics, **body), compressed=compressed)
    fields = encode_header(header) | {
        "compressed": str(compressed).lower(),
        "bodyCrc32": str(zlib.crc32(data) & 0x7FFFFFFF),
    }
    return 103, fields, data


def _requests() -> list[tuple[int, dict[str, str], bytes]]:
    """Registrations, plain and compressed, and all that can be asked about them."""
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    group = {"clusterName": CLUSTER, "brokerName": "broker-a"}
    version = {**group, "brokerAddr": "broker-a-0:10911", "brokerId": "0"}
    queues = encode_body(TopicRouteData((QueueData("broker-b", 2, 3, 6, 1),)))
    asked = [
        *[(105, {"topic": topic}, b"") for topic in ("orders", "payments", "new", "b2", "unknown")],
        (105, {"topic": "orders", "__ZONE_NAME": "z1", "__ZONE_MODE": "true"}, b""),
        (105, {"topic": "orders", "withLostBrokers": "true"}, b""),  # reput's own field, which Apache's passes over
        *[(code, {"withLostBrokers": "true"}, b"") for code in (106, 206, 304)],
        *[(code, {}, b"") for code in (106, 206, 304, 311, 312, 313)],
        (224, {"cluster": CLUSTER}, b""),
        (224, {"cluster": "unknown"}, b""),
        (901, group, b""),
        (322, version, b'{"counter":1,"stateVersion":0,"timestamp":1001}'),
    ]
    steps = [
        _register(broker_header()),
        _register(broker_header("broker-a", 1), topics=("orders",)),
        (103, _register(broker_header())[1] | {"bodyCrc32": "7"}, b"{}"),
        (103, *_register(broker_header("broker-b"), compressed=True, topics=("orders", "b2"), flag=3, queues=7)[1:]),
        _register(broker_header("broker-a", 1, heartbeat_timeout_millis=70_000), compressed=True),
        (217, {"topic": "new"}, queues),
        (205, {"brokerName": "broker-a"}, b""),
        _register(broker_header(), perm=4),
        (327, {"brokerName": "broker-a"}, b""),
        _register(broker_header(), perm=4, version=2, topics=("orders", "later")),
        (100, {**order, "value": "broker-a:4"}, b""),
        (101, order, b""),
        (219, {"namespace": "ORDER_TOPIC_CONFIG"}, b""),
        _register(broker_header("broker-a", 1)),
        (102, order, b""),
        (101, order, b""),
        (219, {"namespace": "unknown"}, b""),
        (904, {**version, "heartbeatTimeoutMills": "9"}, b""),
        (216, {"topic": "new"}, b""),
        (216, {"topic": "orders", "clusterName": CLUSTER}, b""),
        _register(broker_header()),
        _register(broker_header("broker-a", 0, "elsewhere:1"), state_version=3, version=3),
        _register(broker_header("broker-a", 0, "nowhere:1"), state_version=2, version=4),
        _register(broker_header("broker-a", 2, enable_acting_master=True)),
        (318, {}, b"supportActingMaster=true\norderMessageEnable=true"),
        (318, {}, b"kvConfigPath=/x"),
    ]
    zone = _register(broker_header("broker-z"), version=5)
    steps.append((103, zone[1] | {"__ZONE_NAME": "z1"}, zone[2]))
    return [request for step in steps for request in (step, *asked)]


def _content(answer: RemotingCommand) -> Any:
    """What an answer says, without Java's order of brokers, the one that comes first, and its remarks on success."""
    body = decode_json(answer.body) if answer.body else None
    if body and "topicList" in body:
        body["brokerAddr"] = "brokerAddr" in body
    return answer.code, answer.remark if answer.code else None, answer.ext_fields or {}, _sorted(body)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _sorted(one) for name, one in value.items()}
    return sorted(map(_sorted, value), key=str) if isinstance(value, list | tuple) else value


def test_the_same_requests_get_the_same_answers_from_apaches_name_server(tmp_path: Path) -> None:
    async def compare(address: str) -> None:
        theirs = RemotingClient()
        async with asked_name_server(tmp_path / "ours") as asked:
            for code, fields, body in _requests():
                answers = [
                    await client.call(where, RemotingCommand(code, ext_fields=dict(fields), body=body), 20)
                    for client, where in ((theirs, address), (asked.client, asked.address))
                ]
                assert _content(answers[1]) == _content(answers[0]), (code, fields)
            for who, where in ((theirs, address), (asked.client, asked.address)):
                await who.call(where, RemotingCommand(104, ext_fields=encode_header(leaving("broker-b"))))
            while _content(await theirs.call(address, RemotingCommand(106))) != _content(await asked.ask(106)):
                await asyncio.sleep(PAUSE_S)  # Apache unregisters beside its requests
        theirs.close()

    with Apache("5.3.3") as apache:
        address = apache.run("start-namesrv", path=str(tmp_path / "theirs"))
        run(compare(address))
        written = (tmp_path / "theirs/kvConfig.json").read_bytes()
        assert decode_kv_config(written) == {"ORDER_TOPIC_CONFIG": {}}
        assert encode_kv_config(decode_kv_config(written)) == written
        assert (tmp_path / "ours/ns/kvConfig.json").read_bytes() == written


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_a_new_topic_of_a_broker_of_many_is_known_at_once_to_apaches_name_server(tmp_path: Path, version: str) -> None:
    """By itself, but to 4.9.7, which does not answer that request; and so are all, to one that has lost the broker."""

    async def check(address: str) -> None:
        async with serving_broker(tmp_path / "store", namesrvAddr=address) as served:
            client, theirs = await served.client(), RemotingClient()

            async def queues(topic: str) -> int | None:
                answer = await theirs.call(address, RemotingCommand(105, ext_fields={"topic": topic}), 20)
                return json.loads(answer.body)["queueDatas"][0]["writeQueueNums"] if answer.code == 0 else None

            asked: list[int] = []
            connections = served.controller.state.registration._client
            call = connections.call

            async def told(where: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
                asked.append(command.code)
                return await call(where, command, timeout_s)

            connections.call = told  # type: ignore[method-assign]
            by_itself = [322, 103] if version == "4.9.7" else [322, 217]
            assert (await client.send_message("new")).code == 0
            assert (await queues("new"), asked) == (4, by_itself)
            await with_topic(client, "new", 7)
            assert (await queues("new"), asked) == (7, by_itself * 2)
            await served.controller.state.registration.register()
            assert (await queues("new"), await queues("topic-199")) == (7, 1)
            leaving = UnRegisterBrokerRequestHeader("broker-a", served.controller.address, CLUSTER, 0)
            await theirs.call(address, RemotingCommand(104, ext_fields=encode_header(leaving)), 20)
            while await queues("topic-199") is not None:
                await asyncio.sleep(PAUSE_S)
            asked.clear()
            assert (await client.send_message("newer")).code == 0
            assert (await queues("newer"), await queues("topic-199"), asked) == (4, 1, [322, 103])
            theirs.close()

    with MessageStore.open(tmp_path / "store", **SMALL) as store:
        store.update_topics([TopicConfig(f"topic-{number}", 1, 1) for number in range(200)])
    with Apache(version) as apache:
        run(check(apache.run("start-namesrv", path=str(tmp_path / "theirs"))))
