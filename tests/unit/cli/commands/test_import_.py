"""reput import: an export comes back, what is wrong is told, and a source is imported once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import reput
from tests.support.commands import SMALL_FILES, Run


def test_an_export_comes_back_and_comes_once(store: Path, tmp_path: Path, run_reput: Run) -> None:
    assert run_reput("export", store, tmp_path / "lake").status == 0
    answer = run_reput("import", tmp_path / "lake", tmp_path / "copy", "--json", *SMALL_FILES)
    assert (answer.status, answer.err) == (0, "")
    assert (answer.object()["messages"], answer.object()["skipped"]) == (5, 0)
    columns = ["topic", "queue_id", "queue_offset", "tags", "keys", "properties", "born_timestamp", "body"]
    assert reput.read_log(tmp_path / "copy", columns).read_all() == reput.read_log(store, columns).read_all()
    answer = run_reput("import", tmp_path / "lake", tmp_path / "copy", *SMALL_FILES)
    assert answer.status == 0, answer.err
    assert "imported before" in answer.out
    assert len(reput.read_log(tmp_path / "copy").read_all()) == 5


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_as_text_comes_back(store: Path, tmp_path: Path, run_reput: Run, kind: str) -> None:
    assert run_reput("export", store, tmp_path / "lake", "--format", kind).status == 0
    answer = run_reput("import", tmp_path / "lake", tmp_path / "copy", "--json", *SMALL_FILES)
    assert (answer.status, answer.object()["messages"]) == (0, 5), answer.err
    columns = ["topic", "queue_id", "queue_offset", "tags", "keys", "properties", "born_timestamp", "body"]
    assert reput.read_log(tmp_path / "copy", columns).read_all() == reput.read_log(store, columns).read_all()


def test_lines_of_get_and_of_a_query_are_imported(store: Path, tmp_path: Path, run_reput: Run) -> None:
    lines = run_reput("get", store, "--topic", "orders", "--json").out
    (tmp_path / "get.jsonl").write_text(lines, "utf-8")
    assert run_reput("query", store, "--sql", "select * from orders", "--output", tmp_path / "sql.csv").status == 0
    bodies = reput.read_log(store, ["body"]).read_all()["body"].to_pylist()
    for name, others in (("get.jsonl", {b"elsewhere"}), ("sql.csv", set())):  # get reads one queue
        copy = tmp_path / f"{name}-store"
        assert run_reput("import", tmp_path / name, copy, *SMALL_FILES).status == 0
        assert set(reput.read_log(copy, ["body"]).read_all()["body"].to_pylist()) == set(bodies) - others


def test_rejects_of_an_export_are_imported_as_they_were(store: Path, tmp_path: Path, run_reput: Run) -> None:
    assert run_reput("export", store, tmp_path / "lake", "--decode", "utf8").status == 1
    columns = ["topic", "queue_id", "tags", "keys", "properties", "born_timestamp", "body"]
    command = ("import", tmp_path / "lake/rejects", tmp_path / "again", "--columns", ",".join(columns), *SMALL_FILES)
    assert run_reput(*command).status == 0
    rows = reput.read_log(store, columns).read_all().to_pylist()
    found = reput.read_log(tmp_path / "again", columns).read_all().to_pylist()
    assert found == [row for row in rows if row["body"] == b"\xff\xfe"] != []


def test_an_import_says_that_rejects_are_left_out_and_how_they_come(
    store: Path, tmp_path: Path, run_reput: Run
) -> None:
    assert run_reput("export", store, tmp_path / "lake", "--decode", "utf8").status == 1
    answer = run_reput("import", tmp_path / "lake", tmp_path / "copy", *SMALL_FILES)
    said, _, command = answer.err.strip().rpartition(": reput ")
    assert (answer.status, "that the export rejected" in said) == (0, True)
    assert run_reput(*command.split(" ")).status == 0
    bodies = [reput.read_log(path, ["body"]).read_all()["body"].to_pylist() for path in (store, tmp_path / "copy")]
    assert sorted(bodies[0]) == sorted(bodies[1])


def test_rows_put_aside_are_told(tmp_path: Path, run_reput: Run) -> None:
    parquet.write_table(pa.table({"topic": ["orders", "a/b"], "body": ["x", "y"]}), tmp_path / "one.parquet")
    arguments = ("import", tmp_path / "one.parquet", tmp_path / "store")
    answer = run_reput(*arguments)
    assert answer.status == 2
    assert "one.parquet, row 1: topic 'a/b'" in answer.err
    answer = run_reput(*arguments, "--bad-rows-path", tmp_path / "bad")
    assert answer.status == 1
    assert "1 row was put aside" in answer.err
    assert parquet.read_table(tmp_path / "bad")["body"].to_pylist() == ["y"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["gone", "store"], "no such file or folder"),
        (["empty", "store"], "a folder without any file to import"),
        (["one.parquet", "store", "--sink-id", "a b"], "no name of up to 100 letters"),
        (["one.parquet", "store", "--columns", "topic"], "no column 'body'"),
        (["one.parquet", "store", "--set", "nothing=1"], "nothing"),
    ],
)
def test_what_cannot_be_imported_is_refused(
    tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"topic": ["orders"], "body": ["x"]}), "one.parquet")
    (tmp_path / "empty").mkdir()
    answer = run_reput("import", *arguments)
    assert answer.status == 2
    assert reason in answer.err
