"""Where a `Tail` reads: the store that this process writes, or one that another process writes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from reput.formats.consume_queue import UNIT_SIZE
from reput.log.directory import StoreDirectory
from reput.log.tail import LogTail
from reput.progress import silent
from reput.store.get import GetMessage
from reput.store.parts import Parts
from reput.store.query import QueryMessage
from reput.store.reader import Reader
from reput.store.recovery.read_only import open_for_reading
from reput.store.writer import Writer

#: Seconds between two looks at another process's files: while it puts, and at most where it puts what has no units.
_LOOK_S, _MOST_PAUSE_S = 0.1, 1.0
#: Most messages and bytes of one pull, wherever they lie: they are for this process, not for a network.
_PULL_MESSAGES, _PULL_BYTES = 4096, 1 << 20


class TailSource(Protocol):
    """A store that grows.

    Attributes:
        parts: Its log and queues as they are now; others after a `wait`.
        getting: Pulls of many messages.
        querying: Offsets of times.
    """

    parts: Parts
    getting: GetMessage
    querying: QueryMessage

    def wait(self, timeout_s: float) -> None:
        """Return once the queues may have more than at the last call, or after a time."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...


def wide_pulls(reader: Reader, parts: Parts) -> GetMessage:
    """Pulls with the limits of a tail."""
    config = replace(
        reader.config,
        max_transfer_count_on_message_in_memory=_PULL_MESSAGES, max_transfer_bytes_on_message_in_memory=_PULL_BYTES,
        max_transfer_count_on_message_in_disk=_PULL_MESSAGES, max_transfer_bytes_on_message_in_disk=_PULL_BYTES,
        max_filter_message_size=_PULL_MESSAGES * UNIT_SIZE,
    )  # fmt: skip
    return GetMessage(parts.log, parts.queues, config, reader.files, reader.path, reader.stats)


class OwnStore:
    """The store that this process writes: its dispatch thread wakes whoever waits."""

    def __init__(self, writer: Writer) -> None:
        reader = writer.reader
        self.parts: Parts = writer.parts
        self.getting = wide_pulls(reader, writer.parts)
        self.querying = reader.querying
        self._reput = writer.reput
        self._seen = 0

    def wait(self, timeout_s: float) -> None:
        """See `TailSource.wait`; raises StoreStateError once the store is closed."""
        before, self._seen = self._seen, self._reput.reput_from_offset
        if self._seen == before:
            self._reput.wait(before + 1, timeout_s)

    def close(self) -> None:
        """Nothing was opened."""


class OtherStore:
    """A store that another process writes: its files are looked at again where the log has grown.

    No lock is taken and no byte changed. While nothing comes, a look reads 8 bytes.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        folder = reader.config.store_path_commit_log
        self._log = LogTail(StoreDirectory(reader.path, commit_log_path=folder, files=reader.files))
        self._opened: Parts | None = None
        self._pause_s = _LOOK_S
        self._use(reader.parts)

    def _use(self, parts: Parts) -> None:
        self.parts = parts
        self.getting = wide_pulls(self._reader, parts)
        self.querying = QueryMessage(parts.log, parts.index, self._reader.files)

    def wait(self, timeout_s: float) -> None:
        """See `TailSource.wait`.

        Raises:
            CorruptStoreError: Damage because of which not even a reader can open the store.
        """
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(self._pause_s, left))
            if self._has_grown() and self._look():
                self._pause_s = _LOOK_S
                return

    def _has_grown(self) -> bool:
        """Whether records follow, or records are there whose units may come."""
        end = self.parts.log.max_offset
        return self.parts.queues.max_physical_offset < end or self._log.is_written(end)

    def _look(self) -> bool:
        """Open the store as it is now; False where its queues show nothing else. Then the next look is later."""
        reader, before = self._reader, self.parts.queues
        parts = open_for_reading(reader.path, reader.config, reader.files, silent, before.last_record_offset)
        is_new = parts.queues.max_physical_offset != before.max_physical_offset
        self.close()
        self._opened = parts
        self._use(parts)
        self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)
        return is_new

    def close(self) -> None:
        """Close what was opened; the messages that were given stay readable."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
