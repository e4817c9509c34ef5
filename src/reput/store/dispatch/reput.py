"""Thread that dispatches the log to queues and index, and notifies callers that wait for new messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Condition, Event, Lock
from typing import Protocol

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, ReputError, StoreError, StoreFullError
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.records.columns import RecordColumns, ScanStop
from reput.kernels.records.record_scan import RecordScanner
from reput.store.log.commit_log import CommitLog
from reput.store.repeated_failure import RepeatedFailure
from reput.store.service_thread import ServiceThread

logger = logging.getLogger("reput.store")

#: Bytes and records of a pass, at the most. A pass opens each queue that it has units for, so with many queues large
#: passes make dispatch fast: with 10 000 queues it took 0.80 us a message, and 1.07 with half of these limits. The
#: scanner keeps 0.2 KB for each row of the largest pass, so it is small until a pass has more records.
PASS_BYTES = 256 << 20
_PASS_ROWS = 524_288
_FIRST_PASS_ROWS = 16_384
#: After a pass over fewer rows the thread waits for more: each pass takes the interpreter lock several times, which
#: slows a busy producer down. Messages that come one by one are dispatched within a millisecond or two.
_SMALL_PASS_ROWS = 4_000
_SMALL_PASS_WAIT_S = 0.010
_FEW_ROWS = 4
_FEW_ROWS_WAIT_S = 0.001
_IDLE_WAIT_S = 0.1
RETRY_WAIT_S = 1.0


class Dispatcher(Protocol):
    """Writer of something that is derived from the log. Dispatching the same records again does no harm."""

    def dispatch(self, columns: RecordColumns) -> object:
        """Take scanned records, in log order."""


class ReputMessageService:
    """RocketMQ's `ReputMessageService`.

    Attributes:
        between_passes: Lock that is held during a pass. Its holder may change what a pass relies on.
        reput_from_offset: Commit log offset of the first record that is not dispatched.
        failure: The error that ended the thread, or after which it tries again; None while all is well.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        dispatchers: Sequence[Dispatcher],
        config: MessageStoreConfig,
        on_arrival: Callable[[RecordColumns], None] | None = None,
    ) -> None:
        self._commit_log = commit_log
        self._dispatchers = dispatchers
        self._on_arrival = on_arrival
        self._listener_fails = False
        self._config = config
        self._scanner = self._new_scanner(_FIRST_PASS_ROWS)
        self._thread = ServiceThread(self._run, "reput-dispatch")
        self._stopping = Event()
        self._wake = Lock()
        self._wake.acquire()
        self._progress = Condition()
        self.between_passes = Lock()
        self._waiting = 0
        self._idle = False
        self.reput_from_offset = 0
        self.failure: ReputError | None = None
        folder = next(iter(commit_log.queue.folders), "")
        self._lack = RepeatedFailure(
            folder, "queues and index lag behind the log", "queues and index have got space again"
        )

    def _new_scanner(self, rows: int) -> RecordScanner:
        config = self._config
        return RecordScanner(rows, delays_ms=config.delay_levels_ms, index_tags=config.dispatch_rules.indexes_tags)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._commit_log.max_offset - self.reput_from_offset)

    def run_once(self) -> int:
        """Do one pass; returns the number of records, 0 when there is nothing to do; raises as `take_pass`."""
        columns = self.take_pass()
        return 0 if columns is None else columns.rows or 1

    def take_pass(self, max_bytes: int | None = None) -> RecordColumns | None:
        """Do one pass over at most `max_bytes`; returns its records, None when there is nothing to do.

        Raises:
            StoreFullError: No space for a queue or index file; try again later.
            CorruptRecordError: Bytes that may be read do not hold a record.
            StoreError: The disk cannot read them.
        """
        begin = self.reput_from_offset
        columns = self._commit_log.scan(self._scanner, begin, max_bytes or PASS_BYTES)
        if columns is None:
            return None
        file_size = self._commit_log.queue.file_size
        if columns.next_offset == begin and max_bytes is not None and columns.buffer.size == max_bytes:
            return self.take_pass()  # the first record is larger than that
        for dispatcher in self._dispatchers:
            dispatcher.dispatch(columns)
        following = columns.next_offset
        if columns.stop is ScanStop.BLANK:
            following = following - following % file_size + file_size
        elif following == begin:
            file = self._commit_log.queue.find(begin)
            raise CorruptRecordError(
                file.path if file else "",
                begin,
                f"expected a record, found {columns.stop.name}; this store wrote or recovered it, so memory or "
                "disk changed it: close the store and run `reput dump` around this offset",
            )
        self.reput_from_offset = following
        if columns.rows == _FIRST_PASS_ROWS:
            self._scanner = self._new_scanner(_PASS_ROWS)
        if columns.rows and self._on_arrival is not None:
            # A copy: the next pass overwrites the scanner's memory.
            self._tell_listener(self._on_arrival, self._with_further_queues(columns).copy())
        self._tell_waiting()
        return columns

    def _tell_waiting(self) -> None:
        if self._waiting:
            with self._progress:
                self._progress.notify_all()

    def _with_further_queues(self, columns: RecordColumns) -> RecordColumns:
        """One row for each queue of a message, further queues too, for listeners (`notifyMessageArrive4MultiQueue`)."""
        config = self._config
        if config.enable_multi_dispatch:
            columns, _ = add_multi_dispatch_rows(
                columns, enable_lmq=config.enable_lmq, any_topic=config.dispatch_rules.multi_dispatches_any_topic
            )
        return columns

    def _tell_listener(self, on_arrival: Callable[[RecordColumns], None], arrivals: RecordColumns) -> None:
        """Call the listener, and log its error; of errors in successive calls the first."""
        try:
            on_arrival(arrivals)
        except BaseException:  # SystemExit, too, would end the thread without a sign
            if not self._listener_fails:
                logger.exception(
                    "on_arrival failed for records before commit log offset %d; dispatch goes on, and calls it for the "
                    "next records; its errors are logged again once a call has succeeded",
                    arrivals.next_offset,
                )
            self._listener_fails = True
        else:
            self._listener_fails = False

    def _run(self) -> None:
        while True:
            stopping = self._stopping.is_set()  # read before the pass, which then sees all that came before the stop
            try:
                with self.between_passes:
                    rows = self.run_once()
                self._wait_for_space(None)
            except StoreFullError as error:  # space may return
                self._wait_for_space(error)
                if stopping:
                    return
                self._stopping.wait(RETRY_WAIT_S)
                continue
            except ReputError as error:
                self._give_up(error)
                return
            except Exception as error:  # a bug, or an error of bit_maps: callers must learn that dispatch has stopped
                failure = StoreError(f"dispatch stopped at commit log offset {self.reput_from_offset}: {error!r}")
                failure.__cause__ = error
                self._give_up(failure)
                return
            if rows >= _SMALL_PASS_ROWS:
                continue
            if rows:
                self._pause(_SMALL_PASS_WAIT_S if rows > _FEW_ROWS else _FEW_ROWS_WAIT_S)
            elif stopping:
                return
            else:
                self._rest()

    def _wait_for_space(self, error: StoreFullError | None) -> None:
        """Called after a pass, with what it lacked."""
        if error is not self.failure:
            self.failure = error
            self._lack.tell(error)

    def _give_up(self, error: ReputError) -> None:
        self.failure = error
        self._commit_log.failure = error
        with self._progress:
            self._progress.notify_all()

    def _pause(self, seconds: float) -> None:
        """Let more messages come, unless a caller waits for dispatch or for the thread's end."""
        if not (self._waiting or self._stopping.is_set()):
            self._wake.acquire(timeout=seconds)

    def _rest(self) -> None:
        """Wait until a put wakes the thread, or a short time has passed."""
        self._idle = True
        if self._commit_log.confirm_offset <= self.reput_from_offset:
            self._wake.acquire(timeout=_IDLE_WAIT_S)
        self._idle = False

    def wake_if_idle(self) -> None:
        """Wake the thread if it waits; cheap enough for every put."""
        if self._idle:
            self.wake()

    def wake(self) -> None:
        """Wake the thread."""
        try:
            self._wake.release()
        except RuntimeError:  # another caller has just woken it
            return

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Wait until all records before an offset are dispatched; False after `timeout_s`.

        Raises:
            ReputError: Dispatch gave up, see `failure`.
        """
        deadline = time.monotonic() + timeout_s
        self.wake()
        with self._progress:
            self._waiting += 1
            try:
                while self.reput_from_offset < offset:
                    if self._commit_log.failure is not None:
                        raise self._commit_log.failure
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._progress.wait(min(left, _IDLE_WAIT_S))
            finally:
                self._waiting -= 1
        return True

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Dispatch all records that are there, and stop the thread."""
        self._stopping.set()
        self.wake()
        self._thread.join()
