"""Headers of requests that ask who is connected, and how far groups are."""

from __future__ import annotations

from dataclasses import dataclass


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
    """How far a group is (GET_CONSUME_STATS). `topic`: in one; `topic_list`: in these, a ; between two."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True)
class QueryTopicConsumeByWhoRequestHeader:
    """The groups of a topic (QUERY_TOPIC_CONSUME_BY_WHO)."""

    topic: str


@dataclass(frozen=True, slots=True)
class ViewBrokerStatsDataRequestHeader:
    """How a counter has grown (VIEW_BROKER_STATS_DATA). `stats_key`: a topic, `topic@group`, or the cluster."""

    stats_name: str
    stats_key: str
