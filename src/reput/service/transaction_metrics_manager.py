"""Number of transactions that have not ended, by the topic of their message (`TransactionMetrics`)."""

from __future__ import annotations

from reput.files import DISK, FileLayer
from reput.formats.metadata import TopicMetric, TransactionMetrics
from reput.service.config_manager import ConfigManager


class TransactionMetricsManager(ConfigManager[TransactionMetrics]):
    """The counts of `config/transactionMetrics`: for people, nothing depends on them. A kill leaves them a bit wrong.

    Args:
        root: The store directory.
        files: The file layer.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    def __init__(self, root: str, files: FileLayer = DISK) -> None:
        super().__init__(TransactionMetrics, root, files)
        self._counts = dict(self._loaded.transaction_count)

    def content(self) -> TransactionMetrics:
        """The content of `transactionMetrics`, as of now."""
        return TransactionMetrics(dict(self._counts), self.data_version, self._loaded.others)

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """So many more transactions of a topic have begun, or less where they have ended."""
        self._counts[topic] = TopicMetric(max(0, self.count(topic) + count), now_ms)
        self._next_version(now_ms)

    def count(self, topic: str) -> int:
        """The number of transactions of a topic that have not ended."""
        metric = self._counts.get(topic)
        return 0 if metric is None else metric.count
