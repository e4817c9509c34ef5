"""Lives in which seconds pass between messages, and a message takes several sectors, or nearly a log file.

So a checkpoint vouches for more than the first log file, a body can be torn between a header and an end that arrive,
and queues are synced before the log is. Other lives last milliseconds, and their records take a sector.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import reput
from reput.errors import StoreError
from tests.crash.faulty_files import Crash, FaultyFiles, Judge, abandon, no_objection
from tests.crash.invariants import SMALL, Acknowledged, check_acknowledged, check_store

MESSAGES = 24
#: Index files that are soon full: one that is not is a reason of its own to begin at the first record.
OPTIONS = SMALL | {
    "flush_disk_type": "ASYNC_FLUSH", "flush_interval_commit_log": 8, "flush_commit_log_least_pages": 0,
    "flush_interval_consume_queue": 1, "flush_consume_queue_thorough_interval": 20, "max_index_num": 3,
}  # fmt: skip
_QUEUES = 7
_BODY_SIZES = (1400, 2900, 300)
_CLOCK_STEP_S = 5.0
#: For the store's threads, which go by a clock that nobody sets.
_PAUSE_S = 0.0015


def live(path: Path, judge: Judge) -> tuple[FaultyFiles, list[Acknowledged]]:
    """Put messages, each to another queue than the one before; what was answered."""
    files, acknowledged = FaultyFiles(judge), []
    store, begin_s = None, time.time() - MESSAGES * _CLOCK_STEP_S
    with suppress(Crash, StoreError), patch("time.time", lambda: begin_s + len(acknowledged) * _CLOCK_STEP_S):
        store = reput.MessageStore.open(path, files=files, **OPTIONS)
        for number in range(MESSAGES):
            acknowledged.append(_put(store, number))
            time.sleep(_PAUSE_S)
        store.close()
    if store is not None:
        abandon(store, files)
    files.abandon()
    return files, acknowledged


def _put(store: reput.MessageStore, number: int) -> Acknowledged:
    key, body = f"key-{number}", bytes([number + 1]) * _BODY_SIZES[number % len(_BODY_SIZES)]
    result = store.put_message(reput.Message("orders", body, keys=[key]), number % _QUEUES)
    return Acknowledged("orders", number % _QUEUES, result.queue_offset, result.commit_log_offset, key, body)


def check_next_life(path: Path, acknowledged: list[Acknowledged]) -> None:
    """A healthy start has what was answered, and goes on behind it."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        check_acknowledged(store, acknowledged)
        _put(store, MESSAGES)
    check_store(path, OPTIONS)


def count_operations(path: Path) -> int:
    """How many operations a life without faults has; threads make it differ from run to run."""
    files, acknowledged = live(path, no_objection)
    assert len(acknowledged) == MESSAGES
    check_next_life(path, acknowledged)
    return len(files.operations)
