"""BrokerConfig: the RocketMQ keys that the broker uses, with reput's defaults (`BrokerConfig` and others).

`brokerIP1` and `listenPort` are keys of the store, which writes them into each record (`MessageStoreConfig`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import ClassVar

from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.config.rocketmq_config import config_key, keys_of
from reput.config.rocketmq_keys import UnusedKey
from reput.config.tls import TlsConfig
from reput.errors import ConfigError
from reput.formats.consumers import MessageRequestMode
from reput.formats.hosts import ALL_ADDRESSES, THIS_MACHINE, is_address, is_of_this_machine
from reput.formats.java import INT64_MAX

__all__ = ["BrokerConfig"]


Network = IPv4Network | IPv6Network


class MetricsExporterType(StrEnum):
    """Whether a broker tells metrics."""

    DISABLE = "DISABLE"
    PROM = "PROM"


class BrokerRole(StrEnum):
    """Role of a broker among the others of its name: a master answers sends, alone or with its slaves; slaves copy."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(TlsConfig):
    """Configuration of a broker; immutable. Each field also accepts text ("4096", "true").

    Raises ConfigError for a value of the wrong type or outside its bounds.
    """

    OTHER_KEYS: ClassVar[tuple[UnusedKey, ...]] = tuple(
        UnusedKey(camel_case(name), "", "a key of the store") for name in keys_of(MessageStoreConfig)
    )

    # who it is
    broker_cluster_name: str = config_key("DefaultCluster", "The cluster that the broker belongs to.")
    broker_name: str = config_key(
        "broker-a", "The broker's name, as in RocketMQ's own broker.conf.", rocketmq="the host's name"
    )
    broker_id: int = config_key(0, "0 for a master, a larger number for a slave.", maximum=INT64_MAX)
    broker_permission: int = config_key(6, "What clients may do: 4 read, 2 write, 6 both.", maximum=7)
    region_id: str = config_key("DefaultRegion", "Written into each message as MSG_REGION.")

    # where name servers are, and where it listens
    namesrv_addr: str | None = config_key(None, "Name servers: HOST:PORT;HOST:PORT. Without them it has its own.")
    bind_address: str = config_key(
        THIS_MACHINE, "The address on which it listens; 0.0.0.0 if brokerIP1 is not of this machine alone.",
        local=True, rocketmq=ALL_ADDRESSES,
    )  # fmt: skip
    grpc_server_port: int = config_key(
        0, "One more port for clients of gRPC, which listenPort serves, too; 0: none.", maximum=65_535
    )
    register_name_server_period: int = config_key(
        30_000, "Time between two registrations.", unit="ms", minimum=10_000, maximum=60_000
    )
    register_broker_timeout_mills: int = config_key(24_000, "The longest wait for a name server.", unit="ms", minimum=1)
    server_channel_max_idle_time_seconds: int = config_key(
        120, "A connection that is silent for so long is closed.", unit="s", minimum=1
    )

    # replication
    broker_role: BrokerRole = config_key(
        BrokerRole.ASYNC_MASTER, "SYNC_MASTER: a send is answered once slaves have the message; SLAVE: copy a master."
    )
    ha_listen_port: int = config_key(
        0, "The port at which slaves and followers get the log; 0: none.", maximum=65_535, rocketmq=10912
    )
    ha_slave_addresses: str | None = config_key(
        None, "Who may be a slave or a follower: IP addresses and networks, 10.0.0.6,10.1.0.0/16; without it all.",
        local=True,
    )  # fmt: skip
    ha_master_address: str | None = config_key(
        None, "Address from which a slave gets the log, HOST:PORT; without it, its master's by the name servers."
    )
    slave_read_enable: bool = config_key(
        True, "A slave answers pulls, and a master sends consumers there that read old messages.", rocketmq=False
    )
    in_sync_replicas: int = config_key(
        1, "Copies of a message before a SYNC_MASTER answers, its own included; one slave at least.", minimum=1
    )
    enable_auto_in_sync_replicas: bool = config_key(
        False, "... no more than are in sync, itself included, and no fewer than minInSyncReplicas."
    )
    min_in_sync_replicas: int = config_key(
        1, "A SYNC_MASTER refuses sends while fewer are in sync, itself included.", minimum=1
    )
    ha_max_gap_not_in_sync: int = config_key(
        256 << 20, "A slave is in sync that lacks less of the log.", unit="bytes", minimum=1
    )
    slave_timeout: int = config_key(3_000, "A SYNC_MASTER waits so long for slaves.", unit="ms", minimum=1)

    # topics and groups
    auto_create_topic_enable: bool = config_key(True, "A send to an unknown topic makes it, after the topic TBW102.")
    default_topic_queue_nums: int = config_key(8, "Queues of TBW102, so of new topics at most.", minimum=1)
    auto_create_subscription_group: bool = config_key(True, "A heartbeat of an unknown group makes it.")
    cluster_topic_enable: bool = config_key(True, "The topic named as the cluster may be a template for others.")
    broker_topic_enable: bool = config_key(True, "The topic named as the broker may be a template for others.")
    trace_topic_enable: bool = config_key(False, "Make the topic of message traces.")
    msg_trace_topic_name: str = config_key("RMQ_SYS_TRACE_TOPIC", "The topic of message traces.")
    trace_on: bool = config_key(True, "Clients may trace messages; written into each message as TRACE_ON.")
    notify_consumer_ids_changed_enable: bool = config_key(
        True, "Notify the members of a group when others join or leave."
    )
    channel_expired_timeout: int = config_key(
        120_000, "A client without a heartbeat for so long has left.", unit="ms", minimum=1
    )

    config_black_list: str = config_key(
        "configBlackList;brokerConfigPath", "Keys that UPDATE_BROKER_CONFIG does not change.", local=True
    )

    # sending
    start_accept_send_request_time_stamp: int = config_key(
        0, "Refuse messages before this time (ms since 1970 UTC).", unit="ms", maximum=INT64_MAX
    )

    store_reply_message_enable: bool = config_key(True, "Store replies, too, in the topic of the cluster's replies.")

    # transactions
    reject_transaction_message: bool = config_key(False, "Refuse messages of transactions.")
    transaction_time_out: int = config_key(
        6_000, "A transaction that has not ended after so long is checked.", unit="ms", maximum=INT64_MAX
    )
    transaction_check_max: int = config_key(15, "Checks of a transaction before it is given up.")
    transaction_check_interval: int = config_key(30_000, "Time between two rounds of checks.", unit="ms", minimum=1)
    transaction_op_msg_max_size: int = config_key(4_096, "Size of a message that ends transactions.", unit="bytes")
    transaction_op_batch_interval: int = config_key(
        3_000, "The longest time in which ended transactions wait for such a message.", unit="ms"
    )

    # under pressure: what is more is answered SYSTEM_BUSY
    send_thread_pool_queue_capacity: int = config_key(
        10_000, "Sends that wait for the disk or for their topic; half of them of one connection.", minimum=1
    )
    reply_thread_pool_queue_capacity: int = config_key(
        10_000, "Replies that wait for their client or the disk; half of them of one connection.", minimum=1
    )
    end_transaction_pool_queue_capacity: int = config_key(
        100_000, "Ends of transactions that wait for the disk; half of them of one connection.", minimum=1
    )
    query_thread_pool_queue_capacity: int = config_key(
        20_000, "Queries by key and id that wait; half of them of one connection.", minimum=1
    )
    admin_broker_thread_pool_queue_capacity: int = config_key(
        10_000, "Other requests that wait for the disk; half of them of one connection.", minimum=1
    )
    broker_fast_failure_enable: bool = config_key(True, "Refuse what has waited too long for its turn.")
    wait_time_mills_in_admin_broker_queue: int = config_key(
        5_000, "The longest wait of a request for a thread that may wait for the disk.", unit="ms", minimum=1
    )

    # pulling
    long_polling_enable: bool = config_key(True, "A pull without a message waits as long as the client asks for.")
    short_polling_time_mills: int = config_key(1_000, "... else so long.", unit="ms")
    lite_pull_message_enable: bool = config_key(True, "Answer LITE_PULL_MESSAGE.")
    default_query_max_num: int = config_key(32, "Messages in the answer to a query by unique key.", minimum=1)

    # popping
    revive_queue_num: int = config_key(
        8, "Queues of check points and acks; fewer than before leaves the others unread.", minimum=1,
        maximum=998,
    )  # fmt: skip
    revive_interval: int = config_key(1_000, "Time between two looks at these queues.", unit="ms", minimum=1)
    revive_max_slow: int = config_key(3, "... of a queue without check points, as a multiple at most.", minimum=1)
    revive_scan_time: int = config_key(10_000, "The longest reading of one look.", unit="ms", minimum=1)
    pop_polling_size: int = config_key(1_024, "Pops of one topic, group and queue that wait for a message.", minimum=0)
    max_pop_polling_size: int = config_key(100_000, "Pops that wait for a message.", minimum=0)
    init_pop_offset_by_check_msg_in_mem: bool = config_key(
        True, "A new group begins at the first message, if that is still in memory."
    )
    pop_from_retry_probability: int = config_key(
        20, "Number of 100 pops that look for messages to be consumed again first; others if they are not full."
    )
    enable_retry_topic_v2: bool = config_key(False, "Messages to be consumed again go to %RETRY%GROUP+TOPIC.")
    retrieve_message_from_pop_retry_topic_v1: bool = config_key(
        True, "... and half of the pops look for those in %RETRY%GROUP_TOPIC."
    )
    pop_response_return_actual_retry_topic: bool = config_key(
        False, "A message to be consumed again comes with the name of its retry topic."
    )
    server_load_balancer_enable: bool = config_key(True, "Share queues among the members that ask which are theirs.")
    default_message_request_mode: MessageRequestMode = config_key(
        MessageRequestMode.PULL, "How members get messages that ask, unless it was set for topic and group."
    )
    default_pop_share_queue_num: int = config_key(
        -1, "... with POP: of how many other members they get the queues too; -1 of all.", minimum=-1
    )

    # SQL92 filters
    enable_property_filter: bool = config_key(False, "Consumers may filter messages by SQL92 expressions.")
    filter_data_clean_time_span: int = config_key(
        24 * 3_600_000, "How long the filter of a group is kept after its last consumer has gone.", unit="ms", minimum=1
    )
    max_error_rate_of_bloom_filter: int = config_key(
        20, "False hits of the bit maps of filters, in percent.", unit="%", minimum=1, maximum=99
    )
    enable_calc_filter_bit_map: bool = config_key(
        False, "Note in each ext unit (enableConsumeQueueExt) which filters want the message."
    )
    expect_consumer_num_use_filter: int = config_key(
        32, "Groups for which these bit maps have room.", minimum=1, maximum=10_000
    )

    # offsets
    flush_consumer_offset_interval: int = config_key(
        5_000, "Time between two writes of consumerOffset.json.", unit="ms", minimum=1
    )
    consumer_offset_update_version_step: int = config_key(
        500, "Commits of offsets for one data version.", unit="commits", minimum=1
    )
    use_server_side_reset_offset: bool = config_key(
        True, "The broker resets offsets itself, also of groups without members; else it asks the members to."
    )

    # messages with a time
    recall_message_enable: bool = config_key(False, "Producers may recall messages that wait for a time.")
    allow_recall_when_broker_not_writeable: bool = config_key(True, "... also while brokerPermission allows no sends.")

    # monitoring
    metrics_exporter_type: MetricsExporterType = config_key(
        MetricsExporterType.DISABLE, "PROM: serve /metrics for Prometheus, /health and /ready."
    )
    metrics_prom_exporter_host: str | None = config_key(
        None, "The address for these pages; bindAddress without it.", local=True, may_be_empty=True
    )
    metrics_prom_exporter_port: int = config_key(5557, "... and their port.", maximum=65_535)
    metrics_label: str | None = config_key(None, "Labels of all metrics: NAME:VALUE,NAME:VALUE.", may_be_empty=True)

    # access: plain_acl.yml (ACL 1.0), or users and policies (ACL 2.0)
    acl_enable: bool = config_key(
        False, "Check requests by the accounts of conf/plain_acl.yml in rocketmqHome.", local=True
    )
    rocketmq_home: str | None = config_key(None, "The folder of conf/plain_acl.yml and conf/acl/*.yml.", local=True)
    authentication_enabled: bool = config_key(
        False, "Requests are signed by a user's password, or refused.", local=True
    )
    authorization_enabled: bool = config_key(False, "... and policies say what a user may do.", local=True)
    authentication_metadata_provider: str | None = config_key(
        None, "Any value: users and policies are kept, and may be made before authenticationEnabled.", local=True
    )
    init_authentication_user: str | None = config_key(
        None, 'A super user that the first start makes: {"username":"...","password":"..."}.', secret=True
    )
    inner_client_authentication_credentials: str | None = config_key(
        None,
        'A super user for others of the cluster, and who a slave is: {"accessKey":"...","secretKey":"..."}.',
        secret=True,
    )
    migrate_auth_from_v1_enabled: bool = config_key(
        False, "Each start makes the users that accounts of plain_acl.yml have not yet.", local=True
    )
    authentication_whitelist: str | None = config_key(None, "Request codes that need no signature: 34,38.", local=True)
    authorization_whitelist: str | None = config_key(None, "Request codes that need no policy.", local=True)

    # delay levels
    flush_delay_offset_interval: int = config_key(
        10_000, "Time between two writes of delayOffset.json.", unit="ms", minimum=1
    )
    delay_offset_update_version_step: int = config_key(
        200, "Changes of these offsets for one data version.", unit="changes", minimum=1
    )

    def __post_init__(self) -> None:
        TlsConfig.__post_init__(self)  # no super(): a dataclass with slots is another class than this body's
        _ = self.name_servers, self.metric_labels, self.ha_slave_networks
        if self.ha_master_address and not is_address(self.ha_master_address):
            raise ConfigError(f"haMasterAddress={self.ha_master_address}: expected HOST:PORT, as in 10.0.0.1:10912")
        if self.broker_role is BrokerRole.SYNC_MASTER and not self.ha_listen_port:
            raise ConfigError("brokerRole=SYNC_MASTER needs haListenPort: without it no slave can get the log")

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of `namesrvAddr`, "host:port"; none for the broker's own name server.

        Raises ConfigError for a text that is no address.
        """
        addresses = [text.strip() for text in (self.namesrv_addr or "").split(";") if text.strip()]
        for address in addresses:
            if not is_address(address):
                raise ConfigError(f"namesrvAddr={self.namesrv_addr}: {address!r} is no HOST:PORT")
        return tuple(addresses)

    @property
    def ha_slave_networks(self) -> tuple[Network, ...] | None:
        """The networks of `haSlaveAddresses`, an address is one of its own; None if all may be slaves.

        Raises ConfigError for a text that is no address and no network.
        """
        if self.ha_slave_addresses is None:
            return None
        try:
            return tuple(ip_network(text.strip()) for text in self.ha_slave_addresses.split(","))
        except ValueError as error:
            raise ConfigError(f"haSlaveAddresses={self.ha_slave_addresses}: {error}") from None

    @property
    def metric_labels(self) -> dict[str, str]:
        """The labels of `metricsLabel`.

        Raises ConfigError for a text that has none.
        """
        texts = [text.strip() for text in (self.metrics_label or "").split(",") if text.strip()]
        labels = [_LABEL.fullmatch(text) for text in texts]
        if None in labels:
            raise ConfigError(f"metricsLabel={self.metrics_label}: expected NAME:VALUE,NAME:VALUE")
        return {label[1]: label[2] for label in labels if label is not None}


_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):([^:,]*)")
#: Where a broker listens on all addresses; nobody is found by them.
_EVERYWHERE = (ALL_ADDRESSES, "::")


def broker_configs(
    mapping: Mapping[str, object],
    *,
    base: BrokerConfig | None = None,
    store_base: MessageStoreConfig | None = None,
) -> tuple[BrokerConfig, MessageStoreConfig, tuple[str, ...]]:
    """Configurations of a broker and of its store from keys of both, over `base` and `store_base`.

    A broker listens where `brokerIP1` tells clients that it is: on that address if it is this machine's alone, else
    on all addresses, unless `bindAddress` was given. If that is one address, and `brokerIP1` was not given, clients
    get that one: nobody listens elsewhere.

    Returns them, and the keys of RocketMQ's that neither uses. Raises ConfigError as `RocketmqConfig.from_mapping`, and
    for a `brokerIP1` by which no other machine finds this one.
    """
    config = BrokerConfig.from_mapping(mapping, base)
    store_config = MessageStoreConfig.from_mapping(mapping, store_base)
    if config.is_given("bind_address") and config.bind_address not in _EVERYWHERE:
        store_config = store_config.with_defaults({"broker_ip1": config.bind_address})
    host = store_config.broker_ip1
    if host in _EVERYWHERE:
        raise ConfigError(
            f"brokerIP1={host}: clients get this address, and each would look on its own machine: name an address "
            f"or a host name of this one; bindAddress={host} is what listens on all"
        )
    if not is_of_this_machine(host):
        config = config.with_defaults({"bind_address": ALL_ADDRESSES})
    elif host != "localhost":  # 127.0.1.1 and ::1, where 127.0.0.1 is not
        config = config.with_defaults({"bind_address": host})
    ignored = tuple(name for name in config.ignored if name in store_config.ignored)
    return config, store_config, ignored
