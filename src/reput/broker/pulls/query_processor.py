"""Requests for messages by key, by id and by time (`QueryMessageProcessor`), and for offsets of queues."""

from __future__ import annotations

from reput.broker.access.found_names import FoundNames
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.message_by_offset import message_by_offset
from reput.broker.view import BrokerView
from reput.remoting.acl import UNIQUE_KEY_QUERY
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
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: Most bytes of one answer, so that it fits a frame.
_MOST_BYTES = 8 << 20


class QueryProcessor:
    """Takes queries; all but those for a queue's ends may wait for the disk, so they run beside the loop.

    They read without the interpreter lock, or the loop would wait for it.
    """

    def __init__(self, view: BrokerView, pools: DiskPools, store: MessageStore, found_names: FoundNames) -> None:
        self._view, self._pools, self._store, self._found_names = view, pools, store, found_names

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

    async def query_message(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The messages with a key."""
        header = decode_header(QueryMessageRequestHeader, command.ext_fields)
        is_unique = (command.ext_fields or {}).get(UNIQUE_KEY_QUERY) == "true"
        count = self._view.config.default_query_max_num if is_unique else header.max_num
        count = min(count, self._store.config.max_msgs_num_batch)
        body, ends = await self._pools.reads.run_for(connection, self._query, header, count)
        fields = encode_header(QueryMessageResponseHeader(*ends))
        if not body:
            remark = "can not find message, maybe time range not correct"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return command.response(ext_fields=fields, body=body)

    def _query(self, header: QueryMessageRequestHeader, count: int) -> tuple[bytes, tuple[int, int]]:
        store = self._store
        times = header.begin_timestamp, header.end_timestamp
        # Of keys, as the query of one key keeps the interpreter lock.
        found = store.query_messages(header.topic, [header.key], count, *times)
        return self._joined(found.offsets.tolist()), store.index_end()

    def _joined(self, offsets: list[int]) -> bytes:
        """The records at commit log offsets, as many of the newest as fit."""
        parts: list[bytes] = []
        size = 0
        for offset in reversed(offsets):
            record = self._stored(offset)
            size += len(record)
            if parts and size > _MOST_BYTES:
                break
            parts.append(record)
        return b"".join(reversed(parts))

    async def view_message(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The message at a commit log offset."""
        header = decode_header(ViewMessageRequestHeader, command.ext_fields)
        message = await self._pools.reads.run_for(connection, message_by_offset, self._store, header.offset)
        if message is None:
            remark = f"can not find message by the offset, {header.offset}"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        self._found_names.require(connection, command, topic=message.topic)
        return command.response(body=message.raw)

    def _stored(self, offset: int) -> bytes:
        message = self._store.look_message_by_offset(offset)
        return message.raw if message is not None else b""

    async def search_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The queue offset for a store time."""
        header = decode_header(SearchOffsetRequestHeader, command.ext_fields)
        boundary = "upper" if (header.boundary_type or "").upper() == "UPPER" else "lower"
        offset = await self._pools.reads.run_for(
            connection, self._store.offset_by_time, header.topic, header.queue_id, header.timestamp, boundary
        )
        return command.response(ext_fields=encode_header(SearchOffsetResponseHeader(offset)))

    def max_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The queue offset of the next message."""
        header = decode_header(GetMaxOffsetRequestHeader, command.ext_fields)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return command.response(ext_fields=encode_header(GetMaxOffsetResponseHeader(offset)))

    def min_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The first queue offset that is still there."""
        header = decode_header(GetMinOffsetRequestHeader, command.ext_fields)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return command.response(ext_fields=encode_header(GetMinOffsetResponseHeader(offset)))

    async def earliest_store_time(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The store time of a queue's first message."""
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, command.ext_fields)
        timestamp = await self._pools.reads.run_for(connection, self._earliest, header.topic, header.queue_id)
        return command.response(ext_fields=encode_header(GetEarliestMsgStoretimeResponseHeader(timestamp)))

    def _earliest(self, topic: str, queue_id: int) -> int:
        store = self._store
        return store.message_store_timestamp(topic, queue_id, store.min_offset(topic, queue_id))
