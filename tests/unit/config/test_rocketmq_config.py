from __future__ import annotations

import re
from pathlib import Path

import pytest

from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.namesrv import NamesrvConfig
from reput.config.properties import camel_case
from reput.config.rocketmq_config import RocketmqConfig, keys_of, nearest_key, refused_keys
from reput.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("brokerip", "brokerIP1"),  # not brokerId, which is as similar
        ("broker_ip", "broker_ip1"),
        ("flushdisktype", "flushDiskType"),
        ("FLUSHDISK", "flushDiskType"),
        ("flushDiskTyp", "flushDiskType"),
        ("flshDiskType", "flushDiskType"),
        ("halistenport", "haListenPort"),
    ],
)
def test_the_key_that_begins_like_a_wrong_one_is_meant_else_the_most_similar_one(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown configuration key '{given}'.*; did you mean {meant}\?$"):
        broker_configs({given: "1"})


@pytest.mark.parametrize("name", sorted({*keys_of(BrokerConfig), *keys_of(MessageStoreConfig)}))
def test_a_broker_conf_may_have_every_key_of_broker_and_store(name: str) -> None:
    for kind in (BrokerConfig, MessageStoreConfig):
        known = {**keys_of(BrokerConfig), **keys_of(MessageStoreConfig)}[name]
        kind.from_mapping({camel_case(name): known.default})


def test_nothing_is_meant_by_a_name_that_is_like_none() -> None:
    assert nearest_key("qqqq", ["brokerIP1"]) is None
    assert nearest_key("", ["brokerIP1"]) is None


def test_keys_that_are_not_named_tell_where_their_default_is_not_rocketmqs() -> None:
    assert MessageStoreConfig().own_defaults() == {
        "brokerIP1": "127.0.0.1 (RocketMQ: the machine's address)",
        "flushDiskType": "SYNC_FLUSH (RocketMQ: ASYNC_FLUSH)",
    }
    named = MessageStoreConfig.from_broker_conf("flushDiskType=SYNC_FLUSH\nbrokerIP1=127.0.0.1", "broker.conf")
    assert named.own_defaults() == {}
    assert BrokerConfig(ha_listen_port=1, broker_name="b", bind_address="0.0.0.0").own_defaults() == {
        "slaveReadEnable": "true (RocketMQ: false)",
        "tls.client.authServer": "true (RocketMQ: false)",
    }


def test_the_page_of_differences_lists_each_default_that_is_not_rocketmqs() -> None:
    page = Path("docs/design/differences.md").read_text()
    section = page.partition("\n## Defaults of keys\n")[2].partition("\n## ")[0]
    listed = [re.fullmatch(r"\| `(.+)` \| (.+) \| (.+) \|", line) for line in section.splitlines()]
    told = {row[1]: f"{row[3]} (RocketMQ: {row[2]})" for row in listed if row is not None}
    assert told == MessageStoreConfig().own_defaults() | BrokerConfig().own_defaults()


KINDS = (BrokerConfig, MessageStoreConfig, NamesrvConfig)

#: Names of keys that say where files are, who may reach a server, and who may do what.
_NOT_FOR_REQUESTS = re.compile(
    r"tls_|path|home|acl_|auth|password|black_list|whitelist|bind_address|broker_ip1|slave_addresses|exporter_host"
)


def spellings(name: str) -> set[str]:
    """Ways to write a key (snake_case), those among them that every reader of keys takes."""
    camel = camel_case(name)
    more = {name.upper(), name.title(), name.replace("_", "."), name.replace("_", ".").upper(), camel.replace(".", "_")}
    return {name, camel, camel[0].upper() + camel[1:], camel.lower(), camel.upper(), name.replace("_", "-"), *more}


@pytest.mark.parametrize("kind", KINDS)
def test_no_request_changes_a_local_key_in_any_spelling_that_the_configuration_takes(
    kind: type[RocketmqConfig],
) -> None:
    for name, key in keys_of(kind).items():
        for spelling in spellings(name):
            try:
                is_taken = name in kind.from_mapping({spelling: key.default}).given
            except ConfigError:  # unknown
                is_taken = False
            assert bool(refused_keys([spelling], "", kind)) == (is_taken and key.metadata["local"]), spelling
            assert bool(refused_keys([spelling], f"x; {camel_case(name)} ;y", kind)) == is_taken, spelling
        assert name in {snake for one in spellings(name) for snake in refused_keys([one], name, kind)}


@pytest.mark.parametrize("kind", KINDS)
def test_local_are_the_keys_that_name_files_or_say_who_may_do_what(kind: type[RocketmqConfig]) -> None:
    local = {name for name, key in keys_of(kind).items() if key.metadata["local"]}
    assert local == {name for name in keys_of(kind) if _NOT_FOR_REQUESTS.search(name)}
    assert refused_keys(["rocketmqHome", "broker.config.path", "authConfigPath"], "", kind)
