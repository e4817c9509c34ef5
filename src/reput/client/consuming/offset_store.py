"""Offset stores: how far a group is, at its brokers, or in a file of each broadcasting consumer (`OffsetStore`)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Protocol

from reput.client.consuming.consumer_group import ConsumerGroup
from reput.errors import ConfigError, RemotingCommandError
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables

_MEMBER = "offsetTable"


class OffsetStore(Protocol):
    """Offsets by queue, in memory until they are persisted."""

    def update(self, queue: QueueKey, offset: int) -> None:
        """All messages before an offset are handled."""

    def move(self, queue: QueueKey, offset: int) -> None:
        """The broker, or an operator, says that a queue goes on at an offset, whatever was kept before."""

    def read(self, queue: QueueKey) -> int | None:
        """The offset that was updated last; None for none."""

    def remove(self, queue: QueueKey) -> None:
        """Forget a queue that another member has."""

    async def begin(self, queue: QueueKey) -> int:
        """Offset at which to go on in a queue; raises RemotingError if the queue's broker does not return it."""

    async def persist(self) -> None:
        """Keep what has changed; raises MQClientError where a broker does not take it, StoreError where a disk does."""


class RemoteBrokerOffsetStore:
    """Offsets of the group, at the brokers of its queues (`RemoteBrokerOffsetStore`)."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._offsets: dict[QueueKey, int] = {}
        self._persisted: dict[QueueKey, int] = {}
        self._turn = asyncio.Lock()
        group.client.on_reconnect = self._persisted.clear  # a broker that was killed has forgotten the last seconds

    def update(self, queue: QueueKey, offset: int) -> None:
        """All messages before an offset are handled."""
        self._offsets[queue] = offset

    def move(self, queue: QueueKey, offset: int) -> None:
        """As in `OffsetStore`: what was committed before does not hold, so the next offset is committed in any case."""
        self._offsets[queue] = offset
        self._persisted.pop(queue, None)

    def told(self, queue: QueueKey, offset: int) -> None:
        """Its broker has an offset: it is not committed again, as another member may be farther by then."""
        self._persisted[queue] = offset

    def read(self, queue: QueueKey) -> int | None:
        """The offset that was updated last; None for none."""
        return self._offsets.get(queue)

    def remove(self, queue: QueueKey) -> None:
        """Forget a queue that another member has."""
        self._offsets.pop(queue, None)
        self._persisted.pop(queue, None)

    async def begin(self, queue: QueueKey) -> int:
        """Offset of the group in a queue."""
        return await self._group.begin_offset(queue, self.told)

    async def persist(self) -> None:
        """Commit what has changed; who else commits is waited for: all is kept when this returns."""
        async with self._turn:
            await self._persist()

    async def commit(self, offsets: Mapping[QueueKey, int]) -> None:
        """Commit offsets, whoever has their queues; errors as of `persist`, which commits its own again after that."""
        async with self._turn:
            try:
                await self._group.commit(offsets)
            finally:
                for queue in offsets:
                    self._persisted.pop(queue, None)

    async def _persist(self) -> None:
        changed = {queue: one for queue, one in self._offsets.items() if self._persisted.get(queue) != one}
        if not changed:
            return
        self._persisted |= changed  # before the answer: a queue that is moved meanwhile is committed again
        try:
            await self._group.commit(changed)
        except BaseException:
            for queue, one in changed.items():
                if self._persisted.get(queue) == one:
                    del self._persisted[queue]
            raise


class LocalFileOffsetStore:
    """Offsets of one broadcasting consumer, in a JSON file as Java's clients have it (`LocalFileOffsetStore`).

    Args:
        group: The consumer's group.
        path: The file. Two consumers at once must not have the same one.
    """

    def __init__(self, group: ConsumerGroup, path: str) -> None:
        self._group = group
        self._path = path
        self._offsets: dict[QueueKey, int] = {}
        self._is_changed = False
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, where there is one; raises ConfigError where it holds no offsets."""
        data = await asyncio.to_thread(_read, self._path)
        if data is None:
            return
        try:
            table = decode_queue_table(data, _MEMBER)
            self._offsets = {queue: int(offset) for queue, offset in table.items()}
        except (RemotingCommandError, TypeError, ValueError) as error:
            raise ConfigError(f"{self._path}: no offsets of a consumer: {error}; move the file away") from None

    def update(self, queue: QueueKey, offset: int) -> None:
        """All messages before an offset are handled."""
        self._is_changed |= self._offsets.get(queue) != offset
        self._offsets[queue] = offset

    move = update

    def read(self, queue: QueueKey) -> int | None:
        """The offset of a queue; None for none."""
        return self._offsets.get(queue)

    def remove(self, queue: QueueKey) -> None:
        """A queue that is gone may come back: its offset stays."""

    async def begin(self, queue: QueueKey) -> int:
        """Offset of this consumer in a queue."""
        offset = self._offsets.get(queue)
        return await self._group.first_offset(queue) if offset is None else offset

    async def persist(self) -> None:
        """Write the file anew, if an offset has changed since it was written."""
        async with self._turn:
            if not self._is_changed:
                return
            self._is_changed = False
            try:
                await _write_in_thread(self._path, encode_queue_tables({_MEMBER: self._offsets}))
            except BaseException:
                self._is_changed = True
                raise


async def _write_in_thread(path: str, data: bytes) -> None:
    """Write in a thread of its own: Python ends its pools with the main thread, also where other threads go on."""
    written: Future[None] = Future()
    written.set_running_or_notify_cancel()  # who waits may be cancelled, and the thread goes on

    def write() -> None:
        try:
            _write(path, data)
        except BaseException as error:
            written.set_exception(error)
        else:
            written.set_result(None)

    Thread(target=write, name="reput-offsets").start()
    await asyncio.wrap_future(written)


def _read(path: str) -> bytes | None:
    from reput.files import DISK  # here: other consumers do without the file layer

    return DISK.read_bytes(path) if DISK.exists(path) else None


def _write(path: str, data: bytes) -> None:
    from reput.files import DISK

    DISK.make_directories(os.path.dirname(path))
    DISK.write_atomically(path, data)


def local_offsets_path(group: str) -> str:
    """Default path of a broadcasting consumer's offsets: `~/.rocketmq_offsets/HOST/GROUP/offsets.json`."""
    return os.path.join(os.path.expanduser("~"), ".rocketmq_offsets", socket.gethostname(), group, "offsets.json")
