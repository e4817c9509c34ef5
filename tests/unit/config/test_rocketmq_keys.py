"""Keys of RocketMQ's versions: each is known, with its type, and with what it does here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.namesrv import NamesrvConfig
from reput.config.properties import camel_case, snake_case
from reput.config.rocketmq_config import RocketmqConfig, keys_of, refused_keys
from reput.config.rocketmq_keys import OF_BROKER, OF_NAMESRV, ROCKETMQ_KEYS, unused_keys
from reput.errors import ConfigError
from reput.namesrv.name_server import NameServer
from tests.support.rocketmq.config_keys import VERSIONS, JavaKey, recorded_keys

RECORDED = recorded_keys()
#: Versions that a key without `since` is in: no later one is the first to have it.
UP_TO_5_3_3 = ("4.9.7", "5.3.3")
USED = {camel_case(name) for kind in (BrokerConfig, MessageStoreConfig) for name in keys_of(kind)}
OF_A_NAME_SERVER = {camel_case(name) for name in keys_of(NamesrvConfig)}
#: Keys of reput's own.
OWN = {"dispatchRules", "grpcServerPort", "haSlaveAddresses"}
#: Of a key without a default a value that its type takes.
SAMPLES = {"boolean": "true", "int": "7", "long": "7", "double": "0.5", "String": "x", "TieredStorageLevel": "FORCE"}
WRONG = {"boolean": "yes", "int": "2147483648", "long": "1.5", "double": "much", "TieredStorageLevel": "SOMETIMES"}


def by_name(version: str) -> dict[str, JavaKey]:
    return {key.name: key for key in RECORDED[version]}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_key_of_a_version_is_used_or_has_a_reason_and_its_type(version: str) -> None:
    names = by_name(version)
    assert names.keys() - ROCKETMQ_KEYS.keys() == (USED - OWN) & names.keys() - ROCKETMQ_KEYS.keys()
    for name, java in names.items():
        key = ROCKETMQ_KEYS.get(name)
        if key is not None and key.type:
            assert key.type == java.type, name


def test_the_table_has_no_other_keys_and_says_since_when_they_are() -> None:
    first: dict[str, str] = {}
    for version in VERSIONS:
        for name in by_name(version):
            first.setdefault(name, version)
    assert {name: key.since for name, key in ROCKETMQ_KEYS.items()} == {
        name: "" if first[name] in UP_TO_5_3_3 else first[name] for name in ROCKETMQ_KEYS
    }


def test_keys_of_other_servers_are_those_that_they_have() -> None:
    of = {why: {key.name for key in ROCKETMQ_KEYS.values() if key.reason == why} for why in (OF_BROKER, OF_NAMESRV)}
    assert of[OF_BROKER] == {camel_case(name) for name in keys_of(BrokerConfig)} - OWN
    assert of[OF_NAMESRV] - OF_A_NAME_SERVER == {"clusterTest", "productEnvName"}
    assert OF_A_NAME_SERVER - of[OF_NAMESRV] <= USED
    assert {key.name for key in unused_keys()} == ROCKETMQ_KEYS.keys() - of[OF_BROKER]


def test_a_key_has_one_spelling_in_snake_case_and_a_sentence() -> None:
    assert len(set(map(snake_case, ROCKETMQ_KEYS))) == len(ROCKETMQ_KEYS)
    for key in ROCKETMQ_KEYS.values():
        assert key.reason[0].islower() or key.reason.startswith(("POP", "TLS"))
        assert not key.reason.endswith(".")


@pytest.mark.parametrize("kind", [BrokerConfig, MessageStoreConfig, NamesrvConfig])
def test_values_of_unused_keys_are_checked_by_their_type(kind: type[RocketmqConfig]) -> None:
    for key in ROCKETMQ_KEYS.values():
        if not key.type:
            continue
        for spelling in (key.name, snake_case(key.name)):
            config = kind.from_mapping({spelling: SAMPLES[key.type]})
            assert (*config.ignored, *(name for name, _ in config.refusals)) == (key.name,)
        if key.type == "String":
            assert kind.from_mapping({key.name: ""}).ignored == (key.name,)
            continue
        for wrong in (WRONG[key.type], ""):
            with pytest.raises(ConfigError, match=f"^broker.conf:1: {key.name}={wrong}: expected "):
                kind.from_broker_conf(f"{key.name}={wrong}", "broker.conf")


@pytest.mark.parametrize("version", VERSIONS)
def test_all_defaults_of_a_version_are_taken_and_nothing_is_refused(version: str) -> None:
    config, store_config, ignored = broker_configs(defaults(version))
    store_config.require_startable()
    assert not config.refusals
    assert set(ignored) == {key.name for key in unused_keys()} & defaults(version).keys()


def defaults(version: str) -> Mapping[str, str]:
    """What `mqadmin getBrokerConfig` shows of a broker of a version that was told nothing."""
    return {key.name: key.default for key in RECORDED[version] if key.default is not None and key.default != "*"}


REFUSED = {
    "configManagerVersion": "v2",
    "enableControllerMode": "true",
    "enableDLegerCommitLog": "true",
    "filterServerNums": "1",
    "indexFileWriteEnable": "false",
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
    "popConsumerKVServiceEnable": "true",
    "storeType": "defaultRocksDB",
    "timerRocksDBEnable": "true",
    "timerWheelSnapshotFlush": "true",
    "tls.ciphers": "TLS_AES_128_GCM_SHA256",
    "tls.protocols": "TLSv1.3",
    "transWriteOriginTransHalfEnable": "false",
}


def test_what_cannot_be_done_as_rocketmq_does_it_is_refused_by_all_values_but_one() -> None:
    assert {key.name for key in ROCKETMQ_KEYS.values() if key.only is not None} == REFUSED.keys()
    for version in VERSIONS:
        for name, java in by_name(version).items():
            key = ROCKETMQ_KEYS.get(name)
            assert key is None or key.only is None or key.only == (java.default or ""), name


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_a_refusal_names_key_value_line_and_reason(name: str, value: str) -> None:
    config = MessageStoreConfig.from_broker_conf(f"brokerId=0\n{name}={value}", "broker.conf")
    assert (config.ignored, [key for key, _ in config.refusals]) == (("brokerId",), [name])
    with pytest.raises(ConfigError) as raised:
        config.require_startable()
    reason = ROCKETMQ_KEYS[name].reason
    assert str(raised.value) == f"broker.conf:2: {name}={value}: {reason}; leave {name} out"
    with pytest.raises(ConfigError, match=f"^{name}={value}: "):
        MessageStoreConfig.from_mapping({name: value}).require_startable()
    mended = MessageStoreConfig.from_mapping({name: ROCKETMQ_KEYS[name].only or ""}, config)
    mended.require_startable()
    assert mended.ignored == ("brokerId", name)
    broken = MessageStoreConfig.from_mapping({name: value}, mended)
    assert (broken.ignored, broken.refusals) == (
        ("brokerId",),
        ((name, f"{name}={value}: {reason}; leave {name} out"),),
    )


def test_a_name_server_refuses_what_concerns_its_connections_alone() -> None:
    for name, value in REFUSED.items():
        config = NamesrvConfig.from_mapping({name: value})
        refused = () if name in config.ignored else (name,)
        assert tuple(key for key, _ in config.refusals) == refused
        assert bool(refused) == name.startswith("tls.")
    with pytest.raises(ConfigError, match=r"^tls\.protocols=TLSv1\.3: TLS is 1\.2 or later"):
        NameServer(NamesrvConfig.from_mapping({"tls.protocols": "TLSv1.3"}))
    NameServer(NamesrvConfig.from_mapping(REFUSED | {"tls.protocols": "", "tls.ciphers": ""}))


def test_a_text_whose_default_is_empty_may_be_empty() -> None:
    empty = {key.name for keys in RECORDED.values() for key in keys if key.default == ""} & (USED | OF_A_NAME_SERVER)
    assert empty == {"metricsLabel", "metricsPromExporterHost"}
    config = BrokerConfig.from_broker_conf("metricsLabel=\nmetricsPromExporterHost=", "broker.conf")
    assert (config.metrics_label, config.metrics_prom_exporter_host) == (None, None)
    assert (config.own_defaults(), config.metric_labels) == (BrokerConfig().own_defaults(), {})


def test_a_key_that_every_version_has_is_known() -> None:
    names = set.intersection(*(set(by_name(version)) for version in VERSIONS))
    assert {"maxMsgsNumBatch", "messageIndexSafe"} < names
    _, store_config, ignored = broker_configs({"maxMsgsNumBatch": "9", "messageIndexSafe": "true"})
    assert (store_config.max_msgs_num_batch, ignored) == (9, ("messageIndexSafe",))


def test_no_request_changes_a_key_that_names_a_file() -> None:
    paths = {"storePathDLedgerCommitLog", "authConfigPath", "kvConfigPath"}
    assert len(refused_keys(["authConfigPath", "kvConfigPath"], "", BrokerConfig, MessageStoreConfig)) == 2
    assert paths <= ROCKETMQ_KEYS.keys()


def test_defaults_that_changed_are_told_in_the_page_of_differences() -> None:
    changed = {
        name
        for name, java in by_name("5.3.3").items()
        for version in VERSIONS
        if version > "5.3.3" and by_name(version).get(name, java).default != java.default
    }
    page = Path("docs/design/differences.md").read_text()
    section = page.partition("\n## Defaults of keys\n")[2].partition("\n## ")[0]
    assert changed == {"transactionMetricFlushInterval"}
    assert all(f"`{name}`" in section for name in changed)
