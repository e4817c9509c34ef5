"""A process or a machine that ends at every operation of an export: readers see whole files, and each row once at the
most; the next run completes what is missing, and the folder is that of a run that nothing disturbed."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

import reput
from reput.errors import ReputError
from reput.files import DISK, FileLayer
from reput.jobs.lake.export_job import ExportOptions, export
from reput.jobs.lake.upkeep_files import named_files
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import Crash, FaultyFiles, Operation, crash_at, fail_at
from tests.support.iceberg import names_of_tables, rows_of_table, table_of
from tests.support.shares import Share, in_shares, sampled

#: Two commits; bodies of which some are no UTF-8, two topics, and small files that are put together.
OPTIONS: dict[str, Any] = {"split_bytes": 3000, "commit_bytes": 4096}
SMALL = {"mapped_file_size_commit_log": 8192, "max_message_size": 4096}
ROWS, LATE = 60, 50
#: Tables get new fields as columns.
TABLES: dict[str, Any] = {"new_fields": "add"}


def late(n: int) -> bytes:
    """A field that the first batch lacks."""
    return b', "late": true' if n >= LATE else b""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "store"
    table = pa.table(
        {
            "topic": [("orders", "%RETRY%g")[n % 2] for n in range(ROWS)],
            "body": [b"\xff" if n % 20 == 7 else b'{"n": "%s"%s}' % (b"%d" % n * 20, late(n)) for n in range(ROWS)],
        }
    )
    with reput.MessageStore.open(path, **SMALL) as opened:  # type: ignore[arg-type]
        opened.put_arrow(table)
    return path


def run_export(store: Path, output: Path, files: FileLayer, form: str, decode: str = "utf8") -> None:
    tables = TABLES if form in ("delta", "iceberg") else {}
    options = ExportOptions(**OPTIONS, **tables, format=form, decode=decode)  # type: ignore[arg-type]
    export(store, output, runner=LocalRunner(1), options=options, files=files)


def rows_seen(output: Path) -> list[int]:
    """The commit log offsets that a reader of the folders finds, now."""
    found: list[int] = []
    for kind in ("messages", "rejects"):
        for form in ("parquet", "csv"):
            if not list((output / kind).rglob(f"*.{form}")):
                continue
            offsets = ds.dataset(output / kind, format=form).to_table(["commit_log_offset"])
            found += offsets["commit_log_offset"].to_pylist()
    return sorted(found)


def table_rows(output: Path) -> list[int]:
    """The commit log offsets that readers of the tables find, now."""
    deltas = [path.parent for path in output.rglob("_delta_log") if DeltaTable.is_deltatable(str(path.parent))]
    tables = [DeltaTable(path).to_pyarrow_table(columns=["commit_log_offset"]) for path in deltas]
    tables += [rows_of_table(output, name) for name in names_of_tables(output)]
    return sorted(offset for table in tables for offset in table["commit_log_offset"].to_pylist())


def tree(output: Path) -> dict[str, bytes]:
    """The files that belong to the user."""
    paths = sorted([*output.rglob("*.parquet"), *output.rglob("*.csv")])
    return {str(path.relative_to(output)): path.read_bytes() for path in paths}


def files_on_disk(output: Path) -> set[str]:
    """The files of rows in the folders."""
    return {str(path) for path in output.rglob("*.parquet")}


def named_by_tables(output: Path) -> set[str]:
    """The files of rows that any snapshot of an Iceberg table names."""
    tables = [table_of(output, name) for name in names_of_tables(output)]
    named = {place for table in tables for place in named_files(table, table.snapshots())}
    return {place.removeprefix("file://") for place in named if place.endswith(".parquet")}


def unnamed_metadata(output: Path) -> list[str]:
    """Manifests, and lists of them, that no snapshot of an Iceberg table names."""
    tables = [table_of(output, name) for name in names_of_tables(output)]
    named = {Path(place).name for table in tables for place in named_files(table, table.snapshots())}
    return [path.name for path in output.rglob("*.avro") if path.name not in named]


def check_next_run(store: Path, output: Path, expected: Path, form: str, decode: str = "utf8") -> None:
    seen = rows_seen(output)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(rows_seen(expected))
    before = table_rows(output)
    assert len(set(before)) == len(before)
    run_export(store, output, DISK, form, decode)
    assert tree(output) == tree(expected)
    assert table_rows(output) == table_rows(expected)
    assert not [path.name for path in (output / "_reput").iterdir() if path.name.startswith("staging")]
    assert not unnamed_metadata(output)
    assert not (output / "_reput/upkeep").exists()


def test_tables_grow_by_the_field_of_the_second_batch(store: Path, tmp_path: Path) -> None:
    run_export(store, tmp_path, DISK, "iceberg", "json")
    body = rows_of_table(tmp_path, "messages_orders")["body"]
    assert [row["late"] for row in body.to_pylist()].count(True) == (ROWS - LATE) // 2


@sampled(2)
@pytest.mark.parametrize(("form", "retain"), [("delta", 1), ("iceberg", 0)])  # deltalake removes files by itself
def test_a_crash_in_the_upkeep_of_tables_loses_and_doubles_nothing(
    store: Path, form: str, retain: int, tmp_path: Path
) -> None:
    def tidy(output: Path, files: FileLayer) -> None:
        options = ExportOptions(**OPTIONS, format=form, compact=2, retain_hours=retain)  # type: ignore[arg-type]
        export(store, output, runner=LocalRunner(1), options=options, files=files)

    counting = FaultyFiles()
    tidy(tmp_path / "expected", counting)
    expected = table_rows(tmp_path / "expected")
    assert len(expected) == ROWS
    operations = len(counting.operations)
    for number in range(operations - 1, operations // 2, -19):
        output, cut = tmp_path / f"{number}/out", tmp_path / f"{number}/cut"
        files = FaultyFiles(crash_at(number))
        with pytest.raises(Crash):
            tidy(output, files)
        files.abandon()
        files.cut_power(output, cut)
        output.rename(aside := tmp_path / f"{number}/aside")
        for left in (cut, aside):
            left.rename(output)
            tidy(output, DISK)
            assert table_rows(output) == expected
            if form == "iceberg":
                assert files_on_disk(output) == named_by_tables(output)
                assert not (output / "_reput/upkeep").exists()
            shutil.rmtree(output)


@sampled(3)
@in_shares(3)
@pytest.mark.parametrize(
    ("form", "decode", "step"),
    [
        ("parquet", "utf8", 4),
        ("parquet", "json", 7),
        ("delta", "json", 9),
        ("iceberg", "json", 31),
        ("csv", "utf8", 13),
    ],
)
def test_a_crash_or_a_power_cut_at_any_operation_costs_nothing_and_doubles_nothing(
    store: Path, form: str, decode: str, step: int, tmp_path: Path, share: Share
) -> None:
    counting = FaultyFiles()
    run_export(store, tmp_path / "expected", counting, form, decode)
    assert len(rows_seen(tmp_path / "expected")) == ROWS
    assert len(table_rows(tmp_path / "expected")) == (ROWS if form in ("delta", "iceberg") else 0)
    operations = len(counting.operations)
    assert operations > 60, "not the export that the steps are for"
    for number in share.of(range(0, operations, step)):
        output, cut = tmp_path / f"{number}/out", tmp_path / f"{number}/cut"
        files = FaultyFiles(crash_at(number))
        with pytest.raises(Crash):
            run_export(store, output, files, form, decode)
        files.abandon()
        if output.exists():
            files.cut_power(output, cut)
            output.rename(aside := tmp_path / f"{number}/aside")
            cut.rename(output)  # tables have absolute paths
            check_next_run(store, output, tmp_path / "expected", form, decode)
            shutil.rmtree(output)
            aside.rename(output)
        check_next_run(store, output, tmp_path / "expected", form, decode)
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize("what", ["commits", "topic="])
def test_names_of_a_run_that_was_killed_before_their_sync_survive_a_power_cut(
    store: Path, what: str, tmp_path: Path
) -> None:
    """The next run tells the table of the batch; then the power goes, and the log grows by a topic."""
    grown, output = tmp_path / "store", tmp_path / "out"
    shutil.copytree(store, grown)

    def run_raw(files: FileLayer) -> None:
        export(grown, output, runner=LocalRunner(1), options=ExportOptions(**OPTIONS, format="iceberg"), files=files)

    counting = FaultyFiles()
    run_raw(counting)
    shutil.rmtree(output)
    syncs = [one.number for one in counting.operations if one.kind == "sync_directory" and what in one.path]
    assert len(syncs) >= 2, "a sync for each of two batches"
    killed, after = FaultyFiles(crash_at(syncs[-1])), FaultyFiles()
    with pytest.raises(Crash):
        run_raw(killed)
    killed.abandon()
    after.goes_on_after(killed)
    run_raw(after)
    after.cut_power(output, tmp_path / "cut")
    shutil.rmtree(output)
    (tmp_path / "cut").rename(output)
    with reput.MessageStore.open(grown, **SMALL) as opened:  # type: ignore[arg-type]
        opened.put_arrow(pa.table({"topic": ["later"], "body": [b"x"]}))
    run_raw(DISK)
    offsets = reput.read_log(grown, ["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist()
    assert table_rows(output) == offsets


def test_a_disk_that_fails_once_is_an_error_and_the_next_run_completes(store: Path, tmp_path: Path) -> None:
    counting = FaultyFiles()
    run_export(store, tmp_path / "expected", counting, "parquet")
    for number in range(0, len(counting.operations), 9):
        output = tmp_path / str(number)
        files = FaultyFiles(fail_at(number, errno.ENOSPC))
        with pytest.raises(ReputError):
            run_export(store, output, files, "parquet")
        files.abandon()
        check_next_run(store, output, tmp_path / "expected", "parquet")


_CHILD = """
import json, sys
from reput.files import FileLayer
from reput.jobs.lake.export_job import ExportOptions, export
from reput.jobs.runner import LocalRunner

class Told(FileLayer):
    def write_atomically(self, path, data):
        super().write_atomically(path, data)
        if "/commits/" in path:
            print("committed", flush=True)

options = ExportOptions(**json.loads(sys.argv[3]))
export(sys.argv[1], sys.argv[2], runner=LocalRunner(1), options=options, files=Told())
"""


def test_a_process_that_is_killed_is_gone_on_with(store: Path, tmp_path: Path) -> None:
    run_export(store, tmp_path / "expected", DISK, "parquet")
    output = tmp_path / "out"
    arguments = [
        sys.executable,
        "-c",
        _CHILD,
        str(store),
        str(output),
        json.dumps(OPTIONS | {"format": "parquet", "decode": "utf8"}),
    ]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"committed\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    check_next_run(store, output, tmp_path / "expected", "parquet")


def test_a_table_that_two_killed_runs_have_made_survives_a_power_cut(store: Path, tmp_path: Path) -> None:
    """The first run makes the folder of the metadata, and dies before the sync; the second one dies undecided."""
    output, counting = tmp_path / "out", FaultyFiles()
    run_export(store, output, counting, "iceberg", "json")
    shutil.rmtree(output)
    made = next(one.number for one in counting.operations if one.path.endswith("_iceberg"))
    assert counting.operations[made + 1].kind == "sync_directory"
    killed, after = FaultyFiles(crash_at(made + 1)), FaultyFiles()
    with pytest.raises(Crash):
        run_export(store, output, killed, "iceberg", "json")
    killed.abandon()
    after.goes_on_after(killed)

    def dies_undecided(operation: Operation) -> None:
        if operation.kind == "rename" and "/commits/" in operation.path:
            raise Crash

    after.judge = dies_undecided
    with pytest.raises(Crash):
        run_export(store, output, after, "iceberg", "json")
    after.abandon()
    after.cut_power(output, tmp_path / "cut")
    shutil.rmtree(output)
    (tmp_path / "cut").rename(output)
    assert names_of_tables(output)
    run_export(store, output, DISK, "iceberg", "json")
    assert len(table_rows(output)) == ROWS
