"""Peeks (`PeekMessageProcessor`): what a pop would give, without a check point; nothing changes."""

from __future__ import annotations

import random

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pop.pop_checks import QueueRequest, Refusal, check_broker, check_queue
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.view import BrokerView
from reput.formats.pop_messages import MOST_MESSAGES
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pop_headers import PeekMessageRequestHeader, PopKey, PopMessageResponseHeader
from reput.service.pop.topics import pop_retry_topic_of
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.store.results import GetMessageStatus
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

_MOST_BYTES = 4 << 20


class PeekMessageProcessor:
    """Takes PEEK_MESSAGE.

    Args:
        view, clock, pools, store, topics, groups: The broker's.
        offsets: How far groups have popped.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: PopOffsets,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._groups = topics, groups
        self._offsets = offsets

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.PEEK_MESSAGE: self.peek}

    async def peek(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The next messages of a group; its retry topic's come first in one of five answers."""
        header = decode_header(PeekMessageRequestHeader, command.ext_fields)
        asked = QueueRequest(header.consumer_group, header.topic, header.queue_id)
        topic = check_broker(self._view, "peek") or check_queue(
            self._clock, self._topics, self._groups, connection, asked
        )
        if isinstance(topic, Refusal):
            return command.response(*topic, encode_header(PopMessageResponseHeader()))
        chance = random.randrange(100)
        normal = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
        keys = [PopKey(header.topic, header.consumer_group, one) for one in _from(normal, chance)]
        name = pop_retry_topic_of(header.topic, header.consumer_group, v2=self._view.config.enable_retry_topic_v2)
        retry = self._topics.select_topic_config(name)
        queues = range(retry.read_queue_nums if retry is not None else 0)
        retry_keys = [PopKey(name, header.consumer_group, one) for one in _from(queues, chance)]
        found, rest = await self._read(
            connection, [*retry_keys, *keys] if chance % 5 == 0 else [*keys, *retry_keys], header.max_msg_nums
        )
        answer = encode_header(PopMessageResponseHeader(rest_num=rest))
        if not found:
            return command.response(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", answer)
        return command.response(ResponseCode.SUCCESS, "FOUND", answer, b"".join(found))

    async def _read(self, connection: Channel, keys: list[PopKey], most: int) -> tuple[list[bytes], int]:
        """Records of queues, and how many messages they had before."""
        found: list[bytes] = []
        count, rest = 0, 0
        for key in keys:
            rest += self._offsets.left(key)
            if count >= min(most, MOST_MESSAGES) or sum(map(len, found)) >= _MOST_BYTES:
                continue
            offset = max(self._offsets.known(key), self._store.min_offset(key.topic, key.queue_id))
            result = await self._pools.reads.run_for(
                connection, self._store.get_raw, key.topic, key.queue_id, offset, min(most, MOST_MESSAGES) - count
            )
            if result is not None and result.status is GetMessageStatus.FOUND:
                found.append(result.records)
                count += result.messages
        return found, rest


def _from(queues: list[int] | range, chance: int) -> list[int]:
    """Queues, beginning at any of them."""
    first = chance % len(queues) if queues else 0
    return [*queues[first:], *queues[:first]]
