"""Disk use of the log by file and topic, and the times when retention will delete it.

RocketMQ deletes whole log files, oldest first. A file expires `fileReservedTime` hours after its last write. The first
file that has not expired keeps all files after it, and the last file always stays (`CleanCommitLogService`,
docs/design/retention.md). RocketMQ deletes in the hours of `deleteWhen`, by the local clock; on a full disk, sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import pyarrow as pa

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import DISK, FileLayer
from reput.jobs.statistics.counting import SUMS, add_up
from reput.log.directory import LogFile

_HOUR = timedelta(hours=1)
_TIME = pa.timestamp("us", "UTC")
_TIMES = ("modified", "expires", "deleted")


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Disk use by file, by topic, and by file and topic.

    Attributes:
        files: a row a file, oldest first: start_offset, path, size (bytes on the disk), and as timestamp[us, UTC]
            modified, expires (fileReservedTime later, and no sooner than the file before it), deleted (when retention
            will delete the file; null for the last file, which stays).
        topics: a row a topic, the largest first: topic, messages, bytes (of records), body_bytes, files (with records
            of the topic), share (of the counted bytes, 0 to 1), first_deleted and last_deleted (when retention
            deletes the first and the last file with records of the topic; null for the last file of the log).
        parts: a row a file and topic: start_offset (of the file), topic, messages, bytes, body_bytes.
    """

    files: pa.Table
    topics: pa.Table
    parts: pa.Table


def disk_use(
    log_files: Sequence[LogFile],
    parts: pa.Table,
    config: MessageStoreConfig,
    *,
    zone: tzinfo | None = None,
    files: FileLayer = DISK,
) -> DiskUse:
    """Join the counts by file and topic with the deletion times of the files.

    Args:
        log_files: all log files, oldest first. A file that retention has deleted meanwhile is left out.
        parts: as `DiskUse.parts`; a file and topic may have several rows.
        config: gives `fileReservedTime` and `deleteWhen`.
        zone: time zone of the broker's clock; None: the time zone of this machine.
    """
    rows = []
    expires = datetime.min.replace(tzinfo=UTC)
    for file in log_files:
        try:
            modified_ms = files.modified_ms(file.path)
        except StoreError:
            continue
        modified = datetime.fromtimestamp(modified_ms / 1000, UTC)
        # No file is deleted before older files.
        expires = max(expires, modified + config.file_reserved_time * _HOUR)
        deleted = None if file is log_files[-1] else _next_run(expires, config.delete_hours, zone)
        rows.append((file.start_offset, file.path, file.size, modified, expires, deleted))
    columns = list(zip(*rows, strict=True)) or [()] * 6
    numbers = [("start_offset", pa.int64()), ("path", pa.string()), ("size", pa.int64())]
    schema = pa.schema([*numbers, *((name, _TIME) for name in _TIMES)])
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
    parts = add_up([parts], ["start_offset", "topic"])
    parts = parts.sort_by([("start_offset", "ascending"), ("topic", "ascending")])
    return DiskUse(table, _by_topic(table, parts), parts)


def _next_run(moment: datetime, hours: frozenset[int], zone: tzinfo | None) -> datetime:
    """First time at or after `moment` within one of `hours` of the local day."""
    local = moment.astimezone(zone)
    while local.hour not in hours:
        local = (local.replace(minute=0, second=0, microsecond=0).astimezone(UTC) + _HOUR).astimezone(zone)
    return local.astimezone(UTC)


def _by_topic(files: pa.Table, parts: pa.Table) -> pa.Table:
    deleted = dict(zip(files["start_offset"].to_pylist(), files["deleted"].to_pylist(), strict=True))
    grouped = parts.group_by("topic", use_threads=False).aggregate(
        [*((name, "sum") for name in SUMS), *(("start_offset", name) for name in ("count", "min", "max"))]
    )
    grouped = grouped.sort_by([("bytes_sum", "descending"), ("topic", "ascending")])
    total = max(sum(grouped["bytes_sum"].to_pylist()), 1)
    first, last = (
        pa.array([deleted.get(offset) for offset in grouped[f"start_offset_{name}"].to_pylist()], _TIME)
        for name in ("min", "max")
    )
    return pa.table(
        {
            "topic": grouped["topic"],
            **{name: grouped[f"{name}_sum"] for name in SUMS},
            "files": grouped["start_offset_count"],
            "share": pa.array([size / total for size in grouped["bytes_sum"].to_pylist()], pa.float64()),
            "first_deleted": first,
            "last_deleted": last,
        }
    )
