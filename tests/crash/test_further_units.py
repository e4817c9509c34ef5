"""A crash, a power cut and a disk that fails once, with consume queue extensions and light message queues on."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import reput
from reput.errors import StoreFormatError
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from tests.oracles.consume_queue_ext import Extension
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    Operation,
    abandon,
    crash_at,
    fail_at,
    no_objection,
)
from tests.support.further_units import BOTH, EXT_FILE_SIZE, check_files, expected_files, found_files
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, contents
from tests.support.lives.further_units import MESSAGES, OPTIONS, check_next_life, live, put
from tests.support.shares import Share, in_shares, sampled

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_shares(3)
def test_a_crash_or_a_power_cut_at_any_operation_of_a_life_loses_nothing_acknowledged(
    tmp_path: Path, share: Share
) -> None:
    files = FaultyFiles()
    acknowledged, error = live(tmp_path / "healthy", files)
    assert (len(acknowledged), error) == (MESSAGES, None)
    check_next_life(tmp_path / "healthy", acknowledged)
    for number in share.of(range(0, len(files.operations), 7)):
        path, without_power = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        dying = FaultyFiles(crash_at(number))
        acknowledged, _ = live(path, dying)
        dying.cut_power(path, without_power)
        check_next_life(without_power, acknowledged)
        check_next_life(path, acknowledged)


@in_shares(3)
def test_an_operation_that_fails_once_loses_nothing_acknowledged(
    tmp_path: Path, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput.RETRY_WAIT_S", 0.01)
    files = FaultyFiles()
    live(tmp_path / "healthy", files)
    for number in share.of(range(1, len(files.operations), 5)):
        path = tmp_path / f"fault-{number}"
        acknowledged, _ = live(path, FaultyFiles(fail_at(number, errno.ENOSPC if number % 2 else errno.EIO)))
        check_next_life(path, acknowledged)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Acknowledged]]:
    """A store that was closed, to be copied: what a test does to it no other one may see."""
    path = tmp_path_factory.mktemp("closed") / "store"
    return path, live(path, FaultyFiles(no_objection))[0]


@in_shares(3)
def test_a_crash_at_any_operation_of_a_start_changes_nothing_that_the_next_start_needs(
    tmp_path: Path, closed: tuple[Path, list[Acknowledged]], share: Share
) -> None:
    source, acknowledged = Path(shutil.copytree(closed[0], tmp_path / "killed")), closed[1]
    (source / "abort").write_bytes(b"")
    for number in share.of(range(1000)):
        path, files = tmp_path / str(number), FaultyFiles(crash_at(number))
        shutil.copytree(source, path)
        ended = True
        try:
            abandon(reput.MessageStore.open(path, files=files, **OPTIONS), files)
        except Crash:
            ended = False
            files.abandon()
        check_next_life(path, acknowledged)
        if ended:
            break
    assert number > 5


def get_all(store: reput.MessageStore, tags: str) -> list[int]:
    """Commit log offsets of the messages of queue 0 that a filter by tags gives."""
    found, offset, end = [], 0, store.max_offset("orders", 0)
    while offset < end:
        result = store.get_message("orders", 0, offset, tags=tags)
        found += [message.commit_log_offset for message in result.messages()]
        offset = result.next_begin_offset
    return found


def read_all(path: Path, tags: str) -> list[int]:
    with reput.MessageStore.open(path, read_only=True, **SMALL) as store:
        return get_all(store, tags)


DAMAGE = {
    "all lost": lambda folder: shutil.rmtree(folder.parents[1]),
    "one queue lost": lambda folder: shutil.rmtree(folder),
    "first file lost": lambda folder: sorted(folder.iterdir())[0].unlink(),
    "last file lost": lambda folder: sorted(folder.iterdir())[-1].unlink(),
    "all zero": lambda folder: [file.write_bytes(bytes(EXT_FILE_SIZE)) for file in folder.iterdir()],
    "noise": lambda folder: [file.write_bytes(b"\x5a" * EXT_FILE_SIZE) for file in folder.iterdir()],
    "last file too long": lambda folder: sorted(folder.iterdir())[-1].write_bytes(bytes(EXT_FILE_SIZE + 1)),
    "foreign file": lambda folder: (folder / "notes.txt").write_bytes(b"x"),
}


@sampled(3)
@pytest.mark.parametrize("damage", DAMAGE)
def test_lost_or_damaged_extensions_lose_no_message_and_no_start(
    tmp_path: Path, closed: tuple[Path, list[Acknowledged]], damage: str
) -> None:
    source, acknowledged = closed
    path = tmp_path / "store"
    shutil.copytree(source, path)
    expected = {tags: read_all(path, tags) for tags in ("a", "ab", "c", "a || ab")}
    assert (len(expected["a"]), len(expected["ab"]), expected["c"]) == (2, 2, [])
    DAMAGE[damage](path / "consumequeue_ext/orders/0")
    assert {tags: read_all(path, tags) for tags in expected} == expected
    for number in (250, 251, 252):
        with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
            check_acknowledged(store, acknowledged)
            put(store, number)
            store.wait_dispatched()
            queue = next(q for q in store._queues.queues() if (q.topic, q.queue_id) == ("orders", number % 2))
            unit, ext = queue.unit(queue.max_offset - 1), queue.ext_unit(queue.max_offset - 1)
            assert unit is not None
            assert ext is not None
            message = store.look_message_by_offset(unit.commit_log_offset)
            assert message is not None
            assert ext.store_timestamp == message.store_timestamp
            for offset in range(queue.max_offset - 1):  # no older unit points to what was written since
                older = queue.ext_unit(offset)
                assert older is None or older.store_timestamp < message.store_timestamp
    assert {tags: read_all(path, tags)[: len(found)] for tags, found in expected.items()} == expected


def test_what_lies_behind_the_last_ext_unit_that_the_queue_knows_is_wiped_out(
    tmp_path: Path, closed: tuple[Path, list[Acknowledged]]
) -> None:
    path = tmp_path / "store"
    shutil.copytree(closed[0], path)
    (file,) = (path / "consumequeue/orders/0").iterdir()
    file.write_bytes(file.read_bytes()[: 2 * UNIT_SIZE].ljust(8 * UNIT_SIZE, b"\0"))  # 5 units are lost
    with reput.MessageStore.open(path, files=FaultyFiles(), **(OPTIONS | {"bit_maps": None})) as store:
        queue = next(queue for queue in store._queues.queues() if (queue.topic, queue.queue_id) == ("orders", 0))
        units = [queue.ext_unit(offset) for offset in range(queue.max_offset)]
    expected = Extension(EXT_FILE_SIZE)
    for unit in units:
        assert unit is not None
        expected.put(*unit)
    assert [len(unit.bit_map) > 0 for unit in units if unit] == [False, True] + [False] * 5
    files = [file.read_bytes() for file in sorted((path / "consumequeue_ext/orders/0").iterdir())]
    assert files == expected.files()


def test_a_store_opened_without_the_key_reads_addresses_writes_hashes_and_goes_on_later(
    tmp_path: Path, closed: tuple[Path, list[Acknowledged]]
) -> None:
    path = tmp_path / "store"
    shutil.copytree(closed[0], path)
    before = contents(path, "consumequeue_ext")
    off = OPTIONS | {"enable_consume_queue_ext": False, "mapped_file_size_consume_queue_ext": 4096}
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **off)
    for number in (20, 22):
        put(store, number)
    store.wait_dispatched()
    assert [len(get_all(store, tags)) for tags in ("a", "ab", "c")] == [3, 3, 0]
    abandon(store, files)
    files.abandon()
    assert contents(path, "consumequeue_ext") == before
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        put(store, 24)
        store.wait_dispatched()
    units = b"".join(file.read_bytes() for file in sorted((path / "consumequeue/orders/0").iterdir()))
    codes = [decode_unit(units, p).tags_code for p in range(0, 10 * UNIT_SIZE, UNIT_SIZE)]
    assert [code < -(2**31) for code in codes[:7]] == [True] * 7
    assert codes[9] < -(2**31)
    with pytest.raises(StoreFormatError, match=r"mappedFileSizeConsumeQueueExt=128 .*, or move the folder"):
        reput.MessageStore.open(path, **(OPTIONS | {"mapped_file_size_consume_queue_ext": 4096}))


def test_a_rebuild_gives_the_same_queues_and_extensions(
    tmp_path: Path, closed: tuple[Path, list[Acknowledged]]
) -> None:
    from reput.jobs.rebuild.job import rebuild
    from reput.jobs.runner import LocalRunner

    for split_bytes in (500, 1 << 20):
        output = tmp_path / str(split_bytes)
        rebuild(closed[0], output, runner=LocalRunner(2), split_bytes=split_bytes, bit_maps=BOTH["bit_maps"])  # type: ignore[arg-type]
        assert found_files(output) == expected_files(closed[0])


def test_an_extension_that_a_killed_store_made_is_on_the_disk_after_the_next_clean_exit(tmp_path: Path) -> None:
    def dies_behind_the_queues(operation: Operation) -> None:
        if operation.kind == "sync_directory" and operation.path.endswith("consumequeue_ext/orders"):
            raise Crash

    path, left = tmp_path / "store", tmp_path / "left"
    killed, files = FaultyFiles(dies_behind_the_queues), FaultyFiles()
    store = reput.MessageStore.open(path, files=killed, **OPTIONS | {"flush_interval_consume_queue": 1_000_000})
    for number in range(MESSAGES):
        put(store, number)
    store.wait_dispatched()
    with pytest.raises(Crash):
        store.close()
    killed.abandon()
    files.goes_on_after(killed)
    with reput.MessageStore.open(path, files=files, **OPTIONS):
        pass
    files.cut_power(path, left)
    check_files(left)
