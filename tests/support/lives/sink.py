"""Lives of a sink: batch after batch is staged and committed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ReputError
from reput.files import DISK, FileLayer
from reput.formats.sink_commit import STAGING, SinkBatch, SinkCommit, StagedPart
from reput.log.sink_commits import read_sinks
from reput.store.sinks.commit import check_store as check_opens
from reput.store.sinks.commit import put_staged
from reput.store.sinks.staging import StagingFile
from tests.support.faulty_files import Crash, FaultyFiles, Judge, Operation, no_objection
from tests.support.invariants import SMALL, Record, check_store, log_records

CONFIG = MessageStoreConfig.from_mapping(SMALL, MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH))
#: Rows of each part of each batch: one spans files, one has no row, one is small.
BATCHES: Sequence[Sequence[int]] = ((3, 2), (40, 25, 1), (), (2,))


def rows_of(batch: int, part: int, rows: int) -> pa.RecordBatch:
    numbers = range(rows)
    return pa.record_batch(
        {
            "topic": [("orders", "refunds")[n % 2] for n in numbers],
            "queue_id": pa.array([n % 3 for n in numbers], pa.int32()),
            "keys": [[f"{batch}-{part}-{n}"] for n in numbers],
            "body": [b"%d" % n * (n % 90) for n in numbers],
        }
    )


def stage(path: Path, batch: int) -> list[StagedPart]:
    """Staged parts of a batch's tasks; a second try has other files."""
    files = FaultyFiles()
    folder = path / STAGING / str(batch)
    shutil.rmtree(folder, ignore_errors=True)
    files.make_directories(str(folder))
    parts = []
    for part, rows in enumerate(BATCHES[batch]):
        with StagingFile(files, str(folder / str(part)), CONFIG) as staging:
            staging.write(staging.check(rows_of(batch, part, rows), 0))
            assert staging.part is not None
            parts.append(staging.part)
    return parts


def keys_of(batches: Sequence[int]) -> list[str]:
    return [f"{batch}-{part}-{n}" for batch in batches for part, rows in enumerate(BATCHES[batch]) for n in range(rows)]


def keys_in(records: Sequence[Record]) -> list[str]:
    return [record.row["keys"].decode() for record in records]


def write_batches(path: Path, files: FileLayer, begin: int = 0) -> list[SinkCommit]:
    """Write as a stream does: every batch in turn, from one on."""
    check_opens(str(path), CONFIG, files, lock_timeout_ms=0)
    return [
        put_staged(str(path), CONFIG, files, stage(path, batch), SinkBatch("shop", batch, "query"))
        for batch in range(begin, len(BATCHES))
    ]


def live(path: Path, judge: Judge) -> tuple[FaultyFiles, list[ReputError]]:
    """Write all batches under a judge, up to the first error."""
    files, errors = FaultyFiles(judge), []
    try:
        write_batches(path, files)
    except Crash:
        pass
    except ReputError as error:
        errors.append(error)
    files.abandon()
    return files, errors


def check_next_life(path: Path) -> None:
    """Whatever happened: after a start whole batches are there, and when the last one is written again, all once."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL):
        pass
    found = keys_in(check_store(path))
    whole = [keys_of(range(count)) for count in range(len(BATCHES) + 1)]
    assert found in whole, "a batch is there in part"
    sinks = read_sinks(DISK, str(path))
    assert sinks.intent is None
    commit = sinks.commits.get("shop")
    last = commit.batch.batch_id if commit is not None and commit.batch is not None else -1
    assert found == whole[last + 1], "the log and the commits say different things"
    write_batches(path, FaultyFiles(), max(last, 0))  # Spark's own commit may be missing: the last batch comes again
    assert keys_in(check_store(path)) == whole[-1]


def count_operations(path: Path) -> int:
    files, errors = live(path, no_objection)
    assert not errors
    records = check_store(path)
    assert keys_in(records) == keys_of(range(len(BATCHES)))
    assert len(list((path / "commitlog").iterdir())) >= 3
    return len(files.operations)


def killed_in_the_middle(path: Path) -> None:
    """Two batches, and the first records of a third."""
    write_some(path, (0, 1))
    break_off(path, 2)
    assert keys_in(log_records(path))[len(keys_of((0, 1))) :], "no record of the third batch is in the log"


def break_off(path: Path, batch_id: int) -> None:
    """A batch is begun, and its writer is killed at its second part."""
    parts = stage(path, 1)
    writes = []

    def judge(operation: Operation) -> None:
        if operation.kind == "write" and "commitlog" in operation.path:
            writes.append(operation)
            if len(writes) > 2:
                raise Crash

    files = FaultyFiles(judge)
    with pytest.raises(Crash):
        put_staged(str(path), CONFIG, files, parts, SinkBatch("shop", batch_id, "query"))
    files.abandon()


def write_some(path: Path, batches: Sequence[int]) -> None:
    check_opens(str(path), CONFIG, DISK, lock_timeout_ms=0)
    for batch in batches:
        put_staged(str(path), CONFIG, DISK, stage(path, batch), SinkBatch("shop", batch, "query"))
