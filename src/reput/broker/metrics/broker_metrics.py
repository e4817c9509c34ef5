"""BrokerMetrics: what a broker tells Prometheus, by the names of RocketMQ 5 (`BrokerMetricsManager`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from http import HTTPStatus
from itertools import accumulate
from typing import TYPE_CHECKING

from reput.broker.rpc_latency import RpcKey
from reput.broker.state import BrokerState
from reput.kernels.size_ranges import SIZE_BOUNDS
from reput.remoting.codes import RequestCode, ResponseCode, version_name
from reput.service.topic_validator import is_retry_or_dlq_topic, is_system_group
from reput.store.runtime_info import RuntimeInfo
from reput.transport.http import Page

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_LOCAL = {"storage_type": "local", "storage_medium": "disk"}
_GROUP_LABELS = ("consumer_group", "topic", "is_retry", "is_system")
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: A row of a metric: its labels' values, in their order, and its value.
_Row = tuple[Sequence[str], float]


class BrokerMetrics:
    """Pages for a monitoring system, made when they are asked for.

    Counts of messages begin at the broker's start, and are made by dispatch and by pulls from whole batches.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        config = state.config
        self._labels = {
            **config.metric_labels,
            "node_type": "broker",
            "cluster": config.broker_cluster_name,
            "node_id": config.broker_name,
        }

    async def metrics(self) -> Page:
        """All metrics, in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        info = await self._state.reads.run(self._state.store.runtime_info)
        registry = CollectorRegistry()
        registry.register(
            _Made(
                [
                    *self._of_store(info),
                    *self._of_messages(info),
                    *self._of_requests(),
                    *self._of_clients(),
                    *self._lag(info),
                ]
            )
        )
        return Page(generate_latest(registry), _CONTENT_TYPE)

    async def healthy(self) -> Page:
        """200 while the broker's loop answers."""
        return Page(b"the broker runs\n")

    async def ready(self) -> Page:
        """200 where messages are taken and given; 503 and the reason where they are not."""
        failure = self._state.writer.put_refusal or self._state.writer.dispatch_failure
        if failure is None:
            return Page(b"the broker takes and gives messages\n")
        return Page(f"{failure}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)

    # -- metrics by what they are about

    def _of_store(self, info: RuntimeInfo) -> Iterable[Metric]:
        state, now_ms = self._state, self._state.now_ms()
        earliest = info.earliest_message_time_stamp
        folders = (info.commit_log, info.consume_queue, info.index)
        for name, what, value in (
            ("size_bytes", "Bytes of the files of log, queues and index", sum(one.bytes for one in folders)),
            ("flush_behind_bytes", "Bytes of the log that are not synced", info.remain_how_many_data_to_flush or 0),
            ("dispatch_behind_bytes", "Bytes of the log that queues and index lack", info.dispatch_behind_bytes),
            ("message_reserve_time_milliseconds", "Age of the first message", now_ms - earliest if earliest else 0),
        ):
            yield self._gauge(f"rocketmq_storage_{name}", what, tuple(_LOCAL), [(tuple(_LOCAL.values()), value)])
        for name, what, value in (
            ("broker_permission", "What clients may do: 4 read, 2 write", state.config.broker_permission),
            ("topic_number", "Topics", len(state.topics.topic_config_table)),
            ("consumer_group_number", "Subscription groups", len(state.groups.subscription_group_table)),
        ):
            yield self._gauge(f"rocketmq_{name}", what, (), [((), value)])
        waiting = [(("send",), float(len(state.sending)))]
        yield self._gauge("rocketmq_processor_watermark", "Requests that wait", ("processor",), waiting)

    def _of_messages(self, info: RuntimeInfo) -> Iterable[Metric]:
        system = self._state.topics.is_system_topic
        put = [(one.topic, one.put_messages, one.put_bytes) for one in info.topics if one.put_messages]
        labels = ("topic", "message_type", "is_system")
        for name, at, what in (("messages", 1, "Messages put"), ("throughput", 2, "Bytes of the messages put")):
            rows = [((one[0], self._message_type(one[0]), _java(system(one[0]))), float(one[at] or 0)) for one in put]
            yield self._counter(f"rocketmq_{name}_in", what, labels, rows)
        got = list(self._state.stats.group_gets.items())
        labels = ("topic", "consumer_group", "is_system")
        for name, what in (("messages", "Messages pulled"), ("throughput", "Bytes of the messages pulled")):
            rows = [
                (
                    (topic, group, _java(system(topic) or is_system_group(group))),
                    float(gets.messages if name == "messages" else gets.size),
                )
                for (topic, group), gets in got
            ]
            yield self._counter(f"rocketmq_{name}_out", what, labels, rows)

        counts = self._state.store.topic_counts
        sizes = [
            ((topic, self._message_type(topic), _java(system(topic))), counts[topic].put_sizes, float(size or 0))
            for topic, _, size in put
        ]
        labels = ("topic", "message_type", "is_system")
        yield self._histogram("rocketmq_message_size", "Sizes of the messages put", labels, SIZE_BOUNDS, sizes)

    def _of_requests(self) -> Iterable[Metric]:
        stats, latency = self._state.stats, self._state.rpc_latency
        if latency is not None:
            yield self._histogram(
                "rocketmq_rpc_latency_milliseconds",
                "Times from a request to its answer",
                ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
                latency.times_ms.bounds,
                [
                    (_of_rpc(key), counts, latency.times_ms.sums[key])
                    for key, counts in latency.times_ms.counts.items()
                ],
            )  # fmt: skip
        for name, is_commit in (("commit", True), ("rollback", False)):
            rows = [
                ((topic,), float(count)) for (topic, kind), count in stats.transactions.items() if kind == is_commit
            ]
            yield self._counter(f"rocketmq_{name}_messages", f"Transactions ended by {name}", ("topic",), rows)
        commits = [((topic,), counts, stats.commit_s.sums[topic]) for topic, counts in stats.commit_s.counts.items()]
        what = "Seconds, in spite of the name, from a message to the commit of its transaction"
        yield self._histogram(
            "rocketmq_finish_message_latency_milliseconds", what, ("topic",), stats.commit_s.bounds, commits
        )
        creations = stats.topic_creation_ms
        yield self._histogram(
            "rocketmq_topic_create_execution_time_milliseconds", "Times in which operators' topics were made",
            ("invocation_status", "is_system"), creations.bounds,
            [
                (("success" if key[0] else "failure", _java(key[1])), counts, creations.sums[key])
                for key, counts in creations.counts.items()
            ],
        )  # fmt: skip

    def _message_type(self, topic: str) -> str:
        """The type that the topic is made for; a topic that says none, or MIXED, takes normal messages."""
        config = self._state.topics.select_topic_config(topic)
        named = "" if config is None else config.attributes.get("message.type", "")
        return named.lower() if named in ("FIFO", "DELAY", "TRANSACTION") else "normal"

    def _of_clients(self) -> Iterable[Metric]:
        state = self._state
        producers = Counter(
            (info.language.lower(), version_name(info.version).lower())
            for group in state.producers.groups()
            for info in state.producers.channels(group).values()
        )
        rows = [((*key, "remoting"), float(count)) for key, count in producers.items()]
        labels = ("language", "version", "protocol_type")
        yield self._gauge("rocketmq_producer_connections", "Connections of producers", labels, rows)
        consumers: Counter[tuple[str, str, str, str]] = Counter()
        for group in state.consumers.groups():
            known = state.consumers.consumer_group_info(group)
            mode = "" if known is None else _CONSUME_MODES.get(known.consume_type, "")
            consumers.update(
                (group, info.language.lower(), version_name(info.version).lower(), mode)
                for info in state.consumers.channels(group).values()
            )
        yield self._gauge(
            "rocketmq_consumer_connections",
            "Connections of consumers",
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
            [((*key, "remoting", _java(is_system_group(key[0]))), float(count)) for key, count in consumers.items()],
        )

    def _lag(self, info: RuntimeInfo) -> Iterable[Metric]:
        state, now_ms = self._state, self._state.now_ms()
        latest = info.latest_message_time_stamp or now_ms
        lag, latency, inflight, ready = [], [], [], []
        for one in info.groups:
            retry = is_retry_or_dlq_topic(one.topic)
            is_system = state.topics.is_system_topic(one.topic) or is_system_group(one.group)
            key = (one.group, one.topic, _java(retry), _java(is_system))
            behind_ms = 0 if one.fall_behind_ms is None or not one.fall_behind_messages else one.fall_behind_ms
            on_the_way = min(state.offsets.inflight(one.group, one.topic), one.fall_behind_messages)
            lag.append((key, float(one.fall_behind_messages)))
            latency.append((key, float(now_ms - latest + behind_ms if one.fall_behind_messages else 0)))
            inflight.append((key, float(on_the_way)))
            ready.append((key, float(one.fall_behind_messages - on_the_way)))
        for name, what, rows in (
            ("lag_messages", "Messages that are not consumed", lag),
            ("lag_latency_milliseconds", "Age of the first message that is not consumed", latency),
            ("inflight_messages", "Messages that were pulled and are not consumed", inflight),
            ("ready_messages", "Messages that were not pulled", ready),
        ):
            yield self._gauge(f"rocketmq_consumer_{name}", what, _GROUP_LABELS, rows)

    # -- Prometheus' classes

    def _gauge(self, name: str, what: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(name, what, labels=(*self._labels, *labels))
        for values, value in rows:
            family.add_metric((*self._labels.values(), *values), value)
        return family

    def _counter(self, name: str, what: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(name, what, labels=(*self._labels, *labels))
        for values, value in rows:
            family.add_metric((*self._labels.values(), *values), value)
        return family

    def _histogram(
        self,
        name: str,
        what: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        rows: Iterable[tuple[Sequence[str], Sequence[int], float]],
    ) -> Metric:
        """rows: labels' values, number of values in each range, and their sum."""
        from prometheus_client.metrics_core import HistogramMetricFamily

        family = HistogramMetricFamily(name, what, labels=(*self._labels, *labels))
        ends = [*map(str, map(float, bounds)), "+Inf"]
        for values, counts, total in rows:
            buckets = list(zip(ends, accumulate(counts), strict=True))
            family.add_metric((*self._labels.values(), *values), buckets, total)
        return family


class _Made:
    """A collector of metrics that are there (`prometheus_client.registry.Collector`)."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


#: `ConsumeType.getTypeCN`.
_CONSUME_MODES: Mapping[str, str] = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


def _of_rpc(key: RpcKey) -> Sequence[str]:
    """The labels of a time, as `RemotingMetricsManager` names codes."""
    result = "oneway" if key.is_one_way else "success"
    codes = _name(RequestCode, key.request_code), _name(ResponseCode, key.response_code)
    return "remoting", *codes, _java(key.is_long_polling), result


def _name(kind: type[IntEnum], code: int) -> str:
    return kind(code).name.lower() if code in set(kind) else str(code)


def _java(value: bool) -> str:
    return "true" if value else "false"
