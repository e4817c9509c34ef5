"""A tail of another process's store: a look costs what came, whatever the count of queues that are there."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from reput import Message, MessageStore
from reput.errors import DataLossError, StoreError
from reput.files import File, FileLayer
from reput.store.tail_source import OtherStore


class CountedLooks(FileLayer):
    """The real disk, and how often files were opened, and folders listed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        self.counts["opened"] += 1
        return super().open(path, **options)

    def list_directory(self, path: str) -> Any:
        self.counts["listed"] += 1
        return super().list_directory(path)


def put(store: MessageStore, topic: str, body: bytes, queue_id: int = 0) -> None:
    store.put_message(Message(topic, body), queue_id)
    store.wait_dispatched()


def looks(path: Path, queues: int) -> Counter[str]:
    """What five looks cost while messages of the topic, and of others, come."""
    files = CountedLooks()
    with MessageStore.open(path, message_index_enable=False) as store:
        for number in range(queues):
            put(store, f"t{number}", b"0")
        with MessageStore.open(path, read_only=True, files=files) as reader:
            tail = reader.tail("t1", consume_from="last")
            source = tail._source
            assert isinstance(source, OtherStore)
            put(store, "t1", b"1")
            assert source._look()
            assert [message.body for message in tail.poll(timeout=0)] == [b"1"]
            files.counts.clear()
            for number in range(5):
                put(store, "t0", b"%d" % number)
                put(store, "t1", b"%d" % number)
                assert source._look()
                assert [message.body for message in tail.poll(timeout=0)] == [b"%d" % number]
            put(store, "t0", b"other")
            assert not source._look(), "nothing of the topic"
            return files.counts


def test_a_look_opens_as_many_files_whatever_the_count_of_queues(tmp_path: Path) -> None:
    few, many = looks(tmp_path / "few", 2), looks(tmp_path / "many", 40)
    assert few == many


def test_a_look_goes_on_in_the_next_log_file_and_sees_new_queues(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=200) as store:
        put(store, "t", b"first")
        with MessageStore.open(tmp_path, read_only=True) as reader:
            found = []
            tail = reader.tail("t", consume_from="first")
            for number in range(100):
                put(store, "t", b"%03d" % number, queue_id=number % 3)
                put(store, "other", bytes(100))
                tail._source._look()  # type: ignore[attr-defined]
                while messages := tail.poll(timeout=0):
                    found += messages
    assert [message.body for message in found] == [b"first", *(b"%03d" % number for number in range(100))]
    assert {message.queue_id for message in found} == {0, 1, 2}


def test_a_topic_that_was_removed_and_begins_anew_is_read_from_its_begin(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for number in range(5):
            put(store, "t", b"%d" % number)
        with MessageStore.open(tmp_path, read_only=True) as reader:
            tail = reader.tail("t", consume_from="last")
            put(store, "t", b"5")
            assert [message.body for message in tail.poll(timeout=5)] == [b"5"]
            assert tail._source._opened is not None  # type: ignore[attr-defined]
            queues, offsets = store._writer.parts.queues, store._writer.parts.log.queue_offsets  # type: ignore[union-attr]
            queues.simple.remove("t")
            offsets["t", 0] = 0
            put(store, "t", b"anew")
            tail._source._look()  # type: ignore[attr-defined]
            tail.seek(0, 0)
            assert [message.body for message in tail.poll(timeout=0)] == [b"anew"]


def test_records_without_units_are_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path) as store:
        put(store, "t", b"0")
        with MessageStore.open(tmp_path, read_only=True) as reader:
            tail = reader.tail("t", consume_from="last")
            source = tail._source
            assert isinstance(source, OtherStore)
            put(store, "t", b"1")
            assert source._look()
            assert len(tail.poll(timeout=0)) == 1
            with store._writer.reput.between_passes:  # type: ignore[union-attr]
                store.put_message(Message("t", b"2"))
                assert not source._look()
                assert source._has_grown(), "its unit may come"
            store.wait_dispatched()
            assert source._look()
            assert [message.body for message in tail.poll(timeout=0)] == [b"2"]
            assert not source._has_grown()


@pytest.mark.parametrize("has_followed", [False, True])
def test_a_tail_goes_on_where_retention_deleted_the_file_in_which_it_waited(tmp_path: Path, has_followed: bool) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_commit_log=4096) as store:
        put(store, "t", b"first")
        with MessageStore.open(tmp_path, read_only=True) as reader:
            tail = reader.tail("t", consume_from="last")
            if has_followed:
                put(store, "t", b"second")
                assert len(tail.poll(timeout=5)) == 1
            for number in range(100):
                put(store, "t", b"%d" % number)
            deleted = min(path for path in (tmp_path / "commitlog").iterdir())
            deleted.unlink()
            messages = tail.poll(timeout=5)
            while more := tail.poll(timeout=0):
                messages += more
    assert messages[0].commit_log_offset >= 4096
    assert messages[-1].body == b"99"


@pytest.mark.parametrize("begin", ["first", "last"])
@pytest.mark.parametrize("messages", [1, 5, 30])
def test_a_store_that_was_made_anew_since_it_was_opened_is_not_tailed(
    tmp_path: Path, messages: int, begin: Literal["first", "last"]
) -> None:
    """A tail from the end would leave out as many messages of the new log as the old one had."""
    path = tmp_path / "store"
    with MessageStore.open(path, small=True) as store:
        for _ in range(5):
            put(store, "t", b"of the first log")
    with MessageStore.open(path, read_only=True) as reader:
        shutil.rmtree(path)
        with MessageStore.open(path, small=True) as store:
            for _ in range(messages):
                put(store, "t", b"of the other log")
        with pytest.raises(DataLossError, match=r"not the one that was opened.*; open the store again"):
            reader.tail("t", consume_from=begin)


@pytest.mark.parametrize("has_followed", [False, True])
@pytest.mark.parametrize("messages", [0, 1, 30])
def test_a_tail_ends_where_its_store_is_removed_or_made_anew(tmp_path: Path, messages: int, has_followed: bool) -> None:
    """By the offsets of the log that is gone it would leave out as many messages of the new one."""
    path = tmp_path / "store"
    with MessageStore.open(path, small=True) as store:
        for _ in range(5):
            put(store, "t", b"of the first log")
    with MessageStore.open(path, read_only=True) as reader:
        tail = reader.tail("t", consume_from="last")
        if has_followed:
            with MessageStore.open(path, small=True) as store:
                put(store, "t", b"followed")
            assert len(tail.poll(timeout=5)) == 1
        shutil.rmtree(path)
        if messages:
            with MessageStore.open(path, small=True) as store:
                for _ in range(messages):
                    put(store, "t", b"of the second log")
        reason = "not the one that was read" if messages else "there are no files now"
        with pytest.raises(DataLossError, match=rf"{reason}.*; make another tail"):
            tail.poll(timeout=5)


class FailsOnce(FileLayer):
    """The real disk, one of whose opens fails, once it is said which one."""

    fails_at = 0

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        self.fails_at -= 1
        if self.fails_at == 0:
            raise StoreError(f"{path}: the disk fails")
        return super().open(path, **options)


@pytest.mark.parametrize("has_followed", [False, True])
def test_a_look_that_failed_is_made_up_for(tmp_path: Path, has_followed: bool) -> None:
    files, failed = FailsOnce(), True
    with MessageStore.open(tmp_path) as store:
        put(store, "t", b"first")
        number = 0
        while failed:
            number += 1
            with MessageStore.open(tmp_path, read_only=True, files=files) as reader:
                tail = reader.tail("t", consume_from="last")
                source = tail._source
                assert isinstance(source, OtherStore)
                if has_followed:
                    put(store, "t", b"followed")
                    assert source._look()
                    assert len(tail.poll(timeout=0)) == 1
                put(store, "t", b"%d" % number)
                files.fails_at, failed = number, False
                try:
                    source._look()
                except StoreError:
                    failed = True
                files.fails_at = 0
                assert [message.body for message in tail.poll(timeout=5)] == [b"%d" % number]
    assert number > 3
