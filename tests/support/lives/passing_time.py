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
from tests.support.faulty_files import Crash, FaultyFiles, Judge, abandon, no_objection, wait_dispatched
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, check_store

MESSAGES = 24
_NEVER_MS = 3_600_000
#: The rounds of the store's threads come when this life wants them. Index files that are soon full: one that is not is
#: a reason of its own to begin at the first record.
OPTIONS = SMALL | {
    "flush_disk_type": "ASYNC_FLUSH", "flush_interval_commit_log": _NEVER_MS,
    "flush_interval_consume_queue": _NEVER_MS, "max_index_num": 3,
}  # fmt: skip
_QUEUES = 7
_BODY_SIZES = (1400, 2900, 300)
_CLOCK_STEP_S = 5.0
#: The log is synced behind so many messages, and all queues behind so many: each of them is the first one at times.
_LOG_SYNCED_AFTER, _QUEUES_SYNCED_AFTER = 5, 7


def live(path: Path, judge: Judge) -> tuple[FaultyFiles, list[Acknowledged]]:
    """Put messages, each to another queue than the one before; what was answered."""
    files, acknowledged = FaultyFiles(judge), []
    store, begin_s = None, time.time() - MESSAGES * _CLOCK_STEP_S
    with suppress(Crash, StoreError), patch("time.time", lambda: begin_s + len(acknowledged) * _CLOCK_STEP_S):
        store = reput.MessageStore.open(path, files=files, **OPTIONS)
        for count in range(1, MESSAGES + 1):
            acknowledged.append(_put(store, count - 1))
            wait_dispatched(store, files)
            if count % _LOG_SYNCED_AFTER == 0:
                store._writer.flush._sync_if(0)  # type: ignore[attr-defined]
            store._writer.housekeeping.run_once(thorough=count % _QUEUES_SYNCED_AFTER == 0)
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
    """Number of operations of a life without faults."""
    files, acknowledged = live(path, no_objection)
    assert len(acknowledged) == MESSAGES
    check_next_life(path, acknowledged)
    return len(files.operations)
