"""Tasks of an export: an inner batch stays together in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.jobs.lake import export_task
from tests.support.lake import check_files, log_rows, rows_of, run

STORE = Path(__file__).parents[3] / "golden/5.3.3/bcq/store"


@pytest.mark.slow
def test_an_inner_batch_is_in_one_file_wherever_a_task_writes_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput.log.reads.batches, "MAX_ROWS", 2)
    monkeypatch.setattr(export_task, "_CHUNK_BYTES", 1)
    expected = log_rows(STORE)
    result = run(STORE, tmp_path / "out", target_file_bytes=1)
    assert rows_of(tmp_path / "out") == expected
    assert result.messages == len(expected)
    assert len({row["commit_log_offset"] for row in expected}) < len(expected)
    check_files(tmp_path / "out")
