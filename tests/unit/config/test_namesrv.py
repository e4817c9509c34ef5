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


def test_a_wrong_key_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"ns\.conf:2: unknown .*'orderMesageEnable'.* orderMessageEnable\?"):
        NamesrvConfig.from_broker_conf("listenPort=1\norderMesageEnable=true", "ns.conf")
