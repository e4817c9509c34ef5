"""TransactionalOpBatchService: writes which half messages have ended, many in one op message."""

from __future__ import annotations

import asyncio
import logging

from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.clock import BrokerClock
from reput.broker.view import BrokerView
from reput.errors import ReputError
from reput.events import Event
from reput.formats.op_message import OP_PROPERTIES, op_body
from reput.log.store_host import encode_store_host
from reput.remoting.topic_validator import TRANS_OP_HALF_TOPIC
from reput.service.transactional_message import OpBatches
from reput.store.message_store import MessageStore

logger = logging.getLogger("reput.broker")


class TransactionalOpBatchService:
    """Lets ended half messages wait for an op message, which is written when it is full or its time has come.

    What waits is lost with the process, as RocketMQ loses it: then the producers are asked again.
    """

    def __init__(self, view: BrokerView, clock: BrokerClock, store: MessageStore, appends: Appends) -> None:
        self._clock, self._appends = clock, appends
        self._interval_s = view.config.transaction_op_batch_interval / 1000
        self._batches = OpBatches(view.config.transaction_op_msg_max_size)
        self._host = encode_store_host(store.config)
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ending = self._batches.is_ending

    def delete_prepare_message(self, queue_id: int, queue_offset: int) -> None:
        """A half message has ended, and its message is in the log, if it has one."""
        if not self._batches.add(queue_id, queue_offset):
            logger.error(Event("too many ended transactions wait; a producer is asked again", offset=queue_offset))
        elif self._batches.queues(full=True):
            self._begin(full=True)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self._begin(full=False)

    def _begin(self, *, full: bool) -> None:
        if not self._writing.locked() or not full:
            task = asyncio.get_running_loop().create_task(self._write(full=full))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, *, full: bool) -> None:
        """Write the op messages that are full, or all."""
        async with self._writing:
            while queues := self._batches.queues(full=full):
                queue_id = queues[0]
                offsets = self._batches.first(queue_id)
                message = MessageExtBrokerInner(
                    TRANS_OP_HALF_TOPIC, queue_id, op_body(offsets), dict(OP_PROPERTIES), 0, 0, self._clock.now_ms(),
                    self._host,
                )  # fmt: skip
                try:
                    stored = await self._appends.append(message)
                    await self._appends.safe(stored.end_offset)
                except ReputError as error:
                    logger.error(Event("ends of transactions were not written", count=len(offsets), error=error))
                    return
                self._batches.written(queue_id, offsets)

    async def stop(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._write(full=False)
