"""Metrics of POP (`PopMetricsManager`); without metrics of its buffer, as there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies
from reput.broker.pop.pop import Pop
from reput.broker.view import BrokerView

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_REVIVED = ("consumer_group", "topic", "revive_message_type")


def pop_metrics(families: MetricFamilies, view: BrokerView, pop: Pop) -> Iterable[Metric]:
    """Check points and acks, revived messages, and how late they are, by revive queue."""
    stats = pop.stats
    put = [(key, float(count)) for key, count in stats.put.items()]
    what = "Check points and acks put into the revive topic"
    yield families.counter("rocketmq_pop_revive_in_message", what, (*_REVIVED, "put_status"), put)
    got = [((*key[:3], str(key[3])), float(count)) for key, count in stats.got.items()]
    what = "Check points and acks read from the revive topic"
    yield families.counter("rocketmq_pop_revive_out_message", what, (*_REVIVED, "queue_id"), got)
    retried = [(key, float(count)) for key, count in stats.retried.items()]
    what = "Messages that nobody acked, put into retry topics"
    labels = ("consumer_group", "topic", "put_status")
    yield families.counter("rocketmq_pop_revive_retry_messages", what, labels, retried)
    behind = [pop.revive_behind(queue_id) for queue_id in range(view.config.revive_queue_num)]
    for name, what, at in (
        ("lag", "Check points and acks, in spite of the name, after the last check point done", 0),
        ("latency", "How long ago the first of them was due", 1),
    ):
        rows = [((str(queue_id),), float(one[at])) for queue_id, one in enumerate(behind)]
        yield families.gauge(f"rocketmq_pop_revive_{name}_milliseconds", what, ("queue_id",), rows)
