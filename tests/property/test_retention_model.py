"""Retention against a model of it: whatever is put, aged, deleted, closed and killed, what has not expired stays."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from tests.support.examples import examples
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import SMALL
from tests.support.retained import age, check_retained

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

FILE_SIZE = 4096
STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 25), st.integers(0, 900)),
    st.tuples(st.just("age"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["delete", "close", "kill"])),
)


class Disk(FaultyFiles):
    def disk_used_percent(self, path: str) -> int:
        return 20


def open_store(path: Path, files: FaultyFiles, flush_disk_type: str) -> reput.MessageStore:
    options = SMALL | {"delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0}
    return reput.MessageStore.open(path, files=files, flush_disk_type=flush_disk_type, **options)


@settings(max_examples=examples(25), deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=10), flush_disk_type=st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]))
def test_what_has_not_expired_stays_and_what_has_goes(steps: list[tuple], flush_disk_type: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, files = Path(folder) / "store", Disk()
        store = open_store(path, files, flush_disk_type)
        first_file = expired = number = 0  # numbers of files: the oldest one, and the first that has not expired
        for step, *arguments in [*steps, ("delete",), ("close",)]:
            if step == "put":
                count, size = arguments
                for _ in range(count):
                    number += 1
                    message = reput.Message("ab"[number % 2], bytes(size), keys=[f"k{number}"])
                    store.put_message(message, number % 3)
                store.wait_dispatched()
            elif step == "age":
                last = max(store.max_commit_log_offset - 1, 0) // FILE_SIZE  # it may be written to again
                count = max(min(arguments[0], last - expired), 0)
                age(path, expired - first_file + count)
                expired += count
            elif step == "delete":
                durable = min(store.flushed_offset, store.max_commit_log_offset - store.dispatch_behind_bytes)
                report = store.delete_expired()
                assert len(report.commit_log_files) <= expired - first_file
                if durable >= expired * FILE_SIZE:
                    assert len(report.commit_log_files) == expired - first_file
                first_file += len(report.commit_log_files)
            else:
                if step == "close":
                    store.close()
                else:
                    abandon(store, files)
                files = Disk()
                store = open_store(path, files, flush_disk_type)
                assert store.recovery.was_killed == (step == "kill")
            assert store.min_commit_log_offset == (first_file * FILE_SIZE if number else 0)
            check_retained(store, path)
        store.close()
