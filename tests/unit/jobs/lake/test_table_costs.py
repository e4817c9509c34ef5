"""A table of an export is made with its first files; its library works out its metadata once for each update."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyiceberg.table
import pytest

from reput.jobs.lake.export_job import ExportOptions, export
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import Crash, FaultyFiles
from tests.support.lake import NAMES, put, run


def test_a_new_delta_table_and_its_first_files_are_one_entry_of_its_log(tmp_path: Path) -> None:
    put(tmp_path / "store", 0, len(NAMES))
    run(tmp_path / "store", tmp_path / "out", format="delta", decode="json")
    logs = list((tmp_path / "out").rglob("_delta_log"))
    assert len(logs) == len(NAMES)
    for log in logs:
        [entry] = log.iterdir()
        rows = [json.loads(line) for line in entry.read_text().splitlines()]
        assert {name for row in rows for name in row} == {"commitInfo", "protocol", "metaData", "add", "txn"}
        [info] = [row["commitInfo"] for row in rows if "commitInfo" in row]
        assert {"reput.beginOffset", "reput.endOffset"} <= info.keys()


def test_an_append_to_an_iceberg_table_works_out_its_metadata_once_for_each_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[int]()
    plain = pyiceberg.table.update_table_metadata  # type: ignore[attr-defined]

    def update(*arguments: Any, **named: Any) -> Any:
        counted.append(1)
        return plain(*arguments, **named)

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", update)
    put(tmp_path / "store", 0, len(NAMES))
    run(tmp_path / "store", tmp_path / "out", format="iceberg", decode="json")
    updates = 2  # properties, snapshot
    assert 0 < len(counted) <= (updates + 1) * len(NAMES)


def test_logs_of_delta_tables_that_a_killed_run_has_not_synced_are_synced_by_the_next_one(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, len(NAMES))
    options = ExportOptions(format="delta", decode="json")

    class Killed(FaultyFiles):
        """Ends once all tables have the commit, and before the first of them is synced."""

        def sync_files(self, paths: Any) -> None:
            if any("_delta_log" in path for path in paths):
                raise Crash
            super().sync_files(paths)

    killed = Killed()
    with pytest.raises(Crash):
        export(store, output, runner=LocalRunner(1), options=options, files=killed)
    killed.abandon()
    after = FaultyFiles()
    assert export(store, output, runner=LocalRunner(1), options=options, files=after).messages == 0
    synced = {one.path for one in after.operations if one.kind.startswith("sync")}
    entries = {str(entry) for log in output.rglob("_delta_log") for entry in log.iterdir()}
    assert len(entries) == len(NAMES)
    assert entries <= synced
