"""Locks of queues, for those who consume in order (`AdminBrokerProcessor`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import decode_beside, is_large
from reput.remoting.body import decode_body, encode_body
from reput.remoting.client_bodies import LockBatchBody, MessageQueue
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.service.rebalance_lock_manager import RebalanceLockManager
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: Group, client id, and by their keys the queues that are meant.
_Locks = tuple[str, str, dict[tuple[str, str, int], MessageQueue]]


class RebalanceLockProcessor:
    """Takes LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, clock: BrokerClock, pools: DiskPools, locks: RebalanceLockManager[tuple[str, str, int]]) -> None:
        self._clock, self._pools, self._locks = clock, pools, locks

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock_batch, RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch}

    def clean(self) -> None:
        """Forget the locks that nobody has renewed in time."""
        self._locks.clean(self._clock.machine_ms())

    def lock_batch(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Lock queues for a client; the answer names those that it holds now."""
        if is_large(command):
            return self._large_lock(connection, command)
        return command.response(body=self._lock(_decode_locks(command.body))())

    async def _large_lock(self, connection: Channel, command: RemotingCommand) -> Answer:
        body = await decode_beside(self._pools, connection, _decode_locks, command)
        return command.response(body=await self._pools.reads.run_for(connection, self._lock(body)))

    def _lock(self, body: _Locks) -> Callable[[], bytes]:
        """Lock queues for a client; returns what encodes the answer's body."""
        group, client_id, asked = body
        held = self._locks.try_lock_batch(group, asked, client_id, self._clock.machine_ms())
        return lambda: encode_body({"lockOKMQSet": [asked[key] for key in held]})

    def unlock_batch(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Free queues that a client holds."""
        if is_large(command):
            return self._large_unlock(connection, command)
        return self._unlock(command, _decode_locks(command.body))

    async def _large_unlock(self, connection: Channel, command: RemotingCommand) -> Answer:
        return self._unlock(command, await decode_beside(self._pools, connection, _decode_locks, command))

    def _unlock(self, command: RemotingCommand, body: _Locks) -> Answer:
        group, client_id, asked = body
        self._locks.unlock_batch(group, asked, client_id)
        return command.response()


def _decode_locks(body: bytes) -> _Locks:
    found = decode_body(LockBatchBody, body)
    queues = {(queue.topic, queue.broker_name, queue.queue_id): queue for queue in found.mq_set}
    return found.consumer_group, found.client_id, queues
