"""Stores as large as operators have them: many queues, a log of a terabyte. They take few descriptors and maps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import reput
from reput.files import DISK
from reput.formats.paths import offset_to_file_name
from reput.formats.record import encode_blank
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.store.log.mapped_file_queue import MappedFileQueue
from tests.support.invariants import SMALL, contents, log_records

MESSAGES = 50
GIB = 1 << 30


def sparse_log(path: Path, file_size: int, count: int, used: Iterable[int], **options: object) -> None:
    """A cleanly closed store of `count` log files, some with 50 messages; a blank record closes all but the last."""
    log = path / "commitlog"
    for number, file in enumerate(sorted(used)):
        for closed in range(len(os.listdir(log)) if log.exists() else 0, file):
            log.mkdir(parents=True, exist_ok=True)
            _close_file(log / offset_to_file_name(closed * file_size), 0, file_size)
        with reput.MessageStore.open(path, mapped_file_size_commit_log=file_size, **options) as store:
            for i in range(MESSAGES):
                key = f"key-{number}-{i}"
                store.put_message(reput.Message("orders", f"{number} {i}".encode(), keys=[key]), i % 2)
            end = store.max_commit_log_offset
        if file < count - 1:
            _close_file(log / offset_to_file_name(file * file_size), end - file * file_size, file_size)


def _close_file(path: Path, position: int, size: int) -> None:
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(size)
        file.seek(position)
        file.write(encode_blank(size - position))


READ_SPARSE_LOG = """
import gc, json, os, sys, time
import reput
MESSAGES, file_size, stores = json.loads(sys.argv[1])
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

def most_resident_mb():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

def log_maps(path):
    with open("/proc/self/maps") as lines:
        return sum(f"{path}/commitlog/" in line for line in lines)

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def read(path, files, used):
    gc.collect()  # a store that is closed is in cycles, and its memory is not this one's
    before = most_resident_mb(), descriptors()
    started = time.process_time()
    with reput.MessageStore.open(path, mapped_file_size_commit_log=file_size) as store:
        seconds = time.process_time() - started
        opened = {"seconds": seconds, "maps": log_maps(path), "descriptors": descriptors() - before[1]}
        assert store.max_commit_log_offset > (files - 1) * file_size
        last = len(used) - 1
        for number in (0, last // 2, last):
            key = f"key-{number}-7"
            [message] = store.query_message("orders", key)
            assert message.body == f"{number} 7".encode() and message.commit_log_offset // file_size == used[number]
            assert store.look_message_by_offset(message.commit_log_offset).keys == (key,)
        keys = [f"key-{number}-{i}" for number in range(len(used)) for i in range(MESSAGES)]
        found = store.query_messages("orders", keys)
        assert [[message.keys for message in found[key]] for key in keys] == [[(key,)] for key in keys]
        queue = store.max_offset("orders", 0)
        assert queue == len(used) * MESSAGES // 2
        assert store.get_message("orders", 0, 0).messages()[0].body == b"0 0"
        assert store.get_message("orders", 0, queue - 1).messages()[0].body == f"{last} {MESSAGES - 2}".encode()
        assert store.get_message("orders", 0, MESSAGES // 2 - 2).next_begin_offset == MESSAGES // 2  # ends with a file
        when = found[keys[-1]][0].store_timestamp
        assert store.offset_by_time("orders", 0, when + 1) == queue
        used_maps, used_descriptors = log_maps(path), descriptors() - before[1]
        was_killed = store.recovery.was_killed
    ends = ["key-0-3", f"key-{last}-3"]
    if not was_killed:
        rows = reput.read_log(path, columns=["commit_log_offset"], keys=ends, end=when).read_all().to_pylist()
        assert [row["commit_log_offset"] // file_size for row in rows] == [0, files - 1]
    return opened | {
        "was_killed": was_killed, "used_maps": used_maps, "used_descriptors": used_descriptors,
        "added_mb": most_resident_mb() - before[0],
    }

print(json.dumps([read(*store) for store in stores]))
"""


class SparseLog(NamedTuple):
    """A store of `sparse_log` with files of 1 GiB."""

    path: str
    files: int
    used: list[int]


def read_sparse_logs(*stores: SparseLog) -> list[dict[str, float]]:
    """Everything that is read of such stores, one after the other in a process of its own; what each took.

    The memory of the first has the libraries and the kernels, too, the memory of the second what it takes more.
    """
    arguments = [sys.executable, "-c", READ_SPARSE_LOG, json.dumps([MESSAGES, GIB, stores])]
    root = Path(__file__).parents[4]
    done = subprocess.run(arguments, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_sparse_log_of_a_terabyte_is_opened_read_and_cleaned_with_few_maps_and_little_memory(tmp_path: Path) -> None:
    files, used, path = 1000, [0, 650, 999], tmp_path / "store"
    large = SparseLog(str(path), files, used)
    small = [
        SparseLog(str(tmp_path / name), 3, [0, 1, 2]) for name in ("small", "another")
    ]  # any second one takes more
    for log in (*small, large):
        sparse_log(Path(log.path), GIB, log.files, log.used)
    assert sum(file.stat().st_size for file in (path / "commitlog").iterdir()) == files * GIB
    for killed in (False, True):
        if killed:
            for log in (*small, large):
                (Path(log.path) / "abort").touch()
        *_, found = read_sparse_logs(*small, large)
        assert found["was_killed"] == killed
        assert found["maps"] <= 1
        assert found["descriptors"] <= 8
        assert found["used_maps"] <= len(used)
        assert found["used_descriptors"] <= 8
        assert found["added_mb"] < 20
        assert found["seconds"] < 5  # of the processor: the machine may be busy
    for file in sorted((path / "commitlog").iterdir()):
        os.utime(file, (0, 0))
    with reput.MessageStore.open(path, delete_commit_log_files_interval=0, delete_file_batch_max=files) as store:
        deleted = store.delete_expired().commit_log_files
        assert [file.size for file in deleted] == [GIB] * (files - 1)
        assert store.min_commit_log_offset == (files - 1) * GIB
        assert [m.body for m in store.query_message("orders", "key-2-7")] == [b"2 7"]
        assert store.query_message("orders", "key-0-7") == []
        for queue_id in range(2):
            first = store.get_message("orders", queue_id, store.min_offset("orders", queue_id)).messages()[0]
            assert (first.body, first.queue_offset) == (f"2 {queue_id}".encode(), MESSAGES)
    assert len(list((path / "commitlog").iterdir())) == 1


def test_queries_over_a_log_of_many_files_find_what_queries_over_few_find(tmp_path: Path) -> None:
    options = {**SMALL, "mapped_file_size_commit_log": 16384, "max_index_num": 10_000}
    path = tmp_path / "store"
    sparse_log(path, 16384, 80, [0, 40, 79], **{k: v for k, v in options.items() if k != "mapped_file_size_commit_log"})
    with reput.MessageStore.open(path, **options) as store:  # type: ignore[arg-type]
        found = [
            [m.body for m in store.query_message("orders", f"key-{n}-{i}")] for n in range(3) for i in range(MESSAGES)
        ]
    assert found == [[f"{n} {i}".encode()] for n in range(3) for i in range(MESSAGES)]


MANY_QUEUES = """
import gc, json, os, sys, time
import pyarrow as pa
import resource
import reput
path, topics, ids, deed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
sizes = {"mapped_file_size_consume_queue": 400, "mapped_file_size_commit_log": 4 << 20}
options = {"flush_disk_type": "ASYNC_FLUSH", **sizes}

def table(rows):
    names = [f"topic-{i % topics}" for i in range(rows)]
    queues = pa.array([i // topics % ids for i in range(rows)], pa.int32())
    return pa.table({"topic": names, "queue_id": queues, "body": [b"%d" % i for i in range(rows)]})

with reput.MessageStore.open(path, **options) as store:
    for _ in range(3):
        store.put_arrow(table(topics * ids))
        store.wait_dispatched(timeout=60)
    store.put_message(reput.Message("topic-3", b"last"), 1)
    store.wait_dispatched(timeout=60)
    for topic in range(topics):
        for queue in range(ids):
            got = store.get_message(f"topic-{topic}", queue, store.max_offset(f"topic-{topic}", queue) - 3)
            bodies = [message.body for message in got.messages()]
            body = b"%d" % (queue * topics + topic)
            assert bodies == ([body, body, b"last"] if (topic, queue) == (3, 1) else [body] * 3), (topic, queue, bodies)
    if deed == "kill":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_many_queues_are_filled_closed_killed_and_opened_again_with_few_descriptors(tmp_path: Path) -> None:
    topics, ids, path = 30, 5, tmp_path / "store"  # more queues than descriptors

    def live(deed: str) -> None:
        arguments = [sys.executable, "-c", MANY_QUEUES, str(path), str(topics), str(ids), deed]
        done = subprocess.run(arguments, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
        assert done.returncode == (-9 if deed == "kill" else 0), done.stderr

    deeds = ["close", "kill", "close"]
    for deed in deeds:
        live(deed)
    lives = len(deeds)
    sizes = {"mapped_file_size_consume_queue": 400, "mapped_file_size_commit_log": 4 << 20}
    with reput.MessageStore.open(path, **sizes) as store:  # type: ignore[arg-type]
        assert not store.recovery.was_killed
        assert store.recovery.dispatched_records == 0
        queues = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    assert len(queues) == topics * ids
    assert queues.pop(("topic-3", 1)) == 4 * lives
    assert set(queues.values()) == {3 * lives}
    before = contents(path, "consumequeue")
    rebuilt = tmp_path / "rebuilt"
    rebuild(path, rebuilt, runner=LocalRunner(), index=False)
    assert contents(rebuilt, "consumequeue") == before
    assert len(log_records(path)) == lives * (3 * topics * ids + 1)


def test_a_file_is_mapped_although_its_descriptor_was_closed_in_between(tmp_path: Path) -> None:
    """The flush thread closes it once the file is full and synced, and readers do not ask when that is."""
    queue = MappedFileQueue(DISK, [str(tmp_path)], 4096, writable=True)
    file = queue.next_file()
    file.file.close()
    file.view[:3] = b"abc"
    assert (tmp_path / offset_to_file_name(0)).read_bytes()[:4] == b"abc\0"
    queue.close()


def test_rows_go_on_in_the_next_file_where_files_are_as_large_as_they_may_be(tmp_path: Path) -> None:
    size, left = (1 << 31) - 1, 500
    with reput.MessageStore.open(tmp_path / "store", mapped_file_size_commit_log=size) as store:
        log = store._log
        assert store._writer is not None
        store._writer.reput.reput_from_offset = size - left
        log.queue.append_file(log.queue.next_file())
        log.start_at(size - left)  # as if so much had been put: the file is a hole
        assert store.put_arrow(pa.table({"topic": ["t"] * 6, "body": [bytes(100)] * 6})).end_offset > size
        store.wait_dispatched()
        assert store.max_offset("t", 0) == 6
