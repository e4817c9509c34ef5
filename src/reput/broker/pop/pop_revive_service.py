"""PopReviveService: messages that were popped and not acked go to the retry topics of their groups."""

from __future__ import annotations

import asyncio
import logging

from reput.broker.appends.dead_letters import DeadLetters
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.periodic_work import sleep_unless
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.errors import ReputError
from reput.events import Event
from reput.formats.java import parse_long
from reput.formats.message import RETRY_TOPIC_PREFIX, check_topic
from reput.formats.message_batch import unfold_record
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import TopicConfig
from reput.formats.pop_messages import CK_TAG, REVIVE_GROUP, CheckPointKey
from reput.formats.properties import FIRST_POP_TIME, TAGS, TIMER_DELIVER_MS, TIMER_OUT_MS, decode_properties
from reput.formats.record_layout import walk_records
from reput.log.store_host import encode_store_host
from reput.remoting.pop_headers import PopKey
from reput.remoting.topic_validator import dlq_topic_of
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.pop.pop_stats import ACK, CK, PUT_FAILED, PUT_OK
from reput.service.pop.revive_round import Judged, ReviveRound, written_again
from reput.service.pop.topics import normal_topic_of, pop_retry_topic_of
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRowResult
from reput.store.results import GetMessageStatus

logger = logging.getLogger("reput.broker")

_BATCH = 32
#: After a look at a queue's end, and the longest wait there.
_LOOK_EVERY_S, _LOOK_FOR_S = 0.1, 4.0
#: After a failure.
_RETRY_S = 5.0
_STOP_S = 1.0
_AT_END = (GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)


class PopReviveService:
    """Looks at each revive queue again and again, from the check point after the last one done.

    What is revived is safe before its check point counts as done: a kill in between revives a message twice, and loses
    none.

    Args:
        view, clock, pools, store, topics, groups, consumer_offsets, creation, appends, dead_letters: The broker's.
        revive: Takes check points that are written again.
        timers: Put check points and acks into the revive topic.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumer_offsets: ConsumerOffsetManager,
        creation: TopicCreation,
        appends: Appends,
        dead_letters: DeadLetters,
        revive: ReviveMessages,
        timers: TimerMessageService,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._groups, self._consumer_offsets, self._creation = topics, groups, consumer_offsets, creation
        self._appends, self._dead_letters = appends, dead_letters
        self._revive = revive
        self._timers = timers
        self._host = encode_store_host(store.config)
        self._stopped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        #: By revive queue, the revive time of the first check point of the last round; ms, 0 for none.
        self._first_due_ms: dict[int, int] = {}

    def start(self) -> None:
        """Revive from now on what is due."""
        loop = asyncio.get_running_loop()
        queues = range(self._view.config.revive_queue_num)
        self._tasks = [loop.create_task(self._run(queue_id)) for queue_id in queues]

    async def stop(self) -> None:
        """Revive nothing more; what is being revived counts, if the disk answers in time."""
        self._stopped.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)
        for task in self._tasks:
            task.cancel()

    async def _run(self, queue_id: int) -> None:
        interval_s, most_slow = self._view.config.revive_interval / 1000, self._view.config.revive_max_slow
        slow = 1
        while not self._stopped.is_set():
            try:
                has_check_points = await self._look(queue_id)
            except ReputError as error:
                logger.error(Event("popped messages were not revived", queue=queue_id, error=error))
                await sleep_unless(self._stopped, _RETRY_S)
            except Exception:
                logger.exception(Event("bug: popped messages were not revived", queue=queue_id))
                await sleep_unless(self._stopped, _RETRY_S)
            else:
                await sleep_unless(self._stopped, interval_s if has_check_points else interval_s * (1 + slow))
                slow = 1 if has_check_points else min(slow + 1, most_slow)

    async def _look(self, queue_id: int) -> bool:
        """Do one round; whether it had check points."""
        round_ = await self._read(queue_id)
        self._first_due_ms[queue_id] = round_.first_revive_time
        done, end_offset = None, 0
        try:
            for judged in round_.judged():
                if self._stopped.is_set():
                    break
                end_offset = max(end_offset, await self._revive_one(queue_id, judged))
                done = judged.revive_offset
        finally:  # what was done before a failure is not done again
            if end_offset:
                await self._appends.safe(end_offset)
            if done is not None:
                self._commit(queue_id, done)
        return round_.has_check_points

    def behind(self, queue_id: int) -> tuple[int, int]:
        """Check points and acks after the last check point done, and ms since the first check point was due."""
        left = max(0, self._store.max_offset(self._revive.topic, queue_id) - self._done(queue_id) - 1)
        due_ms = self._first_due_ms.get(queue_id, 0)
        return left, max(0, self._clock.now_ms() - due_ms) if left and due_ms else 0

    # -- reading

    def _done(self, queue_id: int) -> int:
        """The queue offset of the last check point done; -1 for none."""
        return self._consumer_offsets.query_offset(REVIVE_GROUP, self._revive.topic, queue_id)

    def _commit(self, queue_id: int, done: int) -> None:
        self._consumer_offsets.commit_offset(REVIVE_GROUP, self._revive.topic, queue_id, done, self._clock.now_ms())

    async def _read(self, queue_id: int) -> ReviveRound:
        """Read check points and acks, until the first check point can be judged, or nothing more comes."""
        topic = self._revive.topic
        round_ = ReviveRound(self._view.config.broker_name)
        offset = self._done(queue_id) + 1
        loop = asyncio.get_running_loop()
        began = last = loop.time()
        while not self._stopped.is_set():
            if self._store.max_offset(topic, queue_id) == offset:  # as at most looks
                come_ms = self._timers.delivered_until()
                if self._store.max_offset(topic, queue_id) > offset:
                    continue  # dispatch goes on beside the loop
                round_.quiet(come_ms)
                if round_.is_empty or round_.is_at_end or loop.time() - last > _LOOK_FOR_S:
                    break
                await sleep_unless(self._stopped, _LOOK_EVERY_S)
                continue
            result = await self._pools.reads.run(self._store.get_raw, topic, queue_id, offset, _BATCH)
            assert result is not None, "a read that may wait has a result"
            if result.status is not GetMessageStatus.FOUND:
                if result.status not in _AT_END and result.next_begin_offset != offset:
                    self._commit(queue_id, result.next_begin_offset - 1)
                return ReviveRound(self._view.config.broker_name)
            last = loop.time()
            if (last - began) * 1000 > self._view.config.revive_scan_time:
                break
            for _, at, _, _, body, text in walk_records(result.records):
                self._add(round_, (queue_id, at), body, decode_properties(text))
            offset = result.next_begin_offset
        return round_

    def _add(self, round_: ReviveRound, place: tuple[int, int], body: bytes, properties: dict[str, str]) -> None:
        """Take a check point or an ack; `place`: its revive queue, and its offset there."""
        (queue_id, offset), tag = place, properties.get(TAGS)
        # One that did not wait is no sign of how far the timers are.
        deliver_ms = parse_long(properties.get(TIMER_DELIVER_MS, "0")) if TIMER_OUT_MS in properties else 0
        key = round_.add(offset, tag, body, deliver_ms, self._clock.now_ms())
        if key is not None:
            self._revive.stats.inc_got(key, CK if tag == CK_TAG else ACK, queue_id)
        else:
            logger.warning(Event("a message is no check point and no ack", queue=queue_id, offset=offset))

    # -- reviving

    async def _revive_one(self, queue_id: int, judged: Judged) -> int:
        """Revive the messages of a check point that nobody acked; the log offset after what was put for them."""
        key = judged.check_point.key
        put_or_give_up, end_offset = self._dead_letters.put_or_give_up, 0
        topic = self._topics.select_topic_config(normal_topic_of(key.topic, key.group))
        if topic is None or key.group not in self._groups.subscription_group_table:
            return end_offset
        for offset in judged.unacked:
            if key.broker_name != self._view.config.broker_name:
                again = written_again(judged.check_point, offset, self._clock.now_ms())
                stored = await put_or_give_up(self._revive.append_check_point(again, queue_id), None)
                end_offset = stored.end_offset if stored else end_offset
                continue
            message = await self._message(key, offset)
            if message is None:  # retention has deleted it
                continue
            for record in unfold_record(message.raw) or [message.raw]:  # an inner batch: its messages
                status = PUT_FAILED
                try:
                    stored = await put_or_give_up(self._put(record, key), record, dlq_topic_of(key.group))
                    if stored:
                        end_offset, status = stored.end_offset, PUT_OK
                finally:
                    self._revive.stats.inc_retried(key, status)
                await asyncio.sleep(0)  # a batch may have thousands
        return end_offset

    async def _message(self, key: CheckPointKey, offset: int) -> MessageExt | None:
        result = await self._pools.reads.run(self._store.get_raw, key.topic, key.queue_id, offset, 1)
        assert result is not None, "a read that may wait has a result"
        if result.status is not GetMessageStatus.FOUND:
            return None
        message = MessageExt(result.records)
        return message if message.queue_offset == offset else None

    async def _retry_topic(self, key: CheckPointKey) -> TopicConfig:
        """The topic for the messages of a check point; created if it is missing, with the group's offset.

        Raises MessageIllegalError if there can be no such topic.
        """
        v2 = self._view.config.enable_retry_topic_v2
        name = key.topic
        if not name.startswith(RETRY_TOPIC_PREFIX):
            name = pop_retry_topic_of(key.topic, key.group, v2=v2)
        check_topic(name)
        topic = self._topics.select_topic_config(name) or await self._creation.create(TopicConfig(name, 1, 1))
        retry = PopKey(name, key.group, 0)
        if self._consumer_offsets.query_offset(retry.group, retry.topic, retry.queue_id) < 0:
            self._consumer_offsets.commit_offset(retry.group, retry.topic, retry.queue_id, 0, self._clock.now_ms())
        return topic

    async def _put(self, record: bytes, key: CheckPointKey) -> PutRowResult:
        """Put a message into the retry topic of its check point (`reviveRetry`)."""
        topic, again = await self._retry_topic(key), MessageExtBrokerInner.of_record(record)
        again.topic, again.queue_id, again.born_host = topic.topic_name, 0, self._host
        if again.reconsume_times == 0 or FIRST_POP_TIME not in again.properties:
            again.properties[FIRST_POP_TIME] = str(key.pop_time)
        again.count_attempt()
        return await self._appends.append_row(again.row())
