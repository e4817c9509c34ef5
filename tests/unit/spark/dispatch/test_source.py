"""Source of `dispatch`: when a batch is due, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.log.directory import StoreDirectory
from reput.spark.compat import ReadAllAvailable
from reput.spark.dispatch import source
from reput.spark.dispatch.source import DispatchStreamReader
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support.invariants import SMALL

ALL = ReadAllAvailable()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "a,b"  # a comma separates folders of a log
    put(path)
    return path


def put(path: Path) -> None:
    with reput.MessageStore.open(path, **SMALL) as opened:
        for number in range(30):
            opened.put_message(reput.Message("orders", b"x" * 90), number % 3)


def reader(store: Path, output: Path) -> DispatchStreamReader:
    log = {"path": str(store), "commit_log_path": None, "marks": str(output)}
    return DispatchStreamReader({"logs": json.dumps([log])})


def dispatch_all(store: Path, output: Path) -> int:
    log = LogDispatch(StoreDirectory(store), str(output), MessageStoreConfig.from_mapping(SMALL))
    while log.run_once() is not None:
        pass
    log.close()
    return log.point.offset


def test_a_batch_is_due_until_the_mark_is_at_the_end_of_the_log(store: Path, tmp_path: Path) -> None:
    offsets = reader(store, tmp_path / "output")
    begin = offsets.initialOffset()
    assert begin == {str(store): {"offset": 0}}
    due = offsets.latestOffset(begin, ALL)
    assert due[str(store)]["dispatched"] == 0
    end = dispatch_all(store, tmp_path / "output")
    assert offsets.latestOffset(due, ALL) == due
    assert offsets.reportLatestOffset() == {str(store): {"offset": end}}
    put(store)
    assert offsets.latestOffset(due, ALL)[str(store)]["dispatched"] == end


def test_a_batch_that_dispatches_nothing_is_tried_again_once_in_a_while(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a sink's batch that was cut off while it was read: the log has not grown since, but it has records."""
    offsets = reader(store, tmp_path / "output")
    tried = offsets.latestOffset(offsets.initialOffset(), ALL)
    again = offsets.latestOffset(tried, ALL)
    assert again[str(store)] == {**tried[str(store)], "tries": 1}
    assert offsets.latestOffset(again, ALL) == again, "not at once"
    monkeypatch.setattr(source, "_AGAIN_AFTER_S", 0.0)
    offsets = reader(store, tmp_path / "output")
    again = offsets.latestOffset(tried, ALL)
    assert offsets.latestOffset(again, ALL)[str(store)]["tries"] == 2
