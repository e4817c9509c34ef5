"""A broker in memory that has transactions: half messages, their ends, and its questions to producers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from reput.client.producing.transactions import LocalTransactionState
from reput.formats.message import Message
from reput.formats.properties import PGROUP, TRAN_MSG, UNIQ_KEY, decode_properties
from reput.formats.record import encode_record
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import SendMessageResponseHeader, decode_send_header
from reput.remoting.transaction_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from reput.transport.connection import Connection
from tests.support.virtual.servers import HOST, Handler, ModelBroker

#: A half message is asked about after so many seconds, and again.
CHECK_S = 6.0


@dataclass
class _Half:
    """A half message, its producer's group, and when it was stored, or asked about."""

    queue: QueueKey
    message: Message
    group: str
    at: float


class TransactionBroker(ModelBroker):
    """A broker that has transactions; its half messages are in its log, whatever happens to it.

    Attributes:
        halves: By commit log offset: those whose end is not known.
        stored: The bodies of all that it has ever had.
        asks: Called after each question to a producer.
    """

    def _more_handlers(self) -> dict[int, Handler]:
        self.halves: dict[int, _Half] = {}
        self.stored: set[bytes] = set()
        self.asks: Callable[[], None] = lambda: None
        self._stored = 0
        self._groups: dict[str, set[str]] = {}  # of producers, by client id
        return {RequestCode.END_TRANSACTION: self._end}

    def _heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = json.loads(command.body)
        self._groups[body["clientID"]] = {one["groupName"] for one in body["producerDataSet"]}
        return super()._heartbeat(connection, command)

    def _send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_send_header(command.code, command.ext_fields)
        properties = decode_properties((header.properties or "").encode())
        if TRAN_MSG not in properties:
            return super()._send(connection, command)
        self._stored += 1
        self.stored.add(command.body)
        queue = QueueKey(header.topic, self.name, header.queue_id)
        key, group = properties[UNIQ_KEY], properties[PGROUP]
        message = Message(header.topic, command.body, unique_key=key, properties={PGROUP: group, TRAN_MSG: "true"})
        self.halves[self._stored] = _Half(queue, message, group, self._loop.time())
        answer = SendMessageResponseHeader(f"{self._stored:032X}", queue.queue_id, self._stored, key)
        return command.response(ext_fields=encode_header(answer))

    def _end(self, _: Connection, command: RemotingCommand) -> None:
        header = decode_header(EndTransactionRequestHeader, command.ext_fields)
        if header.commit_or_rollback == LocalTransactionState.UNKNOW:
            return
        half = self.halves.pop(header.commit_log_offset, None)
        if half is not None and header.commit_or_rollback == LocalTransactionState.COMMIT_MESSAGE:
            self.put(half.queue, Message(half.queue.topic, half.message.body))

    async def ask_all(self) -> None:
        """Ask how transactions ended, again and again."""
        while True:
            await asyncio.sleep(1.0)
            now = self._loop.time()
            for number, half in list(self.halves.items()):
                if self.is_up and now >= half.at + CHECK_S and (known := self._producers_of(half)):
                    half.at = now
                    self._ask(self._chance.choice(known), number, half)

    def _producers_of(self, half: _Half) -> list[str]:
        return sorted(one for one in self.producers if half.group in self._groups[one])

    def _ask(self, client_id: str, number: int, half: _Half) -> None:
        key = half.message.unique_key
        header = CheckTransactionStateRequestHeader(number, number, half.queue.topic, key, key, f"{number:032X}")
        record = encode_record(
            half.message, queue_id=half.queue.queue_id, queue_offset=number, commit_log_offset=number,
            store_timestamp=0, store_host=HOST, born_timestamp=0, born_host=HOST,
        )  # fmt: skip
        fields = encode_header(header) | {"bname": self.name}
        self.producers[client_id].send_one_way(
            RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields, body=record)
        )
        self.asks()
