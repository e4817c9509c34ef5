"""Replay: the messages of a stretch of one store's log into another store, at the pace at which they came.

A replay is a sink like Spark's (`reput.store.sinks.commit`): batches are appended whole or not at all, and the target
remembers the last one. Its number is the source's commit log offset behind its last record, so the target itself knows
how far the replay is, and a replay that was killed goes on there: each message once, whatever is killed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError
from reput.files import DISK, FileLayer
from reput.kernels.message_columns import ASSIGNED
from reput.kernels.record_batch import SCHEMA
from reput.log.directory import StoreDirectory
from reput.log.plan import Part, Plan, PlanOptions, plan_read, read_part
from reput.log.points import Points
from reput.log.pruning import Range, wanted_by
from reput.log.selection import Selection, make_selection
from reput.log.tail import LogTail
from reput.store.sinks.replay_sink import ReplaySink

#: What is due within so much time is put as one batch.
_BATCH_S = 1.0
#: And no more than that: of so much memory.
_BATCH_ROWS, _BATCH_BYTES = 65_536, 32 << 20
_PLACES = ("commit_log_offset", "store_size", "store_timestamp")
_KEPT = [name for name in SCHEMA.names if name not in ASSIGNED]

Progress = Callable[[int, int, str], None]


class Clock(Protocol):
    """The time that a replay goes by."""

    def now_s(self) -> float:
        """Seconds that only grow."""
        ...

    def wait(self, seconds: float) -> None:
        """Come back so much later."""
        ...


class MonotonicClock:
    """The machine's."""

    def now_s(self) -> float:
        """As `Clock`."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """As `Clock`."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """What was put at once.

    Attributes:
        rows: as read, with their places in the source.
        behind_s: how much later it was there than the pace wanted; None for a replay without one, and where the store
            times of the rows are no dates.
    """

    rows: pa.RecordBatch
    behind_s: float | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    Attributes:
        messages, batches: that were put now.
        resumed_at: the source's commit log offset at which it went on; None where it began.
        next_offset: behind the last message that is in the target; None where there is none.
        seconds: of this run.
    """

    messages: int
    batches: int
    resumed_at: int | None
    next_offset: int | None
    seconds: float


def replay(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topics: Sequence[str] | None = None,
    begin: datetime | int | None = None,
    end: datetime | int | None = None,
    speed: float | None = None,
    name: str | None = None,
    config: MessageStoreConfig | None = None,
    commit_log_path: str | os.PathLike[str] | None = None,
    lock_timeout_ms: int = 0,
    clock: Clock | None = None,
    progress: Progress | None = None,
    on_batch: Callable[[ReplayedBatch], None] = lambda batch: None,
    files: FileLayer = DISK,
) -> Replayed:
    """Put messages of one store into another, in log order, with the gaps between their store times.

    Kept are topic, queue id, body, tags, keys, properties, flags, born time and born host; queue offsets and store
    times are the target's. Compressed bodies are put plain, and inner batches one by one, as consumers see them. What
    is appended to the source later is for the next run.

    Args:
        source: the store directory to read; it may be open elsewhere.
        target: the store directory to write; made where nothing is, and open nowhere else while a batch is put.
        topics, begin, end: as of `reput.read_log`: bounds of the store time in the source.
        speed: how many times as fast as they were stored; None: as fast as it goes.
        name: under which the target remembers how far this replay is; None: made of source, topics, begin and end. The
            same replay again puts only what is new; another name replays anew.
        config: of the target; None: RocketMQ's defaults with SYNC_FLUSH.
        commit_log_path: of the source, where its log is not below it.
        lock_timeout_ms: how long to wait while another process has the target open.
        progress: called with (done, in all, what), in bytes, of the target's recovery, then of the source's log.
        on_batch: called when a batch is in the target.

    Raises:
        ConfigError: a speed that is not above 0, a target that is the source or lies inside it, a name under which
            something else was replayed, or a source whose log no longer has the record at which to go on.
        CorruptRecordError: damage in the source.
        MessageIllegalError: a message that RocketMQ would not take from a producer; those before it are put.
        StoreLockedError: the same replay is under way in another process; or as of `MessageStore.open`.
        StoreError: as of `MessageStore.open`.
    """
    clock = clock or MonotonicClock()
    started = clock.now_s()
    if speed is not None and not speed > 0:
        raise ConfigError(f"speed={speed}: expected a number above 0")
    directory = StoreDirectory(source, commit_log_path=commit_log_path, files=files)
    target = os.path.abspath(target)
    if os.path.realpath(target) == os.path.realpath(directory.path):
        raise ConfigError(f"{target}: the target is the source; name another store")
    directory.check_output(target)
    selection = make_selection(
        columns=(*_KEPT, *_PLACES), topics=topics, begin=begin, end=end, store=directory.name, mode="FAILFAST"
    )
    identity = _identity(directory.path, selection)

    def watch_start(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, what)

    with ReplaySink(
        target, config, f"replay-{name or identity}", identity, lock_timeout_ms, watch_start, files
    ) as sink:
        resumed_at = sink.next_offset
        if resumed_at is not None:
            LogTail(directory).at(resumed_at)
        messages = batches = 0
        pace = None if speed is None else _Pace(speed, clock)
        width_ms = None if speed is None else max(round(speed * _BATCH_S * 1000), 1)
        begin_offset = resumed_at or 0
        wanted = replace(wanted_by(selection), commit_log_offset=Range(low=begin_offset))
        plan = plan_read(directory, selection, PlanOptions(processors=1), wanted)
        bounds = [_bounds(part) for part in plan.parts]
        first, last = (bounds[0][0], bounds[-1][1]) if bounds else (0, 0)
        for batch in _batches(_rows(plan, selection, begin_offset, files), width_ms):
            if progress is not None:
                progress(max(int(batch.rows["commit_log_offset"][0].as_py()) - first, 0), last - first, "replay")
            if pace is not None:
                pace.wait_for(batch.last_ms)
            try:
                sink.put(batch.rows.select(_KEPT), batch.end_offset)
            except MessageIllegalError as error:
                raise MessageIllegalError(
                    f"{directory.path}: of the records from commit log offset {batch.rows['commit_log_offset'][0]} to "
                    f"{batch.end_offset}, {error}; choose topics or times without it. All before them are in the target"
                ) from None
            messages, batches = messages + batch.rows.num_rows, batches + 1
            on_batch(ReplayedBatch(batch.rows, None if pace is None else pace.behind_s(batch.last_ms)))
    if progress is not None:
        progress(last - first, last - first, "replay")
    return Replayed(messages, batches, resumed_at, sink.next_offset, clock.now_s() - started)


def _identity(source: str, selection: Selection) -> str:
    """What makes a replay another one."""
    topics = None if selection.topics is None else sorted(selection.topics)
    text = repr((source, topics, selection.begin_ms, selection.end_ms))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _bounds(part: Part) -> tuple[int, int]:
    """Commit log offsets of a part's begin and end."""
    if isinstance(part, Points):
        return int(part.offsets[0]), int(part.offsets[-1] + part.sizes[-1])
    return part.begin, part.end


def _rows(plan: Plan, selection: Selection, begin_offset: int, files: FileLayer) -> Iterator[pa.RecordBatch]:
    """The wanted messages from an offset on: a part may begin before it."""
    for part in plan.parts:
        for batch in read_part(part, selection, files):
            rows = batch.slice(int(np.searchsorted(np.asarray(batch["commit_log_offset"]), begin_offset)))
            if rows.num_rows:
                yield rows


class _Batch(NamedTuple):
    """Messages that are put together: all of some records.

    Attributes:
        rows: as read.
        end_offset: behind the last of these records.
        last_ms: the latest store time; None where all are outside the years 1 to 9999.
    """

    rows: pa.RecordBatch
    end_offset: int
    last_ms: int | None


def _batches(rows: Iterator[pa.RecordBatch], width_ms: int | None) -> Iterator[_Batch]:
    """Rows cut where a record begins that was stored `width_ms` after the first one of a batch; None: not by time."""
    pending: list[pa.RecordBatch] = []
    for read in rows:
        pending.append(read)
        if sum(one.num_rows for one in pending) < _BATCH_ROWS and sum(one.nbytes for one in pending) < _BATCH_BYTES:
            continue
        joined = pa.concat_batches(pending)
        # The messages of an inner batch are one record, and the rest of them may come with the next rows.
        offsets = np.asarray(joined["commit_log_offset"])
        whole = int(np.searchsorted(offsets, offsets[-1]))
        yield from _cut(joined.slice(0, whole), width_ms)
        pending = [joined.slice(whole)]
    if pending:
        yield from _cut(pa.concat_batches(pending), width_ms)


def _cut(rows: pa.RecordBatch, width_ms: int | None) -> Iterator[_Batch]:
    if not rows.num_rows:
        return
    offsets, sizes = np.asarray(rows["commit_log_offset"]), np.asarray(rows["store_size"])
    times = _ascending_ms(rows["store_timestamp"])
    begin = 0
    while begin < offsets.size:
        end = offsets.size
        if width_ms is not None and times is not None:
            end = int(np.searchsorted(times, times[begin] + width_ms))
        last_ms = None if times is None else int(times[end - 1])
        yield _Batch(rows.slice(begin, end - begin), int(offsets[end - 1] + sizes[end - 1]), last_ms)
        begin = end


def _ascending_ms(times: pa.Array) -> npt.NDArray[np.int64] | None:
    """int64[n], the time of each row or the latest one before it; None where none is in the years 1 to 9999."""
    times = times.view(pa.int64())
    if times.null_count == len(times):
        return None
    found: npt.NDArray[np.int64] = np.maximum.accumulate(np.asarray(times.fill_null(pc.min(times)))) // 1000
    return found


class _Pace:
    """When messages are due: the first one now, the others by the gaps of their store times."""

    def __init__(self, speed: float, clock: Clock) -> None:
        self._speed = speed
        self._clock = clock
        self._first_ms: int | None = None
        self._started = 0.0

    def wait_for(self, store_ms: int | None) -> None:
        """Come back when a message that was stored then is due; at once where it is late, or nobody knows."""
        behind = self.behind_s(store_ms)
        if behind is not None and behind < 0:
            self._clock.wait(-behind)

    def behind_s(self, store_ms: int | None) -> float | None:
        """How late it is for a message that was stored then; less than 0 where it is not due yet."""
        if store_ms is None:
            return None
        now = self._clock.now_s()
        if self._first_ms is None:
            self._first_ms, self._started = store_ms, now
        return now - self._started - (store_ms - self._first_ms) / 1000 / self._speed
