"""Room for appends on a disk that has none: who is refused, what stays free for others, and how that ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from reput import Message, MessageStore
from reput.errors import ReputError, StoreFullError
from reput.files import NeverWaiting
from reput.formats.record import encode_blank
from reput.formats.record_layout import BLANK_SIZE
from reput.store.log import append_room, mapped_file
from reput.store.puts.put_rows import PutRow, PutRowResult
from tests.support.faulty_files import FaultyFiles, Operation, fail_next, no_objection
from tests.support.heard import heard
from tests.support.invariants import check_store

SIZE = 1 << 16
OPTIONS: dict[str, object] = {
    "mapped_file_size_commit_log": SIZE,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "flush_disk_type": "ASYNC_FLUSH",
}
#: Nothing is tried again by time.
PATIENT = OPTIONS | {"flush_interval_consume_queue": 1_000_000}
#: It is tried again at once.
IMPATIENT = OPTIONS | {"flush_interval_consume_queue": 1}


class FullDisk(FaultyFiles):
    """A disk that is full while a test says so: of another's bytes, or of these files, which may take `room` bytes."""

    def __init__(self, room: int = 1 << 40) -> None:
        super().__init__(self._judge)
        self.room = room
        self.is_full = False

    def _judge(self, operation: Operation) -> None:
        if self.is_full and operation.kind in ("create", "allocate") and "/commitlog/" in operation.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def disk_free(self, path: str) -> int:
        root = Path(path[: path.index("/store") + len("/store")])
        return self.room - sum(os.stat(file).st_blocks * 512 for file in root.rglob("*") if file.is_file())


def put_row(store: MessageStore, size: int = 1000) -> PutRowResult | ReputError:
    """Append a message as a broker's loop does, which may not wait."""
    with NeverWaiting():
        (result,) = store.loop_writer().put_rows([PutRow("t", 0, bytes(size), b"", 0, 0, 1, bytes(8))])
    return result


def names(path: Path) -> list[int]:
    return sorted(map(int, os.listdir(path / "commitlog")))


def test_a_log_without_space_refuses_puts_until_it_gets_the_space_though_nobody_puts(tmp_path: Path) -> None:
    disk = FullDisk()
    with (
        heard("reput.store") as log,
        MessageStore.open(tmp_path / "store", files=disk, dispatch="caller", **IMPATIENT) as store,
    ):
        writer = store.loop_writer()
        writer.make_room(1000)
        assert isinstance(put_row(store), PutRowResult)
        disk.is_full = True
        for _ in range(20):
            with pytest.raises(StoreFullError, match="no space left"):
                writer.make_room(65_000)
        assert isinstance(put_row(store), PutRowResult), "what fits is taken"
        log.wait("ERROR puts are refused: ")
        assert "no space left" in str(writer.put_refusal)
        assert store.runtime_info().put_refusal == str(writer.put_refusal)
        disk.is_full = False
        log.wait("puts are accepted again")
        assert writer.put_refusal is None
        assert store.runtime_info().put_refusal == ""
        assert isinstance(put_row(store, 60_000), PutRowResult), "there is room already"
    assert len(log.about(tmp_path)) == 2
    check_store(tmp_path / "store", OPTIONS)


def test_a_put_that_may_wait_tries_by_itself_and_only_its_caller_is_told(tmp_path: Path) -> None:
    disk = FullDisk()
    with heard("reput.store") as log, MessageStore.open(tmp_path / "store", files=disk, **PATIENT) as store:
        disk.is_full = True
        for _ in range(3):
            with pytest.raises(StoreFullError, match="no space left"):
                store.put_message(Message("t", b"x"))
        assert store.runtime_info().put_refusal is not None
        disk.is_full = False
        store.put_message(Message("t", b"x"))
        assert store.runtime_info().put_refusal == ""
    assert log.about(tmp_path) == []


def test_a_small_message_does_not_end_the_refusal_of_a_large_one(tmp_path: Path) -> None:
    disk = FullDisk()
    with MessageStore.open(tmp_path / "store", files=disk, **PATIENT) as store:
        store.put_message(Message("t", b"x"))
        disk.is_full = True
        with pytest.raises(StoreFullError):
            store.put_messages([Message("t", bytes(40_000))] * 2)
        assert store._log.refusal_of_small is None
        store.put_message(Message("t", b"there is room for it"))
        assert "no space left" in str(store.runtime_info().put_refusal)
        store.put_message(Message("t", bytes(22_000)))
        assert store._log.refusal_of_small is store._log.refusal is not None, "4 KB have no room either"
        disk.is_full = False
        store.put_message(Message("t", bytes(40_000)))
        assert store.runtime_info().put_refusal == ""


def test_copies_up_to_the_last_byte_of_a_file_are_refused_until_this_file_gets_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room in the next file is none for them."""
    for module in (mapped_file, append_room):
        monkeypatch.setattr(module, "RESERVE_STEP", SIZE // 4)
    disk = FaultyFiles()
    with MessageStore.open(tmp_path / "store", files=disk, **PATIENT) as store:
        store.put_message(Message("t", bytes(5000)))
        log = store._log
        end = log.max_offset
        copies = memoryview(encode_blank(SIZE - end) + bytes(SIZE - end - BLANK_SIZE))
        disk.judge = fail_next("allocate", errno.ENOSPC, part=f"/commitlog/{0:020}", times=1 << 30)
        for _ in range(2):
            with pytest.raises(StoreFullError):
                log.append_copies(copies, 0)
            with pytest.raises(StoreFullError):
                log.make_ready()
            assert log.refusal is not None
        disk.judge = no_objection
        log.make_ready()
        assert log.refusal is None
        assert log.append_copies(copies, 0) == SIZE


def test_a_write_without_space_is_a_refusal_though_there_was_room(tmp_path: Path) -> None:
    """As on a file system that copies on write."""
    disk = FaultyFiles()
    with (
        heard("reput.store") as log,
        MessageStore.open(tmp_path / "store", files=disk, dispatch="caller", **PATIENT) as store,
    ):
        store.put_message(Message("t", b"x"))
        disk.judge = fail_next("write", errno.ENOSPC, part="/commitlog/")
        with pytest.raises(StoreFullError):
            store.put_messages([Message("t", b"x")] * 2)
        log.wait("puts are refused")
        log.wait("puts are accepted again")
        store.put_messages([Message("t", bytes(1000))] * 2)


def test_a_refusal_for_lack_of_room_and_one_of_a_disk_that_is_too_full_end_by_themselves_each(tmp_path: Path) -> None:
    disk = FullDisk()
    with MessageStore.open(tmp_path / "store", files=disk, dispatch="caller", **PATIENT) as store:
        log, writer = store._log, store.loop_writer()
        disk.is_full = True
        with pytest.raises(StoreFullError, match="no space left"):
            writer.make_room(1000)
        log.refuse_while_full(StoreFullError("91 % full"))
        assert str(writer.put_refusal) == "91 % full"
        log.refuse_while_full(None)
        assert "no space left" in str(writer.put_refusal)
        log.refuse_while_full(StoreFullError("91 % full"))
        disk.is_full = False
        log.make_ready()
        assert str(writer.put_refusal) == "91 % full"
        with pytest.raises(StoreFullError, match="91 % full"):
            writer.make_room(1000)
        log.refuse_while_full(None)
        assert writer.put_refusal is None


def put_much(store: MessageStore, kind: str) -> None:
    for _ in range(100):
        if kind == "single":
            store.put_message(Message("t", bytes(5000)))
        elif kind == "several":
            store.put_messages([Message("t", bytes(5000))] * 40)
        else:
            store.put_arrow(pa.table({"topic": ["t"] * 40, "body": [bytes(5000)] * 40}))


@pytest.mark.parametrize("kind", ["single", "several", "table"])
def test_the_log_leaves_space_for_queues_and_index(kind: str, tmp_path: Path) -> None:
    """So all that was answered is dispatched; `store/dispatch/space.py` has the rule."""
    disk = FullDisk(room=5 * SIZE)
    with MessageStore.open(tmp_path / "store", files=disk, **PATIENT) as store:
        with pytest.raises(StoreFullError, match=rf"{SIZE} bytes needed, and \d+ that stay free for queues"):
            put_much(store, kind)
        store.wait_dispatched()
        assert store.max_offset("t", 0) > 20
        assert disk.disk_free(str(tmp_path / "store")) >= 0
        files = names(tmp_path / "store")
        disk.room *= 2
        store.put_messages([Message("t", bytes(5000))] * 20)
        assert len(names(tmp_path / "store")) > len(files)
    check_store(tmp_path / "store", OPTIONS)


def test_space_that_a_former_life_has_reserved_is_used_on_a_full_disk(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", **PATIENT) as store:
        store.put_message(Message("t", b"x"))
    disk = FullDisk(room=0)
    with MessageStore.open(tmp_path / "store", files=disk, **PATIENT) as store:
        store.put_message(Message("t", bytes(10_000)))
        with pytest.raises(StoreFullError):
            store.put_message(Message("t", bytes(60_000)))


@pytest.mark.parametrize("kind", ["create", "allocate"])
def test_a_file_that_cannot_be_made_leaves_nothing(kind: str, tmp_path: Path) -> None:
    disk = FaultyFiles()
    with MessageStore.open(tmp_path / "store", files=disk, **PATIENT) as store:
        store.put_message(Message("t", bytes(40_000)))

        def judge(operation: Operation) -> None:
            if operation.kind == kind and "/commitlog/" in operation.path:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        disk.judge = judge
        with pytest.raises(StoreFullError):
            store._log.make_ready()
        assert names(tmp_path / "store") == [0]
        with pytest.raises(StoreFullError):
            store.put_message(Message("t", bytes(40_000)))
        disk.judge = no_objection
        store.put_message(Message("t", bytes(40_000)))
    assert names(tmp_path / "store") == [0, SIZE]


@pytest.mark.parametrize("folders", [1, 2])
def test_a_file_that_can_neither_be_made_nor_removed_is_made_once_there_is_space(folders: int, tmp_path: Path) -> None:
    """The next try takes the file that was left, as two folders must not have the same name."""
    disk, parts = FaultyFiles(), [tmp_path / f"log{number}" for number in range(folders)]
    with MessageStore.open(
        tmp_path / "store", files=disk, **PATIENT, store_path_commit_log=",".join(map(str, parts))
    ) as store:
        store.put_message(Message("t", bytes(40_000)))

        def judge(operation: Operation) -> None:
            if operation.kind in ("allocate", "unlink") and f"{SIZE:020}" in operation.path:
                raise OSError(errno.ENOSPC if operation.kind == "allocate" else errno.EIO, "a fault")

        disk.judge = judge
        for _ in range(2):
            with pytest.raises(StoreFullError):
                store._log.make_ready()
            with pytest.raises(StoreFullError):
                store.put_message(Message("t", bytes(40_000)))
        assert store._log.failure is None
        assert sum(path.name == f"{SIZE:020}" for folder in parts for path in folder.iterdir()) == 1
        disk.judge = no_objection
        store.put_message(Message("t", bytes(40_000)))
        assert sum(path.name == f"{SIZE:020}" for folder in parts for path in folder.iterdir()) == 1
