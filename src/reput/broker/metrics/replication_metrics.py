"""Metrics of slaves, as their master sees them and as a slave sees itself; RocketMQ tells none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies
from reput.broker.slave.following import Following
from reput.broker.view import BrokerView
from reput.replication.ha_service import HAService
from reput.store.message_store import MessageStore

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def replication_metrics(
    families: MetricFamilies, view: BrokerView, store: MessageStore, slave: Following | None, ha: HAService | None
) -> Iterable[Metric]:
    """Metrics of replication: of a broker with an HA port, and of a slave, the same as of `reput follow`."""
    if ha is not None:
        end = store.max_commit_log_offset
        lags = [((one.address,), float(max(0, end - one.acknowledged_offset))) for one in ha.slaves]
        what = "Bytes of the log that a slave has not acknowledged"
        yield families.gauge("reput_ha_slave_lag_bytes", what, ("slave",), lags)
        in_sync = ha.count_in_sync(view.config.ha_max_gap_not_in_sync)
        what = "Slaves that lack less than haMaxGapNotInSync"
        yield families.gauge("reput_ha_slaves_in_sync", what, (), [((), float(in_sync))])
    if slave is not None:
        values = [("connected", "1 while the connection to the master stands", float(slave.has_master))]
        if slave.progress is not None and (lag := slave.progress.lag) is not None:
            values.append(("lag_bytes", "Bytes of the master's log that are missing", float(lag[0])))
            values.append(("lag_seconds", "Age of the newest record, if bytes are missing", lag[1] / 1000))
        for name, what, value in values:
            yield families.gauge(f"reput_follow_{name}", what, ("broker",), [((view.config.broker_name,), value)])
