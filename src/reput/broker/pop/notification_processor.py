"""Is there a message, and how many pops wait? (`NotificationProcessor`, `PollingInfoProcessor`)."""

from __future__ import annotations

from functools import partial

from reput.broker.clock import BrokerClock
from reput.broker.pop.pop_checks import QueueRequest, Refusal, check_broker, check_queue
from reput.broker.pop.pop_long_polling_service import Polled, PollingResult, PopLongPollingService
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.view import BrokerView
from reput.formats.metadata import TopicConfig
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pop_headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopKey,
)
from reput.service.pop.topics import pop_retry_topic_of
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

_REMARK = "not set any response code"  # RocketMQ's, of answers that are well


class NotificationProcessor:
    """Takes NOTIFICATION and POLLING_INFO.

    Args:
        view, clock, topics, groups: The broker's.
        offsets: How far groups have popped.
        pops: Where pops wait.
        polling: Where notifications wait.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: PopOffsets,
        pops: PopLongPollingService,
        polling: PopLongPollingService,
    ) -> None:
        self._view, self._clock, self._topics, self._groups = view, clock, topics, groups
        self._offsets = offsets
        self._pops = pops
        self._polling = polling

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.NOTIFICATION: self.notification, RequestCode.POLLING_INFO: self.polling_info}

    def polling_info(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the number of pops that wait for exactly this queue id."""
        header = decode_header(PollingInfoRequestHeader, command.ext_fields)
        asked = QueueRequest(header.consumer_group, header.topic, header.queue_id)
        topic = check_broker(self._view, "peek") or check_queue(
            self._clock, self._topics, self._groups, connection, asked
        )
        if isinstance(topic, Refusal):
            return command.response(*topic, encode_header(PollingInfoResponseHeader(0)))
        number = self._pops.polling_num(header.topic, header.consumer_group, header.queue_id)
        return command.response(ResponseCode.SUCCESS, _REMARK, encode_header(PollingInfoResponseHeader(number)))

    def notification(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Whether there is a message; None while the request waits for one."""
        header = decode_header(NotificationRequestHeader, command.ext_fields)
        asked = QueueRequest(header.consumer_group, header.topic, header.queue_id)
        topic = check_broker(self._view, "peek") or check_queue(
            self._clock, self._topics, self._groups, connection, asked
        )
        if isinstance(topic, Refusal):
            return command.response(*topic, encode_header(NotificationResponseHeader(False)))
        has_msg, free_at_ms = self._look(topic, header)
        polled = PollingResult.NOT_POLLING
        if not has_msg and header.poll_time > 0:
            until_ms = header.born_time + header.poll_time
            what = Polled(header.topic, header.consumer_group, header.queue_id, None, until_ms)
            again = partial(self._again, connection, command)
            polled = self._polling.polling(connection, command, what, again, free_at_ms)
            if polled is PollingResult.POLLING_SUC:
                return None
        answer = NotificationResponseHeader(has_msg, polled is PollingResult.POLLING_FULL)
        return command.response(ResponseCode.SUCCESS, _REMARK, encode_header(answer))

    async def _again(self, connection: Channel, command: RemotingCommand) -> Answer:
        return self.notification(connection, command)

    def _look(self, topic: TopicConfig, header: NotificationRequestHeader) -> tuple[bool, int]:
        """Whether a queue has a message, and else when one that was popped in order is free (ms, 0 for none)."""
        group, free_at_ms = header.consumer_group, 0
        names = {topic.topic_name: [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)}
        if not header.order:
            for v2 in (False, True):
                retry = pop_retry_topic_of(header.topic, group, v2=v2)
                found = self._topics.select_topic_config(retry)
                if found is not None:
                    names[retry] = range(found.read_queue_nums)
        for name, queue_ids in names.items():
            for queue_id in queue_ids:
                key = PopKey(name, group, queue_id)
                if not self._offsets.left(key):
                    continue
                now_ms = self._clock.now_ms()
                free_at = self._offsets.orders.free_at(*key, header.attempt_id, 0, now_ms) if header.order else 0
                if free_at <= now_ms:
                    return True, 0
                free_at_ms = min(free_at_ms or free_at, free_at)
        return False, free_at_ms
