"""Lives of a store that a campaign ends at any operation: what runs, and what must hold for the next life."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from reput.errors import StoreError
from tests.crash import (
    test_batch_faults,
    test_faults,
    test_further_puts,
    test_further_units,
    test_retention_faults,
    test_sink_faults,
)
from tests.crash.faulty_files import Crash, FaultyFiles, Judge, abandon
from tests.crash.invariants import SMALL

Check = Callable[[Path], None]


class Scenario(NamedTuple):
    """One kind of life.

    Attributes:
        name: For reports.
        count: Lives it to the end in a folder, checks that, and tells how many operations it had.
        live: Lives it in a folder under a judge; returns the layer, and the check of the folder that is left.
        options: Of its store.
    """

    name: str
    count: Callable[[Path], int]
    live: Callable[[Path, Judge], tuple[FaultyFiles, Check]]
    options: dict[str, object]


def _puts(flush_disk_type: str, path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    life, files = test_faults.live(path, flush_disk_type, judge)
    if flush_disk_type == "ASYNC_FLUSH":
        life.acknowledged = []  # a power cut may take it
    return files, lambda left: test_faults.check_next_life(life, left)


def _batches(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    life, files = test_batch_faults.live(path, "SYNC_FLUSH", judge)
    return files, lambda left: test_faults.check_next_life(life, left)


def _further_puts(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    life, files = test_further_puts.live(path, "SYNC_FLUSH", judge)
    return files, lambda left: test_further_puts.check_next_life_of(life, left)


def _further_units(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    files = FaultyFiles(judge)
    acknowledged, _ = test_further_units.live(path, files)
    return files, lambda left: test_further_units.check_next_life(left, acknowledged)


def _count_further_units(path: Path) -> int:
    files = FaultyFiles()
    test_further_units.live(path, files)
    return len(files.operations)


def _sink(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    return test_sink_faults.live(path, judge)[0], test_sink_faults.check_next_life


def _deletion(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    store, files = test_retention_faults.filled(path)
    files.start(judge)
    with suppress(Crash, StoreError):
        store.delete_expired()
    abandon(store, files)
    return files, test_retention_faults.check_next_life


SYNCED = test_faults.OPTIONS | {"flush_disk_type": "SYNC_FLUSH"}
SCENARIOS = (
    Scenario(
        "puts, synced",
        lambda path: test_faults.count_operations(path, "SYNC_FLUSH"),
        partial(_puts, "SYNC_FLUSH"),
        SYNCED,
    ),
    Scenario(
        "puts, not synced",
        lambda path: test_faults.count_operations(path, "ASYNC_FLUSH"),
        partial(_puts, "ASYNC_FLUSH"),
        test_faults.OPTIONS | {"flush_disk_type": "ASYNC_FLUSH"},
    ),
    Scenario("batches", lambda path: test_batch_faults.count_operations(path, "SYNC_FLUSH"), _batches, SYNCED),
    Scenario(
        "several at once", lambda path: test_further_puts.count_operations(path, "SYNC_FLUSH"), _further_puts, SYNCED
    ),
    Scenario("extensions and light queues", _count_further_units, _further_units, test_further_units.OPTIONS),
    Scenario("sink commits", test_sink_faults.count_operations, _sink, SMALL),
    Scenario(
        "retention",
        lambda path: len(test_retention_faults.operations_of_a_deletion(path)),
        _deletion,
        test_retention_faults.OPTIONS,
    ),
)
