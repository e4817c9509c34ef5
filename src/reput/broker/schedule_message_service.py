"""ScheduleMessageService: delivers messages of the delay levels when their time has come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from reput.broker.appends.dead_letters import DeadLetters
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import read_properties, write_properties
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.periodic_work import sleep_unless
from reput.errors import MessageIllegalError, ReputError
from reput.events import Event
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.metadata import encode_metadata
from reput.formats.properties import REAL_QID, REAL_TOPIC
from reput.formats.property_crc import PROPERTY_CRC32
from reput.formats.record_layout import unpack_record
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.topic_validator import TRANS_HALF_TOPIC
from reput.service.delay_offset_manager import DelayOffsetManager
from reput.store.dispatch.arrivals import Arrivals
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRow, PutRowResult
from reput.store.results import GetMessageStatus
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

#: Messages that are read and put at once, before the loop does other work; a pull gives no more by default.
_MOST = 32
#: The longest sleep: the machine's clock may be set.
_MOST_SLEEP_S = 1.0
#: After a failure (`DELAY_FOR_A_PERIOD`).
_RETRY_S = 10.0
_STOP_S = 1.0


class ScheduleMessageService:
    """Puts each delayed message into its real topic when it was put plus the delay of its level, in their order.

    A level sleeps until its first message is due: all others of the level are due later. What is delivered is safe
    before its offset counts, so that no kill loses a message; one that was delivered after the last write of
    delayOffset.json is delivered again (as by RocketMQ's `ScheduleMessageService`).
    """

    any_wait = False

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        delay_offsets: DelayOffsetManager,
        appends: Appends,
        dead_letters: DeadLetters,
    ) -> None:
        self._clock, self._pools, self._store, self._delay_offsets = clock, pools, store, delay_offsets
        self._appends, self._dead_letters = appends, dead_letters
        self._delays_ms = store.config.delay_levels_ms
        self._arrived = {level: asyncio.Event() for level in range(1, len(self._delays_ms) + 1)}
        self._stopped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.all_offsets}

    def all_offsets(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The offsets of all levels, as delayOffset.json has them."""
        return command.response(ResponseCode.SUCCESS, None, None, encode_metadata(self._delay_offsets.content()))

    def start(self) -> None:
        """Deliver from now on what is due."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(level)) for level in self._arrived]

    async def stop(self) -> None:
        """Deliver nothing more; what is being delivered counts, if the disk answers in time."""
        self._stopped.set()
        for arrived in self._arrived.values():
            arrived.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)
        for task in self._tasks:
            task.cancel()

    def messages_arrived(self, arrivals: Arrivals) -> None:
        """Called by dispatch."""
        self._clock.note_put_time()
        for topic, queue_id in arrivals.queues:
            if topic == SCHEDULE_TOPIC and queue_id + 1 in self._arrived:
                self._arrived[queue_id + 1].set()

    async def _run(self, level: int) -> None:
        arrived = self._arrived[level]
        while not self._stopped.is_set():
            arrived.clear()
            try:
                due_ms = await self._deliver(level)
            except ReputError as error:
                logger.error(Event("delayed messages were not delivered", level=level, error=error))
                await sleep_unless(self._stopped, _RETRY_S)
            except Exception:
                logger.exception(Event("delayed messages were not delivered", level=level))
                await sleep_unless(self._stopped, _RETRY_S)
            else:
                if due_ms is None:
                    if not self._stopped.is_set():
                        await arrived.wait()
                    continue
                await self._sleep_until(due_ms, self._delays_ms[level - 1] / 1000)

    async def _sleep_until(self, due_ms: int, most_s: float) -> None:
        """Sleep until a time, at most `most_s` seconds: the time is asked for again, as the clock may have been set."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + most_s
        while not self._stopped.is_set() and (left_s := (due_ms - self._clock.now_ms()) / 1000) > 0:
            if (most_left_s := end_s - loop.time()) <= 0:
                return
            await sleep_unless(self._stopped, min(left_s, most_left_s, _MOST_SLEEP_S))

    async def _deliver(self, level: int) -> int | None:
        """Deliver what is due; the time (ms) at which the next message is, None if none waits."""
        offsets = self._delay_offsets
        while not self._stopped.is_set():
            offset = offsets.offset(level)
            result = await self._pools.reads.run(self._store.get_message, SCHEDULE_TOPIC, level - 1, offset, _MOST)
            if result.status is not GetMessageStatus.FOUND:
                if result.next_begin_offset == offset:
                    return None
                level_is_odd = Event(
                    "the offset of a delay level has no message",
                    level=level, offset=offset, min=result.min_offset, max=result.max_offset,
                )  # fmt: skip
                logger.warning(level_is_odd)
                offsets.update_offset(level, result.next_begin_offset, self._clock.now_ms())
                continue
            due_ms = await self._deliver_some(level, [bytes(one) for one in result.raw()])
            if due_ms is not None:
                return due_ms
        return None

    async def _deliver_some(self, level: int, records: Sequence[bytes]) -> int | None:
        """Deliver the first of successive messages, as far as they are due; the time of the first other one."""
        appends, delay_ms = self._appends, self._delays_ms[level - 1]
        now_ms, end_offset, following = self._clock.now_ms(), None, None
        due_ms: int | None = None
        failure: ReputError | None = None
        for record in records:
            head, _ = unpack_record(record, 0)
            due_ms = self._clock.put_ms(head[6], head[10]) + delay_ms
            if due_ms > now_ms:
                break
            due_ms = None
            try:
                end_offset = await self._deliver_one(record) or end_offset
            except ReputError as error:  # those before it have been delivered, and are not to come again
                failure = error
                break
            following = head[5] + 1
        if end_offset is not None:
            await appends.safe(end_offset)
        if following is not None:
            self._delay_offsets.update_offset(level, following, now_ms)
        if failure is not None:
            raise failure
        return due_ms

    async def _deliver_one(self, record: bytes) -> int | None:
        """Put a message where it goes; the log offset after it, None if it was given up."""
        stored = await self._dead_letters.put_or_give_up(self._put(record), record)
        return stored and stored.end_offset

    async def _put(self, record: bytes) -> PutRowResult:
        return await self._appends.append_row(_due_row(record))


def _due_row(record: bytes) -> PutRow:
    """A message as it is put into its real topic, its properties as they are (`messageTimeUp`).

    Raises MessageIllegalError for a message that names none: RocketMQ gives up the rest of its level there.
    """
    head, bounds = unpack_record(record, 0)
    text = record[bounds[4] : bounds[5]]
    properties = read_properties(text.decode("utf-8", "replace"))
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID, "")
    if topic is None or topic == TRANS_HALF_TOPIC or not (queue_id.isascii() and queue_id.isdigit()):
        raise MessageIllegalError(f"REAL_TOPIC {topic} and REAL_QID {queue_id} name no queue to go to")
    if properties.pop(PROPERTY_CRC32, None) is not None:  # of the record that waited
        text = write_properties(properties)
    body = record[bounds[0] : bounds[1]]
    return PutRow(topic, int(queue_id[:10]), body, text, head[4], head[7], head[8], head[9], head[12])
