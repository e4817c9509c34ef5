"""Queue files that were cut or are lost: told by readers with the file and what to do, built again by a writer."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import CorruptConsumeQueueError, StoreFormatError
from reput.store.watch import StoreWatch
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import SMALL, contents
from tests.support.keyed_messages import put_keyed

#: One queue with one file, which has room for more than the messages of a test.
OPTIONS = SMALL | {"mapped_file_size_consume_queue": 20_000}


def put_and_close(path: Path, count: int = 30, **options: object) -> None:
    with reput.MessageStore.open(path, files=FaultyFiles(), **(OPTIONS | options)) as store:  # type: ignore[arg-type]
        put_keyed(store, count)


def queue_file(path: Path) -> Path:
    (file,) = (path / "consumequeue/t/0").iterdir()
    return file


def cut(path: Path) -> None:
    os.truncate(queue_file(path), 200)


def emptied(path: Path) -> None:
    os.truncate(queue_file(path), 0)


def zeroed(path: Path) -> None:
    queue_file(path).write_bytes(queue_file(path).read_bytes()[:200] + bytes(19_800))


def removed(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


@pytest.mark.parametrize("closed_by", ["reput", "RocketMQ"])
@pytest.mark.parametrize(
    ("deed", "place", "state"),
    [
        (
            cut,
            r"consumequeue/t/0/0{20}: damaged at offset 200",
            "ends before queue offset 10, where its last file of 200",
        ),
        (zeroed, r"consumequeue/t/0/0{20}: damaged at offset 200", "the queue ends before queue offset 10, and lacks"),
        (emptied, "damaged at offset 0", "queue t/0 has no file with units"),
        (removed, "damaged at offset 0", "queue t/0 has no file with units"),
    ],
)
def test_a_reader_tells_what_the_only_queue_lacks_after_a_clean_exit_and_a_writer_builds_it_again(
    path: Path, deed: Callable[[Path], None], place: str, state: str, closed_by: str
) -> None:
    put_and_close(path)
    if closed_by == "RocketMQ":
        (path / "config/reputShutdown.json").unlink()
    deed(path)
    before = contents(path)
    with reput.MessageStore.open(path, read_only=True) as reader:
        damage = reader.recovery.damage
        info = reader.runtime_info()
        assert len(reader.get_message("t", 0, 0)) == (10 if deed in (cut, zeroed) else 0)
    assert isinstance(damage, CorruptConsumeQueueError)
    for part in (place, state, "closed cleanly", "queues derive from the log: move .*consumequeue.* away"):
        assert re.search(part, str(damage)), damage
    assert str(damage).startswith(str(path))
    assert "\n" not in str(damage)
    assert info.findings == (str(damage),)
    assert StoreWatch(str(path), reput.MessageStoreConfig()).look().info.findings == info.findings
    assert info.dispatch_behind_bytes > 0
    assert contents(path) == before
    shutil.rmtree(path / "consumequeue", ignore_errors=True)  # what the message says
    put_and_close(path, 1)
    with reput.MessageStore.open(path, read_only=True) as reader:
        assert (reader.recovery.damage, reader.max_offset("t", 0)) == (None, 31)


def test_messages_that_have_no_unit_are_not_missed(path: Path) -> None:
    put_and_close(path)
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:  # type: ignore[arg-type]
        store.put_message(reput.Message("t", b"prepared", sys_flag=4))
        store.put_message(reput.Message("t", b"rolled back", sys_flag=12))
    (path / "config/reputShutdown.json").unlink()
    with reput.MessageStore.open(path, read_only=True) as reader:
        assert (reader.recovery.damage, reader.runtime_info().dispatch_behind_bytes) == (None, 0)


def test_a_killed_store_may_lag_and_says_how_far_but_that_is_no_damage(path: Path) -> None:
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)  # type: ignore[arg-type]
    for _ in range(30):
        store.put_message(reput.Message("t", bytes(300)))
    store.wait_dispatched()
    abandon(store, files)
    cut(path)
    with reput.MessageStore.open(path, read_only=True) as reader:
        assert reader.recovery.damage is None
        assert reader.runtime_info().dispatch_behind_bytes > 0


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_a_queue_file_that_does_not_hold_whole_units_was_cut(path: Path, read_only: bool, killed: bool) -> None:
    put_and_close(path)
    if killed:
        (path / "abort").touch()
    os.truncate(queue_file(path), 19_999)  # behind all units
    before = contents(path)
    with pytest.raises(
        StoreFormatError,
        match=rf"{queue_file(path)}: 19999 bytes long, expected a multiple of 20, .* move {path}/consumequeue away",
    ):
        reput.MessageStore.open(path, read_only=read_only, **({} if read_only else OPTIONS))
    assert contents(path) == before


@pytest.mark.parametrize("number", [0, 1])
def test_of_two_files_of_a_queue_the_one_that_was_cut_is_named(path: Path, number: int) -> None:
    put_and_close(path, mapped_file_size_consume_queue=400)
    file = sorted((path / "consumequeue/t/0").iterdir())[number]
    os.truncate(file, 200)
    with pytest.raises(
        StoreFormatError, match=rf"{file}: 200 bytes long, but the files beside it 400; queues derive from the log"
    ):
        reput.MessageStore.open(path, read_only=True)


#: Queue files of 10 units each.
SHORT_FILES = {"mapped_file_size_consume_queue": 200}


@pytest.mark.parametrize("lost", [1, 2])
def test_a_start_warns_of_the_first_files_of_a_queue_that_are_lost(
    path: Path, caplog: pytest.LogCaptureFixture, lost: int
) -> None:
    put_and_close(path, 35, **SHORT_FILES)
    for number in range(lost):
        (path / f"consumequeue/t/0/{number * 200:020}").unlink()
    with reput.MessageStore.open(path, **(OPTIONS | SHORT_FILES)) as store:
        assert store.min_offset("t", 0) == lost * 10
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"{path}/consumequeue/t/0: the queue begins at queue offset {lost * 10}, and the log still")
    assert f"move {path}/consumequeue away" in line
    (path / "consumequeue").rename(path.parent / "away")
    with reput.MessageStore.open(path, **(OPTIONS | SHORT_FILES)) as store:
        assert (store.min_offset("t", 0), store.max_offset("t", 0)) == (0, 35)
        assert len(store.get_message("t", 0, 0, max_msg_nums=64)) == 10  # those of one file


def test_many_such_queues_are_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with reput.MessageStore.open(path, files=FaultyFiles(), **(OPTIONS | SHORT_FILES)) as store:  # type: ignore[arg-type]
        for queue_id in range(5):
            store.put_messages([reput.Message("t", b"x")] * 12, queue_id)
    for queue_id in range(1, 5):
        (path / f"consumequeue/t/{queue_id}/{0:020}").unlink()
    reput.MessageStore.open(path, **(OPTIONS | SHORT_FILES)).close()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "4 queues" in line


def test_a_start_is_silent_where_queues_are_whole_and_where_the_log_has_lost_its_begin_too(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = OPTIONS | SHORT_FILES | {"mapped_file_size_commit_log": 4096}
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:  # type: ignore[arg-type]
        put_keyed(store, 90)
    reput.MessageStore.open(path, **options).close()
    (path / f"commitlog/{0:020}").unlink()
    (path / f"consumequeue/t/0/{0:020}").unlink()
    reput.MessageStore.open(path, **options).close()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
