"""The commit log of an open store, on a disk without space."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import reput
from reput.errors import StoreFullError
from tests.support.faulty_files import FaultyFiles, fail_next, no_objection


def test_the_blank_record_that_ends_a_reopened_log_file_has_its_space_reserved(tmp_path: Path) -> None:
    """It is written through a map: without space on the disk that would be a signal."""
    sizes = {"mapped_file_size_commit_log": 1 << 14, "max_message_size": 1 << 13}
    half, whole = reput.Message("orders", bytes(7000)), reput.Message("orders", bytes(8000))
    with reput.MessageStore.open(tmp_path / "store", **sizes) as store:
        for _ in range(2):
            last = store.put_message(half).commit_log_offset
    files = FaultyFiles(fail_next("allocate", errno.ENOSPC, part=f"{0:020d}", times=1000))
    with reput.MessageStore.open(tmp_path / "store", files=files, **sizes) as store:
        with pytest.raises(StoreFullError, match=r"commitlog/0{20}.*free some"):
            store.put_message(whole)
        files.judge = no_objection
        assert store.put_message(whole).commit_log_offset == 1 << 14 > last
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 3


def test_a_record_in_an_empty_log_file_has_its_space_reserved(tmp_path: Path) -> None:
    """A store that was killed before its first put has such a file; a record that Python encodes goes through a map."""
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(1 << 14))
    files = FaultyFiles(fail_next("allocate", errno.ENOSPC, part=f"{0:020d}", times=1000))
    sizes = {"mapped_file_size_commit_log": 1 << 14, "enabled_append_prop_crc": True}
    with reput.MessageStore.open(tmp_path / "store", files=files, **sizes) as store:
        with pytest.raises(StoreFullError, match=r"commitlog/0{20}.*free some"):
            store.put_message(reput.Message("orders", b"x"))
        files.judge = no_objection
        assert store.put_message(reput.Message("orders", b"x")).commit_log_offset == 0
