"""Replies: a consumer answers the producer that asked, through the broker (`ReplyMessageProcessor`)."""

from __future__ import annotations

import logging

from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner, sent_properties, write_properties
from reput.broker.broker_to_client import BrokerToClient
from reput.broker.clock import BrokerClock
from reput.broker.sends.send_message_processor import SendMessageProcessor
from reput.broker.view import BrokerView
from reput.errors import RemotingError, ReputError
from reput.events import Event
from reput.formats.hosts import decode_host
from reput.formats.properties import INNER_NUM, PUSH_REPLY_TIME, REPLY_TO_CLIENT
from reput.formats.record_layout import SysFlag
from reput.log.store_host import encode_store_host
from reput.remoting.client_call_headers import ReplyMessageRequestHeader
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.send_headers import SendMessageRequestHeader, SendMessageResponseHeader, decode_send_header
from reput.service.producer_manager import ProducerManager
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRowResult
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

REPLY_CODES = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2


class ReplyMessageProcessor:
    """Takes SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: pushes the reply to its client, and stores it.

    Args:
        view, clock, store, producers, appends: The broker's.
        sends: Checks what is sent.
        clients: Calls them.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        store: MessageStore,
        producers: ProducerManager[Channel],
        appends: Appends,
        sends: SendMessageProcessor,
        clients: BrokerToClient,
    ) -> None:
        self._view, self._clock, self._producers, self._appends = view, clock, producers, appends
        self._sends = sends
        self._clients = clients
        self._store_host = decode_host(encode_store_host(store.config))

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return dict.fromkeys(REPLY_CODES, self.reply)

    async def reply(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Take one reply; if its client did not get it, it is stored all the same, and the answer says both."""
        header = decode_send_header(command.code, command.ext_fields)
        refusal = self._sends.refusal(command, header)
        if refusal is not None:
            return refusal
        topic = await self._sends.topic(command, header)
        if isinstance(topic, RemotingCommand):
            return topic
        queue_id = self._sends.queue_id(connection, command, header, topic)
        if isinstance(queue_id, RemotingCommand):
            return queue_id
        properties = sent_properties(header.properties) | self._sends.ext
        failure = await self._push(connection, command, header, properties)
        stored = None
        if self._view.config.store_reply_message_enable:
            stored = await self._store(connection, command, header, queue_id, properties)
        if stored is not None:
            where = encode_header(SendMessageResponseHeader(stored.message_id, queue_id, stored.queue_offset))
        else:
            where = {} if failure else encode_header(SendMessageResponseHeader("0", queue_id, 0))
        code = ResponseCode.SYSTEM_ERROR if failure else ResponseCode.SUCCESS
        return command.response(code, failure, where | self._sends.ext)

    async def _push(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        properties: dict[str, str],
    ) -> str | None:
        """Hand a reply to the client that asked; RocketMQ's remark if that failed."""
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        asker = self._producers.find_channel(client_id)
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock.now_ms()
        text = write_properties(properties | {PUSH_REPLY_TIME: str(now_ms)}).decode()
        pushed = ReplyMessageRequestHeader(
            header.producer_group, header.topic, header.default_topic, header.default_topic_queue_nums,
            header.queue_id, header.sys_flag, header.born_timestamp, header.flag,
            decode_host(connection.host), self._store_host, now_ms, text, header.reconsume_times,
            bool(header.unit_mode),
        )  # fmt: skip
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        try:
            answer = await self._clients.call(
                asker, RemotingCommand(code, ext_fields=encode_header(pushed), body=command.body)
            )
        except RemotingError as error:
            logger.warning(Event("a reply did not reach its client", client=asker, id=client_id, error=error))
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
        return f"push reply message to {client_id}fail."

    async def _store(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
        properties: dict[str, str],
    ) -> PutRowResult | None:
        """Store a reply as it was sent, and return where; None if that failed: its client may have it."""
        if INNER_NUM in properties:  # a send of it would be refused
            return None
        compression = header.sys_flag & (SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
        message = MessageExtBrokerInner(
            header.topic, queue_id, command.body, properties, header.flag, compression,
            header.born_timestamp, connection.host, header.reconsume_times or 0,
        )  # fmt: skip
        try:
            return await self._appends.put(message)
        except ReputError as error:
            logger.warning(Event("a reply was not stored", topic=header.topic, error=error))
            return None
