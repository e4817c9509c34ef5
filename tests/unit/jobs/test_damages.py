"""Damage of a log that a query may pass over: it is found wherever tasks begin, and told once."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.errors import CorruptRecordError
from reput.jobs.damages import find_damages
from reput.jobs.query.sql_job import Source, query_sql
from reput.jobs.runner import LocalRunner
from reput.log.damages import NO_DAMAGES
from tests.support.commands import run_reput
from tests.support.damaged_copy import CLEAN, damaged_copy

COUNT = "select count(*) n from messages"


@pytest.mark.parametrize("split_bytes", [700, 50_000, 1 << 30])
def test_damage_is_found_with_splits_of_any_size(split_bytes: int, tmp_path: Path) -> None:
    store, path, offset = damaged_copy(tmp_path / "store", 2)
    (found,) = find_damages(store, runner=LocalRunner(2), split_bytes=split_bytes)
    assert (found.path, found.begin) == (path, offset)
    assert find_damages(CLEAN, runner=LocalRunner(2), split_bytes=split_bytes) == NO_DAMAGES


def test_sql_refuses_damage_or_passes_over_it(tmp_path: Path) -> None:
    store, path, offset = damaged_copy(tmp_path / "store", 0)
    with pytest.raises(CorruptRecordError, match="--damaged skip") as caught:
        query_sql(Source(path=store), COUNT).reader.read_all()
    assert (caught.value.path, caught.value.offset) == (path, offset)
    found = query_sql(Source(path=store, damaged="skip"), COUNT)
    whole = reput.read_log(store, ["topic"], mode="DROPMALFORMED").read_all()
    assert found.reader.read_all().to_pylist() == [{"n": len(whole)}]
    (finding,) = found.findings
    assert f"damaged at offset {offset}" in finding
    rows = query_sql(Source(path=store, damaged="skip"), 'select count(*) n from "topic-4"').reader.read_all()
    assert rows["n"].to_pylist() == [whole["topic"].to_pylist().count("topic-4")]


def test_the_command_tells_once_what_it_passed_over_and_ends_with_1(tmp_path: Path) -> None:
    store, _, offset = damaged_copy(tmp_path / "store", 0)
    call = ("query", store, "--sql", f"{COUNT} join messages o using (commit_log_offset)", "--json")
    refused = run_reput(*call)
    assert refused.status == 2
    assert "--damaged skip" in refused.err
    answer = run_reput(*call, "--damaged", "skip")
    assert (answer.status, answer.err.count(f"damaged at offset {offset}")) == (1, 1)
    assert answer.object()["n"] == 999
    assert (
        "--damaged counts only with --sql" in run_reput("query", store, "--topics", "topic-1", "--damaged", "skip").err
    )
