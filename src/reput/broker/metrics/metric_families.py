"""MetricFamilies: Prometheus' classes, with the labels that all metrics of a broker have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: A row of a metric: the values of its own labels, in their order, and its value.
Row = tuple[Sequence[str], float]


class MetricFamilies:
    """Makes the metrics of one broker.

    Args:
        labels: Name and value of each label that all of them have.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._names = tuple(labels)
        self._values = tuple(labels.values())

    def gauge(self, name: str, what: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
        """Values that go up and down."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(name, what, labels=(*self._names, *labels))
        for values, value in rows:
            family.add_metric((*self._values, *values), value)
        return family

    def counter(self, name: str, what: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
        """Values that only go up; Prometheus adds `_total` to the name."""
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(name, what, labels=(*self._names, *labels))
        for values, value in rows:
            family.add_metric((*self._values, *values), value)
        return family

    def histogram(
        self,
        name: str,
        what: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        rows: Iterable[tuple[Sequence[str], Sequence[int], float]],
    ) -> Metric:
        """rows: labels' values, number of values in each range, and their sum."""
        from prometheus_client.metrics_core import HistogramMetricFamily

        family = HistogramMetricFamily(name, what, labels=(*self._names, *labels))
        ends = [*map(str, map(float, bounds)), "+Inf"]
        for values, counts, total in rows:
            buckets = list(zip(ends, accumulate(counts), strict=True))
            family.add_metric((*self._values, *values), buckets, total)
        return family


def text_of(metrics: Sequence[Metric]) -> bytes:
    """Metrics in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Made(metrics))
    return generate_latest(registry)


class _Made:
    """A collector of metrics that are there (`prometheus_client.registry.Collector`)."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def java(value: bool) -> str:
    """A label's value that is true or false."""
    return "true" if value else "false"
