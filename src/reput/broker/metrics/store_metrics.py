"""Metrics of the store, and of the broker as a whole (`DefaultStoreMetricsManager`, `initStatsMetrics`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reput.broker.appends.send_path import SendPath
from reput.broker.clock import BrokerClock
from reput.broker.metrics.metric_families import MetricFamilies
from reput.broker.view import BrokerView
from reput.errors import StoreFullError
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.runtime_info import RuntimeInfo

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Labels of all metrics of the store.
LOCAL: Mapping[str, str] = {"storage_type": "local", "storage_medium": "disk"}


def store_metrics(
    families: MetricFamilies,
    view: BrokerView,
    clock: BrokerClock,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    send_path: SendPath,
    info: RuntimeInfo,
) -> Iterable[Metric]:
    """Sizes and lags of the store; numbers of topics, groups and sends that wait."""
    now_ms, earliest = clock.now_ms(), info.earliest_message_time_stamp
    folders = (info.commit_log, info.consume_queue, info.index)
    for name, what, value in (
        ("size_bytes", "Bytes of the files of log, queues and index", sum(one.bytes for one in folders)),
        ("flush_behind_bytes", "Bytes of the log that are not synced", info.remain_how_many_data_to_flush or 0),
        ("dispatch_behind_bytes", "Bytes of the log that queues and index lack", info.dispatch_behind_bytes),
        ("message_reserve_time_milliseconds", "Age of the first message", now_ms - earliest if earliest else 0),
    ):
        yield families.gauge(f"rocketmq_storage_{name}", what, tuple(LOCAL), [(tuple(LOCAL.values()), value)])
    what = "Used share of the log's disk, 0 to 1"
    yield families.gauge("reput_storage_disk_ratio", what, (), [((), info.commit_log_disk_ratio)])
    refusal = send_path.writer.put_refusal
    is_full = isinstance(refusal, StoreFullError)
    reasons = [(("full",), float(is_full)), (("failed",), float(refusal is not None and not is_full))]
    yield families.gauge("reput_storage_puts_refused", "1 while puts are refused", ("reason",), reasons)
    for name, what, value in (
        ("broker_permission", "What clients may do: 4 read, 2 write", view.config.broker_permission),
        ("topic_number", "Topics", len(topics.topic_config_table)),
        ("consumer_group_number", "Subscription groups", len(groups.subscription_group_table)),
    ):
        yield families.gauge(f"rocketmq_{name}", what, (), [((), value)])
    waiting = [(("send",), float(len(send_path.queue)))]
    yield families.gauge("rocketmq_processor_watermark", "Requests that wait", ("processor",), waiting)
