"""Work of a broker that a restored log has not done: deliveries of delayed messages, checks of transactions.

A state beside a log may be of a later moment than the log's end: of an archive always, of a backup at a point in time.
Its offsets count as done what was done after the end, and is lost with it. So they are lowered to what the log itself
has done. A message of a delay level is done if it, or a later one of its level, was put into its topic; a half message
if an op message ends it, or if a copy of it was put back, or given up. The rest is done again: all comes at least once.
A message without a unique key, which every client and broker gives, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.op_message import op_offsets
from reput.formats.properties import DELAY, REAL_QID, REAL_TOPIC
from reput.log.datasets.read_log import read_log
from reput.log.directory import StoreDirectory
from reput.remoting.topic_validator import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

#: Messages of a level that are looked up at once: the last one that was delivered is near the end, as a rule.
_LOOKED_UP = 256
_DAY_MS = 86_400_000
#: Columns that a delivery shares with the message that waited.
_SHARED = ["unique_key", "born_timestamp", "reconsume_times"]


def undelivered_from(
    directory: StoreDirectory, levels: Mapping[int, int], ends: Mapping[tuple[str, int], int], last_ms: int
) -> dict[int, int]:
    """Queue offset of the first message of each delay level that the log has not delivered.

    A level delivers in the order of its queue (RocketMQ's `ScheduleMessageService`).

    Args:
        directory: A store with queues and index, whose log ends where it was restored to.
        levels: Offsets of levels, none after the end of its queue: no result is greater.
        ends: The next queue offset of each queue of the store.
        last_ms: Store time of the last message.
    """
    found, left = dict(levels), {level for level, offset in levels.items() if offset}
    topics = {topic for topic, _ in ends}
    if SCHEDULE_TOPIC not in topics:
        return found
    for begin_ms in (max(last_ms - _DAY_MS, 0), None):
        waiting = _waiting(directory, {level: levels[level] for level in left}, begin_ms) if left else {}
        for level, offset in _last_delivered(directory, waiting, topics).items():
            found[level] = offset + 1
            left.discard(level)
    for level in left & waiting.keys():  # nothing of what the log has was delivered
        found[level] = waiting[level]["queue_offset"][0].as_py()
    return found


def _waiting(directory: StoreDirectory, levels: Mapping[int, int], begin_ms: int | None) -> dict[int, pa.Table]:
    """Messages of delay levels before an offset of each, in the order of the queue, that were stored from a time on."""
    parts: dict[int, list[pa.RecordBatch]] = {}
    columns = ["queue_id", "queue_offset", "commit_log_offset", "properties", *_SHARED]
    for batch in _rows(directory, columns, [SCHEDULE_TOPIC], begin=begin_ms):
        for queue_id in batch["queue_id"].unique().to_pylist():
            level = queue_id + 1
            if level in levels:
                is_wanted = pc.and_(
                    pc.equal(batch["queue_id"], queue_id), pc.less(batch["queue_offset"], levels[level])
                )
                parts.setdefault(level, []).append(_with_properties(batch.filter(is_wanted), REAL_TOPIC, REAL_QID))
    tables = {level: pa.Table.from_batches(batches) for level, batches in parts.items()}
    return {level: table for level, table in tables.items() if table.num_rows}


def _last_delivered(directory: StoreDirectory, waiting: Mapping[int, pa.Table], topics: set[str]) -> dict[int, int]:
    """Queue offset of the last message of each level of which the log has the delivery.

    A level may have a million messages that wait. It delivers in order, so pieces are looked up in steps that double,
    from the end to one with a delivery, and then between. What is passed over else is delivered again.
    """
    found: dict[int, int] = {}
    for level, table in waiting.items():
        last = -(-table.num_rows // _LOOKED_UP) - 1
        miss, number = -1, 0  # pieces from the end; none up to `miss` has a delivery
        while (offset := _delivered_in(directory, level, table, number, topics)) is None and number < last:
            miss, number = number, min(2 * number + 1, last)
        while offset is not None and number - miss > 1:
            middle = (miss + number) // 2
            earlier, offset = offset, _delivered_in(directory, level, table, middle, topics)
            if offset is None:
                miss, offset = middle, earlier
            else:
                number = middle
        if offset is not None:
            found[level] = offset
    return found


def _delivered_in(directory: StoreDirectory, level: int, table: pa.Table, number: int, topics: set[str]) -> int | None:
    """Queue offset of the last message of a piece, by its number from the end, that the log has delivered."""
    end = table.num_rows - number * _LOOKED_UP
    some = table[max(end - _LOOKED_UP, 0) : end].to_pylist()
    rows = [row for row in some if row["unique_key"]]
    delivered = _deliveries(directory, {row[REAL_TOPIC] for row in rows} & topics, [row["unique_key"] for row in rows])
    return max((row["queue_offset"] for row in rows if _is_among(row, level, delivered)), default=None)


_Delivery = tuple[object, ...]


def _deliveries(directory: StoreDirectory, topics: set[str], keys: list[str]) -> dict[_Delivery, int]:
    """Messages of topics with unique keys that have waited in a delay level, and the last commit log offset of each."""
    found: dict[_Delivery, int] = {}
    if not topics or not keys:
        return found
    columns = ["topic", "queue_id", "commit_log_offset", "properties", *_SHARED]
    for batch in _rows(directory, columns, sorted(topics), keys=keys):
        for row in _with_properties(batch, DELAY, REAL_TOPIC, REAL_QID).to_pylist():
            if (row["topic"], str(row["queue_id"])) == (row[REAL_TOPIC], row[REAL_QID]):
                found[row[DELAY], row[REAL_TOPIC], row[REAL_QID], *(row[name] for name in _SHARED)] = row[
                    "commit_log_offset"
                ]
    return found


def _is_among(row: Mapping[str, object], level: int, delivered: Mapping[_Delivery, int]) -> bool:
    offset = delivered.get((str(level), row[REAL_TOPIC], row[REAL_QID], *(row[name] for name in _SHARED)), -1)
    return offset > row["commit_log_offset"]  # type: ignore[operator]


def _with_properties(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    """The batch with some properties as columns, in place of all."""
    arrays = [pc.map_lookup(batch["properties"], name, "last") for name in names]
    kept = [name for name in batch.schema.names if name != "properties"]
    return pa.RecordBatch.from_arrays([*(batch[name] for name in kept), *arrays], names=[*kept, *names])


def unended_from(
    directory: StoreDirectory, queue_id: int, half: int, op: int, ends: Mapping[tuple[str, int], int]
) -> tuple[int, int]:
    """Queue offset of the first half message that has not ended in the log, and of the first op message needed then.

    Args:
        directory: A store with queues, whose log ends where it was restored to.
        queue_id: Of a half queue.
        half, op: Offsets up to which half and op messages count as judged: no result is greater.
        ends: The next queue offset of each queue of the store.
    """
    topics = {topic for topic, _ in ends}
    if TRANS_HALF_TOPIC not in topics:
        return half, op
    ended, ops = _ended(directory, queue_id, topics)
    given_up: set[str] = set()
    if TRANS_CHECK_MAX_TIME_TOPIC in topics:
        for batch in _rows(directory, ["unique_key"], [TRANS_CHECK_MAX_TIME_TOPIC]):
            given_up.update(batch["unique_key"].to_pylist())
    left: dict[str, int] = {}  # the last half message of a key is the copy of the others
    first = half
    for batch in _rows(directory, ["queue_id", "queue_offset", "unique_key"], [TRANS_HALF_TOPIC]):
        rows = batch.filter(pc.equal(batch["queue_id"], queue_id))
        offsets = rows["queue_offset"].to_numpy()
        for offset, key, is_ended in zip(
            offsets.tolist(), rows["unique_key"].to_pylist(), np.isin(offsets, ended).tolist(), strict=True
        ):
            if is_ended or key in given_up:
                left.pop(key, None)
            elif key:
                left[key] = offset
            else:
                first = min(first, offset)
    first = min([first, *left.values()])
    needed = ops[ended >= first]
    return first, min([op, *needed.tolist()])


def _ended(
    directory: StoreDirectory, queue_id: int, topics: set[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Queue offsets of half messages that have ended, and of the op message that says so: int64[ends] each."""
    ended: list[int] = []
    ops: list[int] = []
    columns = ["queue_id", "queue_offset", "tags", "body"]
    for batch in _rows(directory, columns, [TRANS_OP_HALF_TOPIC]) if TRANS_OP_HALF_TOPIC in topics else ():
        for row in batch.filter(pc.equal(batch["queue_id"], queue_id)).to_pylist():
            offsets = op_offsets(row["body"], row["tags"])
            ended += offsets
            ops += [row["queue_offset"]] * len(offsets)
    return np.array(ended, np.int64), np.array(ops, np.int64)


def _rows(
    directory: StoreDirectory,
    columns: list[str],
    topics: list[str],
    *,
    keys: list[str] | None = None,
    begin: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of topics in the order of the log."""
    return iter(
        read_log(
            directory.path, columns, topics, keys, begin, raw_body=True, mode="DROPMALFORMED", files=directory.files
        )
    )
