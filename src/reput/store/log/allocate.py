"""Thread that makes the next log file, and reserves disk space, before appends need them."""

from __future__ import annotations

from threading import Event

from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError, StoreError, StoreFullError, StoreStateError
from reput.store.log.commit_log import CommitLog
from reput.store.repeated_failure import RepeatedFailure
from reput.store.service_thread import ServiceThread


class AllocateMappedFileService:
    """RocketMQ's `AllocateMappedFileService`. An error ends all puts: it is kept in `CommitLog.failure`.

    Appends of a broker call it (`CommitLog.on_due`). For all others a look every `flushIntervalConsumeQueue` is enough:
    if it comes too late, the put itself makes the file.

    Args:
        commit_log: The log.
        config: The store's configuration.
        tells_refusal: Whether it logs that puts are refused (`CommitLog.refusal`), and that this is over: for a
            broker, since whoever puts by himself gets the error.
    """

    def __init__(self, commit_log: CommitLog, config: MessageStoreConfig, *, tells_refusal: bool) -> None:
        self._commit_log = commit_log
        self._interval_s = config.flush_interval_consume_queue / 1000
        self._wake = Event()
        self._stopping = False
        self._thread = ServiceThread(self._run, "reput-allocate")
        self._tells_refusal = tells_refusal
        self._refused = RepeatedFailure(commit_log.queue.folders[0], "puts are refused", "puts are accepted again")
        commit_log.on_due = self._wake.set

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread; a file that is being made is finished first."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        log = self._commit_log
        while True:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            refusal = log.refusal
            if self._tells_refusal and not isinstance(refusal, StoreStateError):  # else the store is closed
                self._refused.tell(refusal)
            if self._stopping or log.failure is not None:
                return
            try:
                log.make_ready()
            except StoreFullError:
                continue  # puts raise that error themselves; space may return
            except ReputError as error:
                log.failure = error
            except Exception as error:
                log.failure = StoreError(f"{log.queue.folders[0]}: the thread that makes log files stopped: {error!r}")
                raise
