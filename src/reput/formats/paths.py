"""Names in a store directory (docs/formats/store-directory.md); texts in, texts out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from reput.formats.java import INT64_MAX

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
CONFIG = "config"
TIMER_WHEEL = "timerwheel"
TIMER_LOG = "timerlog"
TIMER_CHECK = "config/timercheck"

LOCK_CONTENT = b"lock"

_OFFSET_DIGITS = 20
_INDEX_NAME_DIGITS = 17
_MAX_NAME_SIZE = 255


def offset_to_file_name(offset: int) -> str:
    """Name of the file that begins at an offset in bytes: 20 digits (UtilAll.offset2FileName)."""
    return f"{offset:0{_OFFSET_DIGITS}d}"


def topic_folder_name(topic: bytes) -> str | None:
    """Folder of a topic's queues, decoded as in RocketMQ; None if it would lead out of its parent or be too long."""
    name = topic.decode("utf-8", "replace")
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > _MAX_NAME_SIZE:
        return None
    return name


def file_name_to_offset(name: str) -> int | None:
    """Offset of a file of this name; None if the name is not of the form of offset_to_file_name."""
    if len(name) != _OFFSET_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    offset = int(name)
    return offset if offset <= INT64_MAX else None


def index_file_name(timestamp_ms: int, utc_offset_s: int) -> str:
    """Name of an index file made at a time: 17 digits yyyyMMddHHmmssSSS in local time.

    As UtilAll.timeMillisToHumanString.
    timestamp_ms: ms since 1970 UTC; utc_offset_s: seconds by which local time is later than UTC.
    """
    local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms, seconds=utc_offset_s)
    return f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}"


def is_index_file_name(name: str) -> bool:
    """Whether a name has the form of `index_file_name`."""
    return len(name) == _INDEX_NAME_DIGITS and name.isascii() and name.isdigit()
