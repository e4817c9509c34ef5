"""What RocketMQ has changed since 5.3.3, by its own classes: rows of docs/design/differences.md name the versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import reput
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import FaultyFiles
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import EACH_STORE, Apache
from tests.support.rocketmq.stores import DERIVED, SMALL, Options
from tests.support.rocketmq.witness import Told, open_apache, told_by_apache

pytestmark = pytest.mark.java

each_version = pytest.mark.parametrize("apache", EACH_STORE, indirect=True)
FILE_SIZE = SMALL["mapped_file_size_commit_log"]
#: `commitLogRecoverMaxNum`.
LOOKED_AT = 10


def log_without_the_rest(path: Path, options: Options) -> None:
    """A log of more files than a start of 5.4.0 looks at, whose queues, index and checkpoint are gone."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        workload.put(store, workload.messages(600))
        assert store.max_commit_log_offset > (LOOKED_AT + 2) * FILE_SIZE
    for name in DERIVED:
        shutil.rmtree(path / name, ignore_errors=True)
    (path / "checkpoint").unlink()


def told_after_a_start(apache: Apache, path: Path, options: Options) -> Told:
    open_apache(apache, path, options)
    told = told_by_apache(apache)
    apache.run("close")
    return told


def in_queues(told: Told) -> list[int]:
    """The offsets of records that consumers get."""
    return sorted(one["commit_log_offset"] for queue in told.queues.values() for one in queue.messages)


@each_version
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_since_5_4_0_a_start_builds_the_queues_of_the_last_ten_log_files_alone_and_a_rebuild_all(
    apache: Apache, killed: bool, tmp_path: Path
) -> None:
    options = SMALL | {"max_index_num": 4000}
    path = tmp_path / "store"
    log_without_the_rest(path, options)
    if killed:
        (path / "abort").touch()
    further, rebuilt = (shutil.copytree(path, tmp_path / name) for name in ("further", "rebuilt"))
    files = sorted(int(file.name) for file in (path / "commitlog").iterdir())
    told = told_after_a_start(apache, path, options)
    looked_at = files[-LOOKED_AT] if apache.version >= "5.4" else 0
    assert in_queues(told) == [offset for offset in told.records if offset >= looked_at]
    every = sorted(told.records)
    assert in_queues(told_after_a_start(apache, further, options | {"commit_log_recover_max_num": 1000})) == every
    sizes = {name: options[name] for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")}
    (rebuilt / "abort").unlink(missing_ok=True)
    rebuild(rebuilt, None, runner=LocalRunner(1), **sizes)
    assert in_queues(told_after_a_start(apache, rebuilt, options)) == every


@each_version
def test_up_to_5_3_3_a_put_whose_sync_fails_is_answered_put_ok(apache: Apache, tmp_path: Path) -> None:
    open_apache(apache, tmp_path, SMALL | {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout": 30_000})
    first, second, third = workload.messages(3)
    statuses = [apache.run("put", messages=[first])[0]["status"]]
    apache.run("fail-syncs")
    statuses += [apache.run("put", messages=[one])[0]["status"] for one in (second, third)]
    apache.kill()
    unsynced = "FLUSH_DISK_TIMEOUT" if apache.version >= "5.4" else "PUT_OK"
    assert statuses == ["PUT_OK", unsynced, unsynced]


@each_version
def test_since_5_4_0_the_old_json_file_is_the_backup_itself_and_no_copy(apache: Apache, tmp_path: Path) -> None:
    path, backup = tmp_path / "topics.json", tmp_path / "topics.json.bak"
    apache.run("persist", path=str(path), text="one")
    inode = path.stat().st_ino
    apache.run("persist", path=str(path), text="two")
    assert (path.read_text(), backup.read_text()) == ("two", "one")
    # 5.3.3 writes over the old one, 4.9.7 renames a new one: without a sync a power cut may leave neither.
    assert (path.stat().st_ino == inode) == (apache.version == "5.3.3")
    assert (backup.stat().st_ino == inode) == (apache.version >= "5.4")
