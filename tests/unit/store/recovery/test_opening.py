"""Opening: one writer at a time, what is refused and left as it is, and readers that change nothing."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reput
from reput.config.message_store import FlushDiskType
from reput.errors import (
    ConfigError,
    CorruptIndexFileError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    StoreStateError,
)
from reput.files import File, FileLayer
from tests.support.damage import overwrite
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL, check_store, contents
from tests.support.keyed_messages import put_keyed

ROOT = Path(__file__).parents[4]


def test_open_makes_a_store_where_nothing_is(path: Path) -> None:
    deep = path / "a" / "b"
    with reput.MessageStore.open(deep, files=FaultyFiles(), **SMALL) as store:
        assert store.path == str(deep)
        assert (store.recovery.was_killed, store.recovery.dispatched_records) == (False, 0)
        names = {entry.name for entry in deep.iterdir()}
        assert names == {"commitlog", "consumequeue", "config", "lock", "abort", "checkpoint"}
        assert (deep / "abort").read_text() == str(os.getpid())
        assert (deep / "lock").read_text() == "lock"
    assert not (deep / "abort").exists()


def test_a_start_after_a_kill_tells_its_progress_in_bytes(path: Path) -> None:
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **SMALL)
    put_keyed(store, 30, 2)
    abandon(store, files)
    told: list[tuple[int, int, str]] = []
    with reput.MessageStore.open(path, progress=lambda *call: told.append(call), **SMALL) as again:
        assert again.recovery.was_killed
    assert [call for call in told if call[2] == "looking for the end of the log"]
    assert all(0 <= done <= total for done, total, _ in told)


def test_an_open_after_a_clean_close_does_not_grow_with_the_log(path: Path) -> None:
    def work(rows: int) -> tuple[int, list[str], int]:
        store_path = path / str(rows)
        table = pa.table({"topic": ["t"] * rows, "body": [bytes(300)] * rows, "keys": [["k"]] * rows})
        with reput.MessageStore.open(store_path, flush_disk_type="ASYNC_FLUSH") as store:
            store.put_arrow(table)
            store.wait_dispatched()
        files = CountingFiles()
        with reput.MessageStore.open(store_path, files=files) as store:
            read = store.recovery.log_end.scanned_bytes
            return read, [name.removeprefix(f"{store_path}/") for name in files.opened], files.bytes_of_runs

    few, many = work(50), work(20_000)
    assert few[0] == many[0] < 500
    assert [name[:-18] if name.startswith("index") else name for name in few[1]] == [
        name[:-18] if name.startswith("index") else name for name in many[1]
    ]
    assert few[2] == many[2]


class CountingFiles(FileLayer):
    """The real disk, and what was asked of it."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.bytes_of_runs = 0

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        self.opened.append(path)
        return super().open(path, **options)

    def read_runs(self, paths, positions, sizes):  # type: ignore[no-untyped-def]
        self.bytes_of_runs += int(sizes.sum())
        return super().read_runs(paths, positions, sizes)


def test_the_defaults_are_sync_flush_over_those_of_rocketmq(path: Path) -> None:
    with reput.MessageStore.open(path, mappedFileSizeCommitLog=4096) as store:
        assert store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        assert store.config.mapped_file_size_commit_log == 4096
        assert store.config.mapped_file_size_consume_queue == 6_000_000


def test_a_fresh_store_of_default_sizes_takes_little_disk(path: Path) -> None:
    with reput.MessageStore.open(path) as store:
        for queue in range(8):
            store.put_message(reput.Message("t", b"x", keys=["k"]), queue)
        store.wait_dispatched()
        assert len(store.query_message("t", "k")) == 8
        taken = sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
        assert (path / "commitlog" / f"{0:020d}").stat().st_size == 1 << 30
        assert taken < 80_000_000


def test_a_second_writer_is_refused_here_and_in_another_process(open_store: OpenStore, path: Path) -> None:
    store = open_store()
    with pytest.raises(StoreLockedError, match="this process"):
        open_store()
    code = f"import reput; reput.MessageStore.open({str(path)!r})"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"StoreLockedError: {path}/lock: process {os.getpid()} has the store open" in other.stderr
    store.put_message(reput.Message("t", b"x"))
    store.close()
    open_store().put_message(reput.Message("t", b"y"))


def test_a_read_only_store_changes_no_byte_of_a_live_a_killed_and_a_closed_store(
    open_store: OpenStore, path: Path
) -> None:
    files = FaultyFiles()
    store = open_store(files=files, flush_interval_consume_queue=600_000)
    put_keyed(store, 30, 2)
    put_keyed(store, 30, 2)
    for _ in range(2):
        before = contents(path)
        reads = FaultyFiles()
        with reput.MessageStore.open(path, read_only=True, files=reads) as reader:
            assert (reader.max_offset("t", 0), reader.max_offset("t", 1)) == (30, 30)
            assert len(reader.get_message("t", 0, 5)) > 0
            assert len(reader.query_message("t", "k7")) == 2
            with pytest.raises(StoreStateError, match="read-only"):
                reader.put_message(reput.Message("t", b"x"))
            reader.wait_dispatched()
        assert contents(path) == before
        assert reads.operations == []
        abandon(store, files)  # the second time it is a killed one
    open_store().close()
    before = contents(path)
    with reput.MessageStore.open(path, read_only=True) as reader:
        assert reader.max_offset("t", 0) == 30
    assert contents(path) == before


def foreign_file(path: Path) -> None:
    (path / "commitlog" / "notes.txt").write_text("x")


def short_log_file(path: Path) -> None:
    file = min((path / "commitlog").iterdir())
    file.write_bytes(file.read_bytes()[:-1])


def missing_log_file(path: Path) -> None:
    sorted((path / "commitlog").iterdir())[1].unlink()


def short_queue_file(path: Path) -> None:
    file = min((path / "consumequeue/t/0").iterdir())
    file.write_bytes(file.read_bytes()[:-20])


def foreign_queue_file(path: Path) -> None:
    (path / "consumequeue/t/0/x").write_bytes(b"")


def foreign_index_file(path: Path) -> None:
    (path / "index/notes").write_text("x")


def short_index_file(path: Path) -> None:
    file = max((path / "index").iterdir())
    file.write_bytes(file.read_bytes()[:-1])


def batch_queue_of_a_simple_topic(path: Path) -> None:
    (path / "batchconsumequeue/t/0").mkdir(parents=True)
    (path / f"batchconsumequeue/t/0/{0:020}").write_bytes(bytes(46 * 8))


def large_batch_queue_file(path: Path) -> None:
    (path / "batchconsumequeue/other/0").mkdir(parents=True)
    (path / f"batchconsumequeue/other/0/{0:020}").write_bytes(bytes(46 * 9))


def nothing(path: Path) -> None:
    """The directory is all right, the options are not."""


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("deed", "options", "reason"),
    [
        (foreign_file, {}, r"commitlog/notes\.txt.*foreign file.*move it away"),
        (short_log_file, {}, r"commitlog/0{20}: 4095 bytes.*4096"),
        (missing_log_file, {}, "commitlog.*00000000000000004096 is expected"),
        (short_queue_file, {}, r"consumequeue/t/0/\d{20}: .*140"),
        (foreign_queue_file, {}, "consumequeue/t/0/x.*foreign"),
        (foreign_index_file, {}, r"index/notes: no index file"),
        (short_index_file, {}, "index/.*bytes, but 7 hash slots"),
        (batch_queue_of_a_simple_topic, {}, "/consumequeue/t: .* or batchconsumequeue has it, too"),
        (large_batch_queue_file, {}, "give mapperFileSizeBatchConsumeQueue=414"),
        (nothing, {"mapped_file_size_commit_log": 8192}, "give mappedFileSizeCommitLog=4096"),
        (nothing, {"mapped_file_size_consume_queue": 400}, "give mappedFileSizeConsumeQueue=160"),
        (nothing, {"max_hash_slot_num": 8}, "maxHashSlotNum, maxIndexNum"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_nothing_is_changed(
    open_store: OpenStore, path: Path, deed: object, options: dict[str, object], reason: str, killed: bool
) -> None:
    files = FaultyFiles()
    store = open_store(files=files)
    put_keyed(store, 30, 2)
    if killed:
        abandon(store, files)
    else:
        store.close()
    deed(path)  # type: ignore[operator]
    before = contents(path)
    with pytest.raises(StoreFormatError, match=reason) as caught:
        open_store(**options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert contents(path) == before


def test_a_directory_that_is_no_store_is_refused_and_gets_no_lock_file(path: Path) -> None:
    path.mkdir()
    (path / "letters").mkdir()
    for read_only in (False, True):
        with pytest.raises(StoreFormatError, match="no store"):
            reput.MessageStore.open(path, read_only=read_only)
    assert [entry.name for entry in path.iterdir()] == ["letters"]
    for missing, reason in ((path / "nowhere", "no such directory"), (path / "file", "a file, not a directory")):
        if missing.name == "file":
            missing.write_text("x")
        with pytest.raises(StoreFormatError, match=reason):
            reput.MessageStore.open(missing, read_only=True)
    with pytest.raises(StoreFormatError, match="a file, not a directory"):
        reput.MessageStore.open(path / "file")


def test_a_path_through_a_file_is_refused_in_one_line(path: Path) -> None:
    path.write_text("x")
    with pytest.raises(StoreError, match=re.escape(str(path))) as caught:
        reput.MessageStore.open(path / "store")
    assert "\n" not in str(caught.value)


def test_the_commit_log_may_lie_elsewhere(open_store: OpenStore, path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "log"
    for _ in range(2):
        with reput.MessageStore.open(path, files=FaultyFiles(), store_path_commit_log=str(elsewhere), **SMALL) as store:
            put_keyed(store, 5, 2)
    assert not (path / "commitlog").exists()
    elsewhere.rename(path / "commitlog")
    assert len(check_store(path)) == 10


def test_an_option_that_contradicts_itself_makes_nothing(path: Path) -> None:
    for options in ({"mapped_file_size_commit_log": 100}, {"flush_disk_type": "SOMETIMES"}, {"max_index_nmu": 5}):
        with pytest.raises(ConfigError):
            reput.MessageStore.open(path, **options)  # type: ignore[arg-type]
    assert not path.exists()


def test_the_size_limit_of_the_shell_is_a_full_disk_and_the_store_goes_on(path: Path) -> None:
    code = f"""
        import resource, reput
        from reput.errors import StoreFullError
        options = {SMALL | {"mapped_file_size_commit_log": 65536}!r}
        store = reput.MessageStore.open({str(path)!r}, **options)
        store.put_message(reput.Message("t", bytes(60_000), keys=["k"]))
        store.wait_dispatched()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
        for _ in range(3):
            try:
                store.put_message(reput.Message("t", bytes(60_000), keys=["k"]))
            except StoreFullError as error:
                print(error)
        store.put_message(reput.Message("t", b"small", keys=["k"]))
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        store.put_message(reput.Message("t", bytes(60_000), keys=["k"]))
        store.wait_dispatched()
        print(len(store.query_message("t", "k")))
        store.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    *errors, found = done.stdout.splitlines()
    assert len(errors) == 3
    for error in errors:
        assert re.search(r"commitlog/0{15}65536: cannot (create|grow).*ulimit -f", error)
    assert found == "3"
    assert len(check_store(path)) == 3


def test_flushes_by_time_move_the_checkpoint(open_store: OpenStore, path: Path) -> None:
    from reput.formats.checkpoint import decode_checkpoint

    files = FaultyFiles()
    store = open_store(
        files=files,
        flush_interval_consume_queue=1, flush_consume_queue_thorough_interval=1, flush_disk_type="ASYNC_FLUSH",
        flush_interval_commit_log=1, flush_commit_log_least_pages=0,
    )  # fmt: skip
    put_keyed(store, 30, 2)
    last = store.latest_time()
    deadline = time.monotonic() + 60
    while True:
        checkpoint = decode_checkpoint((path / "checkpoint").read_bytes())
        if checkpoint[:2] == (last, last) and checkpoint.index_msg_timestamp:
            break
        assert time.monotonic() < deadline, checkpoint
    assert (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) == (last, last)
    assert 0 < checkpoint.index_msg_timestamp <= last
    synced = {o.path for o in files.operations if o.kind == "sync" and "/index/" in o.path}
    *full, _ = sorted(str(file) for file in (path / "index").iterdir())
    assert set(full) <= synced
    assert store.flushed_offset == store.max_commit_log_offset


def test_a_clean_close_leaves_a_checkpoint_of_the_last_times(open_store: OpenStore, path: Path) -> None:
    from reput.formats.checkpoint import decode_checkpoint

    store = open_store()
    put_keyed(store, 30, 2)
    last = store.latest_time()
    store.close()
    checkpoint = decode_checkpoint((path / "checkpoint").read_bytes())
    assert checkpoint[:2] == (last, last)
    assert len((path / "checkpoint").read_bytes()) == 4096


@pytest.mark.parametrize("was_killed", [False, True])
def test_rocketmqs_offset_in_the_checkpoint_is_forgotten_before_a_start_changes_what_it_speaks_of(
    path: Path, was_killed: bool
) -> None:
    from reput.formats.checkpoint import POSITIONS, decode_checkpoint

    with reput.MessageStore.open(path, **SMALL) as store:
        put_keyed(store, 30, 2)
        end = store.max_commit_log_offset
    overwrite(path / "checkpoint", POSITIONS["logicsPhysicalOffset"], end.to_bytes(8, "big"))
    before = decode_checkpoint((path / "checkpoint").read_bytes())
    assert before.logics_physical_offset == end
    if was_killed:
        (path / "abort").touch()
        shutil.rmtree(path / "consumequeue")
    with reput.MessageStore.open(path, read_only=True):
        assert decode_checkpoint((path / "checkpoint").read_bytes()) == before
    files = FaultyFiles()
    with reput.MessageStore.open(path, files=files, **SMALL):
        assert decode_checkpoint((path / "checkpoint").read_bytes()).logics_physical_offset == 0
        kinds = ("write", "sync", "create", "unlink", "rename", "truncate")
        changed = [one.path for one in files.operations if one.kind in kinds]
    first = next(number for number, name in enumerate(changed) if name.endswith("/checkpoint"))
    assert not [name for name in changed[:first] if "/commitlog/" in name or "/consumequeue/" in name]


@pytest.mark.parametrize("read_only", [True, False])
def test_an_index_file_that_claims_more_entries_than_fit_is_refused_and_left(path: Path, read_only: bool) -> None:
    with reput.MessageStore.open(path, **SMALL) as store:
        put_keyed(store, 30, 2)
    index = min((path / "index").iterdir())
    with index.open("r+b") as file:
        file.seek(36)
        file.write((1 << 30).to_bytes(4, "big"))
    before = contents(path)
    with pytest.raises(CorruptIndexFileError, match=index.name):
        reput.MessageStore.open(path, read_only=read_only, **SMALL)
    assert contents(path) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_queue_file_that_was_cut_is_named_itself_with_the_way_to_build_the_queues_again(
    path: Path, read_only: bool
) -> None:
    with reput.MessageStore.open(path, **SMALL) as store:
        for queue_id in range(3):
            store.put_message(reput.Message("t", b"x", keys=["k"]), queue_id)
    cut = next((path / "consumequeue" / "t" / "0").iterdir())  # the first that is looked at
    os.truncate(cut, 100)
    before = contents(path)
    with pytest.raises(StoreFormatError, match=rf"{cut}: 100 bytes long.* queues 160; .*{path}/consumequeue away"):
        reput.MessageStore.open(path, read_only=read_only, **({} if read_only else SMALL))
    assert contents(path) == before
    (path / "consumequeue").rename(path / "moved")
    with reput.MessageStore.open(path, **SMALL) as store:
        assert sorted((queue.queue_id, queue.max_offset) for queue in store.queues()) == [(0, 1), (1, 1), (2, 1)]


def test_an_open_that_can_start_no_thread_gives_the_lock_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, iter([True])

    def start_one(thread: threading.Thread) -> None:
        if thread.name.startswith("reput-") and not next(left, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_one)
        with pytest.raises(RuntimeError, match="new thread"):
            reput.MessageStore.open(tmp_path / "store")
    reput.MessageStore.open(tmp_path / "store").close()


def test_a_closed_store_is_freed_without_the_cyclic_collector(path: Path) -> None:
    """Its buffers are megabytes, and a collection may be far away."""
    gc.disable()
    try:
        with reput.MessageStore.open(path, **SMALL) as store:
            store.put_message(reput.Message("t", b"x", keys=["k"]))
        left = weakref.ref(store)
        del store
        assert left() is None
    finally:
        gc.enable()
