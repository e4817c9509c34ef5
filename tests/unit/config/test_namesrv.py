from __future__ import annotations

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.config.rocketmq_config import keys_of
from reput.errors import ConfigError

#: Fields of `NamesrvConfig` and `NettyServerConfig` of 5.3.3.
ROCKETMQ = """
    rocketmqHome kvConfigPath configStorePath productEnvName clusterTest orderMessageEnable
    returnOrderTopicConfigToBroker clientRequestThreadPoolNums defaultThreadPoolNums
    clientRequestThreadPoolQueueCapacity defaultThreadPoolQueueCapacity scanNotActiveBrokerInterval
    unRegisterBrokerQueueCapacity supportActingMaster enableAllTopicList enableTopicList notifyMinBrokerIdChanged
    enableControllerInNamesrv needWaitForService waitSecondsForService deleteTopicWithBrokerRegistration configBlackList
    bindAddress listenPort serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads
    serverOnewaySemaphoreValue serverAsyncSemaphoreValue serverChannelMaxIdleTimeSeconds serverSocketSndBufSize
    serverSocketRcvBufSize writeBufferHighWaterMark writeBufferLowWaterMark serverSocketBacklog
    serverNettyWorkerGroupEnable serverPooledByteBufAllocatorEnable enableShutdownGracefully shutdownWaitTimeSeconds
    useEpollNativeSelector
""".split()

#: ... and their defaults, with the port of `NamesrvStartup`.
ROCKETMQ_DEFAULTS = {
    "bind_address": "0.0.0.0", "listen_port": 9876, "kv_config_path": "~/namesrv/kvConfig.json",
    "config_store_path": "~/namesrv/namesrv.properties",
    "config_black_list": "configBlackList;configStorePath;kvConfigPath", "scan_not_active_broker_interval": 5_000,
    "server_channel_max_idle_time_seconds": 120, "delete_topic_with_broker_registration": False,
    "return_order_topic_config_to_broker": True, "support_acting_master": False,
    "notify_min_broker_id_changed": False, "order_message_enable": False, "enable_all_topic_list": True,
    "enable_topic_list": True, "need_wait_for_service": False, "wait_seconds_for_service": 45,
}  # fmt: skip


@pytest.mark.parametrize("key", ROCKETMQ)
def test_each_key_of_rocketmq_is_used_or_listed_as_ignored(key: str) -> None:
    values = {"bool": "true", "int": "7", "str": "x"}
    used = {name: field.type for name, field in keys_of(NamesrvConfig).items()}
    for value in values.values():
        try:
            config = NamesrvConfig.from_mapping({key: value})
        except ConfigError:
            continue
        assert (key in config.ignored) != bool(config.given)
        assert config.given <= used.keys()
        return
    pytest.fail(f"{key} takes no value")


def test_defaults_are_rocketmqs_but_those_that_are_told() -> None:
    told = {name: (key.default, key.metadata["rocketmq"]) for name, key in keys_of(NamesrvConfig).items()}
    differ = {name: both for name, both in told.items() if both[0] != both[1]}
    assert differ == {"tls_client_auth_server": (True, False), "bind_address": ("127.0.0.1", "0.0.0.0")}
    assert {name: one for name, (_, one) in told.items() if not name.startswith("tls_")} == ROCKETMQ_DEFAULTS


def test_a_wrong_key_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"ns\.conf:2: unknown .*'orderMesageEnable'.* orderMessageEnable\?"):
        NamesrvConfig.from_broker_conf("listenPort=1\norderMesageEnable=true", "ns.conf")
