"""A process or a machine that ends, and a disk that fails once, at every single operation of a deletion."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError, StoreFullError, StoreSyncError
from tests.support.faulty_files import Crash, FaultyFiles, abandon, crash_at, fail_at, no_objection
from tests.support.lives.retention import (
    EXPIRED,
    OPTIONS,
    check_next_life,
    filled,
    killed,
    operations_of_a_deletion,
    start_on_a_full_disk,
)
from tests.support.retained import age, check_retained, files_in
from tests.support.shares import Share, in_shares

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_shares(3)
def test_a_crash_or_a_power_cut_at_any_operation_of_a_deletion_loses_nothing_that_has_not_expired(
    tmp_path: Path, share: Share
) -> None:
    operations = operations_of_a_deletion(tmp_path / "healthy")
    assert sum(operation.kind == "unlink" for operation in operations) == 6
    for number in share.of(range(len(operations))):
        path, without_power = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        store, files = filled(path)
        files.start(crash_at(number))
        with pytest.raises(Crash):
            store.delete_expired()
        files.cut_power(path, without_power)
        abandon(store, files)
        check_next_life(path)
        check_next_life(without_power)


@in_shares(3)
def test_an_operation_of_a_deletion_that_fails_once_is_told_and_made_good_by_the_next_run(
    tmp_path: Path, share: Share
) -> None:
    operations = operations_of_a_deletion(tmp_path / "healthy")
    for number, operation in share.of([*enumerate(operations)]):
        path = tmp_path / str(number)
        store, files = filled(path)
        files.start(fail_at(number, errno.EIO))
        with pytest.raises(StoreError, match="cannot"):
            store.delete_expired()
        files.judge = no_objection
        if operation.kind == "sync":  # the next sync would succeed without what this one has lost
            with pytest.raises(StoreSyncError):
                store.delete_expired()
            abandon(store, files)
            store = reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS)
            age(path, EXPIRED - store.min_commit_log_offset // 4096)  # what is written again is young again
        store.delete_expired()
        assert store.min_commit_log_offset == EXPIRED * 4096, operation
        check_retained(store, path)
        store.close()


def test_a_start_on_a_full_disk_deletes_expired_log_files_first(tmp_path: Path) -> None:
    files = killed(tmp_path / "store", is_behind=False)
    with start_on_a_full_disk(tmp_path / "store", files) as store:
        deleted = [file.path.rpartition("/")[2] for file in store.recovery.deleted_files]
        assert deleted == [f"{number * 4096:020}" for number in range(EXPIRED)]
        check_retained(store, tmp_path / "store")
        report = store.delete_expired()
        assert (report.commit_log_files, len(report.consume_queue_files), len(report.index_files)) == ([], 2, 1)
    check_next_life(tmp_path / "store")


def test_a_start_on_a_full_disk_keeps_log_files_that_are_not_dispatched(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = killed(path, is_behind=True)
    before = files_in(path)
    with pytest.raises(StoreFullError):
        start_on_a_full_disk(path, files)
    assert files_in(path) == before
    check_next_life(path)


def test_without_retention_a_start_on_a_full_disk_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = killed(path, is_behind=False)
    before = files_in(path)
    files.start(no_objection)
    with pytest.raises(StoreFullError):
        reput.MessageStore.open(path, files=files, **OPTIONS)
    assert files_in(path) == before
    check_next_life(path)


@in_shares(3)
def test_a_crash_or_a_power_cut_in_a_start_on_a_full_disk_loses_nothing_that_has_not_expired(
    tmp_path: Path, share: Share
) -> None:
    healthy = killed(tmp_path / "healthy", is_behind=False)
    with start_on_a_full_disk(tmp_path / "healthy", healthy):
        operations = len(healthy.operations) - healthy.begin
    for number in share.of(range(operations)):
        path, without_power = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        files = killed(path, is_behind=False)
        with pytest.raises(Crash):
            start_on_a_full_disk(path, files, crash_at(number)).close()
        files.cut_power(path, without_power)
        files.abandon()
        check_next_life(path)
        check_next_life(without_power)
