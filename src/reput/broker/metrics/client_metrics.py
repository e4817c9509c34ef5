"""Metrics of connections (`initConnectionMetrics`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies, java
from reput.broker.state import BrokerState
from reput.remoting.codes import version_name
from reput.remoting.topic_validator import is_system_group

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: `ConsumeType.getTypeCN`.
_CONSUME_MODES: Mapping[str, str] = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


def client_metrics(families: MetricFamilies, state: BrokerState) -> Iterable[Metric]:
    """Connections of producers and of consumers, by language and version."""
    producers = Counter(
        (info.language.lower(), version_name(info.version).lower())
        for group in state.producers.groups()
        for info in state.producers.channels(group).values()
    )
    rows = [((*key, "remoting"), float(count)) for key, count in producers.items()]
    labels = ("language", "version", "protocol_type")
    yield families.gauge("rocketmq_producer_connections", "Connections of producers", labels, rows)
    consumers: Counter[tuple[str, str, str, str]] = Counter()
    for group in state.consumers.groups():
        known = state.consumers.consumer_group_info(group)
        mode = "" if known is None else _CONSUME_MODES.get(known.consume_type, "")
        consumers.update(
            (group, info.language.lower(), version_name(info.version).lower(), mode)
            for info in state.consumers.channels(group).values()
        )
    yield families.gauge(
        "rocketmq_consumer_connections",
        "Connections of consumers",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        [((*key, "remoting", java(is_system_group(key[0]))), float(count)) for key, count in consumers.items()],
    )
