"""Metrics of connections (`initConnectionMetrics`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies, java
from reput.formats.consumers import ConsumeType
from reput.remoting.codes import version_name
from reput.remoting.topic_validator import is_system_group
from reput.service.consumer_manager import ConsumerManager
from reput.service.producer_manager import ProducerManager
from reput.transport.channel import Channel

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: `ConsumeType.getTypeCN`.
_CONSUME_MODES: Mapping[str, str] = {
    ConsumeType.CONSUME_ACTIVELY: "pull", ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_POP: "pop",
}  # fmt: skip


def client_metrics(
    families: MetricFamilies, consumers: ConsumerManager[Channel], producers: ProducerManager[Channel]
) -> Iterable[Metric]:
    """Connections of producers and of consumers, by language and version."""
    producing = Counter(
        (info.language.lower(), version_name(info.version).lower(), info.channel.protocol)
        for group in producers.groups()
        for info in producers.channels(group).values()
    )
    rows = [(key, float(count)) for key, count in producing.items()]
    labels = ("language", "version", "protocol_type")
    yield families.gauge("rocketmq_producer_connections", "Connections of producers", labels, rows)
    consuming: Counter[tuple[str, str, str, str, str]] = Counter()
    for group in consumers.groups():
        known = consumers.consumer_group_info(group)
        mode = "" if known is None else _CONSUME_MODES.get(known.consume_type, "")
        consuming.update(
            (group, info.language.lower(), version_name(info.version).lower(), mode, info.channel.protocol)
            for info in consumers.channels(group).values()
        )
    yield families.gauge(
        "rocketmq_consumer_connections",
        "Connections of consumers",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        [((*key, java(is_system_group(key[0]))), float(count)) for key, count in consuming.items()],
    )
