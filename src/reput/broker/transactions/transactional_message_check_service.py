"""TransactionalMessageCheckService: asks producers how transactions ended that nobody has ended."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial

from reput.broker.appends.dead_letters import DeadLetters
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner, write_properties
from reput.broker.broker_to_client import BrokerToClient
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.transactions.transactional_op_batch_service import TransactionalOpBatchService
from reput.broker.view import BrokerView
from reput.errors import ReputError
from reput.events import Event
from reput.formats.hosts import encode_host
from reput.formats.java import parse_long
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import TransactionMetrics
from reput.formats.op_message import op_offsets
from reput.formats.properties import PGROUP, REAL_QID, REAL_TOPIC, UNIQ_KEY
from reput.formats.record_layout import encode_topic, pack_record
from reput.remoting.topic_validator import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from reput.remoting.transaction_headers import CheckTransactionStateRequestHeader
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.service.transactional_message import (
    CheckLimits,
    EndedHalves,
    Verdict,
    checked_once_more,
    judge,
    with_first_offset,
)
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRowResult
from reput.store.reads.get_result import GetRawResult
from reput.store.results import GetMessageStatus

logger = logging.getLogger("reput.broker")

#: The longest round of one queue, and what is read at once.
_ROUND_MS = 60_000
_BATCH = 32
_HOUR_MS = 3_600_000
_AT_END = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.OFFSET_OVERFLOW_ONE)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of a broker that each round works with."""

    clock: BrokerClock
    pools: DiskPools
    store: MessageStore
    offsets: ConsumerOffsetManager
    transactions: TopicMetricsManager[TransactionMetrics]
    appends: Appends
    dead_letters: DeadLetters
    clients: BrokerToClient
    ended: TransactionalOpBatchService


class TransactionalMessageCheckService:
    """Judges the half messages from where the last round ended (`TransactionalMessageServiceImpl.check`).

    Args:
        view, clock, pools, store, topics, offsets, transactions, appends, dead_letters: The broker's.
        clients: Asks them.
        ended: Knows what has ended, and is not yet in an op message.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        transactions: TopicMetricsManager[TransactionMetrics],
        appends: Appends,
        dead_letters: DeadLetters,
        clients: BrokerToClient,
        ended: TransactionalOpBatchService,
    ) -> None:
        self._view, self._store, self._topics = view, store, topics
        self._parts = _Parts(clock, pools, store, offsets, transactions, appends, dead_letters, clients, ended)
        self._turn = asyncio.Lock()  # two rounds at a time would put a message back twice

    @property
    def _limits(self) -> CheckLimits:
        config = self._view.config
        reserved_ms = self._store.config.file_reserved_time * _HOUR_MS
        return CheckLimits(config.transaction_time_out, config.transaction_check_max, reserved_ms)

    async def check(self) -> None:
        """Do one round of all half queues; what fails is logged, and the next round tries again."""
        async with self._turn:
            topic = self._topics.select_topic_config(TRANS_HALF_TOPIC)
            for queue_id in range(topic.read_queue_nums if topic is not None else 0):
                try:
                    await _Round(self._parts, self._limits, queue_id).run()
                except ReputError as error:
                    logger.error(Event("transactions were not checked", queue=queue_id, error=error))
                except Exception:
                    logger.exception(Event("bug: transactions were not checked", queue=queue_id))


class _Round:
    """One round of one half queue."""

    def __init__(self, parts: _Parts, limits: CheckLimits, queue_id: int) -> None:
        self._parts = parts
        self._is_ending = partial(parts.ended.is_ending, queue_id)
        self._limits = limits
        self._queue_id = queue_id
        self._began_ms = parts.clock.now_ms()
        self._half = self._begin_half = self._consumed(TRANS_HALF_TOPIC)
        self._op = self._begin_op = self._consumed(TRANS_OP_HALF_TOPIC)
        self._has_all_ops = False
        self._ops = EndedHalves(self._op, self._half)
        self._halves: dict[int, MessageExt] = {}
        self._has_jumped = False
        self._put_to = 0
        self._questions: list[tuple[str, CheckTransactionStateRequestHeader, bytes]] = []

    def _consumed(self, topic: str) -> int:
        offset = self._parts.offsets.query_offset(TRANS_GROUP, topic, self._queue_id)
        return self._parts.store.min_offset(topic, self._queue_id) if offset == -1 else offset

    async def run(self) -> None:
        """Judge half messages in their order until one is too new, and keep how far that was."""
        try:
            while self._parts.clock.now_ms() - self._began_ms <= _ROUND_MS and await self._judge_next():
                pass
        finally:
            await self._commit()

    async def _commit(self) -> None:
        """Keep how far half and op messages are judged, once what was put back for them is safe."""
        await self._ask()
        for topic, begin, end in (
            (TRANS_HALF_TOPIC, self._begin_half, self._half),
            (TRANS_OP_HALF_TOPIC, self._begin_op, self._ops.op_offset),
        ):
            if begin != end:
                self._parts.offsets.commit_offset(TRANS_GROUP, topic, self._queue_id, end, self._parts.clock.now_ms())

    async def _judge_next(self) -> bool:
        """Judge the next half message; False if the round is at its end."""
        while not self._ops.take(self._half):
            if self._has_all_ops:
                break
            await self._read_ops()
        else:
            self._half += 1
            return True
        if self._half not in self._halves:
            return await self._read_halves()
        if self._is_ending(self._half):  # its op message comes, and is not needed by a round that begins behind it
            self._half += 1
            return True
        half = self._halves[self._half]
        message = MessageExtBrokerInner.of_record(half.raw)
        clock = self._parts.clock
        verdict = judge(
            message.properties, born_ms=half.born_timestamp,
            stored_ms=clock.put_ms(half.commit_log_offset, half.store_timestamp), now_ms=clock.now_ms(),
            began_ms=self._began_ms, limits=self._limits, ended=self._ops,
        )  # fmt: skip
        if verdict is Verdict.LATER:
            return False
        if verdict is Verdict.DISCARD:
            logger.error(Event("a transaction is given up", topic=message.properties.get(REAL_TOPIC)))
            await self._put(half, self._parts.dead_letters.put(message, TRANS_CHECK_MAX_TIME_TOPIC))
            self._given_up(half)
        elif verdict is Verdict.CHECK:
            await self._check(half, message)
        elif verdict is Verdict.PUT_BACK:
            message.properties = with_first_offset(message.properties, half.queue_offset)
            await self._put_back(half, message)
        self._half += 1
        return True

    # -- reading

    async def _read(self, topic: str, offset: int) -> GetRawResult:
        result = await self._parts.pools.reads.run(self._parts.store.get_raw, topic, self._queue_id, offset, _BATCH)
        assert result is not None, "a read that may wait has a result"
        return result

    async def _read_ops(self) -> None:
        """Read the next op messages (`fillOpRemoveMap`)."""
        result = await self._read(TRANS_OP_HALF_TOPIC, self._op)
        if result.status is GetMessageStatus.FOUND:
            for message in _messages(result):
                self._ops.add(message.queue_offset, op_offsets(message.body, message.tags))
            self._op = result.next_begin_offset
        elif result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE or result.next_begin_offset == self._op:
            self._has_all_ops = True
        else:  # they are gone, or recovery has cut the queue
            self._op = result.next_begin_offset
            self._ops = EndedHalves(self._op, self._half)

    async def _read_halves(self) -> bool:
        """Read the next half messages; False if there are none. What ended meanwhile is looked up again."""
        await self._ask()
        result = await self._read(TRANS_HALF_TOPIC, self._half)
        if result.status is GetMessageStatus.FOUND:
            self._halves = {message.queue_offset: message for message in _messages(result)}
            self._has_all_ops = False
            first = min(self._halves, default=result.next_begin_offset)
            if self._half not in self._halves:
                self._half = first
            return True
        if result.status in _AT_END or self._has_jumped or result.next_begin_offset == self._half:
            return False
        self._has_jumped = True
        self._half = result.next_begin_offset
        return True

    # -- verdicts

    def _given_up(self, half: MessageExt) -> None:
        """A transaction counts no more (`resolveDiscardMsg`)."""
        self._parts.transactions.add({half.properties.get(REAL_TOPIC, ""): -1}, self._parts.clock.now_ms())

    async def _put(self, half: MessageExt, putting: Awaitable[PutRowResult]) -> PutRowResult | None:
        """Put what a half message has become; None: it never can be, and the half message itself was given up."""
        result = await self._parts.dead_letters.put_or_give_up(putting, half.raw, TRANS_CHECK_MAX_TIME_TOPIC)
        self._put_to = result.end_offset if result else self._put_to
        return result

    async def _put_back(self, half: MessageExt, message: MessageExtBrokerInner) -> PutRowResult | None:
        """Put a half message at the end of its queue: as RocketMQ's, the copy has no flag (`renewHalfMessageInner`)."""
        message.flag = message.reconsume_times = message.prepared_transaction_offset = 0
        stored = await self._put(half, self._parts.appends.append(message))
        if stored is None:
            self._given_up(half)
        return stored

    async def _check(self, half: MessageExt, message: MessageExtBrokerInner) -> None:
        """Put a half message back, to ask a producer of its group how its transaction ended (`resolveHalfMsg`)."""
        message.properties = properties = checked_once_more(message.properties)
        stored = await self._put_back(half, message)
        if stored is None:
            return
        (offset,) = stored.commit_log_offsets
        key = properties.get(UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            stored.queue_offset, offset, TRANS_HALF_TOPIC, key, key, stored.message_id
        )
        magic, topic = encode_topic(properties.get(REAL_TOPIC, ""))
        record = pack_record(
            magic, half.body_crc, parse_long(properties.get(REAL_QID, "")), half.flag, stored.queue_offset, offset,
            half.sys_flag, half.born_timestamp, message.born_host, half.store_timestamp, encode_host(half.store_host),
            half.reconsume_times, half.prepared_transaction_offset, half.body, topic, write_properties(properties),
        )  # fmt: skip
        self._questions.append((properties.get(PGROUP, ""), header, record))

    async def _ask(self) -> None:
        """Ask, once what was put back is safe: before that, an end that is said finds no half message."""
        if self._put_to:
            await self._parts.appends.safe(self._put_to)
        questions, self._questions = self._questions, []
        nobody: Counter[str] = Counter()
        for group, header, record in questions:
            nobody[group] += not self._parts.clients.check_transaction_state(group, header, record)
        for group, transactions in (+nobody).items():  # thousands may wait for a producer that is away
            logger.warning(Event("nobody can be asked how transactions ended", group=group, transactions=transactions))


def _messages(result: GetRawResult) -> list[MessageExt]:
    found, position = [], 0
    while position < len(result.records):
        found.append(MessageExt(result.records, position))
        position += found[-1].store_size
    return found
