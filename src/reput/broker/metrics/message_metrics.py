"""Metrics of messages that come in and go out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies, Row, java
from reput.formats.metadata import TopicMessageType
from reput.kernels.records.size_ranges import SIZE_BOUNDS
from reput.remoting.topic_validator import is_retry_or_dlq_topic, is_system_group
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.store.runtime_info import RuntimeInfo

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Types of topics that are a type of messages, too.
_MESSAGE_TYPES = (TopicMessageType.FIFO, TopicMessageType.DELAY, TopicMessageType.TRANSACTION)
_IN_LABELS = ("topic", "message_type", "is_system")
_DEAD_LABELS = ("topic", "consumer_group", "is_system")
_OUT_LABELS = ("topic", "consumer_group", "is_retry", "is_system")


def message_metrics(
    families: MetricFamilies,
    store: MessageStore,
    topics: TopicConfigManager,
    stats: BrokerStatsManager,
    info: RuntimeInfo,
) -> Iterable[Metric]:
    """Messages put and got, their bytes and sizes."""
    put = [(one.topic, one.put_messages, one.put_bytes or 0) for one in info.topics if one.put_messages]
    labels = {topic: _in_labels(topics, topic) for topic, *_ in put}
    counts = [(labels[topic], float(messages)) for topic, messages, _ in put]
    sizes = [(labels[topic], float(size)) for topic, _, size in put]
    yield families.counter("rocketmq_messages_in", "Messages put", _IN_LABELS, counts)
    yield families.counter("rocketmq_throughput_in", "Bytes of the messages put", _IN_LABELS, sizes)
    known = store.topic_counts
    ranges = [(labels[topic], known[topic].put_sizes, float(size)) for topic, _, size in put]
    yield families.histogram("rocketmq_message_size", "Sizes of the messages put", _IN_LABELS, SIZE_BOUNDS, ranges)

    messages, size = _out(topics, stats)
    yield families.counter("rocketmq_messages_out", "Messages pulled and popped", _OUT_LABELS, messages)
    yield families.counter("rocketmq_throughput_out", "Bytes of the messages pulled and popped", _OUT_LABELS, size)

    dead = [
        ((topic, group, java(topics.is_system_topic(topic) or is_system_group(group))), float(count))
        for (topic, group), count in stats.dead_letters.items()
    ]
    yield families.counter("rocketmq_send_to_dlq_messages", "Messages that became dead letters", _DEAD_LABELS, dead)


def _in_labels(topics: TopicConfigManager, topic: str) -> tuple[str, str, str]:
    """Topic, message type and whether the topic is the broker's own.

    The type is the one that the topic is made for; a topic that says none, or MIXED, takes normal messages.
    """
    config = topics.select_topic_config(topic)
    named = "" if config is None else config.attributes.get("message.type", "")
    kind = named.lower() if named in _MESSAGE_TYPES else "normal"
    return topic, kind, java(topics.is_system_topic(topic))


def _out(topics: TopicConfigManager, stats: BrokerStatsManager) -> tuple[list[Row], list[Row]]:
    """Rows of messages and of bytes that groups got."""

    def rows() -> Iterator[tuple[tuple[str, ...], int, int]]:
        for (topic, group), gets in stats.group_gets.items():
            is_system = java(topics.is_system_topic(topic) or is_system_group(group))
            messages, size = gets.messages - gets.retry_messages, gets.size - gets.retry_size
            if messages:
                yield (topic, group, java(is_retry_or_dlq_topic(topic)), is_system), messages, size
            if gets.retry_messages:
                yield (topic, group, "true", is_system), gets.retry_messages, gets.retry_size

    found = list(rows())
    return [(labels, messages) for labels, messages, _ in found], [(labels, size) for labels, _, size in found]
