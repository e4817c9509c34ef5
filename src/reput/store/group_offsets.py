"""GroupOffsets: how far consumer groups have read the queues, in RocketMQ's `consumerOffset.json`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock

from reput.files import FileLayer
from reput.formats.metadata import ConsumerOffsets
from reput.log.metadata import read_metadata_file
from reput.store.config_files import next_version, persist_metadata_file


class GroupOffsets:
    """The offsets of one file, which no other process writes; used by any number of threads.

    Args:
        path: The file; made by the first commit.
        files: The file layer.
    """

    def __init__(self, path: str, files: FileLayer) -> None:
        self.path = path
        self._files = files
        self._changing = Lock()

    def read(self, group: str, topic: str) -> dict[int, int]:
        """The next offsets of a group in a topic by queue id; empty if it has none.

        Raises:
            CorruptMetadataError: The file and its backup are damaged.
        """
        return dict(self._content().offset_table.get(f"{topic}@{group}", {}))

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Keep the next offsets of a group in some queues of a topic; they are on the disk when this returns.

        Raises:
            CorruptMetadataError: As `read`; nothing is changed.
            StoreError: The file cannot be written; it is as it was.
        """
        key = f"{topic}@{group}"
        with self._changing:
            content = self._content()
            table = {**content.offset_table, key: {**content.offset_table.get(key, {}), **offsets}}
            version = next_version(content.data_version, time.time_ns() // 1_000_000)
            persist_metadata_file(self.path, replace(content, offset_table=table, data_version=version), self._files)

    def _content(self) -> ConsumerOffsets:
        return read_metadata_file(self.path, ConsumerOffsets, self._files) or ConsumerOffsets()
