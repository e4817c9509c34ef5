"""Pulls of one range of a queue, several of them under way at a time, and their records as Arrow."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from reput.client.consuming.arrow_messages import pulled_rows
from reput.client.consuming.consumer_api import PULL_S, PullResult, pull_fields, pull_result, pulled_from
from reput.client.producing.mq_fault_strategy import may_pass
from reput.errors import DataLossError, RemotingError
from reput.events import Event
from reput.log.reads.batches import record_batches
from reput.log.selection import Selection
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.subscription_data import SubscriptionData
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.queue_ranges import QueueRange
from reput.transport.blocking_client import BlockingConnection

logger = logging.getLogger("reput.spark")

#: Messages that a pull asks for; brokers give what `maxTransferCountOnMessageInMemory` allows, 32 by default.
_COUNT = 1024
#: Pulls under way, and bytes of their answers at most. Each whole answer doubles their number up to that: an answer
#: that is short makes the others useless.
_DEPTH, _AHEAD_BYTES = 64, 4 << 20
#: Bytes of pulls that are decoded in one call.
_BLOCK_BYTES = 4 << 20
_ATTEMPTS, _AGAIN_S = 3, 1.0


class Pulls:
    """Pulls of a range, in its order.

    Args:
        cluster: Knows the broker.
        group: Who pulls.
        wanted: The range.
        lost: Called when messages of the range are gone, with what is lost; raises, or returns to go on after them.
    """

    def __init__(self, cluster: Cluster, group: str, wanted: QueueRange, lost: Callable[[DataLossError], None]) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._lost = lost
        self._fields = pull_fields(group, wanted.queue, SubscriptionData(wanted.queue.topic))
        self._offset = wanted.begin
        self._sent: deque[tuple[int, int]] = deque()  # number of the request, and the offset after its messages
        self._ahead = wanted.begin
        self._count, self._depth = _COUNT, 1
        self._address = ""
        self._connection: BlockingConnection | None = None

    def bodies(self) -> Iterator[bytes]:
        """Records, one after the other, in blocks of some megabytes.

        The first and the last may hold messages beside the range. Raises RemotingError if the broker does not answer
        again and again, or is busy, MQBrokerError if it refuses.
        """
        bodies: list[bytes] = []
        size = failures = 0
        while self._offset < self._wanted.end:
            try:
                bodies.append(self._next())
                size += len(bodies[-1])
                failures = 0
            except RemotingError as error:
                failures += 1
                if failures == _ATTEMPTS or not may_pass(error):
                    raise
                logger.warning(Event("a pull failed", queue=self._wanted.queue, offset=self._offset, error=error))
                self._begin_again()
                time.sleep(_AGAIN_S)
            if size >= _BLOCK_BYTES:
                yield b"".join(bodies)
                bodies, size = [], 0
        if bodies:
            yield b"".join(bodies)

    def _begin_again(self) -> None:
        """Take another connection, to whichever broker has the queue now."""
        self._cluster.drop(self._address)
        self._cluster.forget_route(self._wanted.queue.topic)
        self._connection = None
        self._sent.clear()
        self._ahead, self._count, self._depth = self._offset, _COUNT, 1

    def _next(self) -> bytes:
        """The records of the next pull."""
        if self._connection is None:
            self._address = self._cluster.address(self._wanted.queue)
            self._connection = self._cluster.open(self._address)
        connection = self._connection
        if len(self._sent) <= self._depth // 2:  # several at once: a write costs more than its requests
            self._ask(connection)
        opaque, after = self._sent.popleft()
        result = pull_result(self._address, connection.answer(opaque, PULL_S))
        following = result.next_begin_offset if result.body else self._after_loss(result)
        if following <= self._offset:
            raise RemotingError(f"{self._address}: the messages after {self._offset} end at {following}")
        if following == after:
            self._depth = min(2 * self._depth, _DEPTH, max(_AHEAD_BYTES // max(len(result.body), 1), 2))
        else:  # what was asked ahead does not join: the broker gives less than was asked for
            for opaque, _ in self._sent:
                connection.answer(opaque, PULL_S)
            self._sent.clear()
            self._ahead = following
            if result.body and self._depth == 1:
                self._count, self._depth = following - self._offset, 2  # so many it gives at a time
            else:
                self._count, self._depth = _COUNT, 1
        self._offset = following  # last: after an error above, the same messages are pulled again
        return result.body

    def _ask(self, connection: BlockingConnection) -> None:
        """Send pulls until enough are under way."""
        commands: list[RemotingCommand] = []
        afters: list[int] = []
        while self._ahead < self._wanted.end and len(self._sent) + len(commands) < self._depth:
            count = min(self._count, self._wanted.end - self._ahead)
            fields = self._fields | pulled_from(self._ahead, count)
            commands.append(self._cluster.prepared(RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)))
            self._ahead += count
            afters.append(self._ahead)
        if commands:
            self._sent += zip(connection.send(*commands), afters, strict=True)

    def _after_loss(self, result: PullResult) -> int:
        """Offset after an answer without the messages that were there when the range was planned."""
        wanted, offset = self._wanted, self._offset
        if result.max_offset < wanted.end and not self._cluster.has_master(wanted.queue):
            raise RemotingError(f"{self._address}: a slave that lags: its queue ends at {result.max_offset}")
        following = max(result.next_begin_offset, result.min_offset)
        following = min(following, wanted.end) if following > offset else wanted.end
        self._lost(
            DataLossError(
                f"{wanted.queue.topic}, queue {wanted.queue.queue_id} of {wanted.queue.broker_name}: messages {offset} "
                f"to {following - 1} were there when they were planned, and are not now (the queue has "
                f"{result.min_offset} to {result.max_offset - 1})"
            )
        )
        return following


def batches(
    pulls: Pulls, wanted: QueueRange, selection: Selection, left_out: Callable[[str, int, int], None]
) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a range, with the columns of a selection.

    Args:
        pulls: Of this range.
        wanted: The range.
        selection: Has the column `queue_offset`.
        left_out: As of `pulled_rows`.
    """
    for body in pulls.bodies():
        for rows in pulled_rows(body, left_out):
            for batch in record_batches(selection.select(rows), selection):
                offsets = batch["queue_offset"]
                inside = pc.and_(pc.greater_equal(offsets, wanted.begin), pc.less(offsets, wanted.end))
                yield batch if pc.all(inside).as_py() is not False else batch.filter(inside)
