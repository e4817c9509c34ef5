"""A file that the loop changes and another thread writes."""

import errno
import shutil

import pytest

from reput.errors import CorruptMetadataError, StoreFullError
from reput.formats.metadata import ConsumerOffsets, decode_metadata
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.store import config_files
from tests.support.faulty_files import Crash, FaultyFiles, crash_at, fail_next

NOW_MS = 1_700_000_000_000


def manager_at(root, files=None):
    return ConsumerOffsetManager(str(root), files or FaultyFiles())


def offset_in(root):
    """The offset that a new start reads; -1 without one."""
    return manager_at(root).query_offset("g", "t", 0)


def test_nothing_is_to_be_written_before_a_change_or_after_it_is_written(tmp_path):
    manager = manager_at(tmp_path)
    assert manager.snapshot() is None
    manager.commit_offset("g", "t", 0, 7, NOW_MS)
    manager.persist(manager.snapshot())
    assert manager.snapshot() is None
    assert offset_in(tmp_path) == 7


def test_the_first_write_after_a_start_checks_what_is_new_alone(tmp_path, monkeypatch):
    """What the start has read is whole."""
    manager = manager_at(tmp_path)
    manager.commit_offset("g", "t", 0, 7, NOW_MS)
    manager.persist(manager.snapshot())
    before = (tmp_path / "config/consumerOffset.json").read_bytes()
    monkeypatch.setattr(config_files, "_whole", {})  # as in another process
    manager, checked = manager_at(tmp_path), []
    monkeypatch.setattr(config_files, "decode_metadata", lambda _, data: checked.append(data))
    manager.commit_offset("g", "t", 0, 8, NOW_MS)
    manager.persist(manager.snapshot())
    assert len(checked) == 1
    assert (tmp_path / "config/consumerOffset.json.bak").read_bytes() == before


def test_a_snapshot_does_not_see_later_changes(tmp_path):
    manager = manager_at(tmp_path)
    manager.commit_offset("g", "t", 0, 7, NOW_MS)
    snapshot = manager.snapshot()
    manager.commit_offset("g", "t", 0, 8, NOW_MS)
    manager.commit_offset("g", "t", 1, 9, NOW_MS)
    manager.persist(snapshot)
    assert decode_metadata(
        ConsumerOffsets, (tmp_path / "config" / "consumerOffset.json").read_bytes()
    ).offset_table == {"t@g": {0: 7}}
    assert manager.snapshot().content.offset_table == {"t@g": {0: 8, 1: 9}}


def test_an_older_snapshot_does_not_replace_a_newer_one(tmp_path):
    manager = manager_at(tmp_path)
    manager.commit_offset("g", "t", 0, 7, NOW_MS)
    older = manager.snapshot()
    manager.commit_offset("g", "t", 0, 8, NOW_MS)
    manager.persist(manager.snapshot())
    manager.persist(older)
    assert offset_in(tmp_path) == 8
    assert manager.snapshot() is None


def test_what_a_full_disk_refused_is_in_the_next_snapshot(tmp_path):
    files = FaultyFiles()
    manager = manager_at(tmp_path, files)
    manager.commit_offset("g", "t", 0, 7, NOW_MS)
    files.judge = fail_next("write", errno.ENOSPC, part="consumerOffset")
    with pytest.raises(StoreFullError):
        manager.persist(manager.snapshot())
    assert offset_in(tmp_path) == -1
    manager.persist(manager.snapshot())
    assert offset_in(tmp_path) == 7


def test_a_kill_at_any_operation_leaves_the_old_offsets_or_the_new_ones(tmp_path):
    root = tmp_path / "store"
    first = manager_at(root)
    first.commit_offset("g", "t", 0, 7, NOW_MS)
    first.persist(first.snapshot())
    for number in range(100):
        work = tmp_path / str(number)
        shutil.copytree(root, work)
        manager = manager_at(work, FaultyFiles(crash_at(number)))
        manager.commit_offset("g", "t", 0, 8, NOW_MS)
        try:
            manager.persist(manager.snapshot())
        except Crash:
            assert offset_in(work) in (7, 8)
        else:
            assert offset_in(work) == 8
            break
    assert number > 5


def test_a_power_cut_after_the_write_loses_nothing(tmp_path):
    root, files = tmp_path / "store", FaultyFiles()
    root.mkdir()
    manager = manager_at(root, files)
    for offset in (7, 8):
        manager.commit_offset("g", "t", 0, offset, NOW_MS)
        manager.persist(manager.snapshot())
    files.cut_power(root, tmp_path / "after")
    assert offset_in(tmp_path / "after") == 8


def test_the_backup_serves_where_the_file_is_damaged(tmp_path):
    manager = manager_at(tmp_path)
    for offset in (7, 8):
        manager.commit_offset("g", "t", 0, offset, NOW_MS)
        manager.persist(manager.snapshot())
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:30])
    assert offset_in(tmp_path) == 7
    path.with_name("consumerOffset.json.bak").write_bytes(b"{")
    with pytest.raises(CorruptMetadataError, match=r"consumerOffset.json: damaged at offset 30"):
        manager_at(tmp_path)


def test_each_write_reads_what_it_writes_and_what_was_there_only_where_others_have_written_it(tmp_path, monkeypatch):
    read = []

    def decode(kind, data):
        read.append(data)
        return decode_metadata(kind, data)

    monkeypatch.setattr("reput.store.config_files.decode_metadata", decode)
    manager, file = manager_at(tmp_path), tmp_path / "config/consumerOffset.json"
    for offset in range(3):
        manager.commit_offset("g", "t", 0, offset, NOW_MS)
        manager.persist(manager.snapshot())
        assert read.pop() == file.read_bytes()
        assert not read
    by_others = file.read_bytes().replace(b"2", b"7")
    file.write_bytes(by_others)
    manager.commit_offset("g", "t", 0, 9, NOW_MS)
    manager.persist(manager.snapshot())
    assert read == [file.read_bytes(), by_others]
