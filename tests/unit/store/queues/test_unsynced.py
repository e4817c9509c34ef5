"""Syncs of the queues look at those that were written to, whatever the count of queues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from reput import Message, MessageStore
from reput.errors import StoreError
from reput.files import FileLayer
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.unsynced import UnsyncedQueues

QUEUES = 40


class CountedSyncs(FileLayer):
    """The real disk, with the files that were synced in one call; `fails` makes such a call fail."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.fails = False

    def sync_files(self, paths: Sequence[str]) -> None:
        if self.fails:
            raise StoreError("the disk fails")
        self.synced += paths
        super().sync_files(paths)


def test_a_queue_that_was_looked_at_is_looked_at_again_after_a_write_or_by_a_thorough_sync() -> None:
    queues = UnsyncedQueues[str]()
    for name in "abc":
        queues.add(name)
    assert sorted(queues.take(lately=True)) == ["a", "b", "c"]
    queues.give_back(["a", "b"])
    assert queues.take(lately=True) == []
    queues.add("b")
    assert queues.take(lately=True) == ["b"]
    assert queues.take(lately=False) == ["a"]
    queues.add("c")
    queues.forget("c")
    assert queues.take(lately=False) == queues.take(lately=True) == []


def test_a_sync_looks_at_the_queues_that_were_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, looked = CountedSyncs(), list[str]()
    pages = ConsumeQueue.unsynced_pages.fget
    assert pages is not None

    def counted(queue: ConsumeQueue) -> int:
        looked.append(queue.topic)
        return pages(queue)

    monkeypatch.setattr(ConsumeQueue, "unsynced_pages", property(counted))
    with MessageStore.open(tmp_path / "store", files=files, flush_interval_consume_queue=1_000_000) as store:
        queues = store._writer.parts.queues  # type: ignore[union-attr]
        for number in range(QUEUES):
            store.put_message(Message(f"t{number}", b"body"))
        store.wait_dispatched()
        queues.flush(2)
        assert set(looked) == {f"t{number}" for number in range(QUEUES)}
        looked.clear()
        store.put_messages([Message("t7", b"body")] * 500)
        store.wait_dispatched()
        files.synced.clear()
        queues.flush(2)
        assert set(looked) == {"t7"}
        assert [path.split("/")[-3] for path in files.synced] == ["t7"]
        files.synced.clear()
        queues.flush()
        assert len(files.synced) == QUEUES - 1, "the others have too little to be synced by the way"
        files.synced.clear()
        looked.clear()
        queues.flush()
        assert (files.synced, looked) == ([], [])


def test_what_a_failed_sync_has_not_synced_the_next_one_syncs(tmp_path: Path) -> None:
    files = CountedSyncs()
    with MessageStore.open(tmp_path / "store", files=files, flush_interval_consume_queue=1_000_000) as store:
        queues = store._writer.parts.queues  # type: ignore[union-attr]
        store.put_message(Message("t", b"body"))
        store.wait_dispatched()
        files.fails = True
        with pytest.raises(StoreError, match="the disk fails"):
            queues.flush()
        files.fails = False
        files.synced.clear()
        queues.flush()
        assert [path.split("/")[-3] for path in files.synced] == ["t"]
