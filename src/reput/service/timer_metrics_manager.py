"""Number of messages that wait for a time, by their topic (`TimerMetrics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reput.files import DISK, FileLayer
from reput.formats.metadata import TimerMetrics, TopicMetric
from reput.service.config_manager import ConfigManager


class TimerMetricsManager(ConfigManager[TimerMetrics]):
    """The counts of `config/timermetrics`: for people; nothing depends on them. A kill leaves them a little wrong.

    Args:
        root: The store directory.
        files: The file layer.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    def __init__(self, root: str, files: FileLayer = DISK) -> None:
        super().__init__(TimerMetrics, root, files)
        self._counts = dict(self._loaded.timing_count)

    def content(self) -> TimerMetrics:
        """The content of `timermetrics`, as of now."""
        return TimerMetrics(dict(self._counts), self.data_version, self._loaded.others)

    def shown(self) -> TimerMetrics:
        """The content without numbers below 0: of two messages that delete the same one each counts until its time."""
        shown = {topic: replace(one, count=max(0, one.count)) for topic, one in self._counts.items()}
        return TimerMetrics(shown, self.data_version, self._loaded.others)

    def add(self, counts: Mapping[str, int], now_ms: int) -> None:
        """So many more messages wait for each topic."""
        for topic, count in counts.items():
            before = self._counts.get(topic)
            self._counts[topic] = TopicMetric((0 if before is None else before.count) + count, now_ms)
        if counts:
            self._next_version(now_ms)

    def count(self, topic: str) -> int:
        """The number of messages that wait for a topic."""
        metric = self._counts.get(topic)
        return 0 if metric is None else max(0, metric.count)
