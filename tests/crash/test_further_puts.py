"""A disk that fails once, and a process or a machine that ends, while messages are put several at once, and later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faulty_files import crash_at
from tests.support.lives.further_puts import (
    check_next_life_of,
    count_operations,
    live,
)
from tests.support.shares import Share, in_shares

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_shares(3)
def test_a_power_cut_at_any_operation_loses_nothing_that_was_put_with_others_or_later(
    tmp_path: Path, share: Share
) -> None:
    for number in share.of(range(0, count_operations(tmp_path / "healthy", "SYNC_FLUSH"), 3)):
        path, left = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        life, files = live(path, "SYNC_FLUSH", crash_at(number))
        files.cut_power(path, left)
        check_next_life_of(life, left)
