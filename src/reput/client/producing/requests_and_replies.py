"""Requests between clients: a message that waits for its reply (`RequestResponseFuture`, `MessageUtil`)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping

from reput.errors import ConfigError, MQClientError, RemotingTimeoutError
from reput.events import Event
from reput.formats.message import Message
from reput.formats.properties import (
    CLUSTER,
    CORRELATION_ID,
    KEYS,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TAGS,
    TTL,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    split_keys,
)
from reput.formats.record_layout import SysFlag
from reput.remoting.client_call_headers import ReplyMessageRequestHeader
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.topic_validator import REPLY_TOPIC_POSTFIX
from reput.transport.channel import Channel

logger = logging.getLogger("reput.client")

REPLY = "reply"
_OWN = {UNIQ_KEY, TAGS, KEYS, WAIT}


class RequestsAndReplies:
    """Requests that wait for their replies, by their numbers."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Message]] = {}

    def begin(self, client_id: str, timeout_s: float) -> tuple[str, dict[str, str]]:
        """A new request: its number, and its message's properties."""
        number = str(uuid.uuid4())
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return number, {CORRELATION_ID: number, REPLY_TO_CLIENT: client_id, TTL: str(int(timeout_s * 1000))}

    async def wait(self, number: str, timeout_s: float) -> Message:
        """The reply to a request; raises RemotingTimeoutError if none comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._waiting[number]
        except TimeoutError:
            raise RemotingTimeoutError(f"no consumer has replied in {timeout_s:g} s") from None

    def end(self, number: str) -> None:
        """Wait no more."""
        self._waiting.pop(number).cancel()

    def replied(self, connection: Channel, command: RemotingCommand) -> RemotingCommand:
        """Take PUSH_REPLY_MESSAGE_TO_CLIENT; a reply that comes too late is dropped."""
        header = decode_header(ReplyMessageRequestHeader, command.ext_fields)
        properties = decode_properties((header.properties or "").encode())
        waiting = self._waiting.get(properties.get(CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            logger.warning(Event("a reply came too late", topic=header.topic))
        else:
            try:
                waiting.set_result(_message(header, command.body, properties))
            except ConfigError as error:  # its compression needs a package that is not there
                waiting.set_exception(error)
        return command.response()


def _message(header: ReplyMessageRequestHeader, body: bytes, properties: dict[str, str]) -> Message:
    if header.sys_flag & SysFlag.COMPRESSED:
        from reput.log.reads.compression import decompress  # here: most bodies are plain

        plain = decompress(body, header.sys_flag)
        body = body if plain is None else plain
    others = {name: value for name, value in properties.items() if name not in _OWN}
    return Message(
        header.topic, body, tags=properties.get(TAGS), keys=split_keys(properties.get(KEYS, "")), properties=others,
        flag=header.flag, unique_key=properties.get(UNIQ_KEY), born_timestamp=header.born_timestamp,
    )  # fmt: skip


def reply_of(request: Mapping[str, str], body: bytes) -> Message:
    """The message that replies to a request, by the request's properties.

    Raises MQClientError if the message was no request.
    """
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if name not in request]
    if missing:
        raise MQClientError(f"the message waits for no reply: it lacks {', '.join(missing)}")
    kept = {name: request[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in request}
    return Message(f"{request[CLUSTER]}_{REPLY_TOPIC_POSTFIX}", body, properties={MSG_TYPE: REPLY, **kept})
