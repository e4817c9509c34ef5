from __future__ import annotations

import re
from pathlib import Path

import pytest

from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.rocketmq_config import nearest_key
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
    assert BrokerConfig(ha_listen_port=1, broker_name="b").own_defaults() == {
        "slaveReadEnable": "true (RocketMQ: false)",
        "tls.client.authServer": "true (RocketMQ: false)",
    }


def test_the_page_of_differences_lists_each_default_that_is_not_rocketmqs() -> None:
    page = Path("docs/design/differences.md").read_text()
    section = page.partition("\n## Defaults of keys\n")[2].partition("\n## ")[0]
    listed = [re.fullmatch(r"\| `(.+)` \| (.+) \| (.+) \|", line) for line in section.splitlines()]
    told = {row[1]: f"{row[3]} (RocketMQ: {row[2]})" for row in listed if row is not None}
    assert told == MessageStoreConfig().own_defaults() | BrokerConfig().own_defaults()
