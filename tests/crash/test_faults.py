"""A disk that fails once, and a process or a machine that ends, at every single operation of a store's life."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import CorruptRecordError, StoreError, StoreFullError, StorePoisonedError
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.record_scan import RecordScanner
from reput.store.log.flush import LogSync
from tests.support.asking import until
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    Operation,
    abandon,
    crash_at,
    fail_at,
    fail_next,
    no_objection,
)
from tests.support.invariants import SMALL, check_store, contents
from tests.support.lives.puts import (
    OPTIONS,
    Life,
    check_next_life,
    count_operations,
    live,
)
from tests.support.shares import Share, in_shares

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_shares(3)
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_crash_or_a_power_cut_at_any_operation_of_a_life_loses_nothing_acknowledged(
    tmp_path: Path, flush_disk_type: str, share: Share
) -> None:
    last = count_operations(tmp_path / "healthy", flush_disk_type)
    for number in share.of(range(0, last, 1 if flush_disk_type == "SYNC_FLUSH" else 3)):
        path = tmp_path / f"crash-{number}"
        life, files = live(path, flush_disk_type, crash_at(number))
        without_power = tmp_path / f"cut-{number}"
        files.cut_power(path, without_power)
        if flush_disk_type == "ASYNC_FLUSH":
            promised, life.acknowledged = life.acknowledged, []
            check_next_life(life, without_power)
            life.acknowledged = promised
        else:
            check_next_life(life, without_power)
        check_next_life(life, path)


@in_shares(3)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_operation_that_fails_once_loses_nothing_acknowledged(
    tmp_path: Path, code: int, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput.RETRY_WAIT_S", 0.01)
    for number in share.of(range(count_operations(tmp_path / "healthy", "SYNC_FLUSH"))):
        path = tmp_path / f"fault-{number}"
        life, files = live(path, "SYNC_FLUSH", fail_at(number, code))
        for error in life.errors:
            assert isinstance(error, StoreError), (files.operations[number], error)
        check_next_life(life, path)


@pytest.fixture(scope="module")
def clean_store(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A store that was closed."""
    life, _ = live(tmp_path_factory.mktemp("clean") / "store", "SYNC_FLUSH", no_objection)
    return life


def killed_copy(life: Life, path: Path) -> Path:
    """A copy of a clean store to which 5 messages were added before it was killed, the last of them torn."""
    import shutil

    shutil.copytree(life.path, path)
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **life.options)
    for number in range(5):
        last = store.put_message(reput.Message("late", bytes(700), keys=[f"late-{number}"]))
    store.wait_dispatched()
    abandon(store, files)
    file = sorted((path / "commitlog").iterdir())[last.commit_log_offset // 4096]
    with file.open("r+b") as opened:
        opened.seek(last.commit_log_offset % 4096 + 100)
        opened.write(bytes(500) + b"torn")
    return path


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_a_crash_at_any_operation_of_a_start_changes_nothing_that_the_next_start_needs(
    tmp_path: Path, clean_store: Life, state: str
) -> None:
    import shutil

    source = clean_store.path if state == "clean" else killed_copy(clean_store, tmp_path / "killed")
    number, ended = 0, False
    while not ended:
        path = tmp_path / str(number)
        shutil.copytree(source, path)
        files = FaultyFiles(crash_at(number))
        try:
            store = reput.MessageStore.open(path, files=files, **clean_store.options)
            abandon(store, files)
            ended = True
        except Crash:
            files.abandon()
        check_next_life(clean_store, path)
        number += 1
    assert number > 5


def test_a_failed_sync_reaches_every_waiter_and_ends_the_puts_until_the_next_start(tmp_path: Path) -> None:
    files = FaultyFiles()
    options = OPTIONS | {"mapped_file_size_commit_log": 1 << 24}
    store = reput.MessageStore.open(tmp_path / "store", files=files, **options)
    safe = store.put_message(reput.Message("orders", b"safe"))
    store.wait_dispatched()
    files.judge = fail_next("sync", part="commitlog")
    futures = []

    def put_until_it_fails() -> None:
        for _ in range(100_000):
            futures.append(store.async_put_message(reput.Message("orders", b"lost")))

    with pytest.raises(StorePoisonedError, match=rf"commitlog.*since commit log offset {safe.size} "):
        put_until_it_fails()
    errors = [future.exception(timeout=60) for future in futures]
    assert futures
    assert all(isinstance(error, StorePoisonedError) for error in errors)
    for put in (store.put_message, store.async_put_message, lambda message: store.put_messages([message])):
        with pytest.raises(StorePoisonedError):
            put(reput.Message("orders", b"refused"))
    assert store.flushed_offset == safe.size
    assert store.get_message("orders", 0, 1).status.name == "OFFSET_OVERFLOW_ONE"
    with pytest.raises(StorePoisonedError):
        store.close()
    assert (tmp_path / "store" / "abort").exists()
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **options) as store:
        assert store.look_message_by_offset(0).body == b"safe"  # type: ignore[union-attr]
        store.put_message(reput.Message("orders", b"again"))


def test_a_sync_that_fails_in_the_background_ends_the_puts(tmp_path: Path) -> None:
    files = FaultyFiles()
    options = OPTIONS | {
        "flush_disk_type": "ASYNC_FLUSH", "flush_commit_log_least_pages": 0, "flush_interval_commit_log": 1,
        "mapped_file_size_commit_log": 1 << 26,
    }  # fmt: skip
    store = reput.MessageStore.open(tmp_path / "store", files=files, **options)
    fail, failed = fail_next("sync", part="commitlog"), threading.Event()

    def fail_and_tell(operation: Operation) -> None:
        try:
            fail(operation)
        except OSError:
            failed.set()
            raise

    store.put_message(reput.Message("orders", b"x"))  # makes the log file
    files.judge = fail_and_tell
    store.put_message(reput.Message("orders", b"x"))
    assert failed.wait(60)

    def put_until_it_fails() -> None:  # the thread that syncs has the error, and has to hand it on
        for _ in range(1_000_000):
            store.put_message(reput.Message("orders", b"x"))

    with pytest.raises(StorePoisonedError):
        put_until_it_fails()
    with pytest.raises(StorePoisonedError):
        store.close()


@pytest.mark.parametrize("kind", ["create", "allocate"])
def test_a_full_disk_refuses_the_put_that_needs_space_and_the_store_goes_on(tmp_path: Path, kind: str) -> None:
    files = FaultyFiles()
    options = OPTIONS | {"flush_interval_consume_queue": 60_000}  # nothing is made ahead
    with reput.MessageStore.open(tmp_path / "store", files=files, **options) as store:
        first = store.put_message(reput.Message("orders", bytes(3000)))
        before = contents(tmp_path / "store", "commitlog")
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        files.judge = fail_next(kind, errno.ENOSPC, part="commitlog", times=1000)
        for _ in range(20):
            with pytest.raises(StoreFullError, match=r"commitlog/0{16}4096.*bytes needed.*free some"):
                store.put_message(reput.Message("orders", bytes(3000)))
        assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 2
        assert store.put_message(reput.Message("orders", b"small")).commit_log_offset == first.size
        files.judge = no_objection
        assert store.put_message(reput.Message("orders", bytes(3000))).queue_offset == 2
        assert before.items() <= contents(tmp_path / "store", "commitlog").items() or kind
    assert [record.row["queue_offset"] for record in check_store(tmp_path / "store")] == [0, 1, 2]


@pytest.mark.parametrize("part", ["/consumequeue", "/index/"])
def test_queues_and_index_catch_up_once_a_full_disk_has_space_again(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput.RETRY_WAIT_S", 0.01)
    files = FaultyFiles()
    with reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS) as store:

        def full(operation) -> None:  # type: ignore[no-untyped-def]
            space = operation.kind in ("write_runs", "allocate", "create", "make_directories")
            if space and part in operation.path.removeprefix(str(tmp_path)):
                raise OSError(errno.ENOSPC, "full")

        files.judge = full
        for number in range(30):
            store.put_message(reput.Message("orders", b"x", keys=[f"k{number}"]))
        until(lambda: store._writer.reput.failure)  # type: ignore[union-attr]
        with pytest.raises(TimeoutError, match=f"behind.*{part}.*bytes needed"):
            store.wait_dispatched(timeout=0.1)
        assert store.dispatch_behind_bytes > 0
        files.judge = no_objection
        store.wait_dispatched()
        found = store.query_messages("orders", [f"k{number}" for number in range(30)])
        assert [len(messages) for messages in found.values()] == [1] * 30
    check_store(tmp_path / "store")


def test_a_close_tries_once_more_what_a_full_disk_has_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput.RETRY_WAIT_S", 60)
    files, met = FaultyFiles(), threading.Event()

    def full(operation) -> None:  # type: ignore[no-untyped-def]
        if operation.kind == "create" and "/consumequeue" in operation.path:
            met.set()
            raise OSError(errno.ENOSPC, "full")

    with reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS) as store:
        files.judge = full
        store.put_message(reput.Message("orders", b"x"))
        assert met.wait(60)
        files.judge = no_objection
    assert len(check_store(tmp_path / "store")) == 1


def test_a_table_that_meets_a_full_disk_leaves_a_prefix_of_whole_rows(tmp_path: Path) -> None:
    files = FaultyFiles()
    table = pa.table({"topic": ["orders"] * 40, "body": [bytes([row]) * 300 for row in range(40)]})
    with reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS) as store:
        files.judge = fail_next("write", errno.ENOSPC, part="commitlog/00000000000000008192")
        with pytest.raises(StoreFullError):
            store.put_arrow(table)
        result = store.put_message(reput.Message("orders", b"next"))
        assert 0 < result.queue_offset < 40
    bodies = [record.row["body"] for record in check_store(tmp_path / "store")]
    assert bodies == [bytes([row]) * 300 for row in range(result.queue_offset)] + [b"next"]


def test_a_failed_write_of_a_table_leaves_none_of_its_bytes_in_the_log(tmp_path: Path) -> None:
    class HalfWritten(FaultyFiles):
        def step(self, kind: str, path: str, size: int = 0) -> None:
            if kind == "write" and "commitlog" in path and size > 1000 and self.judge is not no_objection:
                self.judge = no_objection
                with open(path, "r+b") as file:
                    file.write(b"\xda" * 900)
                raise StoreFullError("half of it was written")
            super().step(kind, path, size)

    files = HalfWritten(no_objection)
    with reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS) as store:
        files.judge = lambda operation: None
        with pytest.raises(StoreFullError):
            store.put_arrow(pa.table({"topic": ["orders"] * 10, "body": [bytes(200)] * 10}))
        assert not any((tmp_path / "store/commitlog/00000000000000000000").read_bytes())


@pytest.mark.parametrize(
    ("kind", "part"), [("unlink", ""), ("rename", ""), ("sync", "consumequeue"), ("write", "checkpoint")]
)
def test_a_close_that_fails_says_so_gives_the_lock_back_and_is_not_clean(tmp_path: Path, kind: str, part: str) -> None:
    path = tmp_path / "store"
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    store.put_message(reput.Message("orders", b"x", keys=["k"]))
    files.judge = fail_next(kind, part=part, times=100)
    with pytest.raises(StoreError):
        store.close()
    assert (path / "abort").exists()
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        assert len(store.query_message("orders", "k")) == 1
    check_store(path)


def test_a_store_whose_dispatch_thread_is_gone_does_not_call_its_exit_clean(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS)

    def thread_dies(operation: Operation) -> None:
        if operation.kind == "write_runs":
            raise Crash

    files.judge = thread_dies
    store.put_message(reput.Message("orders", b"x", keys=["k"]))
    with pytest.raises(StoreError, match=r"dispatched to 0 of .*not marked as clean"):
        store.close()
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **OPTIONS) as store:
        assert store.max_offset("orders", 0) == 1
    check_store(tmp_path / "store")


def test_what_is_put_during_a_sync_does_not_count_as_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PutDuringSync(FaultyFiles):
        def step(self, kind: str, path: str, size: int = 0) -> None:
            super().step(kind, path, size)
            if kind == "sync" and "commitlog" in path and late:
                late.pop()()

    late: list[Callable[[], object]] = []
    files = PutDuringSync()
    options = OPTIONS | {"flush_disk_type": "ASYNC_FLUSH", "flush_interval_commit_log": 600_000}
    with reput.MessageStore.open(tmp_path / "store", files=files, **options) as store:
        first = store.put_message(reput.Message("orders", b"first"))
        monkeypatch.setattr("time.time", lambda: first.store_timestamp / 1000 + 60)
        late.append(lambda: store.put_message(reput.Message("orders", b"during the sync")))
        sync = LogSync(store._log)
        assert sync.run() == first.size == store.flushed_offset
        assert not late
        assert sync.safe_timestamp == first.store_timestamp


def test_a_message_that_arrives_between_the_last_look_and_the_stop_is_dispatched(tmp_path: Path) -> None:
    files = FaultyFiles()
    options = OPTIONS | {"flush_disk_type": "ASYNC_FLUSH"}
    store = reput.MessageStore.open(tmp_path / "store", files=files, **options)
    log, service = store._log, store._writer.reput
    assert service is not None
    look, stopped = log.scan, threading.Event()

    def scan_then_put_and_stop(scanner: RecordScanner, offset: int, max_size: int) -> RecordColumns | None:
        seen = look(scanner, offset, max_size)
        if seen is None and not stopped.is_set():
            store.put_message(reput.Message("orders", b"last", keys=["last"]))
            service._stopping.set()
            stopped.set()
        return seen

    log.scan = scan_then_put_and_stop  # type: ignore[method-assign]
    assert stopped.wait(60)
    store.close()
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **options) as store:
        assert not store.recovery.was_killed
        assert (store.max_offset("orders", 0), len(store.query_message("orders", "last"))) == (1, 1)
    check_store(tmp_path / "store")


@pytest.mark.parametrize("pass_bytes", [300, 1 << 20])
def test_damage_that_dispatch_meets_ends_it_whatever_lies_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_bytes: int
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput.PASS_BYTES", pass_bytes)
    path, files = tmp_path / "store", FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **SMALL)
    with store._writer.reput.between_passes:  # type: ignore[union-attr]
        offsets = [store.put_message(reput.Message("t", bytes(100))).commit_log_offset for _ in range(6)]
        with (path / "commitlog" / f"{0:020d}").open("r+b") as log:
            log.seek(offsets[1])
            log.write(b"damage in size and magic")
    with pytest.raises(CorruptRecordError, match=f"at offset {offsets[1]}: expected a record"):
        store.wait_dispatched()
    with pytest.raises(CorruptRecordError):
        store.close()
