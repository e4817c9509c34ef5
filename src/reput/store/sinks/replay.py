"""Replay: messages of a range of one store's log are put into another store, at the pace at which they were stored.

A replay is a sink like Spark's (`reput.store.sinks.commit`): a batch is appended as a whole or not at all, and the
target records the last batch. The number of a batch is the source's commit log offset after the batch's last record. So
the target itself knows how far the replay is, and a replay that was killed goes on there: each message once, whatever
is killed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from numbers import Real
from typing import Any, NamedTuple, Protocol

from reput.config.arguments import (
    MOST_LONG,
    Check,
    able_to,
    an_object_of,
    check_call,
    check_function,
    check_path,
    check_text,
    optional,
    refusal,
    whole,
)
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, MessageIllegalError
from reput.extras import saying_the_extra
from reput.files import DISK, FileLayer

with saying_the_extra(__name__):
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.compute as pc

from reput.kernels.records.message_columns import ASSIGNED
from reput.kernels.records.record_batch import SCHEMA
from reput.log.directory import StoreDirectory
from reput.log.object_storage import absolute, check_on_disk
from reput.log.plans.plan import Plan, PlanOptions, plan_read
from reput.log.plans.plan_parts import part_range, read_part
from reput.log.plans.pruning import Range, wanted_by
from reput.log.selection import Selection, make_selection
from reput.log.tail import LogTail
from reput.log.unknown_topics import warn_of_unknown_topics
from reput.progress import Progress, silent
from reput.store.sinks.replay_sink import ReplaySink

#: Messages that are due within so much time are one batch.
_BATCH_S = 1.0
#: Rows and bytes of a batch, at the most, as it is held in memory.
_BATCH_ROWS, _BATCH_BYTES = 65_536, 32 << 20
_LOCATION = ("commit_log_offset", "store_size", "store_timestamp")
_KEPT = [name for name in SCHEMA.names if name not in ASSIGNED]


class ReplayClock(Protocol):
    """Clock of a replay's pace."""

    def now_s(self) -> float:
        """The time in seconds; it never goes back."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after this time in seconds."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now_s(self) -> float:
        """As `ReplayClock`."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """As `ReplayClock`."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """A batch that was put.

    Attributes:
        rows: The rows as read, with their location in the source.
        lag_s: Lag of the batch after the time at which it was due; None for a replay without a pace, and if the
            rows' store times are no dates.
    """

    rows: pa.RecordBatch
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a replay.

    Attributes:
        messages, batches: Number of messages and batches that this run put.
        resumed_at: The source's commit log offset at which the replay went on; None if it began.
        next_offset: The source's commit log offset after the last message in the target; None if there is none.
        seconds: Duration of this run.
    """

    messages: int
    batches: int
    resumed_at: int | None
    next_offset: int | None
    seconds: float


#: A faster replay is one without a pace; the width of its batches would be no `long`.
_MOST_SPEED = 1e12


def _check_speed(name: str, value: Any) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MOST_SPEED:
        raise refusal(name, value, f"a number above 0, {_MOST_SPEED:g} at most")


#: Checks of the arguments by their names; topics and times are checked as those of any read.
_CHECKS: dict[str, Check] = {
    "source": check_path,
    "target": check_path,
    "commit_log_path": optional(check_path),
    "speed": optional(_check_speed),
    "name": optional(check_text),
    "config": optional(an_object_of(MessageStoreConfig)),
    "lock_timeout_ms": whole(0, MOST_LONG),
    "clock": optional(able_to("now_s", "a clock, as ReplayClock is one")),
    "progress": optional(check_function),
    "on_batch": check_function,
}


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
    clock: ReplayClock | None = None,
    progress: Progress | None = None,
    on_batch: Callable[[ReplayedBatch], None] = lambda batch: None,
    files: FileLayer = DISK,
) -> Replayed:
    """Put messages of one store into another store, in log order, with the gaps between their store times.

    Topic, queue id, body, tags, keys, properties, flags, born time and born host are kept; queue offsets and store
    times are the target's. Compressed bodies are put uncompressed, and the messages of inner batches one by one, as
    consumers see them. Messages that are appended to the source later are put by the next run.

    Args:
        source: The store directory to read; it may be open elsewhere.
        target: The store directory to write; made if there is nothing. It must not be open elsewhere while a batch
            is put.
        topics, begin, end: As for `reput.read_log`: topics, and bounds of the store time in the source.
        speed: How many times as fast as the messages were stored; None: as fast as possible.
        name: Name under which the target records how far this replay is; None: made of source, topics, begin and end.
            The same replay again puts only new messages; another name replays all messages again.
        config: Configuration of the target; None: its defaults, SYNC_FLUSH among them.
        commit_log_path: Commit log folder of the source, if it is not in the source.
        lock_timeout_ms: How long to wait while another process has the target open.
        clock: Clock of the pace; None: the machine's monotonic clock.
        progress: Called with (bytes done, bytes in all, what is done): first for the target's recovery, then for the
            source's log.
        on_batch: Called when a batch is in the target.
        files: The file layer.

    Raises:
        ConfigError: The speed is not above 0; the target is the source or lies inside it; something else was replayed
            under the name; or the source's log no longer has the record at which to go on.
        CorruptRecordError: Damage in the source.
        MessageIllegalError: RocketMQ would not take a message from a producer; the messages before it are put.
        StoreLockedError: The same replay runs in another process; or as from `MessageStore.open`.
        StoreError: As from `MessageStore.open`.
    """
    check_call(_CHECKS, locals())
    clock = clock or MonotonicClock()
    started = clock.now_s()
    directory = StoreDirectory(source, commit_log_path=commit_log_path, files=files)
    check_on_disk(target, "target")
    target = absolute(target)
    if os.path.realpath(target) == os.path.realpath(directory.path):
        raise ConfigError(f"{target}: the target is the source; name another store")
    directory.check_output(target)
    selection = make_selection(
        columns=(*_KEPT, *_LOCATION), topics=topics, begin=begin, end=end, store=directory.name, mode="FAILFAST"
    )
    warn_of_unknown_topics(selection.topics, directory)
    identity = _identity(directory.path, selection)
    report = progress or silent
    with ReplaySink(target, config, f"replay-{name or identity}", identity, lock_timeout_ms, report, files) as sink:
        resumed_at = sink.next_offset
        if resumed_at is not None:
            LogTail(directory).at(resumed_at)
        messages = batches = 0
        pace = None if speed is None else _Pace(speed, clock)
        width_ms = None if speed is None else max(round(speed * _BATCH_S * 1000), 1)
        begin_offset = resumed_at or 0
        wanted = replace(wanted_by(selection), commit_log_offset=Range(low=begin_offset))
        plan = plan_read(directory, selection, PlanOptions(processors=1), wanted)
        bounds = [part_range(part) for part in plan.parts]
        first, last = (bounds[0][0], bounds[-1][1]) if bounds else (0, 0)
        for batch in _batches(_rows(plan, selection, begin_offset, files), width_ms):
            report(max(int(batch.rows["commit_log_offset"][0].as_py()) - first, 0), last - first, "replay")
            if pace is not None:
                pace.wait_for(batch.last_ms)
            try:
                sink.put(batch.rows.select(_KEPT), batch.end_offset)
            except MessageIllegalError as error:
                raise MessageIllegalError(
                    f"{directory.path}: of the records from commit log offset {batch.rows['commit_log_offset'][0]} to "
                    f"{batch.end_offset}, {error}; choose topics or times without it. All messages before them are in "
                    "the target"
                ) from None
            messages, batches = messages + batch.rows.num_rows, batches + 1
            on_batch(ReplayedBatch(batch.rows, None if pace is None else pace.lag_s(batch.last_ms)))
    report(last - first, last - first, "replay")
    return Replayed(messages, batches, resumed_at, sink.next_offset, clock.now_s() - started)


def _identity(source: str, selection: Selection) -> str:
    """Hash of what makes two replays the same: source, topics, begin and end."""
    topics = None if selection.topics is None else sorted(selection.topics)
    text = repr((source, topics, selection.begin_ms, selection.end_ms))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _rows(plan: Plan, selection: Selection, begin_offset: int, files: FileLayer) -> Iterator[pa.RecordBatch]:
    """Read the wanted messages from an offset on; a part of the plan may begin before it."""
    for part in plan.parts:
        for batch in read_part(part, selection, files):
            rows = batch.slice(int(np.searchsorted(np.asarray(batch["commit_log_offset"]), begin_offset)))
            if rows.num_rows:
                yield rows


class _Batch(NamedTuple):
    """Messages that are put in one call: all messages of some records.

    Attributes:
        rows: The rows as read.
        end_offset: Commit log offset after the last of these records.
        last_ms: The latest store time; None if all store times are outside the years 1 to 9999.
    """

    rows: pa.RecordBatch
    end_offset: int
    last_ms: int | None


def _batches(rows: Iterator[pa.RecordBatch], width_ms: int | None) -> Iterator[_Batch]:
    """Cut rows into batches: by size, and if a record was stored `width_ms` after a batch's first (None: not)."""
    pending: list[pa.RecordBatch] = []
    for read in rows:
        pending.append(read)
        if sum(one.num_rows for one in pending) < _BATCH_ROWS and sum(one.nbytes for one in pending) < _BATCH_BYTES:
            continue
        joined = pa.concat_batches(pending)
        # The messages of an inner batch are one record, and some of them may come with the next rows.
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
    """int64[n], the latest time (ms) up to each row; None if no time is in the years 1 to 9999."""
    times = times.view(pa.int64())
    if times.null_count == len(times):
        return None
    latest: npt.NDArray[np.int64] = np.maximum.accumulate(np.asarray(times.fill_null(pc.min(times)))) // 1000
    return latest


class _Pace:
    """Pace of a replay: the first message is due now, later messages by the gaps between their store times."""

    def __init__(self, speed: float, clock: ReplayClock) -> None:
        self._speed = speed
        self._clock = clock
        self._first_ms: int | None = None
        self._started = 0.0

    def wait_for(self, store_ms: int | None) -> None:
        """Wait until a message with a store time (ms) is due; return at once if it is late, or without a time."""
        lag_s = self.lag_s(store_ms)
        if lag_s is not None and lag_s < 0:
            self._clock.wait(-lag_s)

    def lag_s(self, store_ms: int | None) -> float | None:
        """Lag of a message with a store time (ms) after the time at which it was due; below 0 before that time."""
        if store_ms is None:
            return None
        now = self._clock.now_s()
        if self._first_ms is None:
            self._first_ms, self._started = store_ms, now
        return now - self._started - (store_ms - self._first_ms) / 1000 / self._speed
