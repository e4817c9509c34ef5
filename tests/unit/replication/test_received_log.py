"""What a master sends of its log: compared first, and appended when it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.errors import RemotingError, ReplicationError
from reput.replication.received_log import ReceivedLog
from reput.store.message_store import MessageStore


def log_of(path: Path, count: int) -> bytes:
    """The log of a new store of so many messages."""
    with MessageStore.open(path, small=True) as store:
        store.put_messages([reput.Message("orders", b"%d" % number) for number in range(count)])
        return bytes(store.commit_log_data(0, store.max_commit_log_offset))


def test_what_the_store_has_is_compared_over_several_frames_before_anything_counts(tmp_path: Path) -> None:
    data = memoryview(log_of(tmp_path / "master", 3))
    with MessageStore.open(tmp_path / "copy", small=True) as store:
        writer = store.replica_writer()
        received = ReceivedLog(writer, store.path, "master:1")
        size = int.from_bytes(data[:4], "big")
        assert received.begin(0, b"") == 1
        received.take(1, data[1 : size + 5])  # the first record, and some bytes of the second one
        received.append()
        assert (writer.end_offset, received.following) == (size, size + 5)
        assert received.begin(size - 10, writer.last_bytes(10)) == size - 10
        for begin, end, is_compared in ((size - 10, size - 4, False), (size - 4, size, True), (size, len(data), True)):
            received.take(begin, data[begin:end])
            assert received.is_compared is is_compared
        received.append()
        assert writer.last_bytes(len(data)) == data


def test_other_bytes_and_another_place_are_refused(tmp_path: Path) -> None:
    data = log_of(tmp_path / "master", 1)
    with MessageStore.open(tmp_path / "copy", small=True) as store:
        received = ReceivedLog(store.replica_writer(), store.path, "master:1")
        received.begin(5, b"known")
        with pytest.raises(ReplicationError, match="the bytes from 5 on differ from the bytes of master:1"):
            received.take(5, memoryview(b"knowm"))
        received.begin(5, b"")
        with pytest.raises(ReplicationError, match="master:1 goes on at 6, expected 5"):
            received.take(6, memoryview(data))


def test_a_master_may_say_where_its_log_begins(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "copy", small=True) as store:
        writer, size = store.replica_writer(), store.config.mapped_file_size_commit_log
        received = ReceivedLog(writer, store.path, "master:1")
        assert received.begin(None, b"") == 0
        received.take(size, memoryview(b"record"))
        assert (writer.end_offset, received.following) == (size, size + 6)


def test_the_log_of_an_empty_master_begins_where_it_said(tmp_path: Path) -> None:
    """RocketMQ's master sends its newest file to who has nothing; there may be a second one by now."""
    with MessageStore.open(tmp_path / "copy", small=True) as store:
        writer, size = store.replica_writer(), store.config.mapped_file_size_commit_log
        received = ReceivedLog(writer, store.path, "master:1")
        assert received.begin(None, b"", first=0) == 0
        with pytest.raises(RemotingError, match=f"now goes on at {size}, expected 0: it is asked again"):
            received.take(size, memoryview(b"record"))
        assert writer.is_empty
