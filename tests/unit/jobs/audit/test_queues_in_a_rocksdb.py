"""Audit of stores whose consume queues are in a RocksDB, beside queue files or in place of them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import CorruptConsumeQueueError
from reput.jobs.audit.job import AuditResult, audit
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL
from tests.support.rocksdb import StoredUnit, units_of, write_units

MESSAGES = 120


def judged(path: Path) -> AuditResult:
    return audit(path, runner=LocalRunner(threads=2), split_bytes=4096)


def codes(result: AuditResult) -> dict[str, int]:
    return {finding.code: result.counts[finding.code] for finding in result.findings}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with queue files: three queues, and a light one."""
    path = tmp_path / "store"
    with reput.MessageStore.open(
        path, files=FaultyFiles(), enable_multi_dispatch=True, enable_lmq=True, **SMALL
    ) as opened:
        for number in range(MESSAGES):
            light = {"INNER_MULTI_DISPATCH": "%LMQ%light"} if number % 10 == 0 else {}
            message = reput.Message("orders", b"x", tags=f"t{number}", keys=[f"k{number}"], properties=light)
            opened.put_message(message, number % 3)
    return path


def go_over(
    store: Path, change: Callable[[list[StoredUnit]], list[StoredUnit]] = list, folder: str = "consumequeue_rocksdb"
) -> None:
    """Put the units into a database, and take the queue files away."""
    units = change(list(units_of(store)))
    shutil.rmtree(store / "consumequeue")
    write_units(store / folder, units)


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_units_in_a_database_are_compared_with_the_log(store: Path, folder: str) -> None:
    files = judged(store)
    assert files.is_clean
    go_over(store, folder=folder)
    result = judged(store)
    assert result.findings == ()
    assert (result.units, result.queues) == (files.units, files.queues) == (MESSAGES + MESSAGES // 10, 4)


def test_an_audit_that_keeps_its_outcomes_finds_the_same(store: Path, tmp_path: Path) -> None:
    go_over(store, replaced(5, size=17))
    result = audit(store, runner=LocalRunner(threads=1), split_bytes=4096, work_dir=tmp_path / "work")
    assert result.findings == judged(store).findings


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_without_the_package_queues_in_a_database_are_one_harmless_finding(
    store: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_over(store, folder=folder)
    hide(monkeypatch)
    result = judged(store)
    assert codes(result) == {"foreign-part": 1}
    assert result.is_clean
    assert result.messages == MESSAGES


def replaced(offset: int, **values: int) -> Callable[[list[StoredUnit]], list[StoredUnit]]:
    """Change of the unit of a queue offset of queue 1; without values it is left out."""

    def change(units: list[StoredUnit]) -> list[StoredUnit]:
        return [
            unit._replace(**values) if (unit.topic, unit.queue_id, unit.queue_offset) == ("orders", 1, offset) else unit
            for unit in units
            if values or (unit.topic, unit.queue_id, unit.queue_offset) != ("orders", 1, offset)
        ]

    return change


def test_units_before_the_files_of_a_queue_are_read_from_the_database(store: Path) -> None:
    """As of a store that went over to files, which do not begin where its queues do."""
    write_units(store / "consumequeue_rocksdb", [unit for unit in units_of(store) if unit.queue_offset < 30])
    for number in range(2):  # of 8 units each
        (store / f"consumequeue/orders/1/{number * 160:020}").unlink()
    assert judged(store).findings == ()
    with reput.MessageStore.open(store, read_only=True) as opened:
        assert opened.min_offset("orders", 1) == 0
        found = [opened.get_message("orders", 1, offset, 1).messages()[0].keys for offset in (0, 15, 16, 39)]
    assert found == [(f"k{offset * 3 + 1}",) for offset in (0, 15, 16, 39)]


def test_a_key_that_claims_more_units_than_the_log_has_room_for_is_damage(store: Path) -> None:
    """One wrong bit of a key would be a million files to look at."""
    go_over(store, lambda units: [*units, StoredUnit("orders", 1, 1 << 33, 7, 100, 0)])
    with pytest.raises(CorruptConsumeQueueError, match=r"orders/1 has the queue offsets 0 to 8589934592.*the log ends"):
        judged(store)


@pytest.mark.parametrize(
    ("change", "code", "offset"),
    [
        (replaced(5, size=17), "unit-wrong", 5),
        (replaced(5, commit_log_offset=1), "unit-wrong", 5),
        (replaced(5, tags_code=1), "unit-wrong", 5),
        (replaced(5, size=-1), "unit-missing", 5),
        (replaced(5), "unit-missing", 5),
        (replaced(0), "unit-missing", 0),
        (replaced(39), "unit-missing", 39),
        (lambda units: [*units, StoredUnit("orders", 1, 40, 7, 100, 0)], "unit-behind-end", 40),
        (lambda units: [*units, StoredUnit("orders", 7, 0, 7, 100, 0)], "unit-wrong", 0),
        (lambda units: [unit for unit in units if unit.queue_id != 1], "unit-missing", 0),
    ],
)
def test_a_unit_of_a_database_that_is_not_its_records_is_found(
    store: Path, change: Callable[[list[StoredUnit]], list[StoredUnit]], code: str, offset: int
) -> None:
    go_over(store, change)
    (finding,) = judged(store).findings
    assert (finding.code, finding.topic, finding.queue_offset) == (code, "orders", offset)
    assert (finding.path, finding.position) == (str(store / "consumequeue_rocksdb"), None)


def test_queue_files_beside_a_database_are_compared_and_found_right(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_units(store / "consumequeue", units_of(store))
    result = judged(store)
    assert (result.findings, result.units, result.queues) == ((), MESSAGES + MESSAGES // 10, 4)
    hide(monkeypatch)
    result = judged(store)
    assert (codes(result), result.units, result.queues) == ({"foreign-part": 1}, MESSAGES + MESSAGES // 10, 4)
    assert result.is_clean


def test_a_wrong_unit_of_either_kind_is_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = list(units_of(store))
    write_units(store / "consumequeue_rocksdb", replaced(5, size=17)(units))
    path = store / "consumequeue/orders/1/00000000000000000000"
    data = bytearray(path.read_bytes())
    data[3 * 20 + 10] ^= 1
    path.write_bytes(data)
    assert [(one.path, one.queue_offset) for one in judged(store).findings] == [
        (str(path), 3),
        (str(store / "consumequeue_rocksdb"), 5),
    ]
    hide(monkeypatch)
    assert codes(judged(store)) == {"unit-wrong": 1, "foreign-part": 1}


@pytest.mark.parametrize("kept", ["files", "database", "light queues"])
def test_a_store_that_went_over_has_the_unit_of_a_record_in_one_of_them(
    store: Path, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = list(units_of(store))
    if kept == "files":  # the database has the first messages alone
        write_units(store / "consumequeue", [unit for unit in units if unit.queue_offset < 5])
    elif kept == "database":  # the queue files have
        write_units(store / "consumequeue", units)
        for path in (store / "consumequeue").glob("*/*/*"):
            if int(path.name):
                path.unlink()
    else:
        write_units(store / "consumequeue", units)
        shutil.rmtree(store / "consumequeue/%LMQ%light")
    assert judged(store).findings == ()
    hide(monkeypatch)
    assert judged(store).is_clean


def test_a_unit_that_is_in_neither_is_missing(store: Path) -> None:
    units = list(units_of(store))
    write_units(store / "consumequeue", replaced(9)(units))
    path = store / "consumequeue/orders/1/00000000000000000160"
    data = bytearray(path.read_bytes())
    data[20:40] = bytes(20)
    path.write_bytes(data)
    (finding,) = judged(store).findings
    assert (finding.code, finding.path, finding.queue_offset) == ("unit-missing", str(path), 9)


def test_of_a_killed_store_the_units_that_were_not_flushed_are_not_missing(store: Path) -> None:
    units = list(units_of(store))
    half = sorted(unit.commit_log_offset for unit in units)[len(units) // 2]
    go_over(store, lambda units: [unit for unit in units if unit.commit_log_offset < half])
    assert "unit-missing" in codes(judged(store))
    (store / "abort").touch()
    result = judged(store)
    assert set(codes(result)) <= {"not-dispatched", "torn-tail"}
    assert result.is_clean


def test_keys_that_may_be_indexed_in_a_database_are_not_missing(store: Path) -> None:
    for path in (store / "index").iterdir():
        path.unlink()
    assert "index-entry-missing" in codes(judged(store))
    write_units(store / "rocksdbstore", [])
    assert "index-entry-missing" in codes(judged(store))  # 5.5 makes the database always
    write_units(store / "rocksdbstore", [StoredUnit("t", 0, 0, 0, 0, 0)])
    assert codes(judged(store)) == {"foreign-part": 1}


def test_a_damaged_database_ends_an_audit_with_one_line(store: Path) -> None:
    go_over(store)
    (table,) = (store / "consumequeue_rocksdb").glob("*.sst")
    table.write_bytes(bytes(table.stat().st_size))
    answer = run_reput("audit", store)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert "consumequeue_rocksdb" in answer.err
