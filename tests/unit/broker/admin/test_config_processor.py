"""The broker's keys, shown and changed over sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reput.config.broker import broker_configs
from reput.config.properties import parse_properties
from reput.errors import RemotingError
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from tests.support.broker import Client, Served, serving_broker, with_topic


async def change(client: Client, text: str) -> RemotingCommand:
    return await client.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())


async def keys(client: Client) -> dict[str, str]:
    return parse_properties((await client.ask(RequestCode.GET_BROKER_CONFIG)).body.decode(), "answer")


def file_of(served: Served) -> Path:
    return Path(served.controller._state.store.path) / "config/broker.properties"


async def test_the_keys_of_a_broker_are_a_properties_text(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", broker_name="b-7", delete_when="05") as served:
        client = await served.client()
        found = await keys(client)
        assert (found["brokerName"], found["deleteWhen"], found["traceOn"]) == ("b-7", "05", "true")
        assert found["listenPort"] == served.controller.address.rpartition(":")[2]
        assert found["storePathRootDir"] == str(tmp_path / "store")
        assert "namesrvAddr" not in found
        fixed = ("brokerRole", "filterServerNums", "slaveReadEnable", "useTLS")
        assert [found[name] for name in fixed] == ["ASYNC_MASTER", "0", "true", "false"]


async def test_a_change_is_shown_and_in_the_broker_conf_beside_what_was_there(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# ours\ndefaultTopicQueueNums = 8\nbrokerName = b\n")

    async with serving_broker(tmp_path / "store", config_path=str(conf)) as served:
        client = await served.client()
        assert (await change(client, "defaultTopicQueueNums=7\n")).code == 0
        assert conf.read_text() == "# ours\nbrokerName = b\ndefaultTopicQueueNums=7\n"
        assert not file_of(served).exists()


async def test_a_change_to_what_rocketmq_alone_can_do_is_refused_and_one_without_effect_is_kept(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        answer = await change(client, "commitLogRecoverMaxNum=9\npopConsumerKVServiceEnable=true\n")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "popConsumerKVServiceEnable=true: check points of POP are messages" in (answer.remark or "")
        assert not file_of(served).exists()
        assert (await change(client, "commitLogRecoverMaxNum=x\n")).code == ResponseCode.SYSTEM_ERROR
        assert (await change(client, "commitLogRecoverMaxNum=9\nmetricsLabel=\n")).code == ResponseCode.SUCCESS
        assert file_of(served).read_text() == "commitLogRecoverMaxNum=9\nmetricsLabel=\n"


async def test_what_a_broker_shows_is_a_file_of_keys_for_another_one(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        shown = await keys(await served.client())
    config, store_config, ignored = broker_configs(shown)
    store_config.require_startable()
    assert ignored == ("filterServerNums", "useTLS")
    assert config.broker_name == "broker-a"


async def test_a_change_without_a_broker_conf_is_in_a_file_of_the_store(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        answer = await change(client, "defaultTopicQueueNums=7\nfileReservedTime=9\nhaListenPort=10912\n")
        assert answer.code == 0
        assert file_of(served).read_text() == "defaultTopicQueueNums=7\nfileReservedTime=9\nhaListenPort=10912\n"
        found = await keys(client)
        assert (found["defaultTopicQueueNums"], found["fileReservedTime"]) == ("7", "9")
        answer = await client.ask(RequestCode.GET_BROKER_CONFIG)
        assert json.loads((answer.ext_fields or {})["version"])["counter"] == 1
        assert served.controller._state.store._writer.cleaning.config.file_reserved_time == 9


async def test_keys_count_at_once_or_from_the_next_start_on(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        text = "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\nbrokerName=other\n"
        assert (await change(client, text)).code == 0
        assert (await client.send_message("fresh")).code == ResponseCode.TOPIC_NOT_EXIST
        state = served.controller._state
        assert state.groups.find_subscription_group_config("fresh", 1) is None
        assert state.view.config.broker_name == "broker-a"
        assert (await keys(client))["brokerName"] == "other"


async def test_a_permission_is_told_to_the_name_server_and_to_producers_of_order_topics(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        await with_topic(client, "orders", order=True)
        for _ in range(2):
            assert (await client.send_message("orders")).code == 0
        assert (await change(client, "brokerPermission=4")).code == 0
        assert (await client.send_message("orders")).code == ResponseCode.NO_PERMISSION
        routes = served.controller._name_server._routes
        (queue,) = routes.pickup_topic_route_data("orders").queue_datas
        assert queue.perm == 4
        assert (await change(client, "brokerPermission=6")).code == 0
        assert (await client.send_message("orders")).code == 0


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("configBlackList=\n", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("brokerConfigPath=/etc\n", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("authenticationMetadataProvider=local\n", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("autoCreateTopicEnabel=false\n", ResponseCode.SYSTEM_ERROR, "did you mean autoCreateTopicEnable?"),
        ("fileReservedTime=soon\n", ResponseCode.SYSTEM_ERROR, "expected a whole number"),
        ("enableLmq=true\nenableMultiDispatch=true\n", ResponseCode.SYSTEM_ERROR, "light queue"),
        ("brokerRole=SLAVE\n", ResponseCode.SYSTEM_ERROR, "needs a brokerId of 1 or more"),
        ("brokerRole=SLAVE\nbrokerId=1\n", ResponseCode.SYSTEM_ERROR, "needs namesrvAddr"),
        ("brokerName=a/b\n", ResponseCode.SYSTEM_ERROR, "a broker has a topic of this name"),
        ("mappedFileSizeCommitLog=4096\n", ResponseCode.SYSTEM_ERROR, "the store's files are of"),
        ("storePathRootDir=/elsewhere\n", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("tls_client_key_password=******\n", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("read.only.commit.log.store.paths=/\n", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
    ],
)
async def test_a_wrong_key_changes_nothing_nor_do_those_beside_it(
    tmp_path: Path, text: str, code: ResponseCode, remark: str
) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        before = await keys(client)
        answer = await change(client, "defaultTopicQueueNums=3\nautoCreateTopicEnable=false\n" + text)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert await keys(client) == before
        assert not file_of(served).exists()
        assert (await client.send_message("fresh")).code == 0


async def test_a_broker_conf_stays_for_the_eyes_of_those_who_may_read_it(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("tls.client.keyPassword=of ours\n")
    conf.chmod(0o600)

    async with serving_broker(tmp_path / "store", config_path=str(conf), tls_client_key_password="of ours") as served:
        client = await served.client()
        assert set((await keys(client))["tls.client.keyPassword"]) == {"*"}
        assert (await change(client, "defaultTopicQueueNums=7\n")).code == 0
        assert conf.read_text() == "tls.client.keyPassword=of ours\ndefaultTopicQueueNums=7\n"
        assert conf.stat().st_mode & 0o777 == 0o600


async def test_the_name_server_of_a_broker_takes_no_key_from_the_network(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client, address = RemotingClient(), served.controller.namesrv
        with pytest.raises(RemotingError):  # it listens where the broker does, at no other address
            await client.connection(address.replace("127.0.0.1", "127.0.0.2"))
        before = (await client.call(address, RemotingCommand(RequestCode.GET_NAMESRV_CONFIG))).body
        command = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true")
        answer = await client.call(address, command)
        assert (answer.code, "reput namesrv" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
        assert (await client.call(address, RemotingCommand(RequestCode.GET_NAMESRV_CONFIG))).body == before
        client.close()


async def test_a_change_that_cannot_be_written_counts_nowhere(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        file_of(served).mkdir()
        before = await keys(client)
        assert (await change(client, "autoCreateTopicEnable=false\n")).code == ResponseCode.SYSTEM_ERROR
        assert await keys(client) == before
        assert (await client.send_message("fresh")).code == 0


async def test_a_text_of_more_lines_than_brokers_have_keys_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        assert (await change(client, "# ours\n" * 1023 + "defaultTopicQueueNums=7\n")).code == 0
        answer = await change(client, "defaultTopicQueueNums=6\n" * 1025)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "UPDATE_BROKER_CONFIG: 1025 lines; expected 1024 at most"
        assert (await keys(client))["defaultTopicQueueNums"] == "7"
