"""ProduceAccumulator: the sends of one turn of the loop, as batches (`ProduceAccumulator`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.send_request import (
    COMPRESS_FROM,
    SendRequest,
    batch_requests,
    begins_transaction,
    check_topic_of_send,
    queue_of_key,
    send_request,
)
from reput.client.instance.send_result import SendResult
from reput.client.producing.mq_fault_strategy import may_be_too_large
from reput.errors import MessageIllegalError, MQClientError, ReputError
from reput.formats.message import RETRY_TOPIC_PREFIX, Message
from reput.formats.properties import SHARDING_KEY
from reput.remoting.queue_tables import QueueKey
from reput.remoting.timer_properties import NOT_IN_BATCHES

_Send: TypeAlias = Callable[[SendRequest, Sequence[Message], QueueKey | None], Awaitable[list[SendResult]]]


class _Waiting(NamedTuple):
    message: Message
    result: asyncio.Future[SendResult]


class _Place(NamedTuple):
    """Key that the messages of a batch share."""

    topic: str
    queue: QueueKey | None
    wait_store_msg_ok: bool


class ProduceAccumulator:
    """Puts messages for one topic, or one queue, that are sent in one turn of the loop into one request.

    Nothing waits for more messages: if one task sends alone, each of its messages is a request, as it is without.

    Args:
        client: Gives ids.
        send: Sends a request with its messages, to a queue or to any.
    """

    def __init__(self, client: ClientInstance, send: _Send) -> None:
        self._client = client
        self._send_request = send
        self._waiting: dict[_Place, list[_Waiting]] = {}

    @staticmethod
    def takes(message: Message) -> bool:
        """Whether a message in a batch is what it is alone."""
        try:
            return (
                len(message.body) < COMPRESS_FROM
                and not message.sys_flag
                and message.born_timestamp is None
                and not message.topic.startswith(RETRY_TOPIC_PREFIX)
                and (message.properties is None or NOT_IN_BATCHES.isdisjoint(message.properties))
                and not begins_transaction(message.properties)
            )
        except (AttributeError, TypeError):  # the plain way tells what is wrong
            return False

    async def send(self, message: Message, sharding_key: str | None, queue: QueueKey | None) -> SendResult:
        """Send a message that it `takes`; arguments and errors as of `Producer.send`."""
        if sharding_key is not None:
            check_topic_of_send(message.topic)
            message = replace(message, properties={**(message.properties or {}), SHARDING_KEY: sharding_key})
            if queue is None:
                queue = queue_of_key(sharding_key, await self._client.routes.publish_queues(message.topic))
        loop = asyncio.get_running_loop()
        result: asyncio.Future[SendResult] = loop.create_future()
        place = _Place(message.topic, queue, message.wait_store_msg_ok)
        if place not in self._waiting:
            self._waiting[place] = []
            loop.call_soon(self._send_waiting, place)
        self._waiting[place].append(_Waiting(message, result))
        return await result

    def _send_waiting(self, place: _Place) -> None:
        sends = [one for one in self._waiting.pop(place) if not one.result.done()]  # those that were not cancelled
        if sends:
            self._begin(sends, place.queue)

    def _begin(self, sends: list[_Waiting], queue: QueueKey | None) -> None:
        client = self._client
        try:
            client.check_open()
            requests = self._requests([one.message for one in sends])
        except ReputError as error:
            if isinstance(error, MessageIllegalError) and len(sends) > 1:
                for one in sends:  # some of them are wrong: each gets its own answer
                    self._begin([one], queue)
            else:
                _fail(sends, error)
            return
        begin = 0
        for request in requests:
            end = begin + len(request.ids)
            part = sends[begin:end]
            # Its callback, as a task that is cancelled before its first step runs nothing of its own.
            client.spawn(self._send(request, part, queue)).add_done_callback(partial(_closed, part))
            begin = end

    def _requests(self, messages: Sequence[Message]) -> list[SendRequest]:
        ids, now_ms = self._client.unique_keys(len(messages)), self._client.now_ms()
        if len(messages) == 1:
            return [send_request(messages[0], ids[0], now_ms)]
        return batch_requests(messages, ids, now_ms)

    async def _send(self, request: SendRequest, sends: list[_Waiting], queue: QueueKey | None) -> None:
        try:
            results = await self._send_request(request, [one.message for one in sends], queue)
        except Exception as error:
            if len(sends) == 1 or not may_be_too_large(error):
                _fail(sends, error)
                return
            first, second = request.halves()
            half = len(first.ids)
            await self._send(first, sends[:half], queue)
            await self._send(second, sends[half:], queue)
            return
        for one, result in zip(sends, results, strict=True):
            if not one.result.done():
                one.result.set_result(result)


def _closed(sends: list[_Waiting], _: asyncio.Task[None]) -> None:
    """Fail what has no answer when its task ends."""
    _fail(sends, MQClientError("the producer was closed before the answer came; the message may be stored"))


def _fail(sends: list[_Waiting], error: Exception) -> None:
    for one in sends:
        if not one.result.done():
            one.result.set_exception(error)
