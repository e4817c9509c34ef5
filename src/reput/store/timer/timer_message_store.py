"""TimerMessageStore: which messages of the log wait for which time, on the disk as RocketMQ keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptStoreError
from reput.files import FileLayer
from reput.formats.paths import TIMER_CHECK
from reput.formats.timer_checkpoint import (
    FILE_SIZE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from reput.formats.timer_log import NO_POSITION, TIMER_TOPIC, UNIT_SIZE, TimerUnit
from reput.formats.timer_wheel import BLANK_SLOTS, SLOTS_TOTAL
from reput.log.timer_units import UNITS
from reput.store.message_store import MessageStore
from reput.store.timer.recovery import recover
from reput.store.timer.timer_log import TimerLog, counts
from reput.store.timer.timer_wheel import TimerWheel


class TimerEntries(NamedTuple):
    """Messages of the queue that are to wait, a row each, in its order.

    Attributes:
        times: int64, of their slots, ms.
        magics: int32, bits of `Magic`.
        commit_log_offsets: int64.
        sizes: int32, of their records.
        topic_hashes: int32, Java's, of their real topics.
    """

    times: npt.NDArray[np.int64]
    magics: npt.NDArray[np.int32]
    commit_log_offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    topic_hashes: npt.NDArray[np.int32]


class TimerMessageStore:
    """Timer log, timer wheel and checkpoint of one store (RocketMQ's `TimerMessageStore`).

    Methods are called by one thread at a time, and may wait for the disk, but for `begin_flush`, and `enqueue` in
    `NeverWaiting`; what `begin_flush` returns runs beside the others.

    Args:
        store: The store, open for writing.
        files: The file layer.
        now_ms: The time.

    Raises:
        StoreFormatError: Files have other sizes than they must. Nothing was changed.

    Attributes:
        read_time_ms: Messages of all slots before this time were delivered.
        queue_offset: Of the next message of the queue that is to get a unit.
        copied_to: A former slave has no units yet for the messages before this queue offset, and its master had
            delivered the messages of slots before `copied_read_time_ms`.
    """

    def __init__(self, store: MessageStore, files: FileLayer, now_ms: int) -> None:
        self._files = files
        self._check_path = f"{store.path}/{TIMER_CHECK}"
        self._precision = precision = store.config.timer_precision_ms
        checkpoint = TimerCheckpoint()
        if files.exists(self._check_path):
            checkpoint = decode_timer_checkpoint(files.read_bytes(self._check_path)[:FILE_SIZE])
        self.checkpoint = checkpoint
        oldest = now_ms // precision * precision - (SLOTS_TOTAL - BLANK_SLOTS) * precision
        self.read_time_ms = checkpoint.last_read_time_ms or oldest
        least, most = store.min_offset(TIMER_TOPIC, 0), store.max_offset(TIMER_TOPIC, 0)
        self.queue_offset = max(min(checkpoint.last_timer_queue_offset, most), least)
        self.copied_to = min(checkpoint.master_timer_queue_offset, most)
        self.copied_read_time_ms = checkpoint.last_read_time_ms
        #: Queue offset of the first message that came after its slot was over, and the slot (ms) in which it waits.
        self._late = self.copied_to, self.read_time_ms
        log = TimerLog(files, store.path, store.config.mapped_file_size_timer_log)
        wheel = TimerWheel(files, store.path, precision, self.read_time_ms)
        self._log, self._wheel = log, wheel
        first = 0 if wheel.is_new else checkpoint.last_timer_log_flush_pos - store.config.mapped_file_size_timer_log
        self._with_units = recover(
            log, wheel, self.read_time_ms, max(first, 0), store.max_commit_log_offset,
            _commit_log_offset(store, self.queue_offset), 0 if wheel.is_new else checkpoint.last_timer_log_flush_pos,
        )  # fmt: skip
        self._failed: tuple[list[str], list[tuple[int, bytes]]] = ([], [])

    # -- waiting

    def have_units(self, commit_log_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each message got its unit before the start, after the checkpoint was written last."""
        if not len(self._with_units):  # as of a broker that was stopped
            return np.zeros(len(commit_log_offsets), np.bool_)
        return np.isin(commit_log_offsets, self._with_units)

    def comes_late(self, queue_offset: int) -> None:
        """A message is to wait in the slot of the read time, as its own is over.

        Until that slot is over the checkpoint tells slaves nothing of the message: they would take it for delivered.
        """
        offset, time_ms = self._late
        self._late = min(queue_offset, offset) if time_ms == self.read_time_ms else queue_offset, self.read_time_ms

    def enqueue(self, entries: TimerEntries, write_time: int) -> None:
        """Let messages wait.

        Args:
            entries: The messages.
            write_time: Now, rounded down to the precision.

        Raises:
            StoreFullError, StoreError: None of them waits.
            WouldWaitError: In `NeverWaiting`: none of them waits, as the log needs another file.
        """
        times, rows = entries.times, len(entries.times)
        if not rows:
            return
        positions, units = self._log.next_positions(rows), np.zeros(rows, UNITS)
        units["SIZE"], units["MAGIC"], units["CURRWRITETIME"] = UNIT_SIZE, entries.magics, write_time
        units["DELAYEDTIME"], units["OFFSETPY"] = times - write_time, entries.commit_log_offsets
        units["SIZEPY"], units["HASHCODE"] = entries.sizes, entries.topic_hashes
        added = counts(units)
        slots: list[tuple[int, int, int, int]] = []
        by_slot = np.argsort(times, kind="stable")
        for slot in np.split(by_slot, np.flatnonzero(np.diff(times[by_slot])) + 1):
            time = int(times[slot[0]])
            first, last, num = self._slot(time)
            units["PREVPOS"][slot[0]], units["PREVPOS"][slot[1:]] = last, positions[slot[:-1]]
            first = int(positions[slot[0]]) if first == NO_POSITION else first
            slots.append((time, first, int(positions[slot[-1]]), num + int(added[slot].sum())))
        self._log.write(positions, units)
        for values in slots:
            self._wheel.put(*values)

    def _slot(self, time: int) -> tuple[int, int, int]:
        slot = self._wheel.slot(time)
        return (NO_POSITION, NO_POSITION, 0) if slot is None else (slot.first_pos, slot.last_pos, slot.num)

    def num(self, time_ms: int) -> int:
        """The number of messages in the slot of a time."""
        slot = self._wheel.slot(time_ms)
        return 0 if slot is None else slot.num

    def num_between(self, begin_ms: int, end_ms: int) -> int:
        """The number of messages in the slots of the times in [begin, end)."""
        return self._wheel.num_between(begin_ms, end_ms)

    @property
    def total(self) -> int:
        """The number of messages that wait; a look at the whole wheel, which takes milliseconds."""
        return self._wheel.total(self.read_time_ms)

    def next_time(self, begin_ms: int, end_ms: int) -> int | None:
        """The first slot's time in [begin, end) for which a message waits; None without one."""
        return self._wheel.next_time(begin_ms, end_ms)

    def units(self, time_ms: int) -> list[TimerUnit]:
        """The units of a slot, oldest first.

        A chain that is damaged ends there: what waited before that is lost, as it is for RocketMQ.
        """
        found = list(self._chain(self.last_position(time_ms)))
        found.reverse()
        return found

    def last_position(self, time_ms: int) -> int:
        """The position of a slot's last unit; NO_POSITION without one."""
        return self._slot(time_ms)[1]

    def units_back(self, position: int, most: int) -> list[TimerUnit]:
        """The unit at a position and the units before it in its slot, newest first, at most `most`."""
        return list(islice(self._chain(position), most))

    def _chain(self, position: int) -> Iterator[TimerUnit]:
        while position != NO_POSITION and position >= self._log.begin:
            unit = self._log.unit(position)
            if unit.prev_pos >= position:
                raise CorruptStoreError(self._check_path, position, f"expected an earlier unit, found {unit.prev_pos}")
            yield unit
            position = unit.prev_pos

    def free_times(
        self, times: npt.NDArray[np.int64], begin_ms: int, end_ms: int, but_ms: int
    ) -> npt.NDArray[np.int64]:
        """int64[times]: each time itself, or one near it where messages wait in its place for another time.

        Args:
            times: int64[...], of slots, ms.
            begin_ms, end_ms: All that is found lies in [begin, end).
            but_ms: It is none of them.

        Raises:
            StoreFullError: There is none for a time.
        """
        distinct, rows = np.unique(times, return_inverse=True)
        free = [self._wheel.free_time(time, begin_ms, end_ms, but_ms) for time in distinct.tolist()]
        return np.array(free, np.int64)[rows]

    def times_from(self, begin_ms: int) -> list[int]:
        """The times of slots, this one or later, for which messages wait; a look at the whole wheel."""
        return self._wheel.times_from(begin_ms)

    def clear_between(self, begin_ms: int, end_ms: int) -> None:
        """Let nothing wait for the times in [begin, end)."""
        self._wheel.clear_between(begin_ms, end_ms)

    def delete_before(self, min_commit_log_offset: int) -> None:
        """Delete files of the timer log whose messages have all left the commit log."""
        self._log.delete_before(min_commit_log_offset)

    # -- the disk

    def begin_flush(self, now_ms: int) -> Callable[[], None]:
        """Function that makes the state of this moment durable: log, wheel, checkpoint. It runs in any thread, once.

        It raises StoreError if the disk fails; the checkpoint stays then, and the next flush writes all again.
        """
        (failed, failed_pages), self._failed = self._failed, ([], [])
        paths, pages = self._log.take_unsynced(), self._wheel.changed_pages()
        pages = list((dict(failed_pages) | dict(pages)).items())
        before, (late, late_ms) = self.checkpoint, self._late
        for_slaves = late if late_ms == self.read_time_ms else max(self.queue_offset, self.copied_to)
        after = TimerCheckpoint(
            self.read_time_ms, self._log.end, self.queue_offset, for_slaves,
            before.state_version, now_ms, before.counter + 1,
        )  # fmt: skip

        def flush() -> None:
            try:
                for path in failed:
                    with self._files.open(path, writable=True) as file:
                        file.write_again()
                self._files.sync_files(paths)
                self._wheel.write(pages)
                self._write_checkpoint(after)
            except BaseException:
                self._failed = [*failed, *paths], pages
                raise

        return flush

    def _write_checkpoint(self, checkpoint: TimerCheckpoint) -> None:
        data = encode_timer_checkpoint(checkpoint)
        if self._files.exists(self._check_path):
            with self._files.open(self._check_path, writable=True) as file:
                file.write(0, data)  # its bytes lie in one sector
                file.sync()
        else:
            self._files.make_directories(self._check_path.rpartition("/")[0])
            self._files.write_atomically(self._check_path, data.ljust(FILE_SIZE, b"\0"))
        self.checkpoint = checkpoint

    def close(self) -> None:
        """Close the files; `begin_flush` is called before."""
        self._log.close()


def _commit_log_offset(store: MessageStore, queue_offset: int) -> int:
    """Commit log offset of a message of the queue; the log's end if it has none."""
    result = store.get_message(TIMER_TOPIC, 0, queue_offset, 1)
    pairs: npt.NDArray[np.int64] = result.pairs
    return int(pairs[0, 0]) if len(pairs) else store.max_commit_log_offset
