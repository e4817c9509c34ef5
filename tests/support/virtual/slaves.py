"""A slave in memory: it has its master's log up to a lag, and serves members of groups by RocketMQ's rules."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from reput.client.instance.topic_route import MASTER_ID
from reput.remoting.codes import PullSysFlag, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.pull_headers import PullMessageRequestHeader
from reput.remoting.queue_tables import QueueKey
from reput.transport.connection import Connection
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.servers import ModelBroker

SLAVE_ID = 1


class ModelSlave(ModelBroker):
    """Slave of a broker: reput's, which has the rules of RocketMQ 5, or one of RocketMQ 4.

    It takes pulls, offsets and heartbeats, and refuses what puts a message. A reader without a message is sent to the
    master, or waits while that is away. A slave of RocketMQ 4 lets it wait while the master is there, too, but for a
    reader beyond its end; it keeps no offset that comes with a pull, and takes the master's offsets whatever it has.

    Args:
        knows_master: Whether the name server has the master.

    Attributes:
        is_old: It is one of RocketMQ 4.
        lag_s: Seconds between two copies.
        offsets_s: Seconds between two copies of offsets, at least.
        is_copying: It is connected to its master.
        far: A reader so many messages behind is served here, as no memory holds them.
        served: How often it has given messages.
        asked_to_lock: Locks are the master's alone: how often this one was asked.
    """

    def __init__(
        self, loop: VirtualLoop, master: ModelBroker, address: str, chance: random.Random,
        knows_master: Callable[[], bool],
    ) -> None:  # fmt: skip
        super().__init__(loop, master.name, address, chance, master.group, ())
        self.topics = master.topics
        self.is_old = chance.random() < 0.3
        self.lag_s = chance.choice((0.01, 0.3, 3.0))
        self.offsets_s = chance.choice((5.0, 5.0, 60.0))
        self.is_copying = True
        self.far = chance.choice((1, 20, 10_000))
        self.served = self.asked_to_lock = 0
        self.suggests = lambda behind: SLAVE_ID if behind >= self.far else MASTER_ID
        master.suggests = lambda behind: self.suggests(behind) if self.is_up else MASTER_ID
        self._master = master
        self._knows_master = knows_master
        self._copied: dict[QueueKey, int] = {}
        self._copied_in_file: dict[QueueKey, int] = {}
        self._copied_at = -1e9

    def kill(self) -> None:
        """As of a broker; it keeps its log, and the offsets that are in its file."""
        super().kill()
        self._copied = dict(self._copied_in_file)

    def _to_file(self) -> None:
        before = self._in_file_at
        super()._to_file()
        if self._in_file_at != before:
            self._copied_in_file = dict(self._copied)

    # -- what is copied

    async def copy_all(self) -> None:
        """Copy the master again and again."""
        while True:
            await asyncio.sleep(self.lag_s)
            if self.is_up and self.is_copying and self._master.is_up:
                self._copy_log()
                if self._loop.time() >= self._copied_at + self.offsets_s:
                    self._copied_at = self._loop.time()
                    self._copy_offsets()

    @property
    def is_whole(self) -> bool:
        """Whether it has all messages of its master."""
        return all(self.end(queue) == self._master.end(queue) for queue in self._master.records)

    def _copy_log(self) -> None:
        for queue, theirs in self._master.records.items():
            ours = self.records.setdefault(queue, [])
            if len(ours) < len(theirs):
                ours += theirs[len(ours) :]
                self._arrived(queue)

    def _copy_offsets(self) -> None:
        """As `ConsumerOffsetManager.copy`; one of RocketMQ 4 does not look at what it has (`syncConsumerOffset`)."""
        self._to_file()
        for queue, offset in self._master.offsets.items():
            before, ours = self._copied.get(queue), self.offsets.get(queue)
            self._copied[queue] = offset
            is_ours = ours is not None and ours != before and (before is None or offset >= before)
            self.offsets[queue] = max(offset, ours or 0) if is_ours and not self.is_old else offset

    # -- requests

    def _refuse(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.response(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")

    _send = _send_back = _refuse

    def _lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.asked_to_lock += 1
        return super()._lock(connection, command)

    async def _pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_header(PullMessageRequestHeader, command.ext_fields)
        queue, offset = QueueKey(header.topic, self.name, header.queue_id), header.queue_offset
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET and not self.is_old:
            assert header.commit_offset is not None
            self._commit(queue, header.commit_offset, connection)
        if not self._sends_away(queue, offset) and offset >= self.end(queue) and header.sys_flag & PullSysFlag.SUSPEND:
            await self._hold(queue, header)
        if found := self._found(queue, header):
            self.served += 1
            return self._pulled(command, ResponseCode.SUCCESS, queue, offset + len(found), b"".join(found))
        is_away = self._sends_away(queue, offset)
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if is_away else ResponseCode.PULL_NOT_FOUND
        return self._pulled(command, code, queue, offset)

    def _sends_away(self, queue: QueueKey, offset: int) -> bool:
        """Whether a reader without a message is sent to the master at once."""
        return offset > self.end(queue) if self.is_old else self._knows_master()
