"""Requests that send messages, out of messages; pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import index
from typing import NamedTuple

from reput.client.instance.topic_route import DEFAULT_TOPIC_QUEUES
from reput.errors import MessageIllegalError
from reput.formats.java import string_hash
from reput.formats.message import (
    MAX_TOPIC_SIZE,
    Message,
    check_head,
    check_topic_characters,
    encode_properties_of,
    refuse_wrong_types,
)
from reput.formats.message_batch import check_same, encode_items, items_end
from reput.formats.properties import DELAY, DELAY_LEVELS_MS, TIMER_DELAY_MS, TRAN_MSG, WAIT, encode_properties
from reput.formats.record_layout import SysFlag
from reput.formats.remoting import ONE_WAY_FLAG
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, quoted
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import v2_fields, v2_texts
from reput.remoting.timer_properties import NOT_IN_BATCHES
from reput.remoting.topic_validator import AUTO_CREATE_TOPIC

#: Largest body that is sent (`maxMessageSize`), and the size from which on a body is compressed.
MAX_MESSAGE_SIZE = 4 << 20
COMPRESS_FROM, _COMPRESS_LEVEL = 4096, 5


class SendRequest(NamedTuple):
    """A message or a batch as it is sent, to any queue; `ids` are the messages', `is_reply`: to a client that waits."""

    topic: str
    ids: tuple[str, ...]
    flag: int
    sys_flag: int
    born_timestamp: int
    body: bytes
    properties: str
    is_batch: bool = False
    is_reply: bool = False

    @property
    def _code(self) -> RequestCode:
        if self.is_reply:
            return RequestCode.SEND_REPLY_MESSAGE_V2
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2

    def unsigned(self, group: str, queue: QueueKey) -> RemotingCommand:
        """The request for one queue, as it is sent if nobody signs it: its header is text, and no fields."""
        code = self._code
        first, second, third, fourth, last = v2_texts(
            code, group, self.topic, AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES, queue.queue_id, self.sys_flag, self.flag,
            self.is_batch,
        )  # fmt: skip
        properties, broker_name = quoted(self.properties), quoted(queue.broker_name)
        before = f"{first}{int(self.born_timestamp)}{second}{properties}{third}{broker_name}{fourth}"
        return RemotingCommand(code, body=self.body, around_opaque=(before, last))

    def halves(self) -> tuple[SendRequest, SendRequest]:
        """A batch of two messages or more as two batches."""
        count = len(self.ids) // 2
        end = items_end(self.body, count)
        first = self._replace(ids=self.ids[:count], body=self.body[:end])
        return first, self._replace(ids=self.ids[count:], body=self.body[end:])

    def command(self, group: str, queue: QueueKey, *, one_way: bool = False) -> RemotingCommand:
        """The request for one queue."""
        fields = v2_fields(
            producer_group=group, topic=self.topic, default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUES, queue_id=queue.queue_id, sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp, flag=self.flag, properties=self.properties, batch=self.is_batch,
            broker_name=queue.broker_name,
        )  # fmt: skip
        return RemotingCommand(self._code, flag=ONE_WAY_FLAG * one_way, ext_fields=fields, body=self.body)


def send_request(message: Message, unique_key: str, now_ms: int, more: Mapping[str, str] | None = None) -> SendRequest:
    """The request for one message; a large body is compressed, if that makes it smaller.

    Args:
        message: Is not changed. Its own unique key and time of birth count, if it has them.
        unique_key: Its id else.
        now_ms: Its time of birth else.
        more: Further properties.

    Raises:
        MessageIllegalError: A broker would refuse the message.
    """
    _check(message)
    if more:
        message = _with_properties(message, more)
    body, sys_flag = bytes(message.body), message.sys_flag
    if len(body) >= COMPRESS_FROM and not sys_flag & SysFlag.COMPRESSED:
        compressed = zlib.compress(body, _COMPRESS_LEVEL)
        if len(compressed) < len(body):  # else a body of the largest size would be too large
            body = compressed
            sys_flag |= SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    properties = encode_properties_of(message, unique_key=unique_key).decode()
    born = now_ms if message.born_timestamp is None else message.born_timestamp
    ids = (str(message.unique_key or unique_key),)
    return SendRequest(message.topic, ids, message.flag, sys_flag, born, body, properties)


def check_one(message: object) -> None:
    """Raises MessageIllegalError for several messages, if one is sent, and for what is no message."""
    if isinstance(message, list | tuple):
        raise MessageIllegalError("this is a list of messages, and not one: send it with send_batch")
    if not isinstance(message, Message):
        refuse_wrong_types([message])


def check_several(messages: object) -> None:
    """Raises MessageIllegalError for one message, if several are sent, and for what is no list."""
    if isinstance(messages, Message):
        raise MessageIllegalError("a batch is a list of messages, and this is one: send it with send")
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise MessageIllegalError(f"a batch is a list of messages, not {type(messages).__name__}")
    if not all(isinstance(message, Message) for message in messages):
        refuse_wrong_types(messages)


def half_request(message: Message, unique_key: str, now_ms: int, more: Mapping[str, str]) -> SendRequest:
    """The request for a half message of a transaction; errors as of `send_request`."""
    prepared = replace(message, sys_flag=message.sys_flag | SysFlag.TRANSACTION_PREPARED)
    return send_request(prepared, unique_key, now_ms, more)


def batch_requests(messages: Sequence[Message], unique_keys: Sequence[str], now_ms: int) -> list[SendRequest]:
    """The requests for messages of one topic in their order, `MAX_MESSAGE_SIZE` bytes in each at most.

    Arguments and errors as of `send_request`.
    """
    for number, message in enumerate(messages):
        _check_body(message)
        if timed := NOT_IN_BATCHES.intersection(message.properties or ()):
            raise MessageIllegalError(
                f"message {number}: the property {min(timed)}: no broker looks for a time inside of a batch; "
                "send this message with send"
            )
    first = check_same(messages)
    check_topic_of_send(first.topic)
    items = encode_items(messages, unique_keys)
    properties = "" if first.wait_store_msg_ok else encode_properties([(WAIT, "false")]).decode()
    requests = []
    for begin, end in _cuts(list(map(len, items))):
        born = messages[begin].born_timestamp
        ids = tuple(messages[i].unique_key or unique_keys[i] for i in range(begin, end))
        requests.append(
            SendRequest(
                first.topic, ids, 0, 0, now_ms if born is None else born, b"".join(items[begin:end]), properties,
                is_batch=True,
            )
        )  # fmt: skip
    return requests


def _cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Begin and end of parts that are as large as a batch may be."""
    begin = total = 0
    for i, size in enumerate(sizes):
        if i > begin and total + size > MAX_MESSAGE_SIZE:
            yield begin, i
            begin, total = i, 0
        total += size
    yield begin, len(sizes)


def _check(message: Message) -> None:
    """Check a message but for its properties, which whoever encodes them checks."""
    _check_body(message)
    check_head(message, max_message_size=MAX_MESSAGE_SIZE)
    check_topic_of_send(message.topic)
    is_prepared = message.sys_flag & SysFlag.TRANSACTION_PREPARED
    if message.properties and not is_prepared and begins_transaction(message.properties):
        raise MessageIllegalError(
            "the property TRAN_MSG is of a transaction: a broker would keep this message back, and nobody would end "
            "the transaction; leave it out, as of a message that was consumed, or use send_in_transaction"
        )


def begins_transaction(properties: object) -> bool:
    """Whether a broker takes a message with these properties for a half message."""
    return isinstance(properties, Mapping) and str(properties.get(TRAN_MSG, "")).lower() == "true"


def _check_body(message: Message) -> None:
    """Raises MessageIllegalError for what is no message, and for a body that no broker takes."""
    try:
        size = len(message.body)
    except (AttributeError, TypeError):
        refuse_wrong_types([message])
        raise
    if not size:
        raise MessageIllegalError("the body is empty: RocketMQ's brokers refuse such a message")
    if size > MAX_MESSAGE_SIZE:
        raise MessageIllegalError(f"the body takes {size} bytes; maxMessageSize allows {MAX_MESSAGE_SIZE}")


@lru_cache(maxsize=65_536)
def check_topic_of_send(topic: str) -> None:
    """Raises MessageIllegalError for a topic that no broker takes messages of."""
    check_topic_characters(topic)
    if len(topic) > MAX_TOPIC_SIZE:
        raise MessageIllegalError(f"topic {topic!r} takes {len(topic)} bytes; {MAX_TOPIC_SIZE} are allowed")


def _with_properties(message: Message, more: Mapping[str, str]) -> Message:
    """A copy with further properties."""
    try:
        return replace(message, properties={**(message.properties or {}), **more})
    except TypeError:
        refuse_wrong_types([message])
        raise


def delay_properties(delay_ms: int | None, delay_level: int | None) -> dict[str, str]:
    """The properties of a delay: its level, if one has just this delay and every broker knows it, else a timer.

    Raises MessageIllegalError if both are given, or a delay is no whole number, or is negative or more than RocketMQ
    takes.
    """
    if delay_ms is None and delay_level is None:
        return {}
    if delay_ms is not None and delay_level is not None:
        raise MessageIllegalError("give delay_ms or delay_level, not both")
    if delay_level is not None:
        delay_level = _whole("delay_level", delay_level)
        if not 1 <= delay_level <= len(DELAY_LEVELS_MS):
            raise MessageIllegalError(f"delay_level {delay_level}: expected 1 to {len(DELAY_LEVELS_MS)}")
        return {DELAY: str(delay_level)}
    assert delay_ms is not None
    delay_ms = _whole("delay_ms", delay_ms)
    if delay_ms in DELAY_LEVELS_MS:
        return {DELAY: str(DELAY_LEVELS_MS.index(delay_ms) + 1)}
    if delay_ms <= 0:
        raise MessageIllegalError(f"delay_ms {delay_ms}: expected milliseconds, more than 0")
    return {TIMER_DELAY_MS: str(delay_ms)}


def _whole(name: str, value: int) -> int:
    """The number, NumPy's too; raises MessageIllegalError for what is none."""
    if isinstance(value, bool):
        raise MessageIllegalError(f"{name} must be a whole number, not bool")
    try:
        return index(value)
    except TypeError:
        raise MessageIllegalError(f"{name} must be a whole number, not {type(value).__name__}") from None


def queue_of_key(sharding_key: str, queues: Sequence[QueueKey]) -> QueueKey:
    """The queue of a sharding key (`SelectMessageQueueByHash`: the remainder as Java's, without its sign)."""
    number = string_hash(sharding_key)
    return queues[abs(number) % len(queues)]
