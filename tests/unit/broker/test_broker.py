"""The broker's life: starts that are refused, restarts, name servers, requests of all clients, and garbage."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reput import Message, MessageStore
from reput.broker.broker import BrokerController
from reput.cli.options import broker_and_store_config
from reput.errors import ConfigError, CorruptMetadataError, RemotingError, ReputError, StoreError, StoreLockedError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, decode_command
from reput.service.config_manager import ConfigManager
from reput.transport.client import RemotingClient
from tests.support.broker import (
    SMALL,
    SYNCED,
    Client,
    Served,
    consumer,
    controller_of,
    messages_of,
    serving_broker,
    with_topic,
)
from tests.support.commands import content_of
from tests.support.faulty_files import FaultyFiles, Operation
from tests.support.frames import Recorded, recorded_frames
from tests.support.namesrv import asked_name_server
from tests.support.rocketmq.config_keys import VERSIONS, recorded_keys


@contextmanager
def taken_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


async def refused(path: Path, error: type[ReputError], match: str, **keys: Any) -> None:
    """Start a broker that cannot start: nothing is changed, and nobody listens."""
    before = content_of(path.parent)
    namesrv_port = keys.pop("namesrv_port", 0)
    controller = controller_of(path, **keys)
    controller._namesrv_port = namesrv_port
    with pytest.raises(error, match=match):
        await controller.start()
    assert content_of(path.parent) == before
    assert not controller._server.connections
    name_server = controller._name_server
    for server in (controller._server, *([] if name_server is None else [name_server._server])):
        assert server._server is None or not server._server.is_serving()


@pytest.mark.parametrize("there", [False, True], ids=["no store", "a store"])
async def test_a_start_on_a_taken_port_changes_nothing(tmp_path: Path, there: bool) -> None:
    if there:
        async with serving_broker(tmp_path / "store"):
            pass
    with taken_port() as port:
        told = f": cannot listen on 127.0.0.1:{port}: .*choose another one, or 0 for any that is free"
        await refused(tmp_path / "store", RemotingError, f"^listenPort{told}", listen_port=port)
        await refused(tmp_path / "store", RemotingError, f"^the name server{told}", namesrv_port=port)


async def test_a_start_on_a_store_that_is_open_elsewhere_changes_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store"):
        await refused(tmp_path / "store", StoreLockedError, "store")


async def test_a_start_with_a_name_that_is_no_topics_changes_nothing(tmp_path: Path) -> None:
    for keys in ({"brokerName": "a b"}, {"brokerClusterName": "c/d"}):
        await refused(tmp_path / "store", ConfigError, next(iter(keys)), **keys)


async def test_a_start_with_a_key_that_rocketmq_alone_can_do_changes_nothing(tmp_path: Path) -> None:
    for keys in ({"storeType": "defaultRocksDB"}, {"timerRocksDBEnable": "true"}, {"tls.protocols": "TLSv1.3"}):
        name = next(iter(keys))
        await refused(tmp_path / "store", ConfigError, f"^{name}=.*; leave {name} out$", **keys)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_broker_starts_with_a_file_of_all_keys_and_defaults_of_rocketmq(tmp_path: Path, version: str) -> None:
    conf = tmp_path / "broker.conf"
    defaults = {key.name: key.default for key in recorded_keys()[version] if key.default not in (None, "*")}
    conf.write_text("".join(f"{name}={default}\n" for name, default in defaults.items()))
    ports = ["listenPort=0", "haListenPort=0", "bindAddress=127.0.0.1"]
    settings = [*ports, *(f"{name}={value}" for name, value in SMALL.items())]
    config, store_config, ignored = broker_and_store_config(settings, str(conf))
    assert len(config.given | store_config.given) + len(ignored) >= len(defaults)
    path = str(tmp_path / "store")
    controller = BrokerController(path, config, store_config, namesrv_port=0, config_path=str(conf))
    await controller.start()
    try:
        client = await Served(controller).client()
        assert (await client.send_message("orders")).code == ResponseCode.SUCCESS
    finally:
        await controller.stop()


@pytest.mark.parametrize("name", ["subscriptionGroup.json", "consumerOffset.json", "topics.json"])
async def test_a_start_with_damaged_files_changes_nothing(tmp_path: Path, name: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await client.send_message("orders")
        await client.heartbeat("c", consumer("g", "orders"))
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
    for path in (tmp_path / "store/config").glob(f"{name}*"):
        path.write_bytes(b"{")
    await refused(tmp_path / "store", CorruptMetadataError, name)


async def test_a_start_that_cannot_write_its_topics_leaves_the_store_closed(tmp_path: Path) -> None:
    def judge(operation: Operation) -> None:
        if "topics.json" in operation.path:
            raise OSError(errno.ENOSPC, "no space")

    controller = controller_of(tmp_path / "store", files=FaultyFiles(judge))
    with pytest.raises(StoreError):
        await controller.start()
    async with serving_broker(tmp_path / "store") as served:
        assert (await (await served.client()).send_message("orders")).code == 0


async def test_nobody_is_served_before_the_store_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    real = MessageStore.open

    def looking(*arguments: Any, **options: Any) -> MessageStore:
        with socket.socket() as visitor:
            tried.append(visitor.connect_ex(("127.0.0.1", options["config"].listen_port)))
        return real(*arguments, **options)

    monkeypatch.setattr(MessageStore, "open", looking)

    async with serving_broker(tmp_path / "store"):
        assert tried
        assert tried[0] != 0


async def test_topics_groups_offsets_and_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", 3)
        body = json.dumps({"groupName": "g", "retryMaxTimes": 3}).encode()
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        await client.heartbeat("c", consumer("g2", "orders"))
        for number in range(3):
            await client.send_message("orders", b"%d" % number, queueId=2)
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 2, "commitOffset": 2}
        await client.one_way(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
    with MessageStore.open(tmp_path / "store", read_only=True, **SMALL) as store:
        assert store.topics["orders"].read_queue_nums == 3
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        state = served.controller._state
        assert state.topics.topic_config_table["orders"].read_queue_nums == 3
        assert state.groups.subscription_group_table["g"].retry_max_times == 3
        assert "g2" in state.groups.subscription_group_table
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="orders", queueId=2)
        assert (answer.ext_fields or {})["offset"] == "2"
        messages = messages_of(await client.pull("orders", queueId=2))
        assert [message.body for message in messages] == [b"0", b"1", b"2"]


async def test_offsets_are_written_by_time(tmp_path: Path) -> None:
    path = tmp_path / "store/config/consumerOffset.json"

    async with serving_broker(tmp_path / "store", flushConsumerOffsetInterval=5) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await client.heartbeat("c", consumer("g", "orders"))
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 7}
        await client.one_way(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
        while not path.exists():
            await client.round_trip()
        assert json.loads(path.read_bytes().replace(b"{0:", b'{"0":'))["offsetTable"] == {"orders@g": {"0": 7}}


async def test_two_brokers_register_at_one_name_server_and_leave_it(tmp_path: Path) -> None:
    async with asked_name_server(tmp_path) as asked:

        async def brokers() -> dict[str, Any]:
            table = json.loads((await asked.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)["brokerAddrTable"]
            return {name: data["brokerAddrs"] for name, data in table.items()}

        keys = {"namesrvAddr": asked.address}
        async with serving_broker(tmp_path / "a", **keys) as a:
            async with serving_broker(tmp_path / "b", brokerName="broker-b", **keys) as b:
                assert a.controller.namesrv == b.controller.namesrv == asked.address
                addresses = {"broker-a": a.controller.address, "broker-b": b.controller.address}
                assert await brokers() == {name: {"0": address} for name, address in addresses.items()}
                client = await a.client()
                await with_topic(client, "orders", 2)
                await (await b.client()).send_message("orders")
                route = json.loads((await asked.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")).body)
                queues = {data["brokerName"]: data["readQueueNums"] for data in route["queueDatas"]}
                assert queues == {"broker-a": 2, "broker-b": 4}
            assert list(await brokers()) == ["broker-a"]
        assert await brokers() == {}


async def test_a_broker_registers_at_its_own_name_server_whatever_address_clients_are_told(tmp_path: Path) -> None:
    for bound in ("127.0.0.1", "0.0.0.0"):
        async with serving_broker(tmp_path / "store", brokerIP1="192.0.2.1", bind_address=bound) as served:
            assert served.controller.namesrv.startswith("192.0.2.1:")
            name_server = served.controller._name_server
            assert name_server is not None
            port = served.controller.namesrv.rpartition(":")[2]
            client = Client(*await asyncio.open_connection("127.0.0.1", int(port)))
            answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            table = json.loads(answer.body)["brokerAddrTable"]
            assert table["broker-a"]["brokerAddrs"] == {"0": served.controller.address}
            assert served.controller.address.startswith("192.0.2.1:")
            await client.leave()


async def test_the_key_values_of_a_brokers_own_name_server_stay_in_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read from the user's home or written there: other brokers of the same user would share it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    kept = {"namespace": "ns", "key": "k"}

    async def value(served: Served) -> str | None:
        answer = await namesrv_client.call(
            served.controller.namesrv, RemotingCommand(RequestCode.GET_KV_CONFIG, ext_fields=kept)
        )
        return (answer.ext_fields or {}).get("value")

    namesrv_client = RemotingClient()
    try:
        async with serving_broker(tmp_path / "one") as one, serving_broker(tmp_path / "two") as two:
            put = RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields={**kept, "value": "v"})
            assert (await namesrv_client.call(one.controller.namesrv, put)).code == ResponseCode.SUCCESS
            assert (await value(one), await value(two)) == ("v", None)
        async with serving_broker(tmp_path / "one") as one:
            assert await value(one) == "v"
    finally:
        namesrv_client.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    assert (tmp_path / "one/config/kvConfig.json").is_file()


async def test_a_broker_starts_without_its_name_server(tmp_path: Path) -> None:
    with taken_port() as port:
        pass
    async with serving_broker(tmp_path / "store", namesrvAddr=f"127.0.0.1:{port}") as served:
        assert (await (await served.client()).send_message("orders")).code == 0


#: POP_LITE_MESSAGE, LITE_SUBSCRIPTION_CTL and what follows, of RocketMQ 5.5.0.
OF_LITE_TOPICS = (*range(200_070, 200_080),)


async def test_requests_that_it_does_not_know_are_answered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        for code in (9999, *OF_LITE_TOPICS):
            answer = await client.ask(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f" request type {code} not supported"
        assert (await client.send_message("orders")).code == 0


@pytest.mark.parametrize(
    "garbage", [b"\x7f\xff\xff\xff....", b"SSH-2.0-OpenSSH_9.2\r\n", bytes(64), b"\x00\x00\x00\x06"]
)
async def test_a_connection_with_garbage_is_closed_and_the_others_live(tmp_path: Path, garbage: bytes) -> None:
    async with serving_broker(tmp_path / "store") as served:
        bad, good = await served.client(), await served.client()
        bad.writer.write(garbage)
        bad.writer.write_eof()
        await bad.ended()
        assert (await good.send_message("orders")).code == 0


async def test_clients_of_other_protocols_are_answered_and_named_by_broker_and_name_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(address: str, begin: bytes) -> bytes:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(begin)
        answer = await reader.read()
        writer.close()
        return answer

    async with serving_broker(tmp_path / "store") as served:
        for address in (served.controller.address, served.controller.namesrv):
            assert b"this port speaks RocketMQ's remoting protocol" in await ask(address, b"GET / HTTP/1.1\r\n\r\n")
        begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # the broker speaks it
        assert b"RocketMQ's proxy" in await ask(served.controller.namesrv, begin)
    assert caplog.text.count("connection closed: another protocol") == 3


# -- what real clients sent

#: Requests of the recorded ones that this broker answers.
_KNOWN = {10, 310, 320, 11, 361, 12, 34, 35, 38, 14, 15, 29, 30, 31, 41, 42, 46, 17, 215, 200, 207}


def _in_scope(recorded: Recorded) -> bool:
    header = recorded.header
    return header.get("code") in _KNOWN and not header.get("flag", 0) & 1 and recorded.name.find("response") < 0


def _expected(recorded: Recorded) -> set[int]:
    """Codes that its answer may have, on a broker that has got the requests before it."""
    code = recorded.header["code"]
    if code in (11, 361):
        return {0, 19, 20, 21}
    if code in (12, 14):
        return {0, 22}
    if code == 46:  # SQL92, which is off by default
        return {1}
    return {0}


async def test_the_requests_of_all_recorded_clients_are_answered_as_apaches_broker_did(tmp_path: Path) -> None:
    requests = [one for one in recorded_frames() if _in_scope(one)]
    # A pull needs its group's heartbeat; nobody leaves before all have asked.
    order = {17: 0, 200: 0, 34: 1, 310: 2, 10: 2, 320: 2, 35: 8, 215: 9, 207: 9}
    requests.sort(key=lambda one: order.get(one.header["code"], 5))

    async with serving_broker(tmp_path / "store", longPollingEnable="false", shortPollingTimeMills=0) as served:
        client = await served.client()
        for topic in ("T1", "TopicTest", "RR"):
            await with_topic(client, topic, 8)
        sent = 0
        groups = {group for one in requests if one.header["code"] in (11, 14, 15, 38, 361)
                  for group in [one.header["extFields"]["consumerGroup"]]}  # fmt: skip
        everything = [consumer(group, "T1", "TopicTest", f"%RETRY%{group}", version=1 << 62) for group in groups]
        await client.heartbeat("all", *everything)
        for group in groups:
            while f"%RETRY%{group}" not in served.controller._state.topics.topic_config_table:
                await client.round_trip()
        for one in requests:
            command = decode_command(one.frame)
            (begun,) = client.begin_all([command])
            if command.is_one_way:
                await client.round_trip()
                sent += command.code == 310
                continue
            answer = await begun
            assert answer.code in _expected(one), (one.name, answer)
            if command.code in (10, 310, 320):
                sent += 1
                fields = command.ext_fields or {}
                queue_id = fields.get("e", fields.get("queueId"))
                assert answer.ext_fields is not None, one.name
                assert answer.ext_fields["queueId"] == queue_id, one.name
                assert set(_RECORDED_SEND) <= set(answer.ext_fields), one.name
            if command.code in (11, 361) and answer.code != 3:
                assert {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"} <= set(
                    answer.ext_fields or {}
                ), one.name
        assert sent == len([one for one in requests if one.header["code"] in (10, 310, 320)])


#: Fields of the recorded answers to sends.
_RECORDED_SEND = ("msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON")


async def test_recorded_sends_are_stored_as_they_were_recorded(tmp_path: Path) -> None:
    """Bodies and properties of what Java, Go, Node and C++ sent come back in a pull."""
    sends = [one for one in recorded_frames() if _in_scope(one) and one.header["code"] in (10, 310)]

    async with serving_broker(tmp_path / "store", **SYNCED) as served:
        client = await served.client()
        for topic in ("T1", "TopicTest", "RR"):
            await with_topic(client, topic, 8)
        for one in sends:
            command: RemotingCommand = decode_command(one.frame)
            command.flag = 0
            fields = dict(command.ext_fields or {})
            is_v2 = command.code == 310
            answer = await client.begin_all([command])[0]
            assert answer.code == 0, one.name
            offset = int((answer.ext_fields or {})["queueOffset"])
            topic, queue_id = fields["b" if is_v2 else "topic"], fields["e" if is_v2 else "queueId"]
            (message, *_) = messages_of(await client.pull(topic, offset, queueId=queue_id, hold_ms=60_000))
            assert message.body == one.body, one.name
            text = fields.get("i" if is_v2 else "properties", "")
            given = dict(pair.split("\x01") for pair in text.split("\x02") if pair)
            shown = dict(message.properties) | {"TAGS": message.tags, "UNIQ_KEY": message.unique_key}
            shown["KEYS"] = " ".join(message.keys)
            assert {name: shown[name] for name in given} == given, one.name


async def test_what_is_sent_while_the_broker_stops_is_dispatched_by_the_close_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        state = served.controller._state
        persist = state.config_files.persist

        async def persist_late(manager: ConfigManager[Any]) -> None:
            await state.pools.writes.run(state.store.put_message, Message("orders", b"late"))
            state.dispatch.soon()
            await persist(manager)

        monkeypatch.setattr(state.config_files, "persist", persist_late)
        await served.stop()
        assert state.dispatch._next is None, "it would find the store closed"
    with MessageStore.open(tmp_path / "store") as store:
        assert store.max_offset("orders", 0) == 6  # one before each file


async def test_light_queues_which_no_consumer_could_pull_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="enableLmq=true with enableMultiDispatch=true"):
        async with serving_broker(tmp_path / "store", enable_lmq=True, enable_multi_dispatch=True):
            pass
    assert not (tmp_path / "store").exists()
    async with serving_broker(tmp_path / "store", enable_lmq=True):
        pass
