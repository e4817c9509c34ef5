"""`dispatch`: external dispatch of a store's log as a Structured Streaming query, or as a loop in this process.

The query runs the batches of `LogDispatch` one after the other in the driver: a queue's offsets and an index file's
chains follow the order of the whole log, so there is one writer. Spark triggers the batches and shows their progress.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.errors import ConfigError, ReputError
from reput.files import DISK
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import CONFIG
from reput.jobs.job_folder import JobFolder, Option
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import SETTINGS, read_config
from reput.log.geometry.file_sizes import find_writer_sizes
from reput.store.dispatch.locks import lock_dispatcher
from reput.store.dispatch.log_dispatch import DispatchedBatch, LogDispatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reput.kernels.queues.consume_queue_ext import BitMaps

#: Time between two looks at a log without new records.
_IDLE_WAIT_S = 0.01
#: Time between two checks whether the query shall stop.
_STOP_WAIT_S = 1
#: Folder of Spark's checkpoint in the folder `config` of a store; an output has it in its job folder.
_CHECKPOINT = "reputDispatchCheckpoint"
#: Of the output: queues and index, and the folder of the checkpoint.
_LAYOUT = "dispatch 1"


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """Result of a dispatcher.

    Attributes:
        end_offset: commit log offset of the first record that is not dispatched.
        messages: count of dispatched records.
        log_bytes: bytes of these records.
        batches: count of batches.
        max_lag_ms: longest time from the store time of a batch's first record to the batch's commit; for records that
            are older than the dispatcher, their age.
        seconds: time of work, without waiting.
    """

    end_offset: int
    messages: int = 0
    log_bytes: int = 0
    batches: int = 0
    max_lag_ms: int = 0
    seconds: float = 0.0

    def after(self, batch: DispatchedBatch) -> DispatchResult:
        """The result with one more batch."""
        return DispatchResult(
            batch.end_offset, self.messages + batch.messages, self.log_bytes + batch.log_bytes, self.batches + 1,
            max(self.max_lag_ms, batch.lag_ms), self.seconds + batch.seconds,
        )  # fmt: skip


def dispatch(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    session: SparkSession | None,
    once: bool = False,
    commit_log_path: str | os.PathLike[str] | None = None,
    settings: Mapping[str, object] | None = None,
    bit_maps: BitMaps | None = None,
    on_batch: Callable[[DispatchedBatch], None] = lambda batch: None,
    stop: threading.Event | None = None,
) -> DispatchResult:
    """Follow the log of a store and keep its queues, extensions and index up to date, in `output` or its own folders.

    The store may be live, in another process or on another machine that shares the file system. The files are equal,
    byte for byte, to those of the store's own dispatch. Open an output for reading with `store_path_commit_log` set to
    the store's log. Its file sizes, extensions and light queues are as in the store's files, else RocketMQ's defaults.

    Each batch is durable when the next one begins. A dispatcher that was killed continues when it is started again with
    the same output.

    Args:
        store_path: the store's directory.
        output: a separate folder, made if it is missing. None: the store's own folders; the store must have been
            opened with `dispatch="external"`, whose configuration counts, and may be opened and closed meanwhile.
        session: the Spark session that runs the query (a classic one: Spark Connect runs a query's Python elsewhere).
            None: a loop in this process.
        once: dispatch the records that are there, then return; else only `stop` or an error ends the dispatcher.
        commit_log_path: folder of the log, if it is not `commitlog` below the store.
        settings: keys of the configuration for an output; they go before the store's files.
        bit_maps: as for `MessageStore.open`.
        on_batch: called after each commit, in the thread that dispatches.
        stop: ends the dispatcher after its current batch.

    Raises:
        StoreFormatError: no store, or an output of another job or with other files.
        ConfigError: the output was begun with other options, or lies in the store; a session of Spark Connect.
        StoreLockedError: another dispatcher works there.
        StoreStateError: no `output`, and the store dispatches by itself.
        DataLossError: the log is another one than the dispatched log, or retention was faster.
        CorruptRecordError: damage in the log.
        StoreFullError: no space.
    """
    if session is not None and getattr(session, "sparkContext", None) is None:
        raise ConfigError("dispatch needs a classic Spark session: Spark Connect runs a query's Python on its server")
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    with ExitStack() as held:
        if output is None:
            target = _own_folders(directory, settings, held)
        else:
            target = _output(directory, output, settings or {}, held)
        dispatcher = LogDispatch(directory, target.path, target.config, in_store=output is None, bit_maps=bit_maps)
        held.callback(dispatcher.close)
        return _Run(dispatcher, on_batch, stop or threading.Event(), once=once).run(session, directory, target)


@dataclass(frozen=True, slots=True)
class _Target:
    """Folder and configuration of the files that are written, and the folder of Spark's checkpoint."""

    path: str
    config: MessageStoreConfig
    checkpoint: str


def _output(
    directory: StoreDirectory, output: str | os.PathLike[str], settings: Mapping[str, object], held: ExitStack
) -> _Target:
    directory.check_output(output)
    if unknown := sorted(settings.keys() - set(SETTINGS)):
        raise ConfigError(f"{', '.join(unknown)}: dispatch takes {', '.join(map(camel_case, SETTINGS))}")
    options: dict[str, Option] = {"store": directory.path, "log": list(directory.commit_log_folders)}
    options |= {name: str(value) for name, value in settings.items()}
    config = read_config(os.fspath(output), DISK) or written_config(directory, settings)
    folder = held.enter_context(JobFolder(output, "dispatch", options, layout=_LAYOUT))
    return _Target(folder.path, config, folder.state_folder("checkpoint"))


def _own_folders(directory: StoreDirectory, settings: Mapping[str, object] | None, held: ExitStack) -> _Target:
    if settings:
        raise ConfigError("settings: in a store's own folders the configuration counts that it was opened with")
    held.callback(lock_dispatcher(directory.path, DISK).release)
    config = read_config(directory.path, DISK)
    assert config is not None, "the lock is only given where there are marks"
    return _Target(directory.path, config, os.path.join(directory.path, CONFIG, _CHECKPOINT))


class _Run:
    """One dispatcher from its start to its end."""

    def __init__(
        self, dispatcher: LogDispatch, on_batch: Callable[[DispatchedBatch], None], stop: threading.Event, *, once: bool
    ) -> None:
        self._dispatcher = dispatcher
        self._on_batch = on_batch
        self._stop = stop
        self._once = once
        self._started_ms = int(time.time() * 1000)
        self._failure: BaseException | None = None
        self._working = threading.Lock()
        self._result = DispatchResult(end_offset=dispatcher.position.offset)

    def run(self, session: SparkSession | None, directory: StoreDirectory, target: _Target) -> DispatchResult:
        """Dispatch until the end of the log (with `once`), or until `stop` is set."""
        with suppress(KeyboardInterrupt):
            if session is not None:
                self._query(session, directory, target)
            else:
                self._drain()
                while not self._once and not self._stop.wait(_IDLE_WAIT_S):
                    self._drain()
        return self._result

    def _drain(self) -> None:
        """Dispatch all new records; with `once` only records that were stored before the dispatcher began."""
        with self._working:
            while not self._stop.is_set() and (batch := self._dispatcher.run_once()) is not None:
                self._result = self._result.after(batch)
                self._on_batch(batch)
                if self._once and batch.last_store_timestamp > self._started_ms:
                    break

    def _query(self, session: SparkSession, directory: StoreDirectory, target: _Target) -> None:
        from pyspark.errors import StreamingQueryException

        from reput.spark.dispatch_trigger import DispatchTriggerSource

        def run_batch(frame: DataFrame, number: int) -> None:
            try:
                self._drain()
            except BaseException as error:  # Spark passes on only its text
                self._failure = error
                raise

        session.dataSource.register(DispatchTriggerSource)
        folders = ",".join(directory.commit_log_folders)
        options = {"path": directory.path, "folders": folders, "marks": target.path}
        ticks = session.readStream.format("reput-dispatch").options(**options).load()
        if DISK.exists(target.checkpoint):
            DISK.remove_tree(target.checkpoint)  # the marks count: an old checkpoint could only be wrong
        writer = ticks.writeStream.foreachBatch(run_batch).option("checkpointLocation", target.checkpoint)
        query = (writer.trigger(availableNow=True) if self._once else writer).start()
        try:
            while not query.awaitTermination(_STOP_WAIT_S) and not self._stop.is_set():
                pass
        except StreamingQueryException as error:
            if isinstance(self._failure, ReputError):
                raise self._failure from None
            raise ReputError(f"dispatch: Spark gave the query up: {str(error).partition(chr(10))[0]}") from error
        finally:
            self._stop.set()
            query.stop()
            with self._working:  # Spark does not wait for a running batch of Python's
                pass


def written_config(directory: StoreDirectory, settings: Mapping[str, object]) -> MessageStoreConfig:
    """Configuration of an output: by `settings`, else by the files of the store, else RocketMQ's defaults.

    Raises:
        ConfigError: an unknown setting, or a wrong value.
        StoreFormatError: files of several sizes, or index files whose geometry must be given.
    """
    sizes = find_writer_sizes(directory, MessageStoreConfig.from_mapping(settings))
    stored = sizes.values
    if sizes.has_extensions:
        stored["enable_consume_queue_ext"] = True
    if any(queue.topic.startswith(LMQ_PREFIX) for queue in directory.queues()):
        stored["enable_lmq"] = stored["enable_multi_dispatch"] = True
    return MessageStoreConfig.from_mapping({**stored, **settings})
