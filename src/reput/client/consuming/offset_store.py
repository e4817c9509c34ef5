"""Offset stores: keep how far a group is, at its brokers or in a file of each broadcasting consumer (`OffsetStore`)."""

from __future__ import annotations

import asyncio
import os
import socket
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Thread

from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.process_queue import ProcessQueue
from reput.client.instance.peer_log import peers
from reput.errors import ConfigError, MQBrokerError, RemotingCommandError, RemotingError, ReputError
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables
from reput.remoting.topic_validator import TOOLS_GROUP

_MEMBER = "offsetTable"
#: A member looks at its group after 20 s at most, and has its answer soon. Java's clients tell each offset every 5 s.
_ALONE_S = 30.0


class OffsetStore(ABC):
    """Keeps the offsets of a consumer's queues, which are in memory until they are persisted (`OffsetStore`)."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @abstractmethod
    async def begin(self, one: ProcessQueue) -> int:
        """Offset at which to go on in a queue; raises RemotingError if the queue's broker does not return it."""

    @abstractmethod
    async def persist(self, broker_name: str | None = None) -> None:
        """Keep what has changed, of one broker's queues at least; who else persists is waited for.

        All is kept when this returns. Raises MQClientError if a broker does not take an offset, StoreError if a disk
        does not.
        """

    async def _persist(self, broker_name: str = "") -> None:
        """Keep what has changed of one broker's queues, or of all; errors as of `_keep`."""
        async with self._turns[broker_name]:
            now = asyncio.get_running_loop().time()
            ours = [
                one for one in self._group.queues
                if broker_name in ("", one.queue.broker_name) and one.may_commit(now)
            ]  # fmt: skip
            known = [(one, one.offset) for one in ours if one.offset is not None]
            changed = [(one, offset) for one, offset in known if offset != one.told_offset or not self._is_sure(one)]
            if not changed:
                return
            for one, offset in changed:  # before the answer: a queue that is moved meanwhile is told again
                one.told_offset, one.is_told_here = offset, True
            try:
                await self._keep(changed)
            except BaseException:
                for one, offset in changed:
                    if one.told_offset == offset:
                        one.told_offset = None
                raise
            for one, offset in changed:
                one.is_moved &= one.told_offset != offset

    def _is_sure(self, one: ProcessQueue) -> bool:
        """Whether the offset of a queue that was sent last is kept."""
        return True

    @abstractmethod
    async def _keep(self, changed: Sequence[tuple[ProcessQueue, int]]) -> None:
        """Keep offsets, of one broker's queues or of all."""


async def persist_or_tell(offsets: OffsetStore, group: ConsumerGroup, broker_name: str | None = None) -> None:
    """Keep what has changed, or log why not: the next time keeps it. Arguments as of `OffsetStore.persist`."""
    try:
        await offsets.persist(broker_name)
    except ReputError as error:
        peers.failed("offsets were not kept", error, group=group.name)


class RemoteBrokerOffsetStore(OffsetStore):
    """Offsets of the group, at the brokers of its queues (`RemoteBrokerOffsetStore`)."""

    async def begin(self, one: ProcessQueue) -> int:
        """Offset of the group in a queue; its broker has it, so it is not sent: another member may be farther by then.

        The group of tools commits nothing, and a broker answers 0 for a group that is new.
        """
        group, queue = self._group, one.queue
        one.asked_at, one.is_told_here = asyncio.get_running_loop().time(), False
        is_tool = group.name == TOOLS_GROUP
        one.told_offset = None if is_tool else await group.committed(queue)
        return await group.first_offset(queue) if one.told_offset is None else one.told_offset

    def _is_sure(self, one: ProcessQueue) -> bool:
        """False while the queue's member before may not know that it is another's, and commit after this one.

        And at a slave: RocketMQ's takes its master's offsets over those that it has, while its master is there.
        """
        if self._group.client.routes.master(one.queue.broker_name) is None:
            return False
        is_alone = one.asked_at is None or asyncio.get_running_loop().time() >= one.asked_at + _ALONE_S
        return is_alone or not one.is_told_here

    async def commit(self, offsets: Mapping[QueueKey, int]) -> None:
        """Commit offsets, whoever has their queues; errors as of `persist`, which commits its own again after that."""

        async def commit(broker_name: str) -> None:
            given = sorted(queue for queue in offsets if queue.broker_name == broker_name)
            async with self._turns[broker_name]:
                try:
                    for queue in given:
                        await self._group.commit(queue, offsets[queue])
                finally:
                    for queue in given:
                        if (one := self._group.queues.get(queue)) is not None:
                            one.told_offset = None

        await self._group.commit_at_each({queue.broker_name for queue in offsets}, commit)

    async def persist(self, broker_name: str | None = None) -> None:
        """As in `OffsetStore`: at each broker by itself."""
        names = {one.queue.broker_name for one in self._group.queues} if broker_name is None else {broker_name}
        self._group.look_at_connections()
        await self._group.commit_at_each(names, self._persist)

    async def _keep(self, changed: Sequence[tuple[ProcessQueue, int]]) -> None:
        refusal: MQBrokerError | None = None
        for one, offset in sorted(changed, key=lambda known: known[0].queue):
            await self._group.connect(one.queue)
            if one.told_offset != offset:
                continue  # it was moved or left since then: another member may be farther by now
            is_given_up = not (one.is_wanted or one.is_moved)
            try:
                await self._group.commit(one.queue, offset)
            except MQBrokerError as error:  # of this queue, as of a topic that was deleted: others are committed
                refusal = refusal or error
            except RemotingError:
                if is_given_up and one.told_offset == offset:  # no operator has moved it meanwhile
                    one.forget()  # the broker may have it, and by the next time another member's
                raise
        if refusal is not None:
            raise refusal


class LocalFileOffsetStore(OffsetStore):
    """Offsets of one broadcasting consumer, in a JSON file as Java's clients have it (`LocalFileOffsetStore`).

    They stay when a queue is gone: it may come back.

    Args:
        group: The consumer's group.
        path: The file. Two consumers at once must not have the same one.
    """

    def __init__(self, group: ConsumerGroup, path: str) -> None:
        super().__init__(group)
        self._path = path

    async def load(self) -> None:
        """Read the file, if there is one; raises ConfigError if it holds no offsets."""
        data = await asyncio.to_thread(_read, self._path)
        if data is None:
            return
        try:
            table = decode_queue_table(data, _MEMBER)
            offsets = {queue: int(offset) for queue, offset in table.items()}
        except (RemotingCommandError, TypeError, ValueError) as error:
            raise ConfigError(f"{self._path}: no offsets of a consumer: {error}; move the file away") from None
        for queue, offset in offsets.items():
            one = self._group.queues.known(queue)
            one.offset = one.told_offset = offset

    async def begin(self, one: ProcessQueue) -> int:
        """Offset of this consumer in a queue."""
        return await self._group.first_offset(one.queue) if one.offset is None else one.offset

    async def persist(self, broker_name: str | None = None) -> None:
        """As in `OffsetStore`: the file has the offsets of all queues."""
        await self._persist()

    async def _keep(self, changed: Sequence[tuple[ProcessQueue, int]]) -> None:
        offsets = {one.queue: one.offset for one in self._group.queues if one.offset is not None}
        await _write_in_thread(self._path, encode_queue_tables({_MEMBER: offsets}))


async def _write_in_thread(path: str, data: bytes) -> None:
    """Write in a thread of its own: Python ends its pools with the main thread, also if other threads go on."""
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
