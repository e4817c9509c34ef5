from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.config.properties import camel_case, snake_case
from reput.config.rocketmq_keys import ROCKETMQ_KEYS
from reput.errors import ConfigError

KEYS = [key for key in fields(MessageStoreConfig) if key.metadata]

#: `MessageStoreConfig` of 5.3.3, and the port of `BrokerStartup`.
ROCKETMQ_DEFAULTS = {
    "accessMessageInMemoryMaxRatio": 40,
    "autoMessageVersionOnTopicLen": True,
    "checkCRCOnRecover": True,
    "cleanFileForciblyEnable": True,
    "cleanResourceInterval": 10_000,
    "dataReadAheadEnable": True,
    "deleteCommitLogFilesInterval": 100,
    "deleteConsumeQueueFilesInterval": 100,
    "deleteFileBatchMax": 10,
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85,
    "diskSpaceWarningLevelRatio": 90,
    "fileReservedTime": 72,
    "enabledAppendPropCRC": False,
    "forceVerifyPropCRC": False,
    "enableConsumeQueueExt": False,
    "enableLmq": False,
    "enableMultiDispatch": False,
    "flushCommitLogLeastPages": 4,
    "flushCommitLogThoroughInterval": 10_000,
    "flushConsumeQueueLeastPages": 2,
    "flushConsumeQueueThoroughInterval": 60_000,
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": 500,
    "mappedFileSizeTimerLog": 104_857_600,
    "timerCongestNumEachSlot": 2**31 - 1,
    "timerFlushIntervalMs": 1000,
    "timerMaxDelaySec": 259_200,
    "timerPrecisionMs": 1000,
    "timerRollWindowSlot": 172_800,
    "timerWheelEnable": True,
    "flushIntervalConsumeQueue": 1000,
    "flushLeastPagesWhenWarmMapedFile": 4096,
    "listenPort": 10911,
    "mappedFileSizeCommitLog": 1073741824,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "mappedFileSizeConsumeQueueExt": 50_331_648,
    "mapperFileSizeBatchConsumeQueue": 13_800_000,
    "maxFilterMessageSize": 16_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "maxMessageSize": 4_194_304,
    "maxMsgsNumBatch": 64,
    "maxTransferBytesOnMessageInDisk": 65_536,
    "maxTransferBytesOnMessageInMemory": 262_144,
    "maxTransferCountOnMessageInDisk": 8,
    "maxTransferCountOnMessageInMemory": 32,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "messageIndexEnable": True,
    "osPageCacheBusyTimeOutMills": 1000,
    "syncFlushTimeout": 5000,
    "warmMapedFileEnable": False,
}  # fmt: skip


def test_defaults_are_rocketmqs_but_those_that_are_told() -> None:
    config = MessageStoreConfig()
    paths = {"storePathRootDir": "~/store", "storePathCommitLog": None, "readOnlyCommitLogStorePaths": None}
    rocketmqs = ROCKETMQ_DEFAULTS | paths | {"brokerIP1": "the machine's address", "dispatchRules": "5.3.3"}
    assert {camel_case(key.name): key.metadata["rocketmq"] for key in KEYS} == rocketmqs
    ours = {camel_case(key.name): getattr(config, key.name) for key in KEYS}
    assert ours == rocketmqs | {"flushDiskType": "SYNC_FLUSH", "brokerIP1": "127.0.0.1"}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_is_documented_and_spelled_both_ways(key: object) -> None:
    assert key.metadata["doc"].endswith(".") or key.metadata["doc"].endswith("...")  # type: ignore[attr-defined]
    assert snake_case(camel_case(key.name)) == key.name  # type: ignore[attr-defined]


def test_the_keys_that_decide_the_files_geometry_are_frozen() -> None:
    frozen = {key.name for key in KEYS if key.metadata["frozen"]}
    assert frozen == {
        "mapped_file_size_commit_log", "mapped_file_size_consume_queue", "mapped_file_size_consume_queue_ext",
        "mapper_file_size_batch_consume_queue",
        "max_hash_slot_num", "max_index_num", "mapped_file_size_timer_log",
    }  # fmt: skip


def test_honoured_keys_and_ignored_ones_are_told_apart() -> None:
    honoured = {camel_case(key.name) for key in KEYS}
    assert honoured.isdisjoint(ROCKETMQ_KEYS)
    assert len(set(map(snake_case, ROCKETMQ_KEYS))) == len(ROCKETMQ_KEYS)
    assert {"haListenPort", "brokerClusterName", "brokerId", "brokerRole", "redeleteHangedFileInterval"} < set(
        ROCKETMQ_KEYS
    )


def test_a_configuration_cannot_be_changed() -> None:
    config = MessageStoreConfig()
    with pytest.raises(FrozenInstanceError):
        config.max_message_size = 1  # type: ignore[misc]


BROKER_CONF = """
# the broker of the examples
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
storePathRootDir=/data/store
flushDiskType=SYNC_FLUSH
mappedFileSizeCommitLog=1048576
messageIndexEnable=False
"""


def test_a_broker_conf_is_read_with_rocketmqs_names() -> None:
    config = MessageStoreConfig.from_broker_conf(BROKER_CONF, "broker.conf")
    assert config.store_path_root_dir == "/data/store"
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.mapped_file_size_commit_log == 1 << 20
    assert config.message_index_enable is False
    assert config.ignored == ("brokerClusterName", "brokerName", "brokerId")


@pytest.mark.parametrize("name", ["maxMessageSize", "max_message_size"])
@pytest.mark.parametrize("value", [1024, "1024", " 1024 "])
def test_both_spellings_and_texts_are_taken(name: str, value: object) -> None:
    assert MessageStoreConfig.from_mapping({name: value}).max_message_size == 1024


def test_a_mapping_changes_only_what_it_names() -> None:
    base = MessageStoreConfig.from_mapping({"listenPort": 9, "haListenPort": 10912})
    config = MessageStoreConfig.from_mapping({"brokerIP1": "10.0.0.7", "ha_listen_port": "1", "brokerId": 0}, base)
    assert config.store_host == "10.0.0.7:9"
    assert config.ignored == ("haListenPort", "brokerId")
    assert base.broker_ip1 == "127.0.0.1"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("maxMesageSize", "did you mean maxMessageSize?"),
        ("max_mesage_size", "did you mean max_message_size?"),
        ("warmMappedFileEnable", "did you mean warmMapedFileEnable?"),
        ("haListenPor", "did you mean haListenPort?"),
        ("zzz", "RocketMQ has none of this name"),
        ("storePathConsumeQueue", "no RocketMQ reads it; it is storePathRootDir/consumequeue: leave it out"),
        ("abortFile", "no RocketMQ reads it; it is storePathRootDir/abort: leave it out"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_one(given: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        MessageStoreConfig.from_mapping({given: "1"})
    assert str(raised.value).startswith(f"unknown configuration key '{given}'")
    assert str(raised.value).endswith(hint)


def test_an_error_in_a_broker_conf_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"^broker\.conf:2: maxMessageSize=9: expected a whole number from 10 to "):
        MessageStoreConfig.from_broker_conf("brokerId=0\nmaxMessageSize=9", "broker.conf")
    with pytest.raises(ConfigError, match=r"^broker\.conf:3: unknown configuration key 'broker'"):
        MessageStoreConfig.from_broker_conf("\n\nbroker=0", "broker.conf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxMessageSize", "4MB"),
        ("maxMessageSize", "1_000"),
        ("maxMessageSize", ""),
        ("maxMessageSize", 1.5),
        ("maxMessageSize", True),
        ("maxMessageSize", None),
        ("maxMessageSize", 2**31),
        ("maxMessageSize", "9" * 5000),
        ("listenPort", 65_536),
        ("listenPort", -1),
        ("accessMessageInMemoryMaxRatio", 101),
        ("mappedFileSizeConsumeQueue", 0),
        ("checkCRCOnRecover", "yes"),
        ("checkCRCOnRecover", 1),
        ("flushDiskType", "SOMETIMES"),
        ("flushDiskType", 0),
        ("storePathRootDir", ""),
        ("storePathRootDir", 7),
        ("storePathCommitLog", ","),
        ("messageDelayLevel", "1s 5x"),
        ("maxIndexNum", 110_000_000),
        ("brokerIP1", ""),
        ("brokerIP1", "10.1"),
        ("brokerIP1", "a b.example"),
        ("brokerIP1", "10.0.0.1:10911"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        MessageStoreConfig.from_mapping({name: value})
    with pytest.raises(ConfigError, match=name):
        MessageStoreConfig(**{snake_case(name): value})  # type: ignore[arg-type]


def test_an_index_file_stays_below_two_gigabytes() -> None:
    with pytest.raises(ConfigError, match="an index file would have 2160000040 bytes"):
        MessageStoreConfig(max_hash_slot_num=140_000_000, max_index_num=80_000_000)


@pytest.mark.parametrize(("given", "size"), [(1, 20), (20, 20), (21, 40), (5_999_999, 6_000_000)])
def test_a_consume_queue_file_holds_whole_units(given: int, size: int) -> None:
    assert MessageStoreConfig(mapped_file_size_consume_queue=given).mapped_file_size_consume_queue == size


@pytest.mark.parametrize(("given", "size"), [(1, 46), (46, 46), (47, 92), (13_799_999, 13_800_000)])
def test_a_batch_consume_queue_file_holds_whole_units(given: int, size: int) -> None:
    config = MessageStoreConfig(mapper_file_size_batch_consume_queue=given)
    assert config.mapper_file_size_batch_consume_queue == size


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1:10911"),
        ("a.example", "a.example:10911"),
        ("2001:db8::1", "[2001:db8::1]:10911"),
    ],
)
def test_the_store_host_is_address_and_port(address: str, host: str) -> None:
    assert MessageStoreConfig(broker_ip1=address).store_host == host


def test_delay_levels_are_read_as_milliseconds() -> None:
    assert MessageStoreConfig(message_delay_level="1s 2m  3h 4d").delay_levels_ms == (
        1000,
        120_000,
        10_800_000,
        345_600_000,
    )
    assert len(MessageStoreConfig().delay_levels_ms) == 18
