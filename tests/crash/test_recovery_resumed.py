"""A start that is itself killed, or meets a power cut, at every operation: the next one goes on, and ends the same."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

import reput
from reput.errors import CorruptRecordError, StoreError
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.log.dispatch_marks import RECOVERY_FILE
from reput.store.dispatch import redispatch
from reput.store.recovery import marks as recovery_mark
from tests.support.damage import at, flip
from tests.support.faulty_files import Crash, FaultyFiles, Operation, abandon, crash_at, fail_next
from tests.support.invariants import SMALL, check_rebuild, check_store, contents
from tests.support.shares import EVERYTHING, Share, in_shares, sampled

# Threads that die with their store are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

#: Index files of three keys.
OPTIONS: dict[str, object] = SMALL | {"flush_interval_consume_queue": 60_000, "max_index_num": 4}
NOW_S = 1_700_000_000.0
LATER = 4_000_000_000_000

Deed = Callable[[Path], object]


@pytest.fixture(autouse=True)
def marks_behind_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each piece of two records took seconds; and one time, so that files made at it have one name."""
    monkeypatch.setattr(recovery_mark, "INTERVAL_S", 0)
    monkeypatch.setattr(recovery_mark, "_SHARE", 0)
    monkeypatch.setattr(redispatch, "_MAX_ROWS", 2)
    monkeypatch.setattr(time, "time", lambda: NOW_S)


def nothing(path: Path) -> None:
    """After a kill all is there."""


def torn_tail(path: Path) -> None:
    last = max((path / "commitlog").iterdir())
    content = last.read_bytes().rstrip(b"\0")
    last.write_bytes(content[:-300].ljust(4096, b"\0"))


def known_to_the_end(path: Path) -> None:
    """The checkpoint is ahead: a start begins in the log's last file, unless something is missing."""
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(LATER, LATER, LATER)))


def lost(*names: str) -> Deed:
    def deed(path: Path) -> None:
        known_to_the_end(path)
        for name in names:
            shutil.rmtree(path / name)

    deed.__name__ = f"lost {' and '.join(names)}"
    return deed


def end_lost_that_the_index_knows(path: Path) -> None:
    """A power cut took the log's last record, and not the full index file that has its key."""
    known_to_the_end(path)
    last = max((path / "commitlog").iterdir())
    content = last.read_bytes().rstrip(b"\0")
    last.write_bytes(content[:-700].ljust(4096, b"\0"))


def units_lost(path: Path) -> None:
    for file in (path / "consumequeue").glob("late/*/*"):
        file.write_bytes(file.read_bytes()[:20].ljust(160, b"\0"))


def topics_lost(path: Path) -> None:
    """A topic has batch consume queues, and its inner batches alone say so."""
    known_to_the_end(path)
    shutil.rmtree(path / "batchconsumequeue")
    shutil.rmtree(path / "config")


DEEDS = [
    *(nothing, torn_tail, units_lost, topics_lost),
    *(lost("consumequeue/early"), lost("consumequeue"), lost("index")),
]


def make_store(path: Path, *, with_batches: bool) -> None:
    """Closed once, then killed: topics `early`, `late`, and `batch` with inner batches."""
    for topic in ("early", "late"):
        files = FaultyFiles()
        store = reput.MessageStore.open(path, files=files, **OPTIONS)
        if with_batches and topic == "early":
            store.update_topic(reput.TopicConfig("batch", attributes={"queue.type": "BatchCQ"}))
        for n in range(3):
            store.put_message(reput.Message(topic, bytes(900), keys=[f"{topic}-{n}"]), n % 2)
        if with_batches:
            store.put_batch(reput.MessageExtBatch.of([reput.Message("batch", b"x")] * 2, unique_key=topic))
        store.wait_dispatched()
        if topic == "early":
            store.close()
        else:
            abandon(store, files)


def derived(path: Path) -> dict[str, str]:
    return contents(path, leave_out=("lock",))


@sampled(3)
@in_shares(4)
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
@pytest.mark.parametrize("cut_power", [False, True])
def test_a_start_that_is_killed_at_any_operation_goes_on(
    tmp_path: Path, deed: Deed, cut_power: bool, share: Share
) -> None:
    base = tmp_path / "base"
    make_store(base, with_batches=deed is topics_lost)
    deed(base)
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(base, undisturbed)
    files = FaultyFiles()
    store = reput.MessageStore.open(undisturbed, files=files, **OPTIONS)
    # Under a power cut every other one, to take half the time; the sectors that are lost are drawn anyway.
    numbers = share.of(range(0, len(files.operations), 1 + cut_power))
    store.close()
    expected = derived(undisturbed)
    check_store(undisturbed, OPTIONS)
    check_rebuild(undisturbed, tmp_path / "rebuilt", OPTIONS)
    chance = random.Random(7)
    for number in numbers:
        path = tmp_path / "store" if not cut_power else tmp_path / f"before-{number}"
        shutil.copytree(base, path)
        dying = FaultyFiles(crash_at(number))
        dying.all_is_durable(path)
        with pytest.raises(Crash):
            reput.MessageStore.open(path, files=dying, **OPTIONS).close()
        dying.abandon()
        if cut_power:
            dying.cut_power(path, tmp_path / "store", chance)
            path = tmp_path / "store"
        reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS).close()
        assert derived(path) == expected, f"killed at operation {number}: {files.operations[number]}"
        shutil.rmtree(path)


def killed_starts(base: Path, folder: Path, options: dict[str, object], share: Share = EVERYTHING) -> Iterator[Path]:
    """For each operation of a start a copy of the store, whose start was killed there."""
    for number in share.of(range(1000)):
        path = folder / f"killed-{number}"
        shutil.copytree(base, path)
        dying = FaultyFiles(crash_at(number))
        try:
            abandon(reput.MessageStore.open(path, files=dying, **options), dying)
            return
        except Crash:
            dying.abandon()
        yield path


@sampled(2)
@pytest.mark.parametrize("deed", [nothing, lost("consumequeue")], ids=lambda deed: deed.__name__)
def test_the_later_a_start_is_killed_the_less_is_left_to_the_next_one(tmp_path: Path, deed: Deed) -> None:
    base = tmp_path / "base"
    make_store(base, with_batches=False)
    deed(base)
    done = []
    for path in killed_starts(base, tmp_path, OPTIONS):
        with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
            done.append(store.recovery.verified_records + store.recovery.dispatched_records)
    *done, last = done  # in between the mark's end and that of the start it is a killed store like any other
    assert done == sorted(done, reverse=True)
    assert (done[0], done[-1], last > 0) == (6, 0, True)


def test_a_mark_of_another_log_or_of_other_settings_counts_for_nothing(tmp_path: Path) -> None:
    base = tmp_path / "base"
    make_store(base, with_batches=False)
    killed = tmp_path / "killed"
    shutil.copytree(base, killed)
    dying = FaultyFiles(fail_next("unlink", part=RECOVERY_FILE))
    with pytest.raises(StoreError):
        reput.MessageStore.open(killed, files=dying, **OPTIONS)
    dying.abandon()
    mark = killed / "config" / RECOVERY_FILE
    good = mark.read_text()
    offset = json.loads(good)["mark"]["last"]["offset"]
    for text in (
        good.replace('"headerCrc": ', '"headerCrc": 1'),
        good.replace(f'"offset": {offset}', f'"offset": {10**12}'),
        good.replace('"max_index_num": "4"', '"max_index_num": "5"'),
        good.replace('"name": "2', '"name": "1'),
        good.replace('"headerSize": ', '"headerSize": -'),
        good.replace('"headerSize": ', '"headerSize": 99999'),
        good.replace('"header": [', '"header": [99999999999999999999, '),
        json.dumps(json.loads(good) | {"mark": {"offset": offset - 7}}),  # of a log that was cut, and went on
        json.dumps(json.loads(good) | {"mark": []}),
        good.replace(f'"offset": {offset}', '"offset": 1e999'),
        "[" * 100_000,
        good[:-9],
        "",
    ):
        assert text != good
        path = tmp_path / "store"
        shutil.copytree(killed, path)
        (path / "config" / RECOVERY_FILE).write_text(text)
        shutil.rmtree(path / "consumequeue/early")  # so that it shows
        with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
            assert store.recovery.dispatched_records == 6
        check_store(path, OPTIONS)
        check_rebuild(path, tmp_path / "rebuilt", OPTIONS)
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "rebuilt")


def dies_at_the_queues(operation: Operation) -> None:
    if operation.kind == "sync" and "/consumequeue/" in operation.path:
        raise Crash


def test_what_an_interrupted_start_wrote_is_on_the_disk_before_its_mark_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_mark, "INTERVAL_S", 1_000)  # the first mark alone
    path, left = tmp_path / "store", tmp_path / "left"
    make_store(path, with_batches=False)
    lost("consumequeue/early")(path)
    killed = FaultyFiles(dies_at_the_queues)
    killed.all_is_durable(path)
    with pytest.raises(Crash):
        reput.MessageStore.open(path, files=killed, **OPTIONS)
    killed.abandon()
    assert (path / "config" / RECOVERY_FILE).exists()
    files = FaultyFiles()
    files.goes_on_after(killed)
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    assert (store.recovery.verified_records, store.recovery.dispatched_records) == (6, 0)
    files.all_is_durable(path / "consumequeue" / "late")
    for folder in ("", "early", "early/0", "early/1"):
        files.names_are_durable(str(path / "consumequeue" / folder))
    files.cut_power(path, left)
    abandon(store, files)
    for file in (left / "consumequeue" / "early").glob("*/*"):  # it has written names and lengths by itself
        file.write_bytes(file.read_bytes() or bytes(160))
    reput.MessageStore.open(left, files=FaultyFiles(), **OPTIONS).close()
    check_store(left, OPTIONS)
    check_rebuild(left, tmp_path / "rebuilt", OPTIONS)


def test_queues_that_a_killed_store_made_have_their_names_before_the_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = count(int(NOW_S), 10)
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    path, left = tmp_path / "store", tmp_path / "left"
    killed, files = FaultyFiles(), FaultyFiles()
    store = reput.MessageStore.open(path, files=killed, **OPTIONS)
    store.update_topic(reput.TopicConfig("batch", attributes={"queue.type": "BatchCQ"}))  # so that nothing is compared
    store.put_batch(reput.MessageExtBatch.of([reput.Message("batch", b"x")] * 2, unique_key="batch"))
    for n in range(12):
        store.put_message(reput.Message("early" if n < 6 else f"late-{n}", bytes(900), keys=[str(n)]))
    store.wait_dispatched()
    abandon(store, killed)
    files.goes_on_after(killed)
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    assert store.recovery.dispatched_records == 13
    files.cut_power(path, left)
    abandon(store, files)
    with reput.MessageStore.open(left, files=FaultyFiles(), **OPTIONS) as store:
        assert store.recovery.dispatched_from > 0
    check_store(left, OPTIONS)
    check_rebuild(left, tmp_path / "rebuilt", OPTIONS)


@in_shares(3)
def test_keys_of_new_messages_are_found_where_lost_ones_were_whenever_a_start_is_killed(
    tmp_path: Path, share: Share
) -> None:
    base = tmp_path / "base"
    make_store(base, with_batches=False)
    end_lost_that_the_index_knows(base)
    kills = 0
    for path in killed_starts(base, tmp_path, OPTIONS, share):
        kills += 1
        with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
            for n in range(3):
                store.put_message(reput.Message("late", b"", keys=[f"new-{n}"]))
            store.wait_dispatched()
        check_store(path, OPTIONS)
    assert kills > 7


def make_store_of_many_files(path: Path) -> tuple[dict[str, object], list[int]]:
    """Killed, with a checkpoint of later times, so that all but the last log file is only compared with its one index
    file, from the first record on. Returns its options, and where each record is.
    """
    options = OPTIONS | {"max_index_num": 4000}
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **options)
    offsets = [store.put_message(reput.Message("t", bytes(300), keys=[f"k{n}"])).commit_log_offset for n in range(30)]
    store.wait_dispatched()
    abandon(store, files)
    known_to_the_end(path)
    return options, offsets


@in_shares(3)
def test_a_store_that_a_start_opens_is_opened_after_that_start_was_killed_too(tmp_path: Path, share: Share) -> None:
    """A wrong bit in a body that the checkpoint vouches for is left to readers, whatever a mark says."""
    base = tmp_path / "base"
    options, offsets = make_store_of_many_files(base)
    flip(*at(base, offsets[15] + 150))
    kills = 0
    for path in killed_starts(base, tmp_path, options, share):
        kills += 1
        reput.MessageStore.open(path, files=FaultyFiles(), **options).close()
    assert kills > 7


def test_nothing_of_a_refused_start_goes_on(tmp_path: Path) -> None:
    """Damage in a file before the last one is met while a second and a third thread look at others."""
    options, offsets = make_store_of_many_files(tmp_path)
    flip(*at(tmp_path, offsets[15] + 4))  # its magic code
    before, threads = contents(tmp_path), set(threading.enumerate())  # those of the killed store may still be ending
    with pytest.raises(CorruptRecordError) as refusal:
        reput.MessageStore.open(tmp_path, files=FaultyFiles(), **options)
    assert refusal.value.__traceback__ is not None  # whose frames keep what was under way
    assert [thread.name for thread in threading.enumerate() if thread not in threads] == []
    assert contents(tmp_path) == before
