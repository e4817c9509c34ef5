"""Watch of a store directory by repeated looks, as `reput top` does: each look reads only new records of the log."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.files import DISK, FileLayer
from reput.progress import silent
from reput.store.recovery.read_only import open_for_reading
from reput.store.runtime_info import RuntimeInfo
from reput.store.snapshot import take_runtime_info


class Look(NamedTuple):
    """A snapshot of a store, and its time `at` in seconds of the monotonic clock."""

    at: float
    info: RuntimeInfo


class StoreWatch:
    """A reader of a live, killed or closed store; it takes no lock and changes nothing.

    Attributes:
        path: The store's directory.
    """

    def __init__(self, path: str, config: MessageStoreConfig, files: FileLayer = DISK) -> None:
        self.path = os.path.abspath(path)
        self._config = config
        self._files = files
        self._seen_record = -1

    def look(self) -> Look:
        """Take a snapshot of the directory as it is now.

        Raises:
            StoreFormatError: The directory is no store.
            CorruptStoreError: Damage because of which not even a reader can open the store.
        """
        parts = open_for_reading(self.path, self._config, self._files, silent, self._seen_record)
        try:
            self._seen_record = parts.queues.last_record_offset
            return Look(time.monotonic(), take_runtime_info(self.path, parts, self._files))
        finally:
            parts.close()


def per_second(before: Look, after: Look) -> dict[str, float]:
    """Messages a second that arrived in each topic between two looks, by the queues' max offsets."""
    earlier = {topic.topic: topic.max_offset for topic in before.info.topics}
    seconds = max(after.at - before.at, 1e-9)
    return {
        topic.topic: max(0, topic.max_offset - earlier.get(topic.topic, 0)) / seconds for topic in after.info.topics
    }


def bytes_per_second(before: Look, after: Look) -> float:
    """Bytes a second by which the log grew between two looks."""
    grown = after.info.commit_log_max_offset - before.info.commit_log_max_offset
    return max(0, grown) / max(after.at - before.at, 1e-9)
