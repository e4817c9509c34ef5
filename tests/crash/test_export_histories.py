"""Exports, kills, other logs and catalogs that are put back, in any order: each row of the logs is there, once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reput
from reput.errors import ReputError, StoreError
from reput.files import DISK, FileLayer
from reput.formats.message import Message
from reput.jobs.lake import Export, ExportOptions, commits, export
from reput.jobs.runner import LocalRunner
from tests.support.examples import examples
from tests.support.faulty_files import Crash, FaultyFiles, crash_at
from tests.support.iceberg import names_of_tables, rows_of_table
from tests.support.lake import SMALL, log_rows

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 4)),
    st.tuples(st.just("export"), st.just(0)),
    st.tuples(st.just("killed"), st.integers(0, 200)),
    st.tuples(st.just("other log"), st.integers(1, 4)),
    st.tuples(st.just("copy"), st.just(0)),
    st.tuples(st.just("put back"), st.just(0)),
)


class History:
    """A store and its export: what was put, and what an export that has ended must have taken."""

    def __init__(self, folder: Path, form: Any) -> None:
        self.store, self.output, self.copied = folder / "store", folder / "out", folder / "copied"
        self.form = form
        self.number = 0
        self.is_loss_allowed = True
        self.taken: set[str] = set()

    def put(self, count: int) -> None:
        with reput.MessageStore.open(self.store, **SMALL) as opened:
            for _ in range(count):
                opened.put_message(Message(("orders", "users")[self.number % 2], b"%d" % self.number))
                self.number += 1

    def export(self, _: int = 0, files: FileLayer = DISK) -> Export:
        is_refused = not self.is_loss_allowed
        options = ExportOptions(format=self.form, decode="utf8", fail_on_data_loss=is_refused, commit_bytes=1)
        done = export(self.store, self.output, runner=LocalRunner(1), options=options, files=files)
        self.taken.update(row["body"].decode() for row in log_rows(self.store))
        return done

    def killed(self, number: int) -> None:
        files = FaultyFiles(crash_at(number))
        try:
            self.export(files=files)
        except Crash:
            files.abandon()

    def other_log(self, count: int) -> None:
        shutil.rmtree(self.store)
        self.put(count)

    def catalog(self) -> list[Path]:
        """What says which files a table has."""
        logs = sorted(self.output.glob("messages/**/_delta_log"))
        return logs if self.form == "delta" else [path for path in [self.output / "catalog.db"] if path.exists()]

    def copy(self, _: int) -> None:
        shutil.rmtree(self.copied, ignore_errors=True)
        for path in self.catalog():
            target = self.copied / path.relative_to(self.output)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target)

    def put_back(self, _: int) -> None:
        for path in self.catalog():
            copied = self.copied / path.relative_to(self.output)
            if copied.exists():
                (shutil.rmtree if path.is_dir() else Path.unlink)(path)
                (shutil.copytree if copied.is_dir() else shutil.copy)(copied, path)

    def rows(self) -> list[str]:
        if self.form == "parquet":
            return ds.dataset(self.output / "messages", format="parquet").to_table()["body"].to_pylist()
        if self.form == "delta":
            return DeltaTable(self.output / "messages").to_pyarrow_table()["body"].to_pylist()
        tables = [rows_of_table(self.output, name) for name in names_of_tables(self.output)]
        return [row for table in tables for row in table["body"].to_pylist()]


@pytest.mark.parametrize("form", ["parquet", "iceberg", "delta"])
@settings(max_examples=examples(20))
@given(steps=st.lists(STEPS, max_size=9))
@example(steps=[("export", 0), ("other log", 3), ("export", 0), ("other log", 2)])
@example(steps=[("export", 0), ("copy", 0), *[("put", 2), ("export", 0)] * 2, ("put back", 0)])
@example(steps=[("export", 0), ("killed", 40), ("copy", 0), ("other log", 3), ("killed", 60), ("put back", 0)])
def test_the_rows_of_the_table_are_those_of_the_logs(
    tmp_path_factory: pytest.TempPathFactory, form: str, steps: list[tuple[str, int]]
) -> None:
    history = History(tmp_path_factory.mktemp("history"), form)
    history.put(2)
    for step, number in steps:
        getattr(history, step.replace(" ", "_"))(number)
    history.put(1)
    history.export()
    rows = history.rows()
    assert len(rows) == len(set(rows))
    assert history.taken <= set(rows) <= {str(number) for number in range(history.number)}


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest) -> History:
    history = History(tmp_path, request.param)
    for _ in range(3):
        history.put(2)
        history.export()
    return history


TABLES = pytest.mark.parametrize("history", ["iceberg", "delta"], indirect=True)


@TABLES
def test_a_table_that_lacks_commits_which_are_not_kept_is_left_out_or_goes_on_without_them_if_asked(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.copy(0)
    monkeypatch.setattr(commits, "_COUNTED_COMMITS", 2)
    monkeypatch.setattr(commits, "_KEPT_COMMITS", 2)
    for _ in range(4):
        history.put(2)
        history.export()
    assert len(list((history.output / "_reput/commits").iterdir())) <= 3
    assert len(set(history.rows())) == history.number
    history.put_back(0)
    before = history.rows()
    history.is_loss_allowed = False
    for count in (0, 1):
        history.put(count)
        [fault] = history.export().findings
        assert re.search(r"lacks commits of the export after 2, .* not kept any more.*Put the newer", fault)
        assert history.rows() == before
    history.is_loss_allowed = True
    history.put(1)
    [fault] = history.export().findings
    assert fault.endswith("it goes on without")
    numbers = sorted(map(int, history.rows()))
    assert numbers[-2:] == [history.number - 2, history.number - 1]
    assert len(before) < len(numbers) == len(set(numbers)) < history.number
    history.is_loss_allowed = False
    history.put(1)
    assert history.export().findings == []


@TABLES
def test_a_table_that_lacks_the_last_commit_whose_files_are_gone_is_left_out(history: History) -> None:
    history.copy(0)
    history.put(2)
    history.export()
    history.put_back(0)
    for path in history.output.rglob("*-000003.parquet"):
        path.unlink()
    history.is_loss_allowed = False
    [fault] = history.export().findings
    assert re.search(r"lacks commits of the export after 2, up to 3, .* not kept any more", fault)


@TABLES
def test_a_state_folder_that_is_older_than_the_table_is_refused(history: History) -> None:
    shutil.copytree(history.output / "_reput", history.copied)
    for _ in range(2):
        history.put(1)
        history.export()
    before = sorted(history.rows())
    shutil.rmtree(history.output / "_reput")
    history.copied.rename(history.output / "_reput")
    history.put(1)
    with pytest.raises(ReputError, match=r"was put back from a copy|older than the files"):
        history.export()
    assert sorted(history.rows()) == before


@pytest.mark.parametrize("history", ["parquet", "iceberg"], indirect=True)
def test_a_name_that_another_file_has_stops_the_batch_before_it_counts(history: History) -> None:
    history.put(1)
    [row] = [row for row in log_rows(history.store) if row["body"] == b"6"]
    [folder] = history.output.glob("messages/topic=orders/date=*")
    mine = folder / f"{row['commit_log_offset']:020d}-000003.parquet"
    mine.write_bytes(b"mine")
    with pytest.raises(StoreError, match=r"000003\.parquet: commit 3 was to give a file this name.*another folder"):
        history.export()
    assert mine.read_bytes() == b"mine"
    mine.unlink()
    history.export()
    assert sorted(map(int, history.rows())) == list(range(7))


@pytest.mark.parametrize("history", ["parquet"], indirect=True)
def test_an_export_of_an_earlier_version_goes_on(history: History) -> None:
    """Its files are named by their offsets alone."""
    for path in history.output.rglob("*-00000?.parquet"):
        path.rename(path.with_name(f"{path.name[:20]}.parquet"))
    for path in (history.output / "_reput/commits").iterdir():
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line.replace(f', "commit": {int(path.name)}', "") for line in lines))
    history.other_log(3)
    history.export()
    assert sorted(map(int, history.rows())) == list(range(9))
