"""How many messages wait for a time, by the topic that they go to (`TimerMetrics`)."""

from __future__ import annotations

from collections.abc import Mapping

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

    def add(self, counts: Mapping[str, int], now_ms: int) -> None:
        """So many more messages wait for each topic."""
        for topic, count in counts.items():
            self._counts[topic] = TopicMetric(self.count(topic) + count, now_ms)
        if counts:
            self._next_version(now_ms)

    def count(self, topic: str) -> int:
        """The number of messages that wait for a topic."""
        metric = self._counts.get(topic)
        return 0 if metric is None else metric.count
