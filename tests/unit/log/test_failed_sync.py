"""The mark of a failed sync, where it cannot be left and where there is nothing to mark."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reput.errors import StoreFullError, StoreSyncError
from reput.log.failed_sync import failed_sync_path, leave_mark, remove_mark
from tests.support.faulty_files import FaultyFiles, fail_next


def test_a_mark_says_what_failed_and_is_removed(tmp_path: Path) -> None:
    files, mark = FaultyFiles(), Path(failed_sync_path(str(tmp_path)))
    leave_mark(str(tmp_path), files, StoreSyncError("x: cannot sync"))
    assert mark.read_text() == "x: cannot sync\n"
    for _ in range(2):
        remove_mark(str(tmp_path), files)
        assert not mark.exists()


def test_another_error_leaves_no_mark(tmp_path: Path) -> None:
    leave_mark(str(tmp_path), FaultyFiles(), StoreFullError("x: no space"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["create", "write"])
def test_a_mark_that_cannot_be_left_is_logged_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    files = FaultyFiles(fail_next(kind, part="reputFailedSync"))
    with caplog.at_level(logging.WARNING, "reput.log"):
        leave_mark(str(tmp_path), files, StoreSyncError("x: cannot sync"))
    (line,) = caplog.messages
    assert failed_sync_path(str(tmp_path)) in line
    assert "restart the machine before the store is opened again" in line
