"""Load of a soak's processes: stores and their options, and messages that can be checked by their keys."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import Any, NamedTuple

#: Bytes of a log file.
LOG_FILE_SIZE = 1 << 20
#: Log files that a store keeps; older ones are made to look expired.
KEPT_FILES = 32
QUEUES = 4
#: Topic of single puts, of `put_messages`, of `put_arrow`.
SINGLE, SEVERAL, TABLES = "single", "several", "tables"
#: Topic of what Java clients send plainly.
SOAKED = "soaked"
#: Topics with each message once, with its own key and body. Of others the log has more: what waits, and comes again.
PLAIN_TOPICS = frozenset((SINGLE, SEVERAL, TABLES, SOAKED))
_LARGE_BODY = 40_000


class SoakedStore(NamedTuple):
    """One store of the run: its name, how it flushes, and whether who writes to it is killed again and again."""

    name: str
    flush_disk_type: str
    is_killed: bool

    @property
    def options(self) -> dict[str, Any]:
        """Small files, so that an hour rolls and deletes hundreds; expired ones go at any hour."""
        return {
            "flush_disk_type": self.flush_disk_type,
            "mapped_file_size_commit_log": LOG_FILE_SIZE,
            "mapped_file_size_consume_queue": 20 * 500,
            "max_hash_slot_num": 5_000,
            "max_index_num": 10_000,
            "flush_consume_queue_thorough_interval": 5_000,
            "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
            "clean_file_forcibly_enable": False,
            "clean_resource_interval": 1_000,
            "delete_commit_log_files_interval": 10,
            "delete_consume_queue_files_interval": 10,
        }


#: Two live for the whole run, for what leaks; two are killed, for what is lost.
STORES = (
    SoakedStore("steady-sync", "SYNC_FLUSH", is_killed=False),
    SoakedStore("steady-async", "ASYNC_FLUSH", is_killed=False),
    SoakedStore("killed-sync", "SYNC_FLUSH", is_killed=True),
    SoakedStore("killed-async", "ASYNC_FLUSH", is_killed=True),
)
#: Those of brokers, to which Java clients send.
BROKERS = (
    SoakedStore("broker-steady", "SYNC_FLUSH", is_killed=False),
    SoakedStore("broker-killed", "ASYNC_FLUSH", is_killed=True),
)
#: Groups of the Java clients: each gets every message of `SOAKED`.
GROUPS = ("concurrent", "orderly")
#: Groups of the other kinds, each of its own topic: each gets what was promised to it.
KINDS = ("delayed", "broadcast", "timed", "popped", "retried", "transactions")


def body_of(key: str) -> bytes:
    """The body of the message with this key: up to 1000 bytes, and 40 000 of one in 256."""
    digest = sha256(key.encode()).digest()
    size = _LARGE_BODY if digest[0] == 0 else 1 + int.from_bytes(digest[1:3], "big") % 1000
    return (digest * (size // len(digest) + 1))[:size]


class Pace:
    """Send at a rate, and no faster; what was missed while the machine was busy is not made up for."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._next = time.monotonic()

    def wait(self, count: int) -> None:
        """Sleep for what `count` things take."""
        self._next = max(self._next, time.monotonic() - 1) + count / self._per_second
        time.sleep(max(0.0, self._next - time.monotonic()))
