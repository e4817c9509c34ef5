"""Headers of requests that ask who is connected, and how far groups are."""

from __future__ import annotations

from dataclasses import dataclass

from reput.remoting.header import Int32, Int64


@dataclass(frozen=True, slots=True)
class GetTopicStatsInfoRequestHeader:
    """The offsets of a topic's queues (GET_TOPIC_STATS_INFO)."""

    topic: str


@dataclass(frozen=True, slots=True)
class GetConsumerConnectionListRequestHeader:
    """The members of a group, and what they subscribe to (GET_CONSUMER_CONNECTION_LIST)."""

    consumer_group: str


@dataclass(frozen=True, slots=True)
class GetProducerConnectionListRequestHeader:
    """The members of a group of producers (GET_PRODUCER_CONNECTION_LIST)."""

    producer_group: str


@dataclass(frozen=True, slots=True)
class GetConsumeStatsRequestHeader:
    """Request for a group's offsets (GET_CONSUME_STATS). `topic`: in one; `topic_list`: in these, a ; between two."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True)
class QueryTopicConsumeByWhoRequestHeader:
    """The groups of a topic (QUERY_TOPIC_CONSUME_BY_WHO)."""

    topic: str


@dataclass(frozen=True, slots=True)
class ViewBrokerStatsDataRequestHeader:
    """Request for a counter's growth (VIEW_BROKER_STATS_DATA). `stats_key`: a topic, `topic@group`, or the cluster."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True)
class GetConsumeStatsInBrokerHeader:
    """Request for all groups' offsets (GET_BROKER_CONSUME_STATS). `is_order`: in order topics alone."""

    is_order: bool


@dataclass(frozen=True, slots=True)
class QueryConsumeTimeSpanRequestHeader:
    """Store times of a topic's messages, and of a group in them (QUERY_CONSUME_TIME_SPAN)."""

    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class QueryCorrectionOffsetHeader:
    """The smallest offsets of groups in a topic (QUERY_CORRECTION_OFFSET), without `filter_groups`, a , between two."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


@dataclass(frozen=True, slots=True)
class CloneGroupOffsetRequestHeader:
    """Give a group the offsets of another one (CLONE_GROUP_OFFSET). `offline`: whatever members subscribe to."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True)
class QueryTopicsByConsumerRequestHeader:
    """The topics of a group (QUERY_TOPICS_BY_CONSUMER)."""

    group: str


@dataclass(frozen=True, slots=True)
class QuerySubscriptionByConsumerRequestHeader:
    """Request for a group's subscription to a topic (QUERY_SUBSCRIPTION_BY_CONSUMER)."""

    group: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class QueryConsumeQueueRequestHeader:
    """Units of a consume queue (QUERY_CONSUME_QUEUE). `index`: of the first one; `count`: most of them."""

    topic: str | None = None
    queue_id: Int32 | None = None
    index: Int64 | None = None
    count: Int32 | None = None
    consumer_group: str | None = None
