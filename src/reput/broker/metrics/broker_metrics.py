"""BrokerMetrics: what a broker tells Prometheus, by the names of RocketMQ 5 (`BrokerMetricsManager`)."""

from __future__ import annotations

from http import HTTPStatus

from reput.broker.metrics.client_metrics import client_metrics
from reput.broker.metrics.consumer_lag import consumer_lag_metrics
from reput.broker.metrics.message_metrics import message_metrics
from reput.broker.metrics.metric_families import MetricFamilies, text_of
from reput.broker.metrics.pop_metrics import pop_metrics
from reput.broker.metrics.replication_metrics import replication_metrics
from reput.broker.metrics.request_metrics import request_metrics
from reput.broker.metrics.slave_metrics import slave_metrics
from reput.broker.metrics.store_metrics import store_metrics
from reput.broker.metrics.timer_metrics import timer_metrics
from reput.broker.pop.pop import Pop
from reput.broker.state import BrokerState
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.transport.http import Page

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BrokerMetrics:
    """Pages for a monitoring system, made when they are asked for.

    Counts of messages begin at the broker's start, and are made by dispatch and by pulls from whole batches.

    Args:
        state: The broker's.
        pop: What takes pops.
        timers: Deliver messages with a time; None with timerWheelEnable=false.
    """

    def __init__(self, state: BrokerState, pop: Pop, timers: TimerMessageService | None) -> None:
        self._state = state
        self._pop = pop
        self._timers = timers
        config = state.view.config
        self._families = MetricFamilies(
            {
                **config.metric_labels,
                "node_type": "broker",
                "cluster": config.broker_cluster_name,
                "node_id": config.broker_name,
            }
        )

    async def metrics(self) -> Page:
        """All metrics, in Prometheus' text format."""
        state, families = self._state, self._families
        info = await state.pools.reads.run(state.store.runtime_info)
        metrics = [
            *store_metrics(families, state.view, state.clock, state.topics, state.groups, state.send_path, info),
            *message_metrics(families, state.store, state.topics, state.stats, info),
            *request_metrics(families, state.transactions, state.stats, state.rpc_latency),
            *client_metrics(families, state.consumers, state.producers),
            *await consumer_lag_metrics(families, state.clock, state.pools, state.store, state.topics, state.offsets),
            *pop_metrics(families, state.view, self._pop),
            *replication_metrics(families, state.view, state.store, state.slave, state.ha),
            *slave_metrics(families, state.slave),
        ]
        if state.timers is not None and self._timers is not None:
            metrics += await timer_metrics(families, state.clock, state.pools, state.store, state.timers, self._timers)
        return Page(text_of(metrics), _CONTENT_TYPE)

    async def healthy(self) -> Page:
        """200 while the broker's loop answers."""
        return Page(b"the broker runs\n")

    async def ready(self) -> Page:
        """200 if messages are taken, by a slave copied, and given; 503 and the reason if they are not."""
        writer, slave = self._state.send_path.writer, self._state.slave
        failure = writer.small_put_refusal or writer.dispatch_failure or (slave and slave.copies_nothing)
        if failure is None:
            does = "takes" if slave is None else "copies"
            mode = self._state.store.config.flush_disk_type
            return Page(f"the broker {does} and gives messages, {mode}\n".encode())
        return Page(f"{failure}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
