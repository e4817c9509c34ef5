"""Metrics of messages with a time (`DefaultStoreMetricsManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.metrics.metric_families import MetricFamilies
from reput.broker.metrics.store_metrics import LOCAL
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.formats.timer_log import TIMER_TOPIC
from reput.store.message_store import MessageStore
from reput.store.timer.timer_message_store import TimerMessageStore

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Seconds from now on in which messages are counted (`TimerMetrics.timerDist`); each begins where the one before ends.
_DISTANCES_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
_PLACE = tuple(LOCAL.values())


class _Waiting(NamedTuple):
    """Messages that wait: of all times, and by `_DISTANCES_S`."""

    total: int
    near: Sequence[int]


async def timer_metrics(
    families: MetricFamilies,
    clock: BrokerClock,
    pools: DiskPools,
    store: MessageStore,
    timers: TimerMessageStore,
    service: TimerMessageService,
) -> Iterable[Metric]:
    """Messages that wait, by topic and by time; how many came and went, and how late they are."""
    waiting = await pools.reads.run(_look, timers, clock.now_ms())
    stats, now_ms = service.stats, clock.now_ms()
    without_slot = max(0, store.max_offset(TIMER_TOPIC, 0) - timers.queue_offset)
    gauges = (
        ("enqueue_lag", "Messages without a slot", without_slot),
        ("enqueue_latency_milliseconds", "Time from a message's storing to its slot", stats.enqueue_latency_ms(now_ms)),
        ("dequeue_lag", "Messages that wait, due or not", waiting.total),
        ("dequeue_latency_milliseconds", "Seconds, in spite of the name, since the slot that is looked at",
         max(0, now_ms - timers.read_time_ms) // 1000),
    )  # fmt: skip
    metrics = [families.gauge(f"rocketmq_timer_{name}", what, tuple(LOCAL), [(_PLACE, n)]) for name, what, n in gauges]
    labels = (*LOCAL, "topic")
    for name, what, counts in (
        ("enqueue", "Messages that got a slot", stats.enqueued),
        ("dequeue", "Messages that were put when they were due", stats.dequeued),
    ):
        rows = [((*_PLACE, topic), float(count)) for topic, count in counts.items()]
        metrics.append(families.counter(f"rocketmq_timer_{name}", what, labels, rows))
    timing = service.metrics.content().timing_count
    rows = [((*_PLACE, topic), float(one.count)) for topic, one in timing.items()]
    metrics.append(families.gauge("rocketmq_timing_messages", "Messages that wait, by their topic", labels, rows))
    rows = [((*_PLACE, str(end)), float(count)) for end, count in zip(_DISTANCES_S, waiting.near, strict=True)]
    what = "Messages that wait, by the seconds until they are due at most"
    metrics.append(families.gauge("rocketmq_timer_message_snapshot", what, (*LOCAL, "timer_bound_s"), rows))
    delays = stats.delay_s
    ranges = [((*_PLACE, topic), counts, delays.sums[topic]) for topic, counts in delays.counts.items()]
    what = "Times from a message's birth to the time that it asks for"
    metrics.append(families.histogram("rocketmq_delay_message_latency_seconds", what, labels, delays.bounds, ranges))
    return metrics


def _look(timers: TimerMessageStore, now_ms: int) -> _Waiting:
    """Count messages of the wheel, which takes milliseconds."""
    ends = [now_ms + seconds * 1000 for seconds in _DISTANCES_S]
    return _Waiting(timers.total, [timers.num_between(*one) for one in zip([now_ms, *ends], ends, strict=False)])
