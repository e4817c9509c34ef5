"""Requests for messages by key, by id and by time (`QueryMessageProcessor`), and for offsets of queues."""

from __future__ import annotations

from reput.broker.pulls.message_by_offset import message_by_offset
from reput.broker.state import BrokerState
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.consumer_headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pull_headers import QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader
from reput.transport.connection import Connection
from reput.transport.requests import Answer, Handler

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
#: Most bytes of one answer, so that it fits a frame.
_MOST_BYTES = 8 << 20


class QueryProcessor:
    """Takes queries; all but those for a queue's ends may wait for the disk, so they run beside the loop.

    They read without the interpreter lock, or the loop would wait for it.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
        }

    async def query_message(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The messages with a key."""
        header = decode_header(QueryMessageRequestHeader, command.ext_fields)
        is_unique = (command.ext_fields or {}).get(_UNIQUE_KEY_QUERY) == "true"
        count = self._state.config.default_query_max_num if is_unique else header.max_num
        count = min(count, self._state.store.config.max_msgs_num_batch)
        body, ends = await self._state.reads.run_for(connection, self._query, header, count)
        fields = encode_header(QueryMessageResponseHeader(*ends))
        if not body:
            remark = "can not find message, maybe time range not correct"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return command.response(ext_fields=fields, body=body)

    def _query(self, header: QueryMessageRequestHeader, count: int) -> tuple[bytes, tuple[int, int]]:
        store = self._state.store
        times = header.begin_timestamp, header.end_timestamp
        # Of keys, as the query of one key keeps the interpreter lock.
        found = store.query_messages(header.topic, [header.key], count, *times)
        return self._joined(found.offsets.tolist()), store.index_end()

    def _joined(self, offsets: list[int]) -> bytes:
        """The records at commit log offsets, as many of the newest as fit."""
        parts: list[bytes] = []
        size = 0
        for offset in reversed(offsets):
            record = self._view(offset)
            size += len(record)
            if parts and size > _MOST_BYTES:
                break
            parts.append(record)
        return b"".join(reversed(parts))

    async def view_message(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The message at a commit log offset."""
        header = decode_header(ViewMessageRequestHeader, command.ext_fields)
        message = await self._state.reads.run_for(connection, message_by_offset, self._state.store, header.offset)
        if message is None:
            remark = f"can not find message by the offset, {header.offset}"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        self._state.require(connection, command, topic=message.topic)
        return command.response(body=message.raw)

    def _view(self, offset: int) -> bytes:
        message = self._state.store.look_message_by_offset(offset)
        return message.raw if message is not None else b""

    async def search_offset(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The queue offset for a store time."""
        header = decode_header(SearchOffsetRequestHeader, command.ext_fields)
        boundary = "upper" if (header.boundary_type or "").upper() == "UPPER" else "lower"
        offset = await self._state.reads.run_for(
            connection, self._state.store.offset_by_time, header.topic, header.queue_id, header.timestamp, boundary
        )
        return command.response(ext_fields=encode_header(SearchOffsetResponseHeader(offset)))

    def max_offset(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The queue offset of the next message."""
        header = decode_header(GetMaxOffsetRequestHeader, command.ext_fields)
        offset = self._state.store.max_offset(header.topic, header.queue_id)
        return command.response(ext_fields=encode_header(GetMaxOffsetResponseHeader(offset)))

    def min_offset(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The first queue offset that is still there."""
        header = decode_header(GetMinOffsetRequestHeader, command.ext_fields)
        offset = self._state.store.min_offset(header.topic, header.queue_id)
        return command.response(ext_fields=encode_header(GetMinOffsetResponseHeader(offset)))

    async def earliest_store_time(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The store time of a queue's first message."""
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, command.ext_fields)
        timestamp = await self._state.reads.run_for(connection, self._earliest, header.topic, header.queue_id)
        return command.response(ext_fields=encode_header(GetEarliestMsgStoretimeResponseHeader(timestamp)))

    def _earliest(self, topic: str, queue_id: int) -> int:
        store = self._state.store
        return store.message_store_timestamp(topic, queue_id, store.min_offset(topic, queue_id))
