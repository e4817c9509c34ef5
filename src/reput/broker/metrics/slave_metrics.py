"""Metrics of a slave; RocketMQ's slaves tell none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reput.broker.metrics.metric_families import MetricFamilies
from reput.broker.slave.following import Following

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def slave_metrics(families: MetricFamilies, slave: Following | None) -> Iterable[Metric]:
    """Whether a slave copies nothing; no metric of a master."""
    if slave is not None:
        what = "1 while the slave copies nothing of its master; /ready has the reason"
        value = float(slave.copies_nothing is not None)
        yield families.gauge("reput_slave_copies_nothing", what, (), [((), value)])
