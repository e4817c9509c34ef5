"""PopRequest: the work of one POP_MESSAGE, queue by queue."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from struct import Struct

from reput.broker.appends.inner_appends import Appends
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.pop.retry_records import recoded
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.view import BrokerView
from reput.errors import ReputError
from reput.formats.metadata import TopicConfig
from reput.formats.pop_messages import CheckPoint, CheckPointKey
from reput.formats.record_layout import QUEUE_OFFSET
from reput.remoting.extra_info import (
    ORDER_REVIVE_QID,
    ExtraInfo,
    build_msg_offset_info,
    build_order_count_info,
    build_start_offset_info,
)
from reput.remoting.pop_headers import PopKey, PopMessageRequestHeader, PopMessageResponseHeader
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.pop.topics import pop_retry_topic_of
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.store.reads.get_result import GetRawResult
from reput.store.reads.message_filter import MessageFilter
from reput.store.results import GetMessageStatus
from reput.transport.channel import Channel

_FOUND = GetMessageStatus.FOUND
#: The group's offset is not in the queue: it is set at once, and read from again.
_MOVED = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
)
#: There were messages, and none for this request.
_PASSED = (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING)
#: An answer gets no more queues once it has this many bytes: a frame takes 16 MiB.
_MOST_BYTES = 4 << 20
#: A topic may have many more: then other requests come between.
_QUEUES_A_TURN = 100
_SIZE, _OFFSET = Struct(">i"), Struct(">q")


@dataclass(frozen=True, slots=True)
class PopParts:
    """Parts of a broker that each pop takes its messages with.

    Attributes:
        view, clock, pools, store, topics, consumer_offsets, appends, stats: The broker's.
        offsets: How far groups have popped.
        revive: Takes check points.
    """

    view: BrokerView
    clock: BrokerClock
    pools: DiskPools
    store: MessageStore
    topics: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    appends: Appends
    stats: BrokerStatsManager
    offsets: PopOffsets
    revive: ReviveMessages


class PopRequest:
    """Takes messages for one request, and remembers what its answer says of them.

    Args:
        parts: What it takes messages with.
        connection: Of the request.
        header: The request.
        wanted: A tag expression and a filter, each None for all messages.
        revive_qid: The revive queue of all its check points.

    Attributes:
        records: The messages, as the answer has them.
        count: How many they are.
        again_at_ms: When more may be found: at once if no message passed the filter as far as was looked, or when a
            queue is free again that was popped in order and is not acked; 0 for no such time.
    """

    def __init__(
        self,
        parts: PopParts,
        connection: Channel,
        header: PopMessageRequestHeader,
        wanted: tuple[str | None, MessageFilter | None],
        revive_qid: int,
    ) -> None:
        self._parts = parts
        self._connection = connection
        self._header = header
        self._wanted = wanted
        self.records: list[bytes] = []
        self.count = self._bytes = self._rest = 0
        self._starts: list[str] = []
        self._messages: list[str] = []
        self._counts: list[str] = []
        self._commits: list[tuple[PopKey, int]] = []
        self._end_offset = 0
        self._pop_time = parts.clock.now_ms()
        self._revive_qid = ORDER_REVIVE_QID if header.order else revive_qid
        self.again_at_ms = 0

    async def run(self, topic: TopicConfig) -> PopMessageResponseHeader:
        """Take messages, and return the answer's header once their check points are safe.

        Raises:
            ReputError: Nobody knows whether they are: nothing is handed out, as far as the offsets tell.
        """
        header, config = self._header, self._parts.view.config
        chance = random.randrange(100)
        retry_first = chance < config.pop_from_retry_probability
        if retry_first and not header.order:
            await self._pop_retry_topics(chance)
        if header.queue_id < 0:
            await self._pop_queues(topic, chance)
        else:
            await self._pop_queue(topic.topic_name, header.queue_id)
        if not retry_first and not header.order and not self._is_full:
            await self._pop_retry_topics(chance)
        if self._end_offset:
            await self._parts.appends.safe(self._end_offset)
        for key, following in self._commits:
            self._parts.offsets.commit(key, following)
        return PopMessageResponseHeader(
            self._pop_time, header.invisible_time, self._revive_qid, self._rest, ";".join(self._starts),
            ";".join(self._messages), ";".join(self._counts) if header.order else None,
        )  # fmt: skip

    @property
    def _is_full(self) -> bool:
        return self.count >= self._header.max_msg_nums or self._bytes >= _MOST_BYTES

    async def _pop_retry_topics(self, chance: int) -> None:
        """Look for messages to be consumed again; of one retry topic only: the answer's texts know no two."""
        config, header = self._parts.view.config, self._header
        v2 = config.enable_retry_topic_v2
        kinds = [v2]
        if v2 and config.retrieve_message_from_pop_retry_topic_v1:
            kinds = [False, True] if chance % 2 == 0 else [True, False]
        before = self.count
        for kind in kinds:
            name = pop_retry_topic_of(header.topic, header.consumer_group, v2=kind)
            topic = self._parts.topics.select_topic_config(name)
            if topic is not None:
                await self._pop_queues(topic, chance)
            if self.count > before:
                return

    async def _pop_queues(self, topic: TopicConfig, chance: int) -> None:
        for number in range(topic.read_queue_nums):
            await self._pop_queue(topic.topic_name, (chance + number) % topic.read_queue_nums)
            if number % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                await asyncio.sleep(0)

    async def _pop_queue(self, topic: str, queue_id: int) -> None:
        offsets, key = self._parts.offsets, PopKey(topic, self._header.consumer_group, queue_id)
        if self._is_full and not self._header.order and offsets.is_set(key):  # as most queues behind the one popped
            self._rest += offsets.left(key)
            return
        if not offsets.try_lock(key):
            if not self._header.order:
                self._rest += offsets.left(key)
            return
        try:
            await self._pop_locked(key)
        finally:
            offsets.unlock(key)

    async def _pop_locked(self, key: PopKey) -> None:
        offsets = self._parts.offsets
        start = offsets.take_reset(key)
        if start is None:
            start = await offsets.begin(key, self._header)
        if self._header.order and self._is_blocked(key):
            return
        if self._is_full:
            self._rest += offsets.left(key)
            return
        result = await self._read(key, start)
        if result.status in _MOVED:
            offsets.move(key, result.next_begin_offset)
            result = await self._read(key, result.next_begin_offset)
        if result.status is _FOUND and self._header.order:
            self._hand_out_in_order(key, start, result)
        elif result.status is _FOUND:
            await self._hand_out(key, start, result)
        elif result.status in _PASSED:
            if offsets.is_uncommitted(key):  # of another pop, whose check point is not safe yet
                self._end_offset = max(self._end_offset, self._parts.store.max_commit_log_offset)
            self._follow(key, result.next_begin_offset)
            if result.next_begin_offset < result.max_offset:  # at a bound of the read's own: nobody wakes who waits
                self.again_at_ms = self._pop_time
        self._rest += max(result.max_offset - result.next_begin_offset, 0)

    async def _read(self, key: PopKey, offset: int) -> GetRawResult:
        store, most = self._parts.store, self._header.max_msg_nums - self.count
        result = store.get_raw(key.topic, key.queue_id, offset, most, *self._wanted, may_wait=False)
        if result is None:
            reads = self._parts.pools.reads
            result = await reads.run_for(
                self._connection, store.get_raw, key.topic, key.queue_id, offset, most, *self._wanted
            )
        assert result is not None, "a read that may wait has a result"
        return result

    def _follow(self, key: PopKey, following: int) -> None:
        self._parts.offsets.hand_out(key, following)
        self._commits.append((key, following))

    async def _hand_out(self, key: PopKey, start: int, result: GetRawResult) -> None:
        """Put the check point of messages, and take them; they stay in the queue if it cannot be put."""
        header, (topic, group, queue_id) = self._header, key
        messages = _queue_offsets(result)
        broker = self._parts.view.config.broker_name
        check_point = CheckPoint(
            CheckPointKey(topic, group, queue_id, start, self._pop_time, broker), header.invisible_time, messages
        )
        try:
            stored = await self._parts.revive.append_check_point(check_point, self._revive_qid)
        except ReputError:
            if not self.count:
                raise
            self._rest += len(messages)
            return
        self._end_offset = stored.end_offset
        self._follow(key, result.next_begin_offset)
        records = result.records
        if topic != header.topic and not self._parts.view.config.pop_response_return_actual_retry_topic:
            info = ExtraInfo(start, self._pop_time, header.invisible_time, self._revive_qid, broker)
            records = recoded(records, header.topic, topic, info)
        self._add(key, start, messages, records)

    def _is_blocked(self, key: PopKey) -> bool:
        """Whether messages of a queue that were popped in order are neither acked nor visible again."""
        header, now_ms = self._header, self._parts.clock.now_ms()
        free_at = self._parts.offsets.orders.free_at(*key, header.attempt_id, header.invisible_time, now_ms)
        if free_at <= now_ms:
            return False
        self.again_at_ms = min(self.again_at_ms or free_at, free_at)
        return True

    def _hand_out_in_order(self, key: PopKey, start: int, result: GetRawResult) -> None:
        """Take messages, and leave the group's offset where it is: acks move it."""
        header, now_ms, messages = self._header, self._parts.clock.now_ms(), _queue_offsets(result)
        counts = self._parts.offsets.orders.update(
            *key, pop_time=self._pop_time, invisible_time=header.invisible_time, offsets=messages,
            attempt_id=header.attempt_id, now_ms=now_ms,
        )  # fmt: skip
        self._parts.consumer_offsets.commit_offset(key.group, key.topic, key.queue_id, start, now_ms)
        self._counts.append(build_order_count_info(key.topic, key.queue_id, messages, counts))
        self._add(key, start, messages, result.records)

    def _add(self, key: PopKey, start: int, messages: tuple[int, ...], records: bytes) -> None:
        self.records.append(records)
        self.count += len(messages)
        self._bytes += len(records)
        self._starts.append(build_start_offset_info(key.topic, key.queue_id, start))
        self._messages.append(build_msg_offset_info(key.topic, key.queue_id, messages))
        topic, is_retry = self._header.topic, key.topic != self._header.topic
        self._parts.stats.inc_group_get(key.group, topic, len(messages), len(records), is_retry=is_retry)


def _queue_offsets(result: GetRawResult) -> tuple[int, ...]:
    """The queue offset of each message of a result."""
    records, position, found = result.records, 0, []
    (first,) = _OFFSET.unpack_from(records, QUEUE_OFFSET)
    if result.next_begin_offset - first == result.messages:  # one after the other, as most are
        return tuple(range(first, result.next_begin_offset))
    while position < len(records):
        found.append(_OFFSET.unpack_from(records, position + QUEUE_OFFSET)[0])
        position += _SIZE.unpack_from(records, position)[0]
    return tuple(found)
