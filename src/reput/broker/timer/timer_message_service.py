"""TimerMessageService: delivers messages with a time when it has come (`TimerMessageStore`'s services)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence

from reput.broker.appends.dead_letters import DeadLetters, is_never
from reput.broker.appends.inner_appends import Appends
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools, DiskWork
from reput.broker.dispatched_time import DispatchedTime
from reput.broker.state_files import StateFiles
from reput.broker.timer.clock_set_back import SetBack
from reput.broker.timer.open_slot import OpenSlot, Waiting
from reput.broker.timer.timer_enqueue import TimerEnqueue
from reput.broker.timer.timer_flush_service import TimerFlushService
from reput.broker.timer.timer_message import TimerMessage
from reput.errors import CorruptRecordError, ReputError
from reput.events import Event
from reput.files import FileLayer
from reput.formats.metadata import TimerMetrics
from reput.formats.timer_checkpoint import TimerCheckpoint
from reput.formats.timer_log import TIMER_TOPIC, Magic, TimerUnit
from reput.formats.timer_wheel import SLOTS_TOTAL
from reput.service.timer_stats import TimerStats
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.store.dispatch.arrivals import Arrivals
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.store.puts.put_rows import PutRowResult
from reput.store.timer.timer_message_store import TimerMessageStore

logger = logging.getLogger("reput.broker")

#: Messages that are put at once, before the loop does other work, and the bytes of their records.
_MOST_PUT, _MOST_PUT_BYTES = 64, 1 << 17
#: Units of a slot whose messages are looked at at once.
_MOST_LOOKED_AT = 128
#: So long before its time the messages of the next slot are looked at.
_AHEAD_MS = 1000
#: The shortest sleep, so that what comes, or is due, at about the same time is one batch.
_LEAST_SLEEP_S = 0.005
#: The longest sleep: the machine's clock may be set.
_MOST_SLEEP_S = 1.0
_RETRY_S = 1.0
_STOP_S = 2.0
_DELETE_EVERY_S = 30.0


class TimerMessageService:
    """Gives each message of rmq_sys_wheel_timer a slot of the wheel, and delivers it at its time, never before.

    All is done in turns of one task, so the timers have one user at a time: what is new gets its slot; the slot whose
    time has come is opened; of it is delivered what is due; the state is flushed. A slot is over once all of it is
    delivered and safe. A kill loses no message; slots that were not over when the checkpoint was written
    last are delivered again (as by RocketMQ's `TimerMessageStore`).

    Args:
        clock, pools, files, store, config_files, writer, appends, dead_letters: The broker's.
        timers: On the disk.

    Attributes:
        metrics: How many messages wait.
        stats: What has been done since the start.
        recalled_to: Commit log offset after the last message that recalls another one; it counts before later slots.
    """

    any_wait = False

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        files: FileLayer,
        store: MessageStore,
        config_files: StateFiles,
        writer: LoopWriter,
        appends: Appends,
        dead_letters: DeadLetters,
        timers: TimerMessageStore,
    ) -> None:
        self._clock, self._pools, self._store, self._appends = clock, pools, store, appends
        self._dead_letters = dead_letters
        self._timers = timers
        config = store.config
        self._precision, self._window = config.timer_precision_ms, config.timer_roll_window_ms
        self._work = DiskWork("reput-broker-timer", 1, None)
        self.metrics = TopicMetricsManager(TimerMetrics, store.path, files)
        self.stats = TimerStats()
        self._new = TimerEnqueue(clock, store, timers, self._work, self.metrics, self.stats)
        self._flushes = TimerFlushService(clock, pools, store, config_files, writer, timers, self.metrics)
        self.recalled_to = 0
        self._slot: OpenSlot | None = None
        self._next: OpenSlot | None = None
        self._back: SetBack | None = None
        #: What was put before these times is in the queue, and has its slot.
        self._dispatched, self._slotted_ms = DispatchedTime(store), 0
        self._delivered = DispatchedTime(store)
        self._arrived = asyncio.Event()
        self._is_stopped = False
        self._deleted_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def delivered_until(self) -> int:
        """A time (ms): each message that was put before it, and was due before it, is in the queue where it goes.

        It is now if nothing is late. While messages keep coming it is a moment ago. A message that is put back on
        its way counts as delivered, also one whose own time has passed meanwhile, as by a broker that stood still.
        """
        timers, slot = self._timers, self._slot
        put_ms = self._dispatched.note(self._clock.now_ms())  # before the queue is looked at: dispatch may go on beside
        if self._store.max_offset(TIMER_TOPIC, 0) > timers.queue_offset:
            put_ms = min(put_ms, self._slotted_ms)
        if slot is None:
            due_ms = timers.next_time(timers.read_time_ms, put_ms)
        else:  # nobody has looked at the next slot
            due_ms = slot.undelivered_ms or slot.time_ms + self._precision
        return self._delivered.note(put_ms if due_ms is None else min(put_ms, due_ms))

    # -- life

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """Place of the timers at their last flush."""
        return self._timers.checkpoint

    def start(self) -> None:
        """Deliver from now on what is due."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Deliver nothing more, but the rest of a slot that has begun, and leave the state on the disk.

        So nothing is delivered again by the next start. The rest is due within one precision.
        """
        self._is_stopped = True
        self._arrived.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_STOP_S + self._precision / 1000)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._flushes.ended()
        await self._work.run(int)  # what was cancelled may still be under way
        try:
            await self._flushes.flush()
        finally:
            self._timers.close()
            await self._pools.writes.run(self._work.stop)

    def messages_arrived(self, arrivals: Arrivals) -> None:
        """Called by dispatch."""
        if any(topic == TIMER_TOPIC for topic, _ in arrivals.queues):
            self._arrived.set()

    async def _run(self) -> None:
        while not self._is_stopped or (self._slot is not None and self._slot.has_begun):
            self._arrived.clear()
            try:
                due_ms = await self._turn()
            except ReputError as error:
                logger.error(Event("messages with a time were not delivered", error=error))
                await asyncio.sleep(_RETRY_S)
            except Exception:
                logger.exception(Event("bug: messages with a time were not delivered"))
                self._slot = self._next = None  # to be read again
                await asyncio.sleep(_RETRY_S)
            else:
                await self._sleep(min(max((due_ms - self._clock.now_ms()) / 1000, _LEAST_SLEEP_S), _MOST_SLEEP_S))

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but behind the shortest sleep only until messages arrive."""
        if self._is_stopped:  # the rest of a slot is waited for
            await asyncio.sleep(seconds)
            return
        await asyncio.sleep(_LEAST_SLEEP_S)
        if seconds > _LEAST_SLEEP_S and not self._arrived.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds - _LEAST_SLEEP_S):
                    await self._arrived.wait()

    async def _turn(self) -> int:
        """Do all that is to be done now; the time (ms) at which something will be."""
        now_ms = self._clock.now_ms()
        if self._back is not None or self._timers.read_time_ms > now_ms + self._precision:
            await self._turn_back(now_ms)
        put_ms = self._dispatched.note(now_ms)
        if now_ms - self._timers.read_time_ms <= SLOTS_TOTAL * self._precision:  # else their slots may be in use
            recalled_to = await self._wait_for_recalls()
            end = self._store.max_offset(TIMER_TOPIC, 0)
            await self._enqueue(end)
            if self._timers.queue_offset >= end:
                self._slotted_ms = put_ms
            if self.recalled_to == recalled_to:
                self.recalled_to = 0
        while (due_ms := await self._advance(put_ms)) is None:
            pass
        if not self._is_stopped and await self._look_ahead(now_ms + _AHEAD_MS):
            due_ms = now_ms
        self._flushes.flush_soon()
        if time.monotonic() >= self._deleted_at + _DELETE_EVERY_S:
            self._deleted_at = time.monotonic()
            await self._work.run(self._timers.delete_before, self._store.min_commit_log_offset)
        return due_ms

    async def _wait_for_recalls(self) -> int:
        """Return once the messages that recall others are in their queue: their recalls may have been answered.

        Returns:
            `recalled_to`, up to which that holds.
        """
        store, end = self._store, self.recalled_to
        if end:
            await self._appends.safe(end)
        while store.max_commit_log_offset - store.dispatch_behind_bytes < end and not self._is_stopped:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MOST_SLEEP_S):
                    await self._arrived.wait()
        return end

    # -- messages that are new

    async def _enqueue(self, end: int) -> None:
        """Give the messages of the queue before an offset a slot, and deliver meanwhile what is due.

        But if a message recalls another one, nothing is delivered until it has its slot.
        """
        timers = self._timers
        while timers.queue_offset < end and not self._is_stopped:
            read, following = await self._new.read(timers.queue_offset, end)
            if following == timers.queue_offset:
                return
            slots = {slot.time_ms: slot for slot in (self._slot, self._next) if slot is not None}
            for time_ms, message, unit in await self._new.enqueue(b"".join(read), slots):
                self._add(slots[time_ms], message, unit, keep=False)
            timers.queue_offset = following
            self._flushes.is_changed = True
            if self._slot is not None and not self.recalled_to:
                await self._deliver(self._slot)
            if timers.queue_offset < end:
                await asyncio.sleep(0)  # between two batches the loop does other work

    def _add(self, slot: OpenSlot, message: TimerMessage, unit: TimerUnit, *, keep: bool) -> None:
        """Add a message to the slot that is open; `keep`: it holds no bytes but its own."""
        if message.deletes is not None and not unit.magic & Magic.ROLL:
            slot.delete(message.deletes, unit)
        else:
            slot.add(message.due_ms(unit.time, unit.magic, self._precision), unit, message if keep else None)

    # -- slots

    async def _advance(self, put_ms: int) -> int | None:
        """Open the next slot, deliver what is due of the open one, or end it.

        Args:
            put_ms: Messages that were put before then have their slots. A later slot is not opened yet: so none
                comes after others that were due a whole slot later, however late dispatch is.

        Returns:
            The time (ms) at which something is to be done again; None: at once.
        """
        timers, precision = self._timers, self._precision
        if self._slot is None:
            this_slot = put_ms // precision * precision
            time_ms = timers.next_time(timers.read_time_ms, this_slot + precision)
            if time_ms is None:
                timers.read_time_ms = max(timers.read_time_ms, this_slot)
                next_ms = timers.next_time(timers.read_time_ms, this_slot + precision + int(1000 * _MOST_SLEEP_S))
                return put_ms + int(1000 * _MOST_SLEEP_S) if next_ms is None else next_ms + 1
            timers.read_time_ms = time_ms
            if put_ms <= time_ms or self._is_stopped:
                return time_ms + 1
            self._slot = await self._open(time_ms)
        slot = self._slot
        await self._deliver(slot)
        if slot.next_due_ms is not None:
            return slot.next_due_ms
        if self._clock.now_ms() < slot.time_ms + precision:
            return slot.time_ms + precision
        timers.read_time_ms = slot.time_ms + precision
        self._slot, self._flushes.is_changed = None, True
        gone: Counter[str] = Counter()  # one that deletes has counted as one message less, and what it found is left
        for key, count in slot.deleted.items():
            gone[key.topic] += count
        gone.subtract(slot.found)
        self.metrics.add(gone, put_ms)
        return None

    async def _turn_back(self, now_ms: int) -> None:
        """Go on at a clock that was ahead, and was set back: the slots from now on are to come once more.

        They have been delivered, and are emptied. What waits for later times by the clock that was ahead stays. If
        these are so far away that new slots would take their places, it is rolled, as what is sent for such a
        time. So is what came meanwhile, and waits in the slot where the timers stand. After an error the next turn
        goes on with it, before all else.
        """
        timers, work, back = self._timers, self._work, self._back
        if back is None:
            begin_ms, to_ms = timers.read_time_ms, now_ms // self._precision * self._precision
            logger.warning(
                Event("the clock was ahead, and messages with a time are delivered by it again", ms=begin_ms - now_ms)
            )
            slot = self._slot or OpenSlot(begin_ms, await work.run(timers.units, begin_ms))
            back = SetBack(timers, work, self._look, slot, to_ms, self._window, self._precision)
            self._back = back
        await self._flushes.ended()
        await back.copy()
        timers.read_time_ms, self._slot, self._next, self._slotted_ms = back.to_ms, None, None, 0
        await self._flushes.flush()  # of the copies, too: until then a start finds what is emptied now
        await work.run(back.clear)
        self.metrics.add({topic: -count for topic, count in back.slot.found.items()}, now_ms)  # see `_advance`
        self._back, self._flushes.is_changed = None, True

    async def _open(self, time_ms: int) -> OpenSlot:
        """The slot of a time, with all its messages."""
        slot = self._next
        if slot is not None and slot.time_ms == time_ms:
            self._next = None
        else:
            slot = OpenSlot(time_ms, await self._work.run(self._timers.units, time_ms))
        while slot.unread:
            await self._read(slot)
        return slot

    async def _look_ahead(self, until_ms: int) -> bool:
        """Read some messages of the next slot, if it begins before a time; whether there are more."""
        timers, slot = self._timers, self._next
        if slot is None:
            begin_ms = timers.read_time_ms if self._slot is None else self._slot.time_ms + self._precision
            time_ms = timers.next_time(begin_ms, until_ms)
            if time_ms is None:
                return False
            self._next = slot = OpenSlot(time_ms, await self._work.run(timers.units, time_ms))
        await self._read(slot)
        return bool(slot.unread)

    async def _read(self, slot: OpenSlot) -> None:
        """Look when the next messages of a slot are due."""
        await asyncio.sleep(0)  # between two batches the loop does other work
        some = slot.unread[:_MOST_LOOKED_AT]
        for unit, message in zip(some, await self._look(some), strict=True):
            if message is not None:
                self._add(slot, message, unit, keep=True)
        del slot.unread[: len(some)]

    async def _look(self, units: Sequence[TimerUnit]) -> list[TimerMessage | None]:
        """The messages of units; None, and an error in the log, for one that is not there."""
        look, places = self._store.look_records, [(unit.commit_log_offset, unit.size) for unit in units]
        records = look(places, may_wait=False)
        if records is None:
            records = await self._work.run(look, places)
        assert records is not None, "a look that may wait has a result"
        found: list[TimerMessage | None] = []
        for unit, record in zip(units, records, strict=True):
            message = None if record is None else _message_of(record)
            if message is None or message.commit_log_offset != unit.commit_log_offset:
                logger.error(Event("a message with a time is not in the log", offset=unit.commit_log_offset))
                message = None
            found.append(message)
        return found

    async def _deliver(self, slot: OpenSlot) -> None:
        """Deliver what is due of a slot, and return once that is safe."""
        ends = []
        try:
            while taken := slot.take(self._clock.now_ms(), _MOST_PUT, _MOST_PUT_BYTES):
                try:
                    await asyncio.sleep(0)  # between two batches the loop does other work
                    looked = iter(await self._look([one.unit for one in taken if one.message is None]))
                except BaseException:
                    slot.put_back(taken)
                    raise
                messages = [next(looked) if one.message is None else one.message for one in taken]
                end_offset = await self._put(slot, list(zip(taken, messages, strict=True)))
                if end_offset is not None:
                    ends.append(asyncio.ensure_future(self._appends.safe(end_offset)))
        finally:
            if ends:
                self._flushes.is_changed = True
                try:
                    await asyncio.gather(*ends)
                except BaseException:
                    self._slot = None  # nobody knows what is safe: the slot is to be read again
                    raise

    async def _put(self, slot: OpenSlot, taken: Sequence[tuple[Waiting, TimerMessage | None]]) -> int | None:
        """Put messages where they go; commit log offset after the last one."""
        now_ms, end_offset = self._clock.now_ms(), None
        due: list[tuple[Waiting, TimerMessage]] = []
        for waiting, message in taken:
            if message is None:
                continue
            if message.key is not None and message.key in slot.deleted:
                slot.found[message.real_topic] += 1
                continue
            due.append((waiting, message))
        results = await self._appends.append_rows([message.row(one.unit, now_ms) for one, message in due])
        counts: Counter[str] = Counter()
        deletes: Counter[str] = Counter()
        never: list[tuple[Waiting, TimerMessage, ReputError]] = []
        failed: list[tuple[Waiting, ReputError]] = []
        for (waiting, message), result in zip(due, results, strict=True):
            if isinstance(result, PutRowResult):
                end_offset = result.end_offset
                counts[message.real_topic] -= 1
                deletes[message.real_topic] += 2 if message.deletes is not None else 0  # see `TimerEnqueue`
            elif is_never(result):
                never.append((waiting, message, result))
            else:
                failed.append((waiting, result))
        slot.has_begun |= end_offset is not None
        self.stats.dequeued.subtract(counts)
        deletes.update(counts)
        self.metrics.add(deletes, now_ms)
        for waiting, message, why in never:
            try:
                await self._dead_letters.give_up(message.record, None, why)
                self.metrics.add({message.real_topic: -1}, now_ms)
            except ReputError as error:
                failed.append((waiting, error))
        if failed:  # the others have been delivered, and are not to come again
            slot.put_back([one for one, _ in failed])
            raise failed[0][1]
        return end_offset


def _message_of(record: bytes) -> TimerMessage | None:
    """The message of bytes that should be a record."""
    try:
        return TimerMessage.of_record(record)
    except CorruptRecordError:
        return None
