"""A clock that jumps while a store is written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL, check_store


def test_index_files_made_after_the_clock_has_jumped_back_come_behind_the_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, path = time.time, tmp_path / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
        for years in (0, 10, 20):
            monkeypatch.setattr(time, "time", lambda years=years: real() - years * 365 * 86_400)
            for number in range(40):
                store.put_message(reput.Message("orders", b"x", keys=[f"{years}-{number}"]))
            store.wait_dispatched(timeout=60)
        assert [len(found) for found in store.query_messages("orders", ["0-0", "10-39", "20-39"]).values()] == [1, 1, 1]
    assert len(list((path / "index").iterdir())) == 7
    check_store(path)
