"""Sources of a `Tail`: the store that this process writes, or one that another process writes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

import numpy as np

from reput.errors import CorruptRecordError, DataLossError, StoreError, StoreFormatError
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.java import INT64_MAX
from reput.formats.record_layout import MIN_RECORD_SIZE, SysFlag
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile, StoreDirectory, is_gone
from reput.log.file_window import WINDOW_BYTES
from reput.log.resume_points import ResumePoint, TailLimit
from reput.log.scan import MAX_ROWS, OnDamage, scan_split
from reput.log.splits import Split
from reput.log.tail import LogTail
from reput.progress import silent
from reput.store.parts import Parts
from reput.store.reader_services import ReaderServices
from reput.store.reads.get import GetMessage
from reput.store.reads.query import QueryMessage
from reput.store.recovery.read_only import open_for_reading
from reput.store.writer_services import WriterServices

#: Seconds between two looks at another process's files: while it puts, and at most where it puts what has no units, and
#: between two checks that its log is the one that was read.
_LOOK_S, _MOST_PAUSE_S = 0.1, 1.0
#: Most messages and bytes of one pull, wherever they lie: they are for this process, not for a network.
_PULL_MESSAGES, _PULL_BYTES = 4096, 1 << 20
#: Most bytes of records whose units a dispatch writes in one go.
_DISPATCHED_TOGETHER = 64 << 20


class TailSource(Protocol):
    """A store that grows.

    Attributes:
        parts: Its log and queues as they are now; others after a `wait`.
        getting: Pulls of many messages.
        querying: Offsets of times.
    """

    parts: Parts
    getting: GetMessage
    querying: QueryMessage

    def news(self) -> set[int] | None:
        """Ids of the topic's queues that may have more than at the last call; None: any of them."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Return once the queues may have more than at the last call, or after a time."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...


def wide_pulls(reader: ReaderServices, parts: Parts) -> GetMessage:
    """Pulls with the limits of a tail."""
    config = replace(
        reader.config,
        max_transfer_count_on_message_in_memory=_PULL_MESSAGES, max_transfer_bytes_on_message_in_memory=_PULL_BYTES,
        max_transfer_count_on_message_in_disk=_PULL_MESSAGES, max_transfer_bytes_on_message_in_disk=_PULL_BYTES,
        max_filter_message_size=_PULL_MESSAGES * UNIT_SIZE,
    )  # fmt: skip
    return GetMessage(parts.log, parts.queues, config, reader.files, reader.path, reader.stats)


class OwnStore:
    """The store that this process writes: its dispatch thread wakes whoever waits."""

    def __init__(self, writer: WriterServices) -> None:
        reader = writer.reader
        self.parts: Parts = writer.parts
        self.getting = wide_pulls(reader, writer.parts)
        self.querying = reader.querying
        self._reput = writer.reput
        self._seen = 0

    def news(self) -> set[int] | None:
        """See `TailSource.news`."""
        return None

    def wait(self, timeout_s: float) -> None:
        """See `TailSource.wait`; raises StoreStateError once the store is closed."""
        before, self._seen = self._seen, self._reput.reput_from_offset
        if self._seen == before:
            self._reput.wait(before + 1, timeout_s)

    def close(self) -> None:
        """Nothing was opened."""


class OtherStore:
    """A store that another process writes: its new records tell which queues may have got units.

    No lock is taken and no byte changed. While nothing comes, a look reads 8 bytes, and once a second the header of the
    record before them: the store may be removed, and made anew. Queue offsets of one log say nothing of another one, so
    a tail ends there with an error. What a look costs depends on the
    records that came and on the topic's queues among them, not on the count of queues: all are opened once, and again
    only if the log is not the one that was read.
    """

    def __init__(self, reader: ReaderServices, topic: str) -> None:
        parts = reader.parts
        if parts.report.hides_queues or parts.queues.lacks_files_of(topic):
            raise StoreFormatError(
                f"{reader.path}: a tail follows queue files, and queues of this store are in a RocksDB, whose newest "
                "units RocketMQ has in memory alone; let a consumer ask the broker, or read the log with read_log"
            )
        self._reader = reader
        self._topic = topic
        folder = reader.config.store_path_commit_log
        self._log = LogTail(StoreDirectory(reader.path, commit_log_path=folder, files=reader.files))
        self._opened: Parts | None = None
        self._point = self._opened_end(reader.parts)
        self._check_at = 0.0
        self._news: set[int] | None = None
        #: By queue id, the queue offset up to which units are to come.
        self._awaited: dict[int, int] = {}
        self._pause_s = _LOOK_S
        self._use(reader.parts)
        #: Whether there are records that no look has taken over.
        self._is_behind = reader.parts.queues.max_physical_offset < reader.parts.log.max_offset

    def _use(self, parts: Parts) -> None:
        self.parts = parts
        self.getting = wide_pulls(self._reader, parts)
        self.querying = QueryMessage(parts.log, parts.index, self._reader.files)

    def news(self) -> set[int] | None:
        """See `TailSource.news`."""
        news, self._news = self._news, set()
        return news

    def wait(self, timeout_s: float) -> None:
        """See `TailSource.wait`.

        Raises:
            CorruptStoreError: Damage because of which not even a reader can open the store.
            DataLossError: The log is gone, or is another one.
        """
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(self._pause_s, left))
            if time.monotonic() >= self._check_at:
                self._check_log()
            if self._has_grown() and self._look():
                self._pause_s = _LOOK_S
                return

    def _has_grown(self) -> bool:
        """Whether records follow, or records are there whose units may come."""
        return self._is_behind or bool(self._awaited) or self._log.is_written(self.parts.log.max_offset)

    def _look(self) -> bool:
        """Take over what follows; False if nothing of the topic came. If nothing came, the next look is later."""
        self._check_log()
        self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)
        must_open, self._is_behind = self._opened is None or self._is_behind, True  # a look that fails took over a part
        has_come = self._open() if must_open else self._follow_or_open()
        self._is_behind = False
        return has_come

    def _follow_or_open(self) -> bool:
        try:
            return self._follow()
        except CorruptRecordError:
            return self._open()
        except StoreError as error:
            if not is_gone(error):
                raise
            return self._open()

    def _check_log(self) -> None:
        """Raise DataLossError if the log is not the one that was read."""
        try:
            self._log.check_log(self._point)
        except DataLossError as error:
            raise DataLossError(f"{error}; make another tail, of the log as it is now") from None
        self._check_at = time.monotonic() + _MOST_PAUSE_S

    def _opened_end(self, parts: Parts) -> ResumePoint:
        """The end of the log as it was when the store was opened; raises DataLossError if it is another one by now."""
        try:
            point = self._end_of(parts)
        except StoreFormatError:  # a file was cut: the first read or look says which one
            return ResumePoint(parts.log.max_offset)
        newest_ms = parts.log.last_store_timestamp
        if point.offset != parts.log.max_offset or (point.last and point.last.store_timestamp > newest_ms):
            raise DataLossError(
                f"{self._log.directory.path}: the log is not the one that was opened: that one ended at "
                f"{parts.log.max_offset} with a record of {np.datetime64(newest_ms, 'ms')}Z, and there is now "
                f"{point.last or 'no record'} before {point.offset}; open the store again"
            )
        return point

    def _end_of(self, parts: Parts) -> ResumePoint:
        """Resume point at the log's end, with the record before it."""
        end, last = parts.log.max_offset, max(parts.queues.last_record_offset, parts.log.min_offset)
        return self._log.advance(ResumePoint(last), TailLimit(end_offset=end)) if last < end else ResumePoint(end)

    def _open(self) -> bool:
        """Open the store as it is now."""
        reader, before = self._reader, self.parts.queues
        parts = open_for_reading(reader.path, reader.config, reader.files, silent, before.last_record_offset)
        is_new = parts.queues.max_physical_offset != before.max_physical_offset
        self.close()
        self._opened, self._news, self._awaited = parts, None, {}
        self._use(parts)
        end, last = parts.log.max_offset, max(parts.queues.last_record_offset, parts.log.min_offset)
        self._point = self._end_of(parts)
        # Dispatch writes the units of many records queue by queue: those of earlier records may be missing, too.
        self._await(max(last - _DISPATCHED_TOGETHER, parts.log.min_offset), end, is_record_start=False)
        self._take_awaited()
        return is_new

    def _follow(self) -> bool:
        """Take over the records that follow, and the units that are there now."""
        log, begin = self.parts.log, self._point
        files = log.queue.mapped_files
        if not files or not self._reader.files.exists(files[0].path):  # retention has deleted it
            return self._open()
        end = self._log.advance(begin)
        if end is not begin:
            if end.offset > files[-1].start_offset + files[-1].size:
                log.queue.follow(self._log.directory.log_files())
            log.queue.show_from(begin.offset)
            log.start_at(end.offset)
            self._point, self._pause_s = end, _LOOK_S
            if not self._await(begin.offset, end.offset, is_record_start=True):
                return self._open()
        return self._take_awaited()

    def _await(self, begin: int, end: int, *, is_record_start: bool) -> bool:
        """Await the units of the topic's records in a range of the log; False if a queue has such units already.

        A queue that has units of later records was removed, and begins anew.
        """
        queues, topic, is_new = self.parts.queues, self._topic.encode(), True
        for file in self.parts.log.queue.mapped_files:
            low, high = max(begin, file.start_offset), min(end, file.start_offset + file.size)
            if low >= high:
                continue
            log_file = LogFile(file.path, file.start_offset, file.size)
            split = Split(log_file, low, high, is_record_start or low == file.start_offset)
            scan = scan_split(
                split,
                level=ScanLevel.PROPERTIES,
                check_crc=False,
                on_damage=OnDamage.END,
                files=self._reader.files,
                window_bytes=min(high - low, WINDOW_BYTES),
                max_rows=min((high - low) // MIN_RECORD_SIZE + 1, MAX_ROWS),
            )
            for scanned in scan:
                columns, _ = add_multi_dispatch_rows(scanned, enable_lmq=True, any_topic=True)
                kind = columns["sys_flag"] & SysFlag.TRANSACTION_MASK
                has_unit = (kind != SysFlag.TRANSACTION_PREPARED) & (kind != SysFlag.TRANSACTION_ROLLBACK)
                numbers, offsets = columns["queue"][has_unit], columns["queue_offset"][has_unit]
                names = columns.queues()
                firsts, lasts = np.full(len(names), INT64_MAX), np.full(len(names), -1, np.int64)
                np.minimum.at(firsts, numbers, offsets)
                np.maximum.at(lasts, numbers, offsets)
                for (name, queue_id), first, last in zip(names, firsts.tolist(), lasts.tolist(), strict=True):
                    if name == topic and last >= 0:
                        queue = queues.find(self._topic, queue_id)
                        is_new = is_new and (queue is None or first >= queue.max_offset)
                        self._awaited[queue_id] = max(self._awaited.get(queue_id, 0), last + 1)
        return is_new

    def _take_awaited(self) -> bool:
        """Take over awaited units that are there now; False without any."""
        queues, topic = self.parts.queues, self._topic
        if self._reader.files.exists(f"{queues.batch.path}/{topic}"):
            queues.types.batch.add(topic)
        awaited = {(topic, queue_id): end for queue_id, end in self._awaited.items()}
        before = {key: queues.max_offset(key) for key in awaited}
        queues.follow(awaited, self.parts.log.max_offset, self.parts.log.last_store_timestamp)
        grown = {key[1] for key, end in before.items() if queues.max_offset(key) > end}
        self._awaited = {key[1]: end for key, end in awaited.items() if queues.max_offset(key) < end}
        if self._news is not None:
            self._news |= grown
        return bool(grown)

    def close(self) -> None:
        """Close what was opened; the messages that were given stay readable."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
