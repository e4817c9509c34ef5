"""BatchSender: batches to one broker, in one thread; of each queue one after the other, of all queues at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Event

from reput.client.instance.mq_client_api import MQClientAPI, decoded, send_status
from reput.client.instance.send_request import SendRequest
from reput.client.producing.mq_fault_strategy import may_be_too_large
from reput.client.producing.row_batches import RowBatch, StoredBatch
from reput.errors import MQBrokerError, RemotingError
from reput.remoting.command import RemotingCommand
from reput.remoting.send_headers import SendMessageResponseHeader
from reput.transport.blocking_client import BlockingConnection
from reput.transport.tls import ClientTls

#: Bytes of batches under way at most, but for one that is larger: who sends does not read answers meanwhile.
_MOST_BYTES = 4 << 20


class BatchSender:
    """Sends to one broker.

    Args:
        address: "host:port" of the broker.
        api: Makes a request what is sent: signed, for one.
        tls: How to talk TLS; None for the plain protocol.
        group: The producer's.
        properties: Of each batch, as text.
        timeout_s: How long the next answer may take.
        stop: No batch is sent once it is set.
    """

    def __init__(
        self,
        address: str,
        api: MQClientAPI,
        tls: ClientTls | None,
        *,
        group: str,
        properties: str,
        timeout_s: float,
        stop: Event,
    ) -> None:
        self.address = address
        self._api = api
        self._tls = tls
        self._group = group
        self._properties = properties
        self._timeout_s = timeout_s
        self._stop = stop
        self._connection: BlockingConnection | None = None

    def close(self) -> None:
        """Close the connection; the next send makes another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, queues: Iterable[deque[RowBatch]], stored: list[StoredBatch]) -> list[RemotingError]:
        """Send the batches of queues, each queue's in their order.

        Args:
            queues: A batch is taken out once it is stored.
            stored: Gets the stored ones.

        Returns:
            Why some are left: what the broker refused, or why it did not answer.
        """
        errors: list[RemotingError] = []
        try:
            if self._connection is None:
                self._connection = BlockingConnection(self.address, self._tls)
            self._send(self._connection, queues, stored, errors)
        except RemotingError as error:
            self.close()
            errors.append(error)
        return errors

    def _send(
        self,
        connection: BlockingConnection,
        queues: Iterable[deque[RowBatch]],
        stored: list[StoredBatch],
        refusals: list[RemotingError],
    ) -> None:
        ready = deque(queue for queue in queues if queue)
        sent: dict[int, deque[RowBatch]] = {}
        under_way = 0  # bytes
        while True:
            going: list[deque[RowBatch]] = []
            while ready and not self._stop.is_set():
                size = len(ready[0][0].body)
                if (sent or going) and under_way + size > _MOST_BYTES:
                    break
                going.append(ready.popleft())
                under_way += size
            opaques = connection.send(*[self._command(queue[0]) for queue in going], timeout_s=self._timeout_s)
            sent.update(zip(opaques, going, strict=True))
            if not sent:
                return
            for answer in connection.answers(self._timeout_s):
                queue = sent.pop(answer.opaque, None)
                if queue is None:  # an answer to nothing
                    continue
                under_way -= len(queue[0].body)
                try:
                    stored.append(self._stored(queue[0], answer))
                except MQBrokerError as error:
                    if queue[0].end - queue[0].begin > 1 and may_be_too_large(error):
                        queue.extendleft(reversed(queue.popleft().halves()))
                        ready.append(queue)
                        continue
                    # And no more of this queue: its order would change.
                    refusals.append(error)
                    continue
                queue.popleft()
                if queue:
                    ready.append(queue)

    def _command(self, batch: RowBatch) -> RemotingCommand:
        queue, body = batch.queue, bytes(batch.body)
        request = SendRequest(queue.topic, (), 0, 0, batch.born_timestamp, body, self._properties, is_batch=True)
        return self._api.prepared(request.command(self._group, queue))

    def _stored(self, batch: RowBatch, answer: RemotingCommand) -> StoredBatch:
        status = send_status(self.address, answer)
        header = decoded(self.address, SendMessageResponseHeader, answer.ext_fields)
        return StoredBatch(batch, status, header.queue_id, header.queue_offset)
