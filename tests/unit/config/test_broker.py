from __future__ import annotations

import pytest

from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.config.rocketmq_config import keys_of
from reput.config.tls import TlsConfig
from reput.errors import ConfigError

#: `BrokerConfig`, `AuthConfig` and `NettyServerConfig` of 5.3.3; `haListenPort` of its `MessageStoreConfig`.
ROCKETMQ_DEFAULTS = {
    "aclEnable": False,
    "adminBrokerThreadPoolQueueCapacity": 10_000,
    "allowRecallWhenBrokerNotWriteable": True,
    "authenticationEnabled": False,
    "authenticationMetadataProvider": None,
    "authenticationWhitelist": None,
    "authorizationEnabled": False,
    "authorizationWhitelist": None,
    "autoCreateSubscriptionGroup": True,
    "autoCreateTopicEnable": True,
    "bindAddress": "0.0.0.0",
    "brokerClusterName": "DefaultCluster",
    "brokerFastFailureEnable": True,
    "brokerId": 0,
    "brokerName": "the host's name",
    "brokerPermission": 6,
    "brokerRole": "ASYNC_MASTER",
    "brokerTopicEnable": True,
    "channelExpiredTimeout": 120_000,
    "clusterTopicEnable": True,
    "configBlackList": "configBlackList;brokerConfigPath",
    "consumerOffsetUpdateVersionStep": 500,
    "defaultMessageRequestMode": "PULL",
    "defaultPopShareQueueNum": -1,
    "defaultQueryMaxNum": 32,
    "defaultTopicQueueNums": 8,
    "delayOffsetUpdateVersionStep": 200,
    "enableAutoInSyncReplicas": False,
    "enableCalcFilterBitMap": False,
    "enablePropertyFilter": False,
    "enableRetryTopicV2": False,
    "endTransactionPoolQueueCapacity": 100_000,
    "expectConsumerNumUseFilter": 32,
    "filterDataCleanTimeSpan": 86_400_000,
    "flushConsumerOffsetInterval": 5_000,
    "flushDelayOffsetInterval": 10_000,
    "haListenPort": 10912,
    "haMasterAddress": None,
    "haMaxGapNotInSync": 268_435_456,
    "inSyncReplicas": 1,
    "initAuthenticationUser": None,
    "initPopOffsetByCheckMsgInMem": True,
    "innerClientAuthenticationCredentials": None,
    "litePullMessageEnable": True,
    "longPollingEnable": True,
    "maxErrorRateOfBloomFilter": 20,
    "maxPopPollingSize": 100_000,
    "metricsExporterType": "DISABLE",
    "metricsLabel": None,  # and an empty text, as the next one
    "metricsPromExporterHost": None,
    "metricsPromExporterPort": 5557,
    "migrateAuthFromV1Enabled": False,
    "minInSyncReplicas": 1,
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "namesrvAddr": None,
    "notifyConsumerIdsChangedEnable": True,
    "popFromRetryProbability": 20,
    "popPollingSize": 1_024,
    "popResponseReturnActualRetryTopic": False,
    "queryThreadPoolQueueCapacity": 20_000,
    "recallMessageEnable": False,
    "regionId": "DefaultRegion",
    "registerBrokerTimeoutMills": 24_000,
    "registerNameServerPeriod": 30_000,
    "rejectTransactionMessage": False,
    "replyThreadPoolQueueCapacity": 10_000,
    "retrieveMessageFromPopRetryTopicV1": True,
    "reviveInterval": 1_000,
    "reviveMaxSlow": 3,
    "reviveQueueNum": 8,
    "reviveScanTime": 10_000,
    "rocketmqHome": None,
    "sendThreadPoolQueueCapacity": 10_000,
    "serverChannelMaxIdleTimeSeconds": 120,
    "serverLoadBalancerEnable": True,
    "shortPollingTimeMills": 1_000,
    "slaveReadEnable": False,
    "slaveTimeout": 3_000,
    "startAcceptSendRequestTimeStamp": 0,
    "storeReplyMessageEnable": True,
    "traceOn": True,
    "traceTopicEnable": False,
    "transactionCheckInterval": 30_000,
    "transactionCheckMax": 15,
    "transactionOpBatchInterval": 3_000,
    "transactionOpMsgMaxSize": 4_096,
    "transactionTimeOut": 6_000,
    "useServerSideResetOffset": True,
    "waitTimeMillsInAdminBrokerQueue": 5_000,
}
#: Keys that RocketMQ has not.
OWN = {"grpcServerPort": 0, "haSlaveAddresses": None}
#: `TlsSystemConfig` of 5.3.3.
TLS_DEFAULTS = {
    "tls.client.authServer": False,
    "tls.client.certPath": None,
    "tls.client.keyPassword": None,
    "tls.client.keyPath": None,
    "tls.client.trustCertPath": None,
    "tls.enable": False,
    "tls.server.certPath": None,
    "tls.server.keyPassword": None,
    "tls.server.keyPath": None,
    "tls.server.mode": "permissive",
    "tls.server.need.client.auth": "none",
    "tls.server.trustCertPath": None,
}


def test_defaults_are_rocketmqs_but_those_that_are_told() -> None:
    told = {camel_case(name): key.metadata["rocketmq"] for name, key in keys_of(BrokerConfig).items()}
    assert told == ROCKETMQ_DEFAULTS | TLS_DEFAULTS | OWN
    assert {camel_case(name) for name in keys_of(TlsConfig)} == TLS_DEFAULTS.keys()
    config = BrokerConfig()
    ours = {camel_case(name): getattr(config, name) for name in keys_of(BrokerConfig)}
    assert {name: value for name, value in ours.items() if value != told[name]} == {
        "bindAddress": "127.0.0.1",
        "brokerName": "broker-a", "haListenPort": 0, "slaveReadEnable": True, "tls.client.authServer": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "127.0.0.1"),
        ({"namesrvAddr": "10.0.0.9:9876"}, "127.0.0.1"),
        *[({"brokerIP1": here}, here) for here in ("127.0.0.1", "127.0.0.2", "::1")],
        ({"brokerIP1": "localhost"}, "127.0.0.1"),
        *[({"brokerIP1": there}, "0.0.0.0") for there in ("10.0.0.5", "2001:db8::1", "broker-a.example.org")],
        ({"bindAddress": "0.0.0.0"}, "0.0.0.0"),
        ({"bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1"}, "0.0.0.0"),
        ({"bindAddress": "127.0.0.1", "brokerIP1": "10.0.0.5"}, "127.0.0.1"),
        ({"bindAddress": "10.0.0.5", "brokerIP1": "10.0.0.5"}, "10.0.0.5"),
    ],
)
def test_a_broker_listens_where_it_tells_clients_that_it_is_or_where_it_is_told(
    given: dict[str, str], expected: str
) -> None:
    assert broker_configs(given)[0].bind_address == expected


def test_the_command_line_goes_before_the_file_also_for_where_a_broker_listens() -> None:
    base = MessageStoreConfig.from_mapping({"brokerIP1": "10.0.0.5"})
    assert broker_configs({}, store_base=base)[0].bind_address == "0.0.0.0"
    assert broker_configs({"brokerIP1": "127.0.0.1"}, store_base=base)[0].bind_address == "127.0.0.1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bindAddress": "10.0.0.5"}, "10.0.0.5"),
        ({"bindAddress": "::1"}, "::1"),
        ({"bindAddress": "10.0.0.5", "brokerIP1": "198.51.100.7"}, "198.51.100.7"),  # what is in front of it
        ({"bindAddress": "0.0.0.0"}, "127.0.0.1"),
        ({"bindAddress": "::"}, "127.0.0.1"),
    ],
)
def test_clients_are_told_the_one_address_on_which_a_broker_listens(given: dict[str, str], told: str) -> None:
    assert broker_configs(given)[1].broker_ip1 == told


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_clients_are_not_told_to_look_on_their_own_machine(everywhere: str) -> None:
    with pytest.raises(ConfigError, match=f"brokerIP1={everywhere}: .*; bindAddress={everywhere} is what listens"):
        broker_configs({"brokerIP1": everywhere})
