"""RowSender: rows of an Arrow table to brokers, a thread for each broker."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from threading import Event

import pyarrow as pa

from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.namespaces import Namespace
from reput.client.producing.batch_sender import BatchSender
from reput.client.producing.mq_fault_strategy import FAILED_S, MQFaultStrategy, may_pass
from reput.client.producing.row_batches import RESULTS, RowBatch, RowChunk, SentTable, StoredBatch
from reput.errors import MessageIllegalError, MQClientError, RemotingError, ReputError
from reput.formats.properties import INSTANCE_ID, encode_properties
from reput.formats.unique_id import UniqueIds
from reput.remoting.queue_tables import QueueKey
from reput.transport.tls import ClientTls

_Waiting = Mapping[QueueKey, deque[RowBatch]]


async def send_rows(
    client: ClientInstance,
    faults: MQFaultStrategy,
    table: pa.Table | pa.RecordBatch,
    namespace: Namespace,
    *,
    tls: ClientTls | None,
    group: str,
    timeout_s: float,
    attempts: int,
) -> pa.Table:
    """See `Producer.send_arrow`, and for the arguments `RowSender`."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise MessageIllegalError(
            f"send_arrow takes a pyarrow Table or RecordBatch, not {type(table).__name__}; pa.Table.from_pandas and "
            "pa.table make one"
        )
    rows = await asyncio.to_thread(SentTable, table, namespace)
    sender = RowSender(
        client, faults, rows, tls=tls, group=group, instance_id=namespace.name, timeout_s=timeout_s, attempts=attempts
    )
    return await sender.send()


class RowSender:
    """Sends the rows of one table.

    Args:
        client: Knows where the brokers are.
        faults: Which of them answer.
        rows: What is sent.
        tls: How to talk TLS; None for the plain protocol.
        group: The producer's, as brokers know it.
        instance_id: Name of the namespace, or none.
        timeout_s: How long a broker may take for its next answer.
        attempts: How often a batch is sent at most.
    """

    def __init__(
        self,
        client: ClientInstance,
        faults: MQFaultStrategy,
        rows: SentTable,
        *,
        tls: ClientTls | None,
        group: str,
        instance_id: str,
        timeout_s: float,
        attempts: int,
    ) -> None:
        self._client = client
        self._faults = faults
        self._rows = rows
        self._tls = tls
        self._group = group
        self._properties = encode_properties([(INSTANCE_ID, instance_id)]).decode() if instance_id else ""
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._ids = UniqueIds(secrets.token_bytes(8), os.getpid())
        self._stop = Event()
        self._senders: dict[str, BatchSender] = {}

    async def send(self) -> pa.Table:
        """Send all rows; returns where they are, see `RESULTS`. Errors as of `Producer.send_arrow`."""
        results: list[pa.Table] = []
        chunks = self._rows.chunks()
        try:
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                results.append(await self._send_chunk(chunk))
        except ReputError as error:
            error.stored_messages = sum(map(len, results))
            raise
        finally:
            for sender in self._senders.values():
                sender.close()
        return pa.concat_tables([RESULTS.empty_table(), *results])

    async def _send_chunk(self, chunk: RowChunk) -> pa.Table:
        queues = await self._queues()
        turn, now_ms = secrets.randbelow(1 << 16), self._client.now_ms()
        waiting: _Waiting = await asyncio.to_thread(chunk.batches, queues, turn=turn, ids=self._ids, now_ms=now_ms)
        stored: list[StoredBatch] = []
        reasons: list[str] = []
        for _ in range(self._attempts):
            errors = await self._send_waiting(waiting, stored)
            if not errors:
                return await asyncio.to_thread(chunk.results, stored)
            for error in errors:
                if not may_pass(error):
                    raise error
                reasons.append(str(error))
            waiting = await self._again(waiting)
        left = sum(one.end - one.begin for batches in waiting.values() for one in batches)
        told = "; ".join(dict.fromkeys(reasons))
        found = MQClientError(f"{left} of {chunk.rows} rows were not sent after {self._attempts} attempts: {told}")
        found.retriable = True
        raise found

    async def _queues(self) -> dict[str, tuple[QueueKey, ...]]:
        """The queues to send to, by topic: if rows do not name theirs, only of brokers that answer, if some do."""
        now = asyncio.get_running_loop().time()
        found = {}
        for topic in self._rows.topics:
            queues = await self._client.routes.publish_queues(topic)
            good = tuple(queue for queue in queues if self._faults.is_available(queue.broker_name, now))
            found[topic] = queues if self._rows.have_queues or not good else good
        return found

    async def _send_waiting(self, waiting: _Waiting, stored: list[StoredBatch]) -> list[RemotingError]:
        """Send what waits, to all brokers at a time; why some of it still waits."""
        errors: list[RemotingError] = []
        work = []
        for name, queues in _by_broker(waiting):
            try:
                address = self._client.master(name)
            except RemotingError as error:
                errors.append(error)
            else:
                work.append((name, asyncio.to_thread(self._sender(address).send, queues, stored)))
        together = asyncio.gather(*(one for _, one in work))
        try:
            answers = await asyncio.shield(together)
        except asyncio.CancelledError:
            self._stop.set()
            await together  # the threads end with the answers that are under way
            raise
        for (name, _), found in zip(work, answers, strict=True):
            if found:
                loop = asyncio.get_running_loop()
                self._faults.sent(name, FAILED_S, loop.time())
            errors += found
        return errors

    def _sender(self, address: str) -> BatchSender:
        if address not in self._senders:
            self._senders[address] = BatchSender(
                address, self._client.api, self._tls, group=self._group, properties=self._properties,
                timeout_s=self._timeout_s, stop=self._stop,
            )  # fmt: skip
        return self._senders[address]

    async def _again(self, waiting: _Waiting) -> _Waiting:
        """Batches that still wait, by the queue of their next send: their own queue if the rows name it."""
        left: dict[QueueKey, deque[RowBatch]] = {}
        for queue, batches in waiting.items():
            if batches:
                await self._client.routes.renew(queue.topic)
            for batch in batches:
                queue = batch.queue
                if not self._rows.have_queues:
                    queues = await self._client.routes.publish_queues(queue.topic)
                    queue = self._faults.select(queues, (), asyncio.get_running_loop().time())
                left.setdefault(queue, deque()).append(batch._replace(queue=queue))
        return left


def _by_broker(waiting: _Waiting) -> Iterator[tuple[str, list[deque[RowBatch]]]]:
    names = dict.fromkeys(queue.broker_name for queue, batches in waiting.items() if batches)
    for name in names:
        yield name, [batches for queue, batches in waiting.items() if queue.broker_name == name]
