"""Starts on directories that a kill, a broken disk or a careless hand has left, case by case."""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

import reput
from reput.errors import CorruptRecordError, ReputError, StoreFormatError
from reput.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from reput.formats.index_file import entry_position
from reput.formats.record_layout import BODY, SysFlag
from reput.store.dispatch import redispatch
from tests.support.damage import at, overwrite
from tests.support.faulty_files import Crash, FaultyFiles, abandon, crash_at
from tests.support.invariants import SMALL, check_queues, check_rebuild, check_store, contents, log_records
from tests.support.shares import sampled

# Threads that die with their store are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

#: Nothing is synced, saved or made ahead but by puts and closes.
OPTIONS = SMALL | {"flush_interval_consume_queue": 60_000, "max_index_num": 6}
#: An index that must be built anew is a reason of its own to begin at the first record.
NO_INDEX = OPTIONS | {"message_index_enable": False}
FILE_SIZE = 4096
HEAD = 106  # bytes of a record of topic "t" with key "k" that are not body

Deed = Callable[[Path], None]
_Refusal = TypeVar("_Refusal", bound=ReputError)


def open_store(path: Path, **options: object) -> reput.MessageStore:
    return reput.MessageStore.open(path, files=FaultyFiles(), **(OPTIONS | options))


def assert_refused(path: Path, kind: type[_Refusal], match: str) -> _Refusal:
    """The error of a start that goes no further, and has changed nothing."""
    before = contents(path)
    with pytest.raises(kind, match=match) as caught:
        open_store(path)
    assert contents(path) == before
    return caught.value


def put_one(store: reput.MessageStore, body: bytes, key: str = "k", topic: str = "t", **fields: object) -> int:
    """Commit log offset of a new message."""
    return store.put_message(reput.Message(topic, body, keys=[key], **fields)).commit_log_offset  # type: ignore[arg-type]


def write(path: Path, bodies: list[bytes], *, killed: bool, as_table: bool = False) -> list[int]:
    """Write messages to a store, and close or kill it; returns their commit log offsets."""
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    offsets = []
    if as_table:
        store.put_arrow(pa.table({"topic": ["t"] * len(bodies), "body": bodies}))
    else:
        offsets = [put_one(store, body) for body in bodies]
    store.wait_dispatched()
    if killed:
        abandon(store, files)
    else:
        store.close()
    return offsets


def set_checkpoint(path: Path, timestamp: int, index_timestamp: int = 0) -> None:
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(timestamp, timestamp, index_timestamp)))


def log_bodies(path: Path) -> list[bytes]:
    return [record.row["body"] for record in log_records(path)]


def in_one_hour() -> int:
    return int((time.time() + 3600) * 1000)


def test_torn_tail_is_cut_and_no_old_record_behind_the_cut_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "store"
    _, second, _ = write(path, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    overwrite(*at(path, second + BODY), b"torn")
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    assert store.recovery.log_end.offset == second
    assert not any((path / "commitlog" / f"{0:020d}").read_bytes()[second:])
    zeroed = max(o.number for o in files.operations if o.kind == "write" and "commitlog" in o.path)
    assert any(o.kind == "sync" and "commitlog" in o.path and o.number > zeroed for o in files.operations)
    assert put_one(store, b"B" * 300) == second  # as long as the torn one: the old third record would follow it
    abandon(store, files)
    with open_store(path):
        pass
    assert [record.row["body"][:1] for record in check_store(path, OPTIONS)] == [b"a", b"B"]


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("spare", ["missing", "empty", "zeros"])
def test_a_log_that_ends_with_its_file_goes_on_in_the_next_one(tmp_path: Path, spare: str, killed: bool) -> None:
    path = tmp_path / "store"
    first, _ = write(path, [b"x", bytes(FILE_SIZE - 8 - 2 * HEAD)], killed=killed)
    assert first == 0
    assert len(b"".join(log_bodies(path))) + 2 * HEAD - 1 == FILE_SIZE - 8, "the second record must end 8 bytes before"
    if spare != "missing":
        (path / "commitlog" / f"{FILE_SIZE:020d}").write_bytes(b"" if spare == "empty" else bytes(FILE_SIZE))
    with open_store(path) as store:
        assert put_one(store, b"y") == FILE_SIZE
    assert [record.row["queue_offset"] for record in check_store(path, OPTIONS)] == [0, 1, 2]


def test_a_log_that_ends_with_a_blank_record_goes_on_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, [bytes(3000), bytes(3000)], killed=True)
    (path / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    with open_store(path) as store:
        assert put_one(store, b"y") == FILE_SIZE
        store.wait_dispatched()
        assert store.max_offset("t", 0) == 2
    check_store(path, OPTIONS)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("content", [b"", bytes(FILE_SIZE)])
def test_a_start_leaves_no_unused_file_behind_the_log(tmp_path: Path, killed: bool, content: bytes) -> None:
    path = tmp_path / "store"
    write(path, [b"x"], killed=killed)
    (path / "commitlog" / f"{FILE_SIZE:020d}").write_bytes(content)
    with open_store(path):
        pass
    assert [file.name for file in (path / "commitlog").iterdir()] == [f"{0:020d}"]


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("content", [b"", bytes(FILE_SIZE)])
def test_files_made_ahead_are_used_or_removed(tmp_path: Path, killed: bool, content: bytes) -> None:
    path = tmp_path / "store"
    write(path, [b"x"], killed=killed)
    (path / "commitlog" / f"{FILE_SIZE:020d}").write_bytes(content)
    with open_store(path) as store:
        assert put_one(store, bytes(3900)) == FILE_SIZE
    check_store(path, OPTIONS)


def test_damage_before_what_the_checkpoint_knows_is_told_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    _, second, third = write(path, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    overwrite(*at(path, second + BODY), b"damage")
    set_checkpoint(path, in_one_hour())
    for _ in range(2):
        error = assert_refused(path, CorruptRecordError, f"offset {second}: .*at {third}.*nothing was changed")
        assert (error.path, error.offset) == (str(path / "commitlog" / f"{0:020d}"), second)


@pytest.mark.parametrize("lost", ["consumequeue/t", "index"])
def test_a_killed_store_whose_prepared_messages_alone_name_a_queue_starts(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "store"
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    put_one(store, b"x")
    put_one(store, b"y", topic="prepared", sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    store.wait_dispatched()
    abandon(store, files)
    shutil.rmtree(path / lost)
    with open_store(path) as store:
        assert store.max_offset("t", 0) == 1
    check_store(path)


def test_a_store_of_prepared_messages_alone_dispatches_nothing_after_a_clean_exit(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        put_one(store, b"x", sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    with open_store(path) as store:
        assert (store.recovery.was_killed, store.recovery.dispatched_records) == (False, 0)


def test_a_start_after_a_kill_says_what_it_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    *_, last = write(path, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    overwrite(*at(path, last + BODY), b"torn")
    with caplog.at_level("INFO"), open_store(path):
        pass
    assert re.search(rf"not closed: its log ends at {last}, and .* cut off; \d records .* again", caplog.text)
    assert not any(record.levelname == "WARNING" for record in caplog.records)


def test_a_start_warns_of_whole_records_that_it_cuts_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    _, second, *_ = write(path, [letter * 300 for letter in (b"a", b"b", b"c", b"d")], killed=True)
    overwrite(*at(path, second + BODY), b"torn")
    with open_store(path) as store:
        assert (store.recovery.log_end.offset, store.recovery.log_end.cut_records) == (second, 2)
    assert f"its log ends at {second}, where a record is torn or damaged, and 2 whole records" in caplog.text


def test_damage_in_front_of_one_whole_record_with_a_torn_one_behind_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first, second, third = write(path, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    overwrite(*at(path, first + BODY), b"damage")
    overwrite(*at(path, third), b"torn")
    set_checkpoint(path, in_one_hour())
    assert_refused(path, CorruptRecordError, f"offset {first}: .*at {second}, which the checkpoint")


def test_damage_in_front_of_whole_records_is_told_where_the_checkpoint_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "store"
    _, second, third = write(path, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    overwrite(*at(path, second + BODY), b"damage")
    remove_checkpoint(path)
    assert_refused(path, CorruptRecordError, f"offset {second}: .*at {third}.*the checkpoint is lost")
    overwrite(*at(path, third), b"torn")
    with open_store(path):
        pass
    assert log_bodies(path) == [b"a" * 300]


def test_a_start_without_a_checkpoint_that_is_killed_leaves_none_that_vouches_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    seconds = itertools.count(1_700_000_000)
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))  # for a checkpoint vouches for what is older
    first, *_ = write(killed, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    remove_checkpoint(killed)
    steps = itertools.count()
    is_started = False
    while not is_started:
        path = shutil.copytree(killed, tmp_path / "store", dirs_exist_ok=True)
        files = FaultyFiles(crash_at(next(steps)))
        with suppress(Crash):
            abandon(reput.MessageStore.open(path, files=files, **OPTIONS), files)
            is_started = True
        files.abandon()
        overwrite(*at(path, first + BODY), b"damage")
        assert_refused(path, CorruptRecordError, f"offset {first}: .*nothing was changed")
        shutil.rmtree(path)
    assert next(steps) > 10


@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_log_that_ends_before_what_was_on_the_disk_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_ahead: bool
) -> None:
    path = tmp_path / "store"
    _, second = write(path, [b"a" * 300, b"b" * 300], killed=True)
    timestamp = log_records(path)[-1].row["store_timestamp"] if not is_ahead else in_one_hour()
    set_checkpoint(path, timestamp)
    with open_store(path):
        assert (f"the log ends at {2 * second}" in caplog.text) == is_ahead


def test_a_queue_offset_that_no_log_can_hold_is_told_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    offsets = write(path, [bytes(500)] * 20, killed=True)
    overwrite(*at(path, offsets[7] + 20), bytes.fromhex("00000000ffffffff"))
    assert_refused(path, CorruptRecordError, rf"damaged at offset {offsets[7]}: .*queue offset 4294967295.*repair")


def test_damage_at_the_end_of_a_file_is_found_by_the_next_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first, second = write(path, [b"a" * 3000, b"b" * 3000], killed=True)
    overwrite(*at(path, first + BODY), b"damage")
    set_checkpoint(path, int(time.time() * 1000) + 1)  # so the start looks at both files, for they are new
    assert_refused(path, CorruptRecordError, f"at {second}")


def test_a_record_of_the_checkpoints_own_millisecond_need_not_have_been_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    _, second, _ = write(path, [b"a" * 300, b"b" * 300, b"c" * 300], killed=True)
    overwrite(*at(path, second + BODY), b"torn")
    set_checkpoint(path, 1_700_000_000_000)
    with open_store(path):
        pass
    assert [body[:1] for body in log_bodies(path)] == [b"a"]


def test_damage_before_a_queue_that_must_be_built_again_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        put_one(store, b"a" * 300)
        second = put_one(store, b"b" * 300)
        put_one(store, b"c" * 300)
    overwrite(*at(path, second + 4), b"damage")
    shutil.rmtree(path / "consumequeue")
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=rf"offset {second}: expected a record, .*restore the file from"):
            open_store(path)


@pytest.mark.parametrize("fields", [{}, {"sys_flag": SysFlag.TRANSACTION_PREPARED}])
def test_damage_at_the_tail_after_a_clean_exit_is_told_and_changes_nothing(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        put_one(store, b"a" * 300)
        last = put_one(store, b"b" * 300, **fields)
    overwrite(*at(path, last + BODY), b"damage")
    assert_refused(path, CorruptRecordError, f"offset {last}: .*nothing was changed")


def remove_checkpoint(path: Path) -> None:
    (path / "checkpoint").unlink()


def empty_checkpoint(path: Path) -> None:
    (path / "checkpoint").write_bytes(b"")


def zero_checkpoint(path: Path) -> None:
    (path / "checkpoint").write_bytes(bytes(4096))


def remove_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


def remove_first_queue(path: Path) -> None:
    """The one whose records all lie in the first file of the log."""
    shutil.rmtree(path / "consumequeue/early")


def remove_last_queue(path: Path) -> None:
    shutil.rmtree(path / "consumequeue/late")


def remove_index(path: Path) -> None:
    shutil.rmtree(path / "index")


def remove_first_index_file(path: Path) -> None:
    min((path / "index").iterdir()).unlink()


def remove_last_index_file(path: Path) -> None:
    max((path / "index").iterdir()).unlink()


def empty_index_file(path: Path) -> None:
    (path / "index" / "29990101000000000").write_bytes(b"")


def zero_last_units(path: Path) -> None:
    file = max((path / "consumequeue/late/0").iterdir())
    file.write_bytes(file.read_bytes()[:20].ljust(160, b"\0"))


def remove_last_queue_file(path: Path) -> None:
    max((path / "consumequeue/late/0").iterdir()).unlink()


def add_empty_queue_file(path: Path) -> None:
    last = max((path / "consumequeue/late/0").iterdir())
    (last.parent / f"{int(last.name) + 160:020d}").write_bytes(b"")


def garble_shutdown(path: Path) -> None:
    (path / "config/reputShutdown.json").write_text('{"commitLogEnd": {}')


def remove_config(path: Path) -> None:
    shutil.rmtree(path / "config")


def remove_config_and_last_queue(path: Path) -> None:
    """Nothing but a gap between the queue's units and the log tells that something is missing."""
    remove_config(path)
    remove_last_queue(path)


def remove_config_and_last_queue_file(path: Path) -> None:
    remove_config(path)
    remove_last_queue_file(path)


HARMLESS = [
    *(remove_checkpoint, empty_checkpoint, zero_checkpoint, remove_queues, remove_first_queue, remove_last_queue),
    *(remove_index, remove_last_index_file, empty_index_file, zero_last_units, remove_last_queue_file),
    *(add_empty_queue_file, garble_shutdown, remove_config),
    *(remove_config_and_last_queue, remove_config_and_last_queue_file),
]


def store_with_two_runs(path: Path, *, killed: bool) -> dict[str, list[int]]:
    """Topic `early` in the first log file, topic `late` in all others; the checkpoint is ahead of everything."""
    offsets: dict[str, list[int]] = {"early": [], "late": []}
    with open_store(path) as store:
        offsets["early"] += [put_one(store, bytes(300), f"early-{n}", "early") for n in range(8)]
        offsets["late"] += [put_one(store, bytes(900), f"late-{n}", "late") for n in range(8)]
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    offsets["late"] += [put_one(store, bytes(900), f"late-{8 + n}", "late") for n in range(8)]
    store.wait_dispatched()
    if killed:
        abandon(store, files)
        set_checkpoint(path, in_one_hour(), decode_checkpoint((path / "checkpoint").read_bytes()).index_msg_timestamp)
    else:
        store.close()
    return offsets


@sampled(3)
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("deed", HARMLESS)
def test_what_can_be_made_again_from_the_log_is_made_again(tmp_path: Path, deed: Deed, killed: bool) -> None:
    path = tmp_path / "store"
    offsets = store_with_two_runs(path, killed=killed)
    deed(path)
    with open_store(path) as store:
        for topic, wanted in offsets.items():
            got: list[int] = []
            while len(found := store.get_message(topic, 0, len(got))):
                got += [message.commit_log_offset for message in found.messages()]
            assert got == wanted, topic
            keys = store.query_messages(topic, [f"{topic}-{n}" for n in range(len(wanted))])
            assert [[m.commit_log_offset for m in messages] for messages in keys.values()] == [[o] for o in wanted]
        assert store.put_message(reput.Message("early", b"next", keys=["next"])).queue_offset == 8
        assert store.put_message(reput.Message("late", b"next", keys=["next"])).queue_offset == 16
    check_store(path, OPTIONS)
    check_rebuild(path, tmp_path / "rebuilt", OPTIONS)
    after = contents(path)
    with open_store(path):
        pass
    assert contents(path) == after


def test_old_bytes_behind_the_end_of_a_clean_store_are_wiped_out_and_that_is_synced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    (offset,) = write(path, [b"x" * 300], killed=False)
    old = (path / "commitlog" / f"{0:020d}").read_bytes()[:420]
    overwrite(*at(path, 1000), old)
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    zeroed = max(o.number for o in files.operations if o.kind == "write" and "commitlog" in o.path)
    assert any(o.kind == "sync" and "commitlog" in o.path and o.number > zeroed for o in files.operations)
    assert not any((path / "commitlog" / f"{0:020d}").read_bytes()[store.max_commit_log_offset :])
    store.close()
    assert [record.offset for record in check_store(path, OPTIONS)] == [offset]


def test_units_behind_the_end_of_a_killed_store_are_wiped_out(tmp_path: Path) -> None:
    path = tmp_path / "store"
    offsets = write(path, [b"x" * 100] * 5, killed=True)
    queue = path / "consumequeue/t/0" / f"{0:020d}"
    units = queue.read_bytes()
    overwrite(*at(path, offsets[3]), bytes(8))  # the log ends before the last two units
    overwrite(*at(path, offsets[4]), bytes(8))
    later = queue.parent / f"{160:020d}"
    later.write_bytes(units[:20] * 8)  # and old units lie in a file behind it
    with open_store(path) as store:
        assert store.max_offset("t", 0) == 3
        assert put_one(store, b"new") == offsets[3]
    check_store(path, OPTIONS)


def test_queues_lost_before_any_clean_exit_are_built_from_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **NO_INDEX)
    early = [put_one(store, bytes(1900), topic="early"), put_one(store, bytes(1900), topic="early")]
    late = put_one(store, b"x", topic="late")  # the last file tells of no gap
    assert late == FILE_SIZE
    abandon(store, files)
    set_checkpoint(path, in_one_hour())
    remove_queues(path)
    with open_store(path, message_index_enable=False) as store:
        assert [m.commit_log_offset for m in store.get_message("early", 0, 0).messages()] == early
    check_queues(path, log_records(path))


def test_units_that_the_checkpoint_does_not_know_are_built_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **NO_INDEX)
    put_one(store, bytes(3900), topic="early")
    put_one(store, b"x", topic="late")
    store.wait_dispatched()
    abandon(store, files)
    (path / "consumequeue/early/0" / f"{0:020d}").write_bytes(bytes(160))  # a power cut took the page
    with open_store(path, message_index_enable=False):
        pass
    check_queues(path, log_records(path))


def test_a_kill_before_anything_was_written_loses_no_key(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, max_index_num=100) as store:
        for number in range(8):
            put_one(store, bytes(2000), f"k{number}")
    set_checkpoint(path, in_one_hour())
    files = FaultyFiles()
    options = OPTIONS | {"max_index_num": 100}
    abandon(reput.MessageStore.open(path, files=files, **options), files)
    set_checkpoint(path, in_one_hour())
    with open_store(path, max_index_num=100) as store:
        assert [len(found) for found in store.query_messages("t", [f"k{n}" for n in range(8)]).values()] == [1] * 8
    check_store(path, options)


@pytest.mark.parametrize("as_table", [False, True])
def test_store_times_never_go_back_even_if_the_clock_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_table: bool
) -> None:
    path = tmp_path / "store"
    for now in (1_700_000_100.0, 1_700_000_000.0, 1_700_000_200.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        write(path, [b"x", b"y"], killed=now == 1_700_000_000.0, as_table=as_table)
    with open_store(path) as store:
        asked = [1_700_000_000_000 + seconds for seconds in (0, 100_000, 100_001, 200_001)]
        assert [store.offset_by_time("t", 0, time_ms) for time_ms in asked] == [0, 0, 4, 6]
    times = [record.row["store_timestamp"] - 1_700_000_000_000 for record in check_store(path, OPTIONS)]
    assert times == [100_000] * 4 + [200_000] * 2


def test_the_next_start_syncs_the_log_that_a_killed_writer_left_and_the_checkpoint_waits_for_the_queues(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    write(path, [bytes(3000)] * 3, killed=True)
    files = FaultyFiles()
    with reput.MessageStore.open(path, files=files, **OPTIONS):
        synced = {operation.path for operation in files.operations if operation.kind == "sync"}
        assert synced >= {str(file) for file in (path / "commitlog").iterdir()}
        assert decode_checkpoint((path / "checkpoint").read_bytes()).logics_msg_timestamp == 0
    synced = {operation.path for operation in files.operations if operation.kind == "sync"}
    assert synced >= {str(file) for file in (path / "consumequeue").glob("*/*/*")}
    assert decode_checkpoint((path / "checkpoint").read_bytes()).logics_msg_timestamp > 0


def test_a_start_after_a_kill_reads_only_what_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, [bytes(3000)] * 5, killed=True)
    set_checkpoint(path, in_one_hour())
    shutil.rmtree(path / "index")
    with open_store(path, message_index_enable=False) as store:
        assert (store.recovery.verified_records, store.recovery.dispatched_records) == (1, 0)


def test_what_a_kill_left_of_queues_and_index_is_right_and_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, [b"x" * 10] * 12, killed=True)
    before = contents(path)
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    assert (store.recovery.verified_records, store.recovery.dispatched_records) == (12, 0)
    changed = {operation.kind for operation in files.operations if "consumequeue" in operation.path}
    assert not changed | {operation.kind for operation in files.operations if "index" in operation.path}
    assert {name: data for name, data in contents(path).items() if "/" in name} == {
        name: data for name, data in before.items() if "/" in name
    }
    store.close()
    check_store(path, OPTIONS)


def last_index_file(path: Path) -> Path:
    return max(file for file in (path / "index").iterdir() if file.stat().st_size)


def index_header_behind_its_entries(path: Path) -> None:
    file = last_index_file(path)
    file.write_bytes(bytes(40) + file.read_bytes()[40:])


def index_slot_behind_its_entries(path: Path) -> None:
    file = last_index_file(path)
    file.write_bytes(file.read_bytes()[:40] + bytes(28) + file.read_bytes()[68:])


def index_slots_of_the_first_file_lost(path: Path) -> None:
    set_checkpoint(path, in_one_hour())
    file = min((path / "index").iterdir())
    file.write_bytes(file.read_bytes()[:40] + bytes(28) + file.read_bytes()[68:])


def index_entry_ahead_of_the_log(path: Path) -> None:
    file = last_index_file(path)
    file.write_bytes(file.read_bytes()[:-20] + bytes([7]) * 20)


def index_entry_lost(path: Path) -> None:
    file = last_index_file(path)
    file.write_bytes(file.read_bytes()[:128] + bytes(20) + file.read_bytes()[148:])


def unit_lost_in_the_middle(path: Path) -> None:
    file = max((path / "consumequeue/late/0").iterdir())
    file.write_bytes(file.read_bytes()[:60] + bytes(20) + file.read_bytes()[80:])


def unit_of_another_record(path: Path) -> None:
    set_checkpoint(path, 1)
    file = max((path / "consumequeue/late/0").iterdir())
    file.write_bytes(file.read_bytes()[:79] + b"?" + file.read_bytes()[80:])


@pytest.mark.parametrize("rows_at_once", [2, 65_536])
@pytest.mark.parametrize(
    "deed",
    [
        *(index_header_behind_its_entries, index_slot_behind_its_entries, index_slots_of_the_first_file_lost),
        *(index_entry_ahead_of_the_log, index_entry_lost, unit_lost_in_the_middle, unit_of_another_record),
    ],
)
def test_what_a_kill_or_a_power_cut_left_half_written_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: Deed, rows_at_once: int
) -> None:
    monkeypatch.setattr(redispatch, "_MAX_ROWS", rows_at_once)
    path = tmp_path / "store"
    offsets = store_with_two_runs(path, killed=True)
    deed(path)
    with open_store(path) as store:
        for topic, wanted in offsets.items():
            keys = store.query_messages(topic, [f"{topic}-{n}" for n in range(len(wanted))])
            assert [[m.commit_log_offset for m in messages] for messages in keys.values()] == [[o] for o in wanted]
        assert store.put_message(reput.Message("late", b"next", keys=["next"])).queue_offset == 16
    check_store(path, OPTIONS)
    check_rebuild(path, tmp_path / "rebuilt", OPTIONS)


@pytest.mark.parametrize(("wrong", "right"), [(1, 0), (3_300, 0), (6_000, 0), (None, 10)])
def test_index_entries_are_compared_up_to_the_last_and_written_again_where_one_is_wrong(
    tmp_path: Path, wrong: int | None, right: int
) -> None:
    path = tmp_path / "store"
    options = OPTIONS | {"max_index_num": 10_000, "mapped_file_size_commit_log": 1 << 20}
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **options)
    keys = [[f"{message}-{n}" for n in range(600)] for message in range(10)]
    store.put_arrow(pa.table({"topic": ["t"] * 10, "body": [b"x"] * 10, "keys": keys}))
    store.wait_dispatched()
    abandon(store, files)
    file = last_index_file(path)
    data = file.read_bytes()
    if wrong is not None:
        position = entry_position(int(str(SMALL["max_hash_slot_num"])), wrong)
        file.write_bytes(data[: position + 4] + b"?" + data[position + 5 :])
    with open_store(path, **options) as store:
        assert (store.recovery.verified_records, store.recovery.dispatched_records) == (right, 10 - right)
    assert last_index_file(path).read_bytes() == data


def test_a_refused_start_keeps_no_file_open_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, [bytes(3000)] * 3, killed=False)
    last = max((path / "commitlog").iterdir())
    good = last.read_bytes()
    last.write_bytes(good[:100] + b"damage" + good[106:])
    with pytest.raises(CorruptRecordError):
        reput.MessageStore.open(path, **OPTIONS)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(CorruptRecordError):
            reput.MessageStore.open(path, **OPTIONS)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # fewer: what earlier tests left is collected meanwhile
    last.write_bytes(good)
    open_store(path).close()


def test_queues_without_a_log_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, [b"x"], killed=False)
    shutil.rmtree(path / "commitlog")
    assert_refused(path, StoreFormatError, "no commit log")


def test_an_index_file_that_knows_more_than_the_log_does_not_keep_new_keys_out(tmp_path: Path) -> None:
    path = tmp_path / "store"
    offsets = write(path, [b"x" * 10] * 12, killed=False)
    # A power cut under ASYNC_FLUSH: two full index files are on the disk, and of the log three records.
    (path / "abort").write_text("1")
    overwrite(*at(path, offsets[3]), bytes(FILE_SIZE - offsets[3]))
    with open_store(path) as store:
        offset = put_one(store, b"new", "new")
        store.wait_dispatched()
        assert [message.commit_log_offset for message in store.query_message("t", "new")] == [offset]
    check_store(path, OPTIONS)


def test_of_index_files_that_end_in_the_checkpoints_own_millisecond_only_the_first_is_known_to_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    write(path, [b"x" * 10] * 12, killed=True)  # two files with five keys each, and one with two
    first, second, _ = sorted((path / "index").iterdir())
    second.write_bytes(second.read_bytes()[:40] + bytes(second.stat().st_size - 40))  # its header alone got to the disk
    before = first.stat().st_mtime_ns
    set_checkpoint(path, 1_700_000_000_000, index_timestamp=1_700_000_000_000)
    with open_store(path) as store:
        assert len(store.query_message("t", "k", max_num=64)) == 12
    assert first.stat().st_mtime_ns == before
    check_store(path, OPTIONS)
