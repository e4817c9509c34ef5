"""Options that several commands share: of the keys of the configuration, what counts that nobody names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reput import Broker, MessageStore
from reput.cli.options import broker_and_store_config, store_config
from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.config.rocketmq_config import RocketmqConfig, keys_of

#: Keys of both classes, on which no default of another key depends.
NAMED = {"brokerClusterName": "c", "deleteWhen": "05"}
OTHER_KEYS = "".join(f"{name}={value}\n" for name, value in NAMED.items())

Values = dict[str, object]


def defaults(*kinds: Any) -> Values:
    return {camel_case(name): key.default for kind in kinds for name, key in keys_of(kind).items()}


def values(*configs: RocketmqConfig) -> Values:
    return {camel_case(name): getattr(one, name) for one in configs for name in keys_of(type(one))}


def of_commands(settings: list[str], broker_conf: str | None) -> Values:
    broker, store, _ = broker_and_store_config(settings, broker_conf)
    assert store == store_config(settings, broker_conf)
    return values(store, broker)


def of_file(text: str) -> Callable[[Path], Values]:
    def read(path: Path) -> Values:
        path.write_text(text)
        return of_commands([], str(path))

    return read


@pytest.mark.parametrize(
    ("door", "named"),
    [
        (lambda path: of_commands([], None), {}),
        (of_file(""), {}),
        (of_file(OTHER_KEYS), NAMED),
        (lambda path: of_commands(OTHER_KEYS.split(), None), NAMED),
    ],
    ids=["no file", "an empty file", "a file with other keys", "--set of other keys"],
)
def test_a_key_that_nobody_names_has_its_default_with_a_file_of_keys_and_without_one(
    tmp_path: Path, door: Callable[[Path], Values], named: Values
) -> None:
    assert door(tmp_path / "broker.conf") == defaults(MessageStoreConfig, BrokerConfig) | named


def test_programs_get_the_defaults_of_commands(tmp_path: Path) -> None:
    sizes = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 100, "maxIndexNum": 400}
    for number, config in enumerate(
        (None, MessageStoreConfig(), MessageStoreConfig.from_mapping({"deleteWhen": "04"}))
    ):
        with MessageStore.open(tmp_path / str(number), config=config, **sizes) as store:
            assert values(store.config) == defaults(MessageStoreConfig) | sizes
    named = {**sizes, "bindAddress": "127.0.0.1", "brokerClusterName": "c"}
    with Broker.start(tmp_path / "broker", **named) as broker:
        found = broker.in_loop(lambda state: values(state.store.config, state.view.config))
    named["storePathRootDir"] = str(tmp_path / "broker")
    assert found | {"listenPort": 10911} == defaults(MessageStoreConfig, BrokerConfig) | named


def test_a_key_that_a_file_names_counts_unless_set_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("flushDiskType=ASYNC_FLUSH\nslaveReadEnable=false\n")
    found = of_commands([], str(path))
    assert (found["flushDiskType"], found["slaveReadEnable"]) == ("ASYNC_FLUSH", False)
    assert of_commands(["flushDiskType=SYNC_FLUSH"], str(path))["flushDiskType"] == "SYNC_FLUSH"
