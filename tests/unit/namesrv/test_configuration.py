from __future__ import annotations

from pathlib import Path

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.config.properties import parse_properties
from reput.errors import ConfigError, RemotingCommandError
from reput.namesrv.configuration import Configuration


def test_all_keys_are_shown() -> None:
    shown = parse_properties(Configuration(NamesrvConfig(listen_port=1), lambda _: None).text(), "shown")
    assert shown["listenPort"] == "1"
    assert shown["orderMessageEnable"] == "false"
    assert shown["kvConfigPath"] == "~/namesrv/kvConfig.json"
    assert NamesrvConfig.from_mapping(shown) == NamesrvConfig(listen_port=1)


async def test_a_change_is_in_use_and_in_the_file_beside_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "namesrv.conf"
    seen: list[NamesrvConfig] = []
    configuration = Configuration(NamesrvConfig(config_store_path=str(path)), seen.append)
    await configuration.update("orderMessageEnable=true")
    assert configuration.config.order_message_enable
    assert seen == [configuration.config]
    assert path.read_text() == "orderMessageEnable=true\n"
    path.write_text("# mine\nclusterTest=true\norderMessageEnable=true\n")
    await configuration.update("orderMessageEnable=false\nenableTopicList=false")
    assert path.read_text() == "# mine\nclusterTest=true\nenableTopicList=false\norderMessageEnable=false\n"


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort"])
async def test_a_key_of_the_black_list_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "namesrv.conf"
    config = NamesrvConfig(config_store_path=str(path), config_black_list="listenPort;bindAddress")
    configuration = Configuration(config, lambda _: None)
    with pytest.raises(RemotingCommandError, match="Can not update config in black list") as refused:
        await configuration.update(f"enableTopicList=false\n{key}=1")
    assert refused.value.code == 16
    assert configuration.config == config
    assert not path.exists()


@pytest.mark.parametrize(
    "name",
    """
    kv_config_path KvConfigPath kv.config.path KV_CONFIG_PATH config_store_path config.store.path Config_StorePath
    rocketmq_home TlsServerCertPath tls.server.mode tls_server_need_client_auth bind.address ConfigBlackList
    Listen_Port order.message.enable
    """.split(),
)
async def test_no_spelling_of_a_key_leads_past_the_black_list(tmp_path: Path, name: str) -> None:
    config = NamesrvConfig(
        config_store_path=str(tmp_path / "conf"), config_black_list="listenPort; order_message_enable"
    )
    configuration = Configuration(config, lambda _: None)
    with pytest.raises(RemotingCommandError, match="black list"):
        await configuration.update(f"{name}={tmp_path / 'profile'}")
    assert configuration.config == config
    assert not list(tmp_path.iterdir())


async def test_a_change_leaves_the_mode_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("")
    path.chmod(0o640)
    await Configuration(NamesrvConfig(config_store_path=str(path)), lambda _: None).update("enableTopicList=false")
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["noSuchKey=1", "enableTopicList=perhaps", "=1"])
async def test_a_wrong_key_or_value_changes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "namesrv.conf"
    configuration = Configuration(NamesrvConfig(config_store_path=str(path)), lambda _: None)
    with pytest.raises(ConfigError):
        await configuration.update(f"enableTopicList=false\n{text}")
    assert configuration.config.enable_topic_list
    assert not path.exists()
