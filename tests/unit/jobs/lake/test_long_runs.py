"""A long run of an export holds what one commit needs, and keeps few commits on the disk."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from reput.jobs.lake import commits
from reput.jobs.lake.delta_table import DeltaTables
from reput.jobs.lake.files import LakeFile
from reput.jobs.lake.iceberg_table import IcebergTables
from reput.jobs.runner import LocalRunner
from tests.support.lake import NAMES, log_rows, put, rows_of, run


def lake_files() -> int:
    gc.collect()
    return sum(type(one) is LakeFile for one in gc.get_objects())


def test_files_of_earlier_commits_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "store", 0, 2000)
    held = list[int]()
    run_tasks = LocalRunner.run

    def counted(*arguments: Any, **named: Any) -> Any:
        held.append(lake_files())
        return run_tasks(*arguments, **named)

    monkeypatch.setattr(LocalRunner, "run", counted)
    before = lake_files()
    result = run(tmp_path / "store", tmp_path / "out", commit_bytes=1, split_bytes=1 << 20)
    assert result.commits > 8
    assert sum(topic.files for topic in result.topics) > 8 * len(NAMES)
    assert max(held) - before <= 2 * len(NAMES)
    assert rows_of(tmp_path / "out") == log_rows(tmp_path / "store")


@pytest.mark.parametrize(("checked", "is_killed", "opened"), [(4, False, 4), (3, False, 0), (3, True, 4)])
def test_a_start_looks_at_the_tables_of_the_last_commit_if_they_are_few_or_it_was_cut_short(
    checked: int, is_killed: bool, opened: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, len(NAMES))
    run(store, output, format="delta", decode="json")
    monkeypatch.setattr(commits, "_CHECKED_TABLES", checked)
    if is_killed:
        (output / "_reput/staging-0").mkdir()
    asked = list[str]()
    find = DeltaTables._find

    def counted(tables: DeltaTables, deltalake: Any, path: str) -> Any:
        asked.append(path)
        return find(tables, deltalake, path)

    monkeypatch.setattr(DeltaTables, "_find", counted)
    assert run(store, output, format="delta", decode="json").messages == 0
    assert len(asked) == opened
    assert not (output / "_reput/staging-0").exists()


def test_a_run_after_one_of_very_many_tables_opens_those_with_news_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, len(NAMES))
    run(store, output, format="iceberg", decode="json")
    monkeypatch.setattr(commits, "_CHECKED_TABLES", 1)
    put(store, 0, 1)
    opened = set[str]()
    load = IcebergTables._load

    def counted(tables: IcebergTables, catalog: Any, folder: str) -> Any:
        opened.add(folder)
        return load(tables, catalog, folder)

    monkeypatch.setattr(IcebergTables, "_load", counted)
    assert run(store, output, format="iceberg", decode="json").messages == 1
    assert len(opened) <= 2, opened
    assert len(rows_of(output)) == len(NAMES) + 1


@pytest.mark.parametrize(("form", "decode"), [("parquet", "raw"), ("delta", "json")])
def test_few_commits_are_kept_and_the_last_commits_of_all_tables(
    form: Any, decode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_COUNTED_COMMITS", 3)
    monkeypatch.setattr(commits, "_KEPT_COMMITS", 2)
    store, output = tmp_path / "store", tmp_path / "out"
    for number in range(9):
        put(store, number, 1)
        assert run(store, output, format=form, decode=decode).messages == 1
        assert len(list((output / "_reput/commits").iterdir())) <= 5
    names = sorted(path.name for path in (output / "_reput/commits").iterdir())
    assert names == [f"{number:020d}" for number in (7, 8)]
    offsets = [row["commit_log_offset"] for row in log_rows(store)]
    assert [row["commit_log_offset"] for row in rows_of(output)] == offsets
