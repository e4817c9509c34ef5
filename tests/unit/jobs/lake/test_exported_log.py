"""A log that loses files, is cut or is damaged before or while it is exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import CorruptRecordError, DataLossError
from reput.jobs.lake import ExportOptions, export
from reput.jobs.runner import LocalRunner
from reput.log import StoreDirectory
from tests.support.damage import at, overwrite
from tests.support.lake import check_files, log_rows, put, rows_of, run
from tests.support.shares import sampled


def test_what_retention_took_before_it_was_exported_is_an_error_that_names_the_gap(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 100)
    first = run(store, output)
    put(store, 100, 1000)
    files = StoreDirectory(store).log_files()
    assert len(files) > 6
    for file in files[:5]:
        Path(file.path).unlink()
    begin = files[5].start_offset
    with pytest.raises(
        DataLossError, match=f"from {first.end_offset}, and there is no such file; the files have {begin} to"
    ):
        run(store, output)
    with pytest.raises(DataLossError, match=r"or give --allow-data-loss \(fail_on_data_loss=False\), and the export"):
        run(store, output)
    second = run(store, output, fail_on_data_loss=False)
    assert second.lost == ((first.end_offset, begin),)
    after = [row for row in rows_of(output) if row["commit_log_offset"] >= begin]
    assert after == log_rows(store)
    assert len(rows_of(output)) == first.messages + second.messages
    assert run(store, output).messages == 0


def test_a_log_that_was_cut_and_went_on_otherwise_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "one", 0, 20)
    run(tmp_path / "one", tmp_path / "out")
    (tmp_path / "one").rename(tmp_path / "gone")
    put(tmp_path / "one", 5, 40)
    with pytest.raises(DataLossError, match="is not the one that was read there"):
        run(tmp_path / "one", tmp_path / "out")


class Interrupting(LocalRunner):
    """Does something before or behind the first tasks."""

    def __init__(
        self, *, before: Callable[[], object] | None = None, behind: Callable[[], object] | None = None
    ) -> None:
        super().__init__(1)
        self._before, self._behind = before, behind

    def run(self, task: Any, items: Any, **options: Any) -> Any:
        if self._before:
            self._before()
        outcomes = super().run(task, items, **options)
        if self._behind:
            self._behind()
        self._before = self._behind = None
        return outcomes


def test_files_that_go_while_the_log_is_exported_are_no_gap_without_an_error(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 0, 1000)
    files = StoreDirectory(store).log_files()

    def delete() -> None:
        for file in files[:3]:
            Path(file.path).unlink()

    options = ExportOptions(commit_bytes=1)  # a part is a file
    with pytest.raises(DataLossError, match="retention is faster"):
        export(store, tmp_path / "out", runner=Interrupting(behind=delete), options=options)
    assert {row["commit_log_offset"] for row in rows_of(tmp_path / "out")} < set(range(files[0].end_offset))
    put(store, 1000, 10)
    files = StoreDirectory(store).log_files()
    with pytest.raises(reput.StoreError, match="retention has deleted it"):
        export(store, tmp_path / "other", runner=Interrupting(before=delete), options=options)
    assert rows_of(tmp_path / "other") == []


def test_a_log_that_is_cut_while_it_is_exported_is_an_error(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 0, 20)
    rows = log_rows(store)

    def cut() -> None:
        path = Path(StoreDirectory(store).log_files()[0].path)
        data = path.read_bytes()
        begin = rows[10]["commit_log_offset"]
        path.write_bytes(data[:begin] + bytes(len(data) - begin))
        (store / "config/reputShutdown.json").unlink()  # by the start

    with pytest.raises(DataLossError, match=f"ends at {rows[10]['commit_log_offset']} now"):
        export(store, tmp_path / "out", runner=Interrupting(before=cut))
    assert run(store, tmp_path / "out").messages == 10


@pytest.mark.parametrize("damaged", [0, 200, 390])
def test_damage_is_an_error_wherever_it_is_and_nothing_behind_it_is_exported(damaged: int, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 400)
    rows = log_rows(store)
    offset = spoil(store, rows[damaged])
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=f"damaged at offset {offset}.*--damaged skip"):
            run(store, output)
        exported = [row["commit_log_offset"] for row in rows_of(output)]
        assert exported in ([], [row["commit_log_offset"] for row in rows[:damaged]])
    result = run(store, output, damaged="skip")
    assert rows_of(output) == [*rows[:damaged], *rows[damaged + 1 :]]
    (damage,) = result.damages
    assert (damage.begin, damage.end - damage.begin) == (offset, rows[damaged]["store_size"])
    assert any(f"passed over {damage.end - damage.begin} bytes" in finding for finding in result.findings)
    again = run(store, output)
    assert (again.messages, again.damages.told) == (0, ())


@sampled(2)
@pytest.mark.parametrize("options", [{}, {"split_bytes": 700}, {"commit_bytes": 1}, {"split_bytes": 9000}])
def test_damage_is_passed_over_where_that_is_allowed_and_told_once(options: dict[str, Any], tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 400)
    rows = log_rows(store)
    first = [number for number, row in enumerate(rows) if row["commit_log_offset"] % (16 << 10) == 0]
    lost = sorted({3, 4, 5, 150, first[2], first[3] - 1, first[3] + 7, 390})
    for number in lost:
        spoil(store, rows[number])
    result = run(store, output, damaged="skip", **options)
    expected = reput.read_log(store, ["commit_log_offset"], mode="DROPMALFORMED").read_all()["commit_log_offset"]
    assert [row["commit_log_offset"] for row in rows_of(output)] == expected.to_pylist()
    assert result.messages == len(expected) == len(rows) - len(lost)
    for number in lost:
        (damage,) = (d for d in result.damages if d.begin <= rows[number]["commit_log_offset"] < d.end)
        assert not any(damage.begin <= offset < damage.end for offset in expected.to_pylist())
    check_files(output)


def spoil(store: Path, row: dict[str, Any]) -> int:
    """Write over the magic code of a record; its offset."""
    offset: int = row["commit_log_offset"]
    overwrite(*at(store, offset + 4), b"none")
    return offset
