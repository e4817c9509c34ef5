"""MessageStore: the face of an open store, over its `ReaderServices` and its `WriterServices`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Literal, Self, Unpack
from weakref import WeakSet

from reput.config.arguments import (
    Check,
    an_object_of,
    check_call,
    check_flag,
    check_function,
    check_path,
    check_seconds,
    optional,
)
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, StoreStateError
from reput.files import DISK, FileLayer
from reput.kernel_loader import load_kernels
from reput.log.object_storage import check_file_layer, check_on_disk
from reput.log.store_host import encode_store_host
from reput.progress import Progress, silent
from reput.store.message_writer import MessageWriter
from reput.store.unclosed import close_forgotten, wait_for_forgotten

if TYPE_CHECKING:
    from reput.config.message_store_options import MessageStoreOptions
    from reput.kernels.queues.consume_queue_ext import BitMaps
    from reput.kernels.records.columns import RecordColumns
    from reput.store.group_offsets import GroupOffsets
    from reput.store.reader_services import ReaderServices
    from reput.store.runtime_info import RuntimeInfo
    from reput.store.statistics import TopicCounts
    from reput.store.tail_source import TailSource
    from reput.store.writer_services import WriterServices

#: Checks of the arguments of `open`.
_CHECKS: dict[str, Check] = {
    "path": check_path,
    "read_only": check_flag,
    "small": check_flag,
    "retention": check_flag,
    "config": optional(an_object_of(MessageStoreConfig)),
    "on_arrival": optional(check_function),
    "bit_maps": optional(check_function),
    "progress": check_function,
    "files": check_file_layer,
}


class MessageStore(MessageWriter):
    """A RocketMQ message store in a directory: one writer at a time, any number of readers.

    Made by `open`; a context manager that closes it. Every method may be called from any thread. The verbs that write
    are inherited from `MessageWriter`, those that only read from `MessageReader`.
    """

    def __init__(self, path: str, reader: ReaderServices, writer: WriterServices | None) -> None:
        super().__init__(path, reader, writer)
        self._closing = Lock()
        self._is_closed = False
        self._refusal = StoreStateError(f"{path}: the store is closed")
        if writer is not None:
            _writers.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        small: bool = False,
        retention: bool = False,
        dispatch: Literal["thread", "external", "caller"] = "thread",
        config: MessageStoreConfig | None = None,
        on_arrival: Callable[[RecordColumns], None] | None = None,
        bit_maps: BitMaps | None = None,
        progress: Progress = silent,
        files: FileLayer = DISK,
        **options: Unpack[MessageStoreOptions],
    ) -> Self:
        """Open a store, or make one if nothing is there; recover it if its writer was killed.

        Args:
            path: The store's directory (`storePathRootDir`).
            read_only: Take no lock and change no byte: what queues and index of a live, killed or closed store show.
            small: Make a new store with files so small that it takes 1 MB; a message has 500 KB at most. By RocketMQ's
                sizes it takes 60 MB, and looks like 1.5 GB. A store that has files keeps their sizes.
            retention: Delete commit log files that have expired, by hour, age and disk, and refuse puts on a full disk,
                as RocketMQ does; otherwise only `delete_expired` deletes. A start on a full disk deletes them first
                (`recovery.deleted_files`).
            dispatch: Who keeps queues and index up to date: "thread", a thread of this store, or "external", another
                process that follows the log, `reput dispatch PATH`. Without such a process get and query see nothing
                new, and `dispatch_behind_bytes` grows. "caller": an event loop that wants no other thread beside it,
                with `loop_writer`.
            config: All configuration; `MessageStoreConfig` has the defaults, RocketMQ's but for SYNC_FLUSH. Sizes of
                files that are left out are taken from the files that are there.
            on_arrival: Called by the dispatch thread with the columns of newly dispatched records; one that names light
                queues has a further row for each of them, with that queue's name and offset. The columns are
                the listener's own and stay valid after the call; held, they keep the space of a deleted log file taken.
                Dispatch waits for the call. An error of the listener is logged (logger `reput.store`), of errors in
                successive calls the first, and dispatch goes on.
            bit_maps: With enableConsumeQueueExt: called with the columns of each scan that is dispatched, it gives the
                bit maps for its rows (a pyarrow BinaryArray; null for none), or None. RocketMQ's broker computes them
                from the consumers' SQL filters (`CommitLogDispatcherCalcBitMap`).
            progress: Called with (bytes done, bytes in all, what is done) while a recovery runs.
            files: The file layer.
            options: RocketMQ's keys in snake_case or camelCase, over `config`; `MessageStoreOptions` has their types.

        Raises:
            ConfigError: An unknown key, with the nearest known one, or a wrong value; a key that asks for what RocketMQ
                writes and reput cannot; `brokerIP1` has no address.
            StoreLockedError: Another process, RocketMQ's own included, or this one has it open for writing.
            StoreFormatError: No store, a foreign file, files of another size than given. Nothing was changed.
            CorruptRecordError: Damage that is no torn tail. Nothing was changed.
            CorruptConsumeQueueError: The only queue file, which would have the size, was cut. Nothing was changed.
            StoreFullError: No space.
        """
        check_call(_CHECKS, locals())
        settings = MessageStoreConfig.from_mapping(options, config)
        encode_store_host(settings)
        check_on_disk(path)
        root = os.path.abspath(os.path.expanduser(path))
        if dispatch not in ("thread", "external", "caller"):
            raise ConfigError(f"dispatch={dispatch!r}: expected 'thread', 'external' or 'caller'")
        if dispatch == "external" and (on_arrival is not None or bit_maps is not None):
            raise ConfigError('dispatch="external": on_arrival and bit_maps belong to the process that dispatches')
        from reput.store.reader_services import ReaderServices  # late, as it imports Numba
        from reput.store.writer_services import WriterServices

        if read_only:
            return cls(root, ReaderServices.open(root, settings, files, progress), None)
        settings.require_startable()
        load_kernels()
        wait_for_forgotten(root)
        writer = WriterServices.open(
            root, settings, files, progress,
            small=small, retention=retention, dispatch=dispatch, on_arrival=on_arrival, bit_maps=bit_maps,
        )  # fmt: skip
        return cls(root, writer.reader, writer)

    # -- dispatch

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that queues and index do not have yet."""
        return self._writer.reput.dispatch_behind_bytes if self._writer is not None else 0

    @property
    def topic_counts(self) -> Mapping[str, TopicCounts]:
        """Counts of puts and pulls by topic since the store was opened; the table grows, and its values change."""
        return self._stats.topics

    def runtime_info(self) -> RuntimeInfo:
        """Sizes, offsets, rates, latencies, topics, groups and index files at this moment (`getRuntimeInfo`).

        A read-only store shows what is on the disk since it was opened; what only the writer counts is None then.
        """
        self._check_open()
        return (self._writer or self._reader).runtime_info()

    def wait_dispatched(self, timeout: float = 10) -> None:
        """Return once queues and index have everything that was put before the call.

        Raises:
            TimeoutError: They have not after `timeout` seconds.
            ReputError: Dispatch cannot go on.
        """
        self._check_open()
        check_seconds("timeout", timeout, may_be_zero=True)
        if self._writer is not None:
            self._writer.wait_dispatched(timeout)

    def _tail_source(self, topic: str) -> TailSource:
        if self._writer is None:
            return super()._tail_source(topic)
        from reput.store.dispatch.by_caller import DispatchByCaller
        from reput.store.tail_source import OwnStore

        if isinstance(self._writer.reput, DispatchByCaller):
            raise StoreStateError(f"{self.path}: a broker has this store; ask it for messages, as with reput.client")
        return OwnStore(self._writer)

    def _group_offsets(self) -> GroupOffsets:
        return super()._group_offsets() if self._writer is None else self._writer.group_offsets

    # -- lifecycle

    def close(self) -> None:
        """Sync and dispatch everything, mark the exit as clean, release the lock. Closing again does nothing.

        Nor does a close while the interpreter ends (by a `__del__`, or a generator that was left): its threads stand
        still by then, and whoever waits for one waits for ever. The next start recovers.

        Raises:
            ReputError: Something could not be made durable; the next start recovers.
        """
        if sys.is_finalizing():
            return
        with self._closing:
            if self._is_closed:
                return
            self._is_open = False
            writer = self._writer
            if writer is None:
                self._is_closed = True
                self._reader.parts.close()
                return
            writer.stop(self._refusal)  # interrupted here threads may still write, so the lock is kept: close again
            self._is_closed = True
            writer.end(self._refusal)

    def __del__(self) -> None:
        """Close a store that nobody can close any more, with a ResourceWarning, as Python does with files."""
        writer = getattr(self, "_writer", None)
        if writer is not None and not self._is_closed and not sys.is_finalizing():
            close_forgotten(self, writer, self._refusal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if not self._is_open else "read-only" if self._writer is None else "open"
        return f"MessageStore({self.path!r}, {state}, max_commit_log_offset={self._log.max_offset})"


_writers: WeakSet[MessageStore] = WeakSet()


def _leave_to_parent() -> None:
    """In a child that was forked: its copy of a store would write over what the parent writes, and end its life."""
    for store in _writers:
        store._is_open, store._is_closed = False, True


os.register_at_fork(after_in_child=_leave_to_parent)
