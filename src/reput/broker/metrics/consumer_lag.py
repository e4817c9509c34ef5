"""Metrics of how far groups are behind (`ConsumerLagCalculator`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.metrics.metric_families import MetricFamilies, java
from reput.remoting.topic_validator import is_retry_or_dlq_topic, is_system_group
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_LABELS = ("consumer_group", "topic", "is_retry", "is_system")


class _Progress(NamedTuple):
    """Progress of a group in a topic: queue id, committed offset and pulled offset of each queue that it knows."""

    group: str
    topic: str
    queues: Sequence[tuple[int, int, int]]


class _Lag(NamedTuple):
    """Messages that a group has not consumed, and those that it has not pulled.

    first_ms, first_ready_ms: When the first of each was stored; 0 for none.
    """

    messages: int
    ready: int
    first_ms: int
    first_ready_ms: int


async def consumer_lag_metrics(
    families: MetricFamilies,
    clock: BrokerClock,
    pools: DiskPools,
    store: MessageStore,
    topics: TopicConfigManager,
    offsets: ConsumerOffsetManager,
) -> Iterable[Metric]:
    """Lag of each group in each topic in which it has committed offsets."""
    progress = list(_progress(topics, offsets))
    lags = await pools.reads.run(lambda: [_lag(store, one) for one in progress])
    now_ms = clock.now_ms()
    keys = [_labels(topics, one) for one in progress]
    metrics = []
    for name, what, values in (
        ("lag_messages", "Messages that are not consumed", [one.messages for one in lags]),
        ("lag_latency_milliseconds", "Age of the first message that is not consumed",
         [max(0, now_ms - one.first_ms) if one.first_ms else 0 for one in lags]),
        ("inflight_messages", "Messages that were pulled and are not consumed",
         [one.messages - one.ready for one in lags]),
        ("queueing_latency_milliseconds", "Age of the first message that was not pulled",
         [max(0, now_ms - one.first_ready_ms) if one.first_ready_ms else 0 for one in lags]),
        ("ready_messages", "Messages that were not pulled", [one.ready for one in lags]),
    ):  # fmt: skip
        rows = list(zip(keys, map(float, values), strict=True))
        metrics.append(families.gauge(f"rocketmq_consumer_{name}", what, _LABELS, rows))
    return metrics


def _labels(topics: TopicConfigManager, one: _Progress) -> tuple[str, str, str, str]:
    is_system = topics.is_system_topic(one.topic) or is_system_group(one.group)
    return one.group, one.topic, java(is_retry_or_dlq_topic(one.topic)), java(is_system)


def _progress(topics: TopicConfigManager, offsets: ConsumerOffsetManager) -> Iterator[_Progress]:
    """The offsets of all groups, as of now, without topics that are not there any more."""
    for topic, group in offsets.topics_and_groups():
        config = topics.select_topic_config(topic)
        if config is None:
            continue
        committed = offsets.query_offsets(group, topic)
        yield _Progress(
            group,
            topic,
            [
                (queue_id, offset, max(offset, offsets.query_pull_offset(group, topic, queue_id)))
                for queue_id, offset in committed.items()
                if 0 <= queue_id < config.write_queue_nums
            ],
        )


def _lag(store: MessageStore, one: _Progress) -> _Lag:
    """Look at the queues of a topic; may wait for the disk."""
    messages = ready = 0
    times: list[int] = []
    ready_times: list[int] = []
    for queue_id, committed, pulled in one.queues:
        low, end = store.min_offset(one.topic, queue_id), store.max_offset(one.topic, queue_id)
        if committed < end:
            messages += end - committed
            times.append(store.message_store_timestamp(one.topic, queue_id, max(committed, low)))
        if pulled < end:
            ready += end - pulled
            ready_times.append(
                times[-1] if pulled == committed
                else store.message_store_timestamp(one.topic, queue_id, max(pulled, low))
            )  # fmt: skip
    return _Lag(messages, ready, _first(times), _first(ready_times))


def _first(times_ms: Iterable[int]) -> int:
    return min((time_ms for time_ms in times_ms if time_ms > 0), default=0)
