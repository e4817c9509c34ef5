"""BrokerToClient: requests of the broker to its clients (`Broker2Client`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from reput.broker.view import BrokerView
from reput.errors import RemotingCommandError, RemotingError
from reput.events import Event
from reput.remoting.body import encode_body
from reput.remoting.client_call_headers import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables
from reput.remoting.transaction_headers import CheckTransactionStateRequestHeader
from reput.service.client_channels import ClientChannelInfo
from reput.service.consumer_manager import ConsumerManager
from reput.service.producer_manager import ProducerManager
from reput.transport.channel import Channel

logger = logging.getLogger("reput.broker")

#: How long the broker waits for a client; and where it asks each client of a group.
_CALL_S, _STATUS_S = 10.0, 5.0
#: The first client that knows the requests for offsets (V3_0_7_SNAPSHOT).
_VERSION_OFFSETS = 28


class BrokerToClient:
    """Asks clients over the connections that they have made."""

    def __init__(
        self, view: BrokerView, consumers: ConsumerManager[Channel], producers: ProducerManager[Channel]
    ) -> None:
        self._view, self._consumers, self._producers = view, consumers, producers

    async def call(self, connection: Channel, command: RemotingCommand) -> RemotingCommand:
        """The answer of a client to a request; errors as of `Connection.call`."""
        return await connection.call(command, _CALL_S)

    def check_transaction_state(self, group: str, header: CheckTransactionStateRequestHeader, message: bytes) -> bool:
        """Ask the next producer of a group how a transaction ended; False if none is there.

        `message`: the half message as the record that it would be under its own topic.
        """
        channel = self._producers.available_channel(group, lambda one: one.is_open and not one.is_choked)
        if channel is None or not channel.is_open:
            return False
        code = RequestCode.CHECK_TRANSACTION_STATE
        fields = encode_header(header) | {"bname": self._view.config.broker_name}
        channel.send_one_way(RemotingCommand(code, ext_fields=fields, body=message))
        return True

    def reset_offset(
        self, topic: str, group: str, timestamp: int, offsets: Mapping[QueueKey, int], *, is_c: bool
    ) -> None:
        """Tell the consumers of a group to go on at these offsets.

        `is_c`: in the form that clients in C++ read. Raises RemotingCommandError if nobody is there, or a client is
        too old; clients before it have got the request.
        """
        infos = self._consumers.channels(group)
        if not infos:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}"
            )
            raise RemotingCommandError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        fields = encode_header(ResetOffsetRequestHeader(group, topic, timestamp, is_force=False))
        body = _body_for_c(offsets) if is_c else encode_queue_tables({"offsetTable": offsets})
        for info in infos.values():
            _check_version(info)
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            info.channel.send_one_way(RemotingCommand(code, ext_fields=dict(fields), body=body))

    async def consumer_status(self, topic: str, group: str, client_id: str) -> dict[str, dict[QueueKey, Any]]:
        """The offsets of a group's clients by client id and queue, of one client or, for a blank id, of all.

        A client that gives no answer is left out. Raises RemotingCommandError if nobody is there, or a client is
        too old.
        """
        infos = self._consumers.channels(group)
        if not infos:
            remark = f"No Any Consumer online in the consumer group: [{group}]"
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)
        asked = list(_asked(infos.values(), client_id.strip()))
        fields = encode_header(GetConsumerStatusRequestHeader(topic, group))
        tables = await asyncio.gather(*(_status(info, fields) for info in asked))
        return {info.client_id: table for info, table in zip(asked, tables, strict=True) if table is not None}


def _asked(infos: Iterable[ClientChannelInfo[Channel]], client_id: str) -> Iterable[ClientChannelInfo[Channel]]:
    for info in infos:
        _check_version(info)
        if client_id in ("", info.client_id):
            yield info
            if client_id:
                return


async def _status(info: ClientChannelInfo[Channel], fields: Mapping[str, str]) -> dict[QueueKey, Any] | None:
    command = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=dict(fields))
    try:
        answer = await info.channel.call(command, _STATUS_S)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        return decode_queue_table(answer.body, "messageQueueTable")
    except RemotingError as error:
        logger.warning(Event("a client did not return its offsets", client=info.channel, error=error))
        return None


def _check_version(info: ClientChannelInfo[Channel]) -> None:
    if info.version < _VERSION_OFFSETS:
        remark = f"the client does not support this feature. version={info.version}"
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)


def _body_for_c(offsets: Mapping[QueueKey, int]) -> bytes:
    """`ResetOffsetBodyForC`: a list, since clients in C++ read no object with queues as keys."""
    rows = [
        {"brokerName": key.broker_name, "offset": offset, "queueId": key.queue_id, "topic": key.topic}
        for key, offset in offsets.items()
    ]
    return encode_body({"offsetTable": rows})
