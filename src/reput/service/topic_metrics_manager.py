"""Number of messages of each topic that wait, for a time or for the end of a transaction (`TransactionMetrics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from reput.files import DISK, FileLayer
from reput.formats.metadata import TimerMetrics, TopicMetric, TransactionMetrics
from reput.service.config_manager import ConfigManager

_Metrics = TypeVar("_Metrics", bound=TimerMetrics | TransactionMetrics)


class TopicMetricsManager(ConfigManager[_Metrics]):
    """The counts of `config/timermetrics` or of `config/transactionMetrics`.

    They are for people; nothing depends on them. A kill leaves them a little wrong.

    Args:
        kind: The content of the file.
        root: The store directory.
        files: The file layer.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    def __init__(self, kind: type[_Metrics], root: str, files: FileLayer = DISK) -> None:
        super().__init__(kind, root, files)
        self._field = "timing_count" if issubclass(kind, TimerMetrics) else "transaction_count"
        #: Of two messages that delete the same one with a time each counts until its time.
        self._may_be_negative = issubclass(kind, TimerMetrics)
        self._counts: dict[str, TopicMetric] = dict(getattr(self._loaded, self._field))

    def content(self) -> _Metrics:
        """The content of the file, as of now."""
        return self._with(dict(self._counts))

    def shown(self) -> _Metrics:
        """The content without numbers below 0."""
        return self._with({topic: replace(one, count=max(0, one.count)) for topic, one in self._counts.items()})

    def _with(self, counts: dict[str, TopicMetric]) -> _Metrics:
        changed: dict[str, Any] = {self._field: counts, "data_version": self.data_version}
        return replace(self._loaded, **changed)

    def add(self, counts: Mapping[str, int], now_ms: int) -> None:
        """Add to the messages that wait, for each topic a number, which may be below 0."""
        for topic, count in counts.items():
            count += self._counts[topic].count if topic in self._counts else 0
            self._counts[topic] = TopicMetric(count if self._may_be_negative else max(0, count), now_ms)
        if counts:
            self._next_version(now_ms)

    def count(self, topic: str) -> int:
        """The number of messages of a topic that wait."""
        return max(0, self._counts[topic].count) if topic in self._counts else 0
