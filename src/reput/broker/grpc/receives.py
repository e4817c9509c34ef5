"""ReceiveMessage: messages by POP, with long polling (`ReceiveMessageActivity`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

from reput.broker.clock import BrokerClock
from reput.broker.grpc.acks import Acks
from reput.broker.grpc.client_channel import Caller, ClientChannel
from reput.broker.grpc.routes import consumer_needs
from reput.broker.pop.pop_long_polling_service import PopLongPollingService
from reput.broker.view import BrokerView
from reput.errors import ReputError
from reput.events import Event
from reput.formats.message_ext import MessageExt
from reput.formats.properties import POP_CK
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.extra_info import retry_kind
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_interface import ReceiveMessageRequest, ReceiveMessageResponse
from reput.remoting.grpc.grpc_parts import Status, timestamp, to_ms
from reput.remoting.grpc.protobuf import encode
from reput.remoting.subscription_data import SubscriptionData
from reput.service.grpc.client_settings import LONG_POLLING_BATCH_SIZE, MAX_LONG_POLLING_MS, is_in_order, max_attempts
from reput.service.grpc.delivered_messages import delivered_message
from reput.service.grpc.message_checks import (
    MIN_INVISIBLE_TIME_MS,
    check_invisible_time,
    checked_group,
    checked_subscription,
    checked_topic,
    unknown_topic,
)
from reput.service.grpc.receipt_handles import (
    DEFAULT_INVISIBLE_TIME_MS,
    INVISIBLE_TIME_WHEN_CLEAR_MS,
    HandleKey,
    ReceiptHandle,
    ReceiptHandles,
    RenewedHandle,
    decode_handle,
)
from reput.service.grpc.statuses import RefusedCallError, ok, refused
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.transport.grpc_call import GrpcCall

logger = logging.getLogger("reput.broker")

#: grpcClientConsumerMinLongPollingTimeoutMillis.
_MIN_LONG_POLLING_MS = 5000
#: Of a receive in order: it is kept with the group's progress. Clients have 36.
_MAX_ATTEMPT_ID = 255
#: A new group begins at the end of a queue (`ConsumeInitMode.MAX`).
_INIT_MODE = "1"


class _Receive(NamedTuple):
    """A receive that has been checked."""

    caller: Caller
    group: str
    topic: str
    wanted: SubscriptionData
    in_order: bool
    max_attempts: int
    renews: bool


class _Received(NamedTuple):
    """A message of a receive, and how often it was handed out before."""

    record: MessageExt
    handle: ReceiptHandle
    reconsume_times: int

    @property
    def message_id(self) -> str:
        """Id of the message, as its client has it."""
        return self.record.unique_key or self.record.message_id


class Receives:
    """Hands out messages.

    Args:
        view, clock, topics, groups: The broker's.
        polling: Where pops wait; a receive that is over waits no more.
        acks: End the invisible time of what is not handed out.
        handles: Get what is to be renewed.
        most_body: Bytes of the largest body that is decompressed for clients.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        polling: PopLongPollingService,
        acks: Acks,
        handles: ReceiptHandles[ClientChannel],
        most_body: int,
    ) -> None:
        self._view, self._clock, self._topics, self._groups = view, clock, topics, groups
        self._polling, self._acks, self._handles, self._most_body = polling, acks, handles, most_body
        self._tasks: set[asyncio.Task[None]] = set()

    async def receive_message(self, caller: Caller, request: ReceiveMessageRequest) -> None:
        """Answer with a status, messages and the time; raises RefusedCallError if there is no message."""
        receive, fields = self._checked(caller, request)
        received = self._received(receive, await self._pop(receive, fields))
        if not received:
            raise RefusedCallError(Code.MESSAGE_NOT_FOUND, "no new message")
        caller.call.send(encode(ReceiveMessageResponse(status=ok())))
        await self._send(receive, received)
        self._finish(caller.call)

    def refuse(self, call: GrpcCall, status: Status) -> None:
        """Answer a receive that brings no message."""
        call.send(encode(ReceiveMessageResponse(status=status)))
        self._finish(call)

    def _finish(self, call: GrpcCall) -> None:
        call.send(encode(ReceiveMessageResponse(delivery_timestamp=timestamp(self._clock.now_ms()))))
        call.finish()

    async def stop(self) -> None:
        """Return when what no call waits for is done."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- the request

    def _checked(self, caller: Caller, request: ReceiveMessageRequest) -> tuple[_Receive, dict[str, str]]:
        """A receive, and the fields of its pop; the group's configuration says all that settings would."""
        poll_ms = self._poll_ms(caller, request)
        queue = request.message_queue
        topic, group = checked_topic(None if queue is None else queue.topic), checked_group(request.group)
        caller.require(*consumer_needs(group, topic))
        invisible_ms = DEFAULT_INVISIBLE_TIME_MS if request.auto_renew else to_ms(request.invisible_duration)
        check_invisible_time(invisible_ms, MIN_INVISIBLE_TIME_MS)
        wanted = checked_subscription(topic, request.filter_expression)
        if self._topics.select_topic_config(topic) is None:
            raise unknown_topic(topic)
        config = self._groups.subscription_group_table.get(group)
        in_order = is_in_order(config)
        fields = {
            "consumerGroup": group, "topic": topic, "queueId": "-1",
            "maxMsgNums": str(max(min(request.batch_size, LONG_POLLING_BATCH_SIZE), 0)),
            "invisibleTime": str(invisible_ms), "pollTime": str(poll_ms), "bornTime": str(self._clock.now_ms()),
            "initMode": _INIT_MODE, "expType": wanted.expression_type, "exp": wanted.sub_string,
            "order": "true" if in_order else "false",
        }  # fmt: skip
        if request.attempt_id is not None:
            if len(request.attempt_id) > _MAX_ATTEMPT_ID:
                raise RefusedCallError(
                    Code.BAD_REQUEST, f"expected an attempt id of at most {_MAX_ATTEMPT_ID} characters"
                )
            fields["attemptId"] = request.attempt_id
        return _Receive(caller, group, topic, wanted, in_order, max_attempts(config), request.auto_renew), fields

    @staticmethod
    def _poll_ms(caller: Caller, request: ReceiveMessageRequest) -> int:
        left_ms, settings = caller.left_ms, caller.channel.settings
        if request.long_polling_timeout is not None:
            poll_ms: float = to_ms(request.long_polling_timeout)
        else:
            poll_ms = left_ms - (0 if settings is None else to_ms(settings.request_timeout)) // 2
        poll_ms = min(max(poll_ms, _MIN_LONG_POLLING_MS), MAX_LONG_POLLING_MS)
        if poll_ms > left_ms:
            if left_ms < _MIN_LONG_POLLING_MS:
                text = "The deadline time remaining is not enough for polling, please check network condition"
                raise RefusedCallError(Code.ILLEGAL_POLLING_TIME, text)
            poll_ms = left_ms
        return int(poll_ms)

    async def _pop(self, receive: _Receive, fields: dict[str, str]) -> RemotingCommand | None:
        """The answer to a pop; None if nothing is there."""
        channel, command = receive.caller.channel, receive.caller.command(RequestCode.POP_MESSAGE, fields)
        begun = channel.take(command)
        if isinstance(begun, RemotingCommand):
            answer = begun
        else:
            try:
                answer = await asyncio.shield(begun)
            except asyncio.CancelledError:
                self._abandon(receive, command, begun)
                raise
        if answer.code == ResponseCode.SUCCESS:
            return answer
        if answer.code == ResponseCode.POLLING_FULL:
            raise RefusedCallError(Code.TOO_MANY_REQUESTS, "polling full")
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
            return None
        raise refused(answer.code, answer.remark)

    # -- a call that is over

    def _abandon(self, receive: _Receive, command: RemotingCommand, begun: asyncio.Future[RemotingCommand]) -> None:
        """Let a pop not wait for a call that is over; what it is popping right now comes to others soon."""
        if self._polling.forget(receive.caller.channel, command):
            receive.caller.channel.forget(command)
            return

        def give_back(done: asyncio.Future[RemotingCommand]) -> None:
            if not done.cancelled() and done.exception() is None and done.result().code == ResponseCode.SUCCESS:
                for one in self._received(receive, done.result(), is_over=True):
                    self._give_back(receive, one)

        begun.add_done_callback(give_back)

    def _give_back(self, receive: _Receive, one: _Received) -> None:
        caller, ms = receive.caller, INVISIBLE_TIME_WHEN_CLEAR_MS
        change = self._acks.change(caller.channel, caller.user, receive.group, receive.topic, one.handle, ms)
        self._beside(receive, change)

    def _beside(self, receive: _Receive, work: Coroutine[Any, Any, object]) -> None:
        """Do something that no call waits for."""

        async def logged() -> None:
            try:
                await work
            except ReputError as error:
                names = {"group": receive.group, "topic": receive.topic}
                logger.warning(Event("a popped message was left as it is", error=error, **names))

        task = asyncio.get_running_loop().create_task(logged())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the messages

    def _received(self, receive: _Receive, answer: RemotingCommand | None, *, is_over: bool = False) -> list[_Received]:
        """The messages of a pop that go to the client: no other tags, and none that was handed out too often."""
        if answer is None:
            return []
        fields, body = answer.ext_fields or {}, answer.body
        starts, counts = _starts(fields.get("startOffsetInfo", "")), _counts(fields.get("orderCountInfo", ""))
        end = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
        broker, position, found = self._view.config.broker_name, 0, []
        caller, group, topic = receive.caller, receive.group, receive.topic
        while position < len(body):
            record = MessageExt(body, position)
            position += record.store_size
            text, times = record.properties.get(POP_CK), record.reconsume_times
            if text is None:
                kind, queue_id = retry_kind(record.topic), str(record.queue_id)
                text = f"{starts[kind, queue_id]} {end} {kind} {broker} {queue_id} {record.queue_offset}"
                if receive.in_order:
                    of_message = counts.get((kind, f"qo{queue_id}%{record.queue_offset}"))
                    times = of_message or counts.get((kind, queue_id), 0) or times
            handle = decode_handle(f"{text} {record.commit_log_offset}")
            one = _Received(record, handle, times)
            if receive.wanted.tags and record.tags not in receive.wanted.tags:  # same hash, other tag
                self._beside(receive, self._acks.ack(caller.channel, caller.user, group, topic, handle))
            elif times >= receive.max_attempts and not is_over:
                work = self._acks.to_dead_letters(caller.channel, caller.user, group, topic, handle, one.message_id)
                self._beside(receive, work)
            else:
                found.append(one)
        return found

    async def _send(self, receive: _Receive, received: list[_Received]) -> None:
        call, sent = receive.caller.call, 0
        channel = receive.caller.channel
        renews = receive.renews and bool(channel.client_id)  # the others leave no heartbeats
        if renews:
            call.on_reset = partial(self._renew_no_more, receive, received)
        try:
            for one in received:
                if call.is_choked:
                    await call.writable()
                if call.is_over:
                    raise asyncio.CancelledError
                message = delivered_message(
                    one.record, receive.topic, one.handle.text, one.reconsume_times, self._most_body
                )
                if renews and channel.is_open:
                    self._renew(receive, one)
                call.send(encode(ReceiveMessageResponse(message=message)))
                sent += 1
        except asyncio.CancelledError:
            for one in received[sent:]:
                self._give_back(receive, one)
            raise

    def _renew(self, receive: _Receive, one: _Received) -> None:
        caller, handle = receive.caller, one.handle
        message_id = one.message_id
        key = HandleKey(receive.group, message_id, handle.broker_name, handle.queue_id, handle.queue_offset)
        renewed = RenewedHandle(receive.group, receive.topic, handle, one.reconsume_times, handle.pop_time, caller.user)
        self._handles.add(caller.channel, key, renewed)

    def _renew_no_more(self, receive: _Receive, received: list[_Received]) -> None:
        """Leave what may not have come to the client its invisible time, and no more."""
        for one in received:
            self._handles.take(receive.caller.channel, receive.group, one.message_id, one.handle)


def _starts(text: str) -> dict[tuple[str, str], str]:
    """Start offsets by kind of topic and queue."""
    return {(kind, queue): start for kind, queue, start in (part.split(" ") for part in text.split(";") if part)}


def _counts(text: str) -> dict[tuple[str, str], int]:
    """Counts of earlier deliveries by kind of topic and queue, or queue and offset."""
    return {(kind, key): int(count) for kind, key, count in (part.split(" ") for part in text.split(";") if part)}
