"""A process or a machine that ends, and a disk that fails once, at every single operation of a deletion."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError, StoreSyncError
from tests.support.faulty_files import Crash, FaultyFiles, abandon, crash_at, fail_at, no_objection
from tests.support.lives.retention import (
    EXPIRED,
    OPTIONS,
    check_next_life,
    filled,
    operations_of_a_deletion,
)
from tests.support.retained import age, check_retained
from tests.support.shares import in_shares

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_shares(3)
def test_a_crash_or_a_power_cut_at_any_operation_of_a_deletion_loses_nothing_that_has_not_expired(
    tmp_path: Path, share: slice
) -> None:
    operations = operations_of_a_deletion(tmp_path / "healthy")
    assert sum(operation.kind == "unlink" for operation in operations) == 6
    for number in range(len(operations))[share]:
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
    tmp_path: Path, share: slice
) -> None:
    operations = operations_of_a_deletion(tmp_path / "healthy")
    for number, operation in [*enumerate(operations)][share]:
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
