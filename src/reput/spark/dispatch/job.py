"""`dispatch`: external dispatch of the logs of stores as a Structured Streaming query, or as a loop in this process.

A micro-batch dispatches one batch of each log, from its mark on. Tasks scan a large batch and write its queues, in
Spark's executors or in threads; the driver dispatches a small one, and commits both.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.errors import ConfigError, ReputError
from reput.files import DISK
from reput.files.attempts import end_attempts
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import CONFIG
from reput.jobs.job_folder import JOB_FILE, STATE, JobFolder, Option
from reput.jobs.runner import LocalRunner, Runner
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import ATTEMPTS, SETTINGS, WORK_FOLDER, read_config
from reput.log.geometry.file_sizes import find_writer_sizes
from reput.log.stores import store_names
from reput.log.tail import LogTail
from reput.spark.arguments import check_arguments, paths_of
from reput.spark.dispatch.dispatcher import BatchDispatcher, Target
from reput.store.dispatch.locks import lock_dispatcher
from reput.store.dispatch.log_dispatch import DispatchedBatch, LogDispatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reput.kernels.queues.consume_queue_ext import BitMaps

#: Time between two looks at a log without new records.
_IDLE_WAIT_S = 0.01
#: Time between two checks whether the query shall stop.
_STOP_WAIT_S = 1
#: Folder of Spark's checkpoint in the folder of what is removed again.
_CHECKPOINT = "checkpoint"
#: Of the output: queues and index, and the folder of the checkpoint.
_LAYOUT = "dispatch 1"


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """Result of a dispatcher.

    Attributes:
        end_offsets: for each store, by its path, the commit log offset of the first record that is not dispatched.
        messages: count of dispatched records.
        log_bytes: bytes of these records.
        batches: count of batches.
        max_lag_ms: longest time from the store time of a batch's first record to the batch's commit; for records that
            are older than the dispatcher, their age.
        seconds: time of work, without waiting.
    """

    end_offsets: Mapping[str, int]
    messages: int = 0
    log_bytes: int = 0
    batches: int = 0
    max_lag_ms: int = 0
    seconds: float = 0.0

    def after(self, batch: DispatchedBatch) -> DispatchResult:
        """The result with one more batch."""
        return DispatchResult(
            {**self.end_offsets, batch.store: batch.end_offset}, self.messages + batch.messages,
            self.log_bytes + batch.log_bytes, self.batches + 1, max(self.max_lag_ms, batch.lag_ms),
            self.seconds + batch.seconds,
        )  # fmt: skip


def dispatch(
    store_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
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

    The store may be live, in another process or on another machine that shares the file system. The files are
    byte for byte as the store's own dispatch makes them. Open an output for reading with `store_path_commit_log` set to
    the store's log. Its file sizes, extensions and light queues are as in the store's files, else RocketMQ's defaults.

    Each batch is durable when the next one begins. A dispatcher that was killed continues when it is started again with
    the same output.

    Args:
        store_path: the store's directory; or a list of several stores, which one query dispatches.
        output: a separate folder, made if it is missing; of several stores each has a folder in it, by its name. None:
            the store's own folders; the store must have been opened with `dispatch="external"`, whose configuration
            counts, and may be opened and closed meanwhile.
        session: the Spark session that runs the query (a classic one: Spark Connect runs a query's Python elsewhere).
            None: a loop in this process, with threads for large batches.
        once: dispatch the records that are there, then return; else only `stop` or an error ends the dispatcher.
        commit_log_path: folder of the log, if it is not `commitlog` below the store; of one store only.
        settings: keys of the configuration for an output; they go before the store's files.
        bit_maps: as for `MessageStore.open`; this process makes them, so no tasks dispatch large batches.
        on_batch: called after each commit, in the thread that dispatches.
        stop: ends the dispatcher after its current batch.

    Raises:
        StoreFormatError: no store, or an output of another job or with other files.
        ConfigError: the output was begun with other options, or with stores beside which one of these had another
            name; or lies in the store; a session of Spark Connect.
        StoreLockedError: another dispatcher works there.
        StoreStateError: no `output`, and the store dispatches by itself.
        DataLossError: the log is another one than the dispatched log, or retention was faster.
        CorruptRecordError: damage in the log.
        StoreFullError: no space.
    """
    given = locals()
    check_arguments(**{name: value for name, value in given.items() if name != "session" or value is not None})
    if session is not None and getattr(session, "sparkContext", None) is None:
        raise ConfigError("dispatch needs a classic Spark session: Spark Connect runs a query's Python on its server")
    paths = paths_of("store_path", store_path)
    if commit_log_path is not None and len(paths) > 1:
        raise ConfigError("dispatch takes one store or several, and the folder of a log for one store alone")
    directories = [StoreDirectory(path, commit_log_path=commit_log_path) for path in paths]
    if len({directory.path for directory in directories}) < len(paths):
        raise ConfigError(f"{', '.join(directory.path for directory in directories)}: a store is named twice")
    names = [""] if len(paths) == 1 else store_names(directories)
    outputs = [os.path.join(output, name) if name else output for name in names] if output is not None else []
    for directory, folder in product(directories, outputs):  # of several stores, too, before anything is made
        directory.check_output(folder)
    if output is not None:
        _check_places(output, directories, names)
    with ExitStack() as held:
        dispatchers = {}
        for number, directory in enumerate(directories):
            if output is None:
                target = _own_folders(directory, settings, held)
            else:
                target = _output(directory, outputs[number], settings or {}, held)
            log = LogDispatch(directory, target.path, target.config, in_store=output is None, bit_maps=bit_maps)
            dispatcher = BatchDispatcher(
                log, LogTail(directory), target, with_tasks=bit_maps is None, scans_ahead=len(directories) == 1
            )
            held.callback(dispatcher.close)
            dispatchers[directory] = dispatcher
        given_log = None if commit_log_path is None else ",".join(directories[0].commit_log_folders)
        return _Run(dispatchers, given_log, on_batch, stop or threading.Event(), once=once).run(session)


def _check_places(output: str | os.PathLike[str], directories: Sequence[StoreDirectory], names: Sequence[str]) -> None:
    """Check that no store has its queues elsewhere in an output: its name there depends on the stores beside it."""
    for directory, name in zip(directories, names, strict=True):
        parts = directory.path.strip("/").split("/")
        for former in ("/".join(parts[begin:]) for begin in range(len(parts) + 1)):
            place = os.path.join(output, former).rstrip("/")
            if former != name and DISK.exists(os.path.join(place, STATE, JOB_FILE)):
                raise ConfigError(
                    f"{place}: has queues of a run with other stores, and beside these the folder of {directory.path} "
                    f"would be {os.path.join(output, name).rstrip('/')}; give the stores of that run, or another folder"
                )


def _output(
    directory: StoreDirectory, output: str | os.PathLike[str], settings: Mapping[str, object], held: ExitStack
) -> Target:
    if unknown := sorted(settings.keys() - set(SETTINGS)):
        raise ConfigError(f"{', '.join(unknown)}: dispatch takes {', '.join(map(camel_case, SETTINGS))}")
    options: dict[str, Option] = {"store": directory.path, "log": list(directory.commit_log_folders)}
    options |= {name: str(value) for name, value in settings.items()}
    config = read_config(os.fspath(output), DISK) or written_config(directory, settings)
    folder = held.enter_context(JobFolder(output, "dispatch", options, layout=_LAYOUT))
    return Target(folder.path, config, _empty_work(folder.state_folder("work")))


def _own_folders(directory: StoreDirectory, settings: Mapping[str, object] | None, held: ExitStack) -> Target:
    if settings:
        raise ConfigError("settings: in a store's own folders the configuration counts that it was opened with")
    held.callback(lock_dispatcher(directory.path, DISK).release)
    config = read_config(directory.path, DISK)
    assert config is not None, "the lock is only given if there are marks"
    return Target(directory.path, config, _empty_work(os.path.join(directory.path, CONFIG, WORK_FOLDER)))


def _empty_work(folder: str) -> str:
    """Remove what a killed dispatcher has left, once its tasks have ended."""
    end_attempts(os.path.join(folder, ATTEMPTS), DISK)
    if DISK.exists(folder):
        DISK.remove_tree(folder)
    return folder


class _Run:
    """Dispatchers of one call from its start to its end."""

    def __init__(
        self,
        dispatchers: Mapping[StoreDirectory, BatchDispatcher],
        commit_log_path: str | None,
        on_batch: Callable[[DispatchedBatch], None],
        stop: threading.Event,
        *,
        once: bool,
    ) -> None:
        self._dispatchers = dispatchers
        self._commit_log_path = commit_log_path
        self._on_batch = on_batch
        self._stop = stop
        self._once = once
        self._started_ms = int(time.time() * 1000)
        #: With `once`, the dispatchers that have come to what was stored later.
        self._done: set[BatchDispatcher] = set()
        self._failure: BaseException | None = None
        self._working = threading.Lock()
        self._result = DispatchResult({log.path: one.log.point.offset for log, one in dispatchers.items()})

    def run(self, session: SparkSession | None) -> DispatchResult:
        """Dispatch until the end of the logs (with `once`), or until `stop` is set."""
        with suppress(KeyboardInterrupt):
            if session is not None:
                self._query(session)
            else:
                runner = LocalRunner()
                while self._run_batches(runner) or not (self._once or self._stop.wait(_IDLE_WAIT_S)):
                    pass
        return self._result

    def _run_batches(self, runner: Runner) -> bool:
        """Dispatch a batch of each log that has one; returns whether any had.

        With `once` a log ends with the records that were stored before the start.
        """
        with self._working:
            found = False
            for dispatcher in self._dispatchers.values():
                if self._stop.is_set():
                    return False
                if dispatcher in self._done or (batch := dispatcher.run_once(runner)) is None:
                    continue
                found = True
                self._result = self._result.after(batch)
                self._on_batch(batch)
                if self._once and batch.last_store_timestamp > self._started_ms:
                    self._done.add(dispatcher)
            return found

    def _query(self, session: SparkSession) -> None:
        from pyspark.errors import StreamingQueryException

        from reput.spark.compat import AVAILABLE_NOW_IS_ONE_BATCH
        from reput.spark.dispatch.source import DispatchSource
        from reput.spark.runner import SparkRunner
        from reput.spark.short_errors import reason_of

        runner = SparkRunner(session)

        def run_batch(frame: DataFrame, number: int) -> None:
            try:
                while self._run_batches(runner) and self._once and AVAILABLE_NOW_IS_ONE_BATCH:
                    pass
            except BaseException as error:  # Spark passes on only its text
                self._failure = error
                raise

        session.dataSource.register(DispatchSource)
        logs = [
            {"path": log.path, "commit_log_path": self._commit_log_path, "marks": dispatcher.target.path}
            for log, dispatcher in self._dispatchers.items()
        ]
        offsets = session.readStream.format("reput-dispatch").option("logs", json.dumps(logs)).load()
        checkpoint = os.path.join(next(iter(self._dispatchers.values())).target.work, _CHECKPOINT)
        writer = offsets.writeStream.foreachBatch(run_batch).option("checkpointLocation", checkpoint)
        query = (writer.trigger(availableNow=True) if self._once else writer).start()
        try:
            while not query.awaitTermination(_STOP_WAIT_S) and not self._stop.is_set():
                pass
        except StreamingQueryException as error:
            if isinstance(self._failure, ReputError):
                raise self._failure from None
            raise ReputError(f"dispatch: Spark gave the query up: {reason_of(error)}") from error
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
    stored = find_writer_sizes(directory, MessageStoreConfig.from_mapping(settings))
    if any(queue.topic.startswith(LMQ_PREFIX) for queue in directory.queues()):
        stored["enable_lmq"] = stored["enable_multi_dispatch"] = True
    return MessageStoreConfig.from_mapping({**stored, **settings})
