"""LoopWriter: the verbs of a `MessageStore` for an event loop that appends and dispatches, as a broker's does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from reput.errors import ReputError, StorePoisonedError, StoreStateError
from reput.kernels.records.log_room import LogRoom
from reput.store.dispatch.arrivals import Arrivals
from reput.store.dispatch.by_caller import DispatchByCaller
from reput.store.puts.put_rows import PutRow, PutRowResult
from reput.store.results import PutMessageStatus
from reput.store.writer_services import WriterServices


class LoopWriter:
    """Writer for an event loop: in one turn it appends messages, dispatches them and hears when they are safe.

    Nothing here waits for a sync. In `NeverWaiting` nothing waits for the disk: if it would have to be waited for, a
    WouldWaitError comes before anything has changed, and the same call, or `make_room`, helps in another thread.
    `MessageStore.loop_writer` makes one; every method may be called from any thread.

    Every method that writes raises StoreStateError once the store is closed.

    Args:
        writable: Gives the writer of the store that is open.
        reput: Who dispatches.
    """

    def __init__(self, writable: Callable[[], WriterServices], reput: DispatchByCaller) -> None:
        self._writable = writable
        self._reput = reput

    # -- appending

    def put_rows(self, rows: Sequence[PutRow], room: int | None = None) -> list[PutRowResult | ReputError]:
        """Append rows as a broker receives them, in order, each with a place or a fault of its own; wait for nothing.

        The properties are stored as sent. `when_safe` says when a row is as safe as the flush mode promises.

        Args:
            rows: Messages and batches.
            room: Of what a client sends: the bytes that its properties are to have left for others, which it gets
                later; and maxMessageSize counts. None: the broker's own, which the format of a record limits alone.

        Returns:
            For each row where it went, or the error that `MessageStore.put_message` would have raised; in
            `NeverWaiting` also a WouldWaitError, after which `make_room` in another thread helps: neither this row
            was put nor any after it.
        """
        return self._writable().putting_rows.put(rows, room)

    def encode_row(self, row: PutRow) -> bytes:
        """The record that a row with one message becomes, for a kernel that writes more of its kind.

        Its queue offset, log offset and store time are 0.

        Raises MessageIllegalError.
        """
        return self._writable().putting_rows.encode(row)

    def take_copies_only(self) -> None:
        """Let the log take what a `ReplicaWriter` copies; puts raise StoreStateError until the next start."""
        log = self._writable().parts.log
        log.take_copies_only(StoreStateError(f"{log.queue.folders[0]}: takes copies of its master's log, and no puts"))

    def append_written(self, write: Callable[[LogRoom], int]) -> int:
        """Let a kernel write records at the log's end (see `CommitLog.append_written`).

        Raises:
            StoreBusyError, StoreFullError, StorePoisonedError: As of `MessageStore.put_message`; nothing changed.
            WouldWaitError: In `NeverWaiting`; `make_room` in another thread helps.
        """
        log = self._writable().parts.log
        end_offset = log.append_written(write, time.time())
        log.tell_if_low()
        return end_offset

    def put_time_forward(self, time_ms: int) -> None:
        """Give no message from now on a store time before this one."""
        self._writable().parts.log.put_time_forward(time_ms)

    def make_room(self, size: int) -> None:
        """Make room for records of `size` bytes; raises as `append_written`, and MessageIllegalError.

        The disk is waited for beside other appends.
        """
        self._writable().parts.log.make_room(size)

    def number_queues(self, topic: str, queues: int) -> npt.NDArray[np.int32]:
        """int32[queues], the numbers of a topic's queues in `LogRoom.next_offsets`; new queues get one."""
        return self._writable().parts.log.number_queues([(topic, queue_id) for queue_id in range(queues)])

    def when_safe(self, end_offset: int, done: Callable[[PutMessageStatus | StorePoisonedError], None]) -> None:
        """Call `done` once the log is as safe up to `end_offset` as the flush mode promises, perhaps in another thread.

        One call serves all rows that were put before.
        """
        self._writable().flush.submit(end_offset, done)

    def flush(self) -> None:
        """Sync all that was appended until now, whatever the flush mode; waits for the disk.

        Raises:
            StorePoisonedError: The sync failed, now or before.
        """
        sync = self._writable().flush.sync
        with sync.lock:
            sync.run()

    @property
    def put_refusal(self) -> ReputError | None:
        """Reason why puts are refused now, as by a full disk or a failed sync; None while all are taken."""
        return self._writable().parts.log.refusal

    @property
    def small_put_refusal(self) -> ReputError | None:
        """`put_refusal`, unless a full disk refuses larger messages alone, and messages of up to 4 KB have room."""
        return self._writable().parts.log.refusal_of_small

    # -- dispatch

    def dispatch(self, max_bytes: int = 1 << 20) -> Arrivals | None:
        """Dispatch the next records, of at most `max_bytes`.

        Returns which queues have got records; None if nothing is to do, or can be done: `dispatch_failure` tells.

        Raises:
            WouldWaitError: In `NeverWaiting`: the pass makes a file, or another one is under way; dispatch in another
                thread.
        """
        self._writable()
        return self._reput.dispatch(max_bytes)

    @property
    def dispatch_failure(self) -> ReputError | None:
        """The error that ended dispatch, or after which it is tried again; None while all is well."""
        return self._reput.failure
