"""Pops (`PopMessageProcessor`)."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from reput.broker.pop.pop_checks import QueueRequest, check_broker, check_queue
from reput.broker.pop.pop_long_polling_service import Polled, PollingResult, PopLongPollingService
from reput.broker.pop.pop_request import PopParts, PopRequest
from reput.broker.pulls.message_filters import Refusal, compile_beside, filter_of
from reput.broker.state_files import StateFiles
from reput.errors import SubscriptionError
from reput.formats.metadata import TopicConfig
from reput.formats.pop_messages import MOST_MESSAGES
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pop_headers import PopMessageRequestHeader, PopMessageResponseHeader
from reput.remoting.subscription_data import TAG, SubscriptionData, build_subscription_data, is_tag_type
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.store.reads.message_filter import MessageFilter
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: A request that comes so long after its client's patience is over is not done.
_LATE_MS = 500
_FOUND, _NOTHING = "FOUND", "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True)
class _Pop:
    """A request that has been checked."""

    connection: Channel
    command: RemotingCommand
    header: PopMessageRequestHeader
    subscription: SubscriptionData
    message_filter: MessageFilter | None


class PopMessageProcessor:
    """Takes POP_MESSAGE.

    Args:
        parts: What each pop takes messages with.
        groups, config_files: The broker's.
        polling: Where pops wait that found nothing.
    """

    def __init__(
        self,
        parts: PopParts,
        groups: SubscriptionGroupManager,
        config_files: StateFiles,
        polling: PopLongPollingService,
    ) -> None:
        self._parts, self._groups, self._config_files = parts, groups, config_files
        self._polling = polling
        self._pops = 0
        self._safe_groups: set[str] = set()

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take one request."""
        now = str(self._parts.clock.now_ms())
        fields = {"bornTime": now} | (command.ext_fields or {})
        if fields["bornTime"] == "0":
            fields["bornTime"] = now
        return self._pop(connection, command, decode_header(PopMessageRequestHeader, fields))

    async def _pop(self, connection: Channel, command: RemotingCommand, header: PopMessageRequestHeader) -> Answer:
        group, groups = header.consumer_group, self._groups
        if group not in groups.subscription_group_table:
            self._safe_groups.discard(group)
        topic = self._check(connection, header)
        if isinstance(topic, Refusal):
            return _refuse(command, topic)
        if group not in self._safe_groups:  # check points of a group that a kill forgets would revive nothing
            await self._config_files.persist(groups)
            self._safe_groups.add(group)
        try:
            subscription = build_subscription_data(header.topic, header.exp, header.exp_type or TAG)
        except SubscriptionError:
            remark = "parse the consumer's subscription failed"
            return _refuse(command, Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark))
        message_filter: MessageFilter | Refusal | None = None
        if not is_tag_type(subscription.expression_type):
            await compile_beside(self._parts.view, self._parts.pools, connection, [subscription.sub_string])
            message_filter = filter_of(self._parts.view, subscription)
        if isinstance(message_filter, Refusal):
            return _refuse(command, message_filter)
        return await self._take(topic, _Pop(connection, command, header, subscription, message_filter))

    def _check(self, connection: Channel, header: PopMessageRequestHeader) -> TopicConfig | Refusal:
        if self._parts.clock.now_ms() - header.born_time - header.poll_time > _LATE_MS:
            remark = f"the broker[{self._parts.view.ip}] pop message is timeout too much"
            return Refusal(ResponseCode.POLLING_TIMEOUT, remark)
        refusal = check_broker(self._parts.view, "pop")
        if refusal is not None:
            return refusal
        if header.max_msg_nums > MOST_MESSAGES:
            remark = f"the broker[{self._parts.view.ip}] pop message's num is greater than {MOST_MESSAGES}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._parts.store.config.timer_wheel_enable:
            remark = f"the broker[{self._parts.view.ip}] pop message is forbidden because timerWheelEnable is false"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        most_ms = self._parts.store.config.timer_max_delay_sec * 1000
        if header.invisible_time > most_ms and not header.order:
            remark = f"invisibleTime {header.invisible_time}: the timer waits {most_ms} ms at most"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        asked = QueueRequest(header.consumer_group, header.topic, header.queue_id)
        return check_queue(self._parts.clock, self._parts.topics, self._groups, connection, asked)

    async def _take(self, topic: TopicConfig, pop: _Pop) -> Answer:
        """Take messages, or let the request wait for some."""
        header, command = pop.header, pop.command
        tags = pop.subscription.sub_string if pop.subscription.tags else None
        revive_qid = self._pops % self._parts.view.config.revive_queue_num
        self._pops += 1
        request = PopRequest(self._parts, pop.connection, header, (tags, pop.message_filter), revive_qid)
        answer = await request.run(topic)
        if request.count:
            if answer.rest_num > 0:
                self._polling.wake(header.topic, header.consumer_group, header.queue_id)
            return command.response(ResponseCode.SUCCESS, _FOUND, encode_header(answer), b"".join(request.records))
        polled = self._poll(pop, request.again_at_ms)
        if polled is PollingResult.POLLING_SUC:
            return None
        code = ResponseCode.POLLING_FULL if polled is PollingResult.POLLING_FULL else ResponseCode.POLLING_TIMEOUT
        return command.response(code, _NOTHING, encode_header(answer))

    def _poll(self, pop: _Pop, again_at_ms: int) -> PollingResult:
        header = pop.header
        if header.poll_time <= 0:
            return PollingResult.NOT_POLLING
        polled = Polled(
            header.topic, header.consumer_group, header.queue_id, pop.subscription.codes or None,
            header.born_time + header.poll_time,
        )  # fmt: skip
        again = partial(self._pop, pop.connection, pop.command, header)
        return self._polling.polling(pop.connection, pop.command, polled, again, again_at_ms)


def _refuse(command: RemotingCommand, refusal: Refusal) -> RemotingCommand:
    return command.response(refusal.code, refusal.remark, encode_header(PopMessageResponseHeader()))
