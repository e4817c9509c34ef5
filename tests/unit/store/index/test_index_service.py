"""Index files on a disk that has no space for one."""

from __future__ import annotations

import errno
from pathlib import Path

from reput import Message, MessageStore
from tests.support.faulty_files import FaultyFiles, Operation, no_objection
from tests.support.heard import heard
from tests.support.invariants import SMALL, check_store


def test_a_file_that_can_neither_be_made_nor_removed_is_made_once_there_is_space(tmp_path: Path) -> None:
    def judge(operation: Operation) -> None:
        if operation.kind in ("allocate", "unlink") and "/index/" in operation.path:
            raise OSError(errno.ENOSPC if operation.kind == "allocate" else errno.EIO, "a fault")

    disk = FaultyFiles(judge)
    with heard("reput.store") as log, MessageStore.open(tmp_path / "store", files=disk, **SMALL) as store:
        store.put_message(Message("t", b"x", keys=["a"]))
        log.wait("queues and index lag behind the log")
        disk.judge = no_objection
        store.wait_dispatched()
        assert len(store.query_message("t", "a")) == 1
        assert len(list((tmp_path / "store" / "index").iterdir())) == 1
    check_store(tmp_path / "store")
