"""A sink that was killed in the middle of a commit, and Apache RocketMQ that opens the store before reput does."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.files import DISK
from reput.formats.sink_commit import SinkBatch
from reput.log.sink_commits import read_sinks
from reput.store.sinks.commit import put_staged
from tests.support.invariants import SMALL, log_records
from tests.support.lives.sink import CONFIG, killed_in_the_middle
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import Apache
from tests.support.rocketmq.stores import each_store_version
from tests.support.rocketmq.witness import open_apache, told_by_apache, told_by_reput

pytestmark = pytest.mark.java


@each_store_version
@pytest.mark.parametrize(("messages", "is_killed"), [(20, False), (20, True), (0, True)])
def test_nothing_of_either_is_lost_and_the_batch_is_completed(
    apache: Apache, tmp_path: Path, messages: int, is_killed: bool
) -> None:
    path = tmp_path / "store"
    killed_in_the_middle(path)
    options = SMALL | {"flush_disk_type": "SYNC_FLUSH", "dispatch_rules": apache.version}
    open_apache(apache, path, options)
    if messages:
        results = apache.run("put", messages=workload.messages(messages, seed=9))
        assert all(result["status"] == "PUT_OK" for result in results)
    theirs = told_by_apache(apache)
    if is_killed:
        apache.kill()
    else:
        apache.run("close")
    with reput.MessageStore.open(path, **options) as store:
        assert told_by_reput(store) == theirs
    before = log_records(path)
    broken = read_sinks(DISK, str(path)).broken["shop"]
    done = put_staged(str(path), CONFIG, DISK, [], SinkBatch("shop", 2, "query"))
    assert done.rows == broken.intent.rows - broken.rows
    assert [record.offset for record in log_records(path)[: len(before)]] == [record.offset for record in before]
    third = [r.row["keys"].decode() for r in log_records(path) if r.row["store_timestamp"] == done.store_timestamp]
    first = [r.row["keys"].decode() for r in before if r.row["store_timestamp"] == broken.intent.store_timestamp]
    assert [*first, *third] == [f"1-{part}-{n}" for part, rows in enumerate((40, 25, 1)) for n in range(rows)]
