"""Names in a store directory (docs/formats/store-directory.md); texts in, texts out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from reput.formats.java import INT32_MAX, INT64_MAX

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
#: No index file has a name from the year 9999 on: after the last of 17 digits none would follow.
_LAST_INDEX_NAME = 9999 * 10**13
MAX_NAME_SIZE = 255


def offset_to_file_name(offset: int) -> str:
    """Name of the file that begins at an offset in bytes: 20 digits (UtilAll.offset2FileName)."""
    return f"{offset:0{_OFFSET_DIGITS}d}"


def is_checked_name(name: str) -> bool:
    """Whether a text can name a file or folder, does not lead out of its folder, and is not too long.

    A name that comes from a record, a file or the network is used in a path only then.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and size <= MAX_NAME_SIZE


def topic_folder_name(topic: bytes) -> str | None:
    """Folder of a topic's queues, decoded as in RocketMQ; None for one that is no `is_checked_name`."""
    name = topic.decode("utf-8", "replace")
    return name if is_checked_name(name) else None


def queue_folder_id(name: str) -> int | None:
    """Queue id of a folder of this name; None if the folder is no queue's: `00` would be the queue `0`, too."""
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(INT32_MAX))):
        return None
    queue_id = int(name)
    return queue_id if str(queue_id) == name and queue_id <= INT32_MAX else None


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
    """Whether a name has the form of `index_file_name`, and leaves room for later names."""
    return len(name) == _INDEX_NAME_DIGITS and name.isascii() and name.isdigit() and int(name) < _LAST_INDEX_NAME


def index_file_name_after(last: str, timestamp_ms: int, utc_offset_s: int) -> str:
    """Name of a new index file, by the time, and after the `last` name even if the clock has gone back; "" for none."""
    name = index_file_name(timestamp_ms, utc_offset_s)
    return name if name > last else f"{int(last) + 1:0{_INDEX_NAME_DIGITS}d}"
