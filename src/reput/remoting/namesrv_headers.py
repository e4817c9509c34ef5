"""Headers of requests to a name server."""

from __future__ import annotations

from dataclasses import dataclass

from reput.remoting.header import Int32, Int64


@dataclass(frozen=True, slots=True)
class GetRouteInfoRequestHeader:
    """The brokers and queues of a topic (GET_ROUTEINFO_BY_TOPIC).

    `with_lost_brokers` is reput's own: with the queues of brokers that went without a word. RocketMQ's clients do not
    send it, and its name server passes over it.
    """

    topic: str
    accept_standard_json_only: bool | None = None
    with_lost_brokers: bool | None = None


@dataclass(frozen=True, slots=True)
class LostBrokersRequestHeader:
    """All clusters, or topics (GET_BROKER_CLUSTER_INFO, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, *_SYSTEM_TOPIC_LIST_*).

    These have no fields in RocketMQ; `with_lost_brokers` as of a route.
    """

    with_lost_brokers: bool | None = None


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequestHeader:
    """A broker and its topics (REGISTER_BROKER). `body_crc32`: of the body as sent, 0 for none."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Int32 = 0


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponseHeader:
    """The addresses of a slave's master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True)
class ExchangeHAInfoResponseHeader:
    """HA address of a master, and the end of its log at its start (EXCHANGE_BROKER_HA_INFO)."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True)
class UnRegisterBrokerRequestHeader:
    """A broker leaves (UNREGISTER_BROKER)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True)
class QueryDataVersionRequestHeader:
    """Whether the topics of a broker have changed (QUERY_DATA_VERSION)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True)
class QueryDataVersionResponseHeader:
    """Whether the topics of a broker have changed."""

    changed: bool


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequestHeader:
    """A sign of life of a broker (BROKER_HEARTBEAT)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


@dataclass(frozen=True, slots=True)
class GetBrokerMemberGroupRequestHeader:
    """The addresses of a broker name (GET_BROKER_MEMBER_GROUP)."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True)
class PutKVConfigRequestHeader:
    """A value to keep (PUT_KV_CONFIG)."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class GetKVConfigRequestHeader:
    """A value that was kept (GET_KV_CONFIG)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class GetKVConfigResponseHeader:
    """A value that was kept."""

    value: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteKVConfigRequestHeader:
    """A value to forget (DELETE_KV_CONFIG)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class GetKVListByNamespaceRequestHeader:
    """All values of a namespace (GET_KVLIST_BY_NAMESPACE)."""

    namespace: str


@dataclass(frozen=True, slots=True)
class WipeWritePermOfBrokerRequestHeader:
    """Nobody is to write to a broker, and one that is lost is forgotten (WIPE_WRITE_PERM_OF_BROKER).

    `lost_only`: the latter alone; a field of reput's.
    """

    broker_name: str
    lost_only: bool | None = None


@dataclass(frozen=True, slots=True)
class WipeWritePermOfBrokerResponseHeader:
    """Number of topics that lost their write permission."""

    wipe_topic_count: Int32


@dataclass(frozen=True, slots=True)
class AddWritePermOfBrokerRequestHeader:
    """A broker may be written to again (ADD_WRITE_PERM_OF_BROKER)."""

    broker_name: str


@dataclass(frozen=True, slots=True)
class AddWritePermOfBrokerResponseHeader:
    """Number of topics that have their write permission again."""

    add_topic_count: Int32


@dataclass(frozen=True, slots=True)
class DeleteTopicFromNamesrvRequestHeader:
    """A topic to forget (DELETE_TOPIC_IN_NAMESRV)."""

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True)
class RegisterTopicRequestHeader:
    """A topic with its route (REGISTER_TOPIC_IN_NAMESRV)."""

    topic: str


@dataclass(frozen=True, slots=True)
class GetTopicsByClusterRequestHeader:
    """The topics of a cluster (GET_TOPICS_BY_CLUSTER)."""

    cluster: str


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerIdChangeRequestHeader:
    """The smallest id of the brokers of a name has changed (NOTIFY_MIN_BROKER_ID_CHANGE)."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
