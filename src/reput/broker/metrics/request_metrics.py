"""Metrics of requests: how long they take, and how transactions end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies, java
from reput.broker.rpc_latency import RpcKey, RpcLatency
from reput.formats.metadata import TransactionMetrics
from reput.remoting.codes import RequestCode, ResponseCode
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.topic_metrics_manager import TopicMetricsManager

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_RPC_LABELS = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")


def request_metrics(
    families: MetricFamilies,
    transactions: TopicMetricsManager[TransactionMetrics],
    stats: BrokerStatsManager,
    rpc_latency: RpcLatency | None,
) -> Iterable[Metric]:
    """Times of requests and of changes of topics; transactions that have ended."""
    if rpc_latency is not None:
        times = rpc_latency.times_ms
        rows = [(_of_rpc(key), counts, times.sums[key]) for key, counts in times.counts.items()]
        what = "Times from a request to its answer"
        yield families.histogram("rocketmq_rpc_latency_milliseconds", what, _RPC_LABELS, times.bounds, rows)
    creations = stats.topic_creation_ms
    yield families.histogram(
        "rocketmq_topic_create_execution_time_milliseconds", "Times in which operators' topics were made",
        ("invocation_status", "is_system"), creations.bounds,
        [
            (("success" if key[0] else "failure", java(key[1])), counts, creations.sums[key])
            for key, counts in creations.counts.items()
        ],
    )  # fmt: skip
    open_ones = [((topic,), float(one.count)) for topic, one in transactions.content().transaction_count.items()]
    yield families.gauge("rocketmq_half_messages", "Transactions that have not ended", ("topic",), open_ones)
    for name, is_commit in (("commit", True), ("rollback", False)):
        ends = [((topic,), float(count)) for (topic, kind), count in stats.transactions.items() if kind == is_commit]
        yield families.counter(f"rocketmq_{name}_messages", f"Transactions ended by {name}", ("topic",), ends)
    commits = [((topic,), counts, stats.commit_s.sums[topic]) for topic, counts in stats.commit_s.counts.items()]
    what = "Seconds, in spite of the name, from a message to the commit of its transaction"
    yield families.histogram(
        "rocketmq_finish_message_latency_milliseconds", what, ("topic",), stats.commit_s.bounds, commits
    )


def _of_rpc(key: RpcKey) -> Sequence[str]:
    """The labels of a time, as `RemotingMetricsManager` names codes."""
    result = "oneway" if key.is_one_way else "success"
    codes = _name(RequestCode, key.request_code), _name(ResponseCode, key.response_code)
    return "remoting", *codes, java(key.is_long_polling), result


def _name(kind: type[IntEnum], code: int) -> str:
    return kind(code).name.lower() if code in set(kind) else str(code)
