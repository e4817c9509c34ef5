"""open(small=True): a new store takes a megabyte, and one that has files keeps their sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput import Message, MessageIllegalError, MessageStore
from reput.config.message_store import SMALL_FILES


def size(path: Path) -> tuple[int, int]:
    """(bytes that it looks like, bytes on the disk) of a folder."""
    status = [file.stat() for file in path.rglob("*") if file.is_file()]
    return sum(one.st_size for one in status), sum(one.st_blocks * 512 for one in status)


def test_a_small_store_takes_a_megabyte(path: Path) -> None:
    with MessageStore.open(path, small=True) as store:
        store.put_message(Message("orders", b"one", keys=["o-1"]))
        store.wait_dispatched()
        assert max(size(path)) < 1 << 20
    assert max(size(path)) < 1 << 20


def test_messages_have_half_a_megabyte(path: Path) -> None:
    with MessageStore.open(path, small=True) as store:
        store.put_message(Message("orders", bytes(500 << 10)))
        with pytest.raises(MessageIllegalError, match="mappedFileSizeCommitLog"):
            store.put_message(Message("orders", bytes(512 << 10)))


def test_sizes_that_are_given_count(path: Path) -> None:
    with MessageStore.open(path, small=True, max_index_num=77) as store:
        assert (store.config.max_index_num, store.config.mapped_file_size_commit_log) == (77, 512 << 10)


def test_a_store_that_has_files_keeps_their_sizes(path: Path) -> None:
    with MessageStore.open(path, mapped_file_size_commit_log=1 << 20) as store:
        store.put_message(Message("orders", b"one"))
    with MessageStore.open(path, small=True) as store:
        assert store.config.mapped_file_size_commit_log == 1 << 20
        assert store.config.max_index_num == 20_000_000


def test_a_store_without_messages_can_become_small(path: Path) -> None:
    MessageStore.open(path).close()
    with MessageStore.open(path, small=True) as store:
        sizes = {key: getattr(store.config, key) for key in SMALL_FILES}
    assert sizes == SMALL_FILES
