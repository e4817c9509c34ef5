"""Our retention on a store that RocketMQ wrote leaves what RocketMQ's own left of one with the same records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import reput
from tests.support.faulty_files import FaultyFiles
from tests.support.golden import CORPORA, options, truth
from tests.support.retained import age, check_retained

CASE = "5.3.3/retention"
#: How many log files RocketMQ found expired.
EXPIRED = 4


class Disk(FaultyFiles):
    def disk_used_percent(self, path: str) -> int:
        return 20


def names(store: Path) -> set[str]:
    """Log and queue files; an index file is named by the time of its creation."""
    return {
        str(file.relative_to(store))
        for part in ("commitlog", "consumequeue")
        for file in (store / part).rglob("*")
        if file.is_file()
    }


def index_sizes(store: Path) -> list[bytes]:
    """Of each index file the offsets that it begins and ends at, its slots and entries."""
    return [file.read_bytes()[16:40] for file in sorted((store / "index").iterdir())]


@pytest.mark.parametrize("in_parts", [False, True], ids=["at once", "file by file, reopened in between"])
def test_the_same_files_offsets_and_messages_remain(tmp_path: Path, in_parts: bool) -> None:
    path, apaches = tmp_path / "store", CORPORA / CASE / "store"
    shutil.copytree(CORPORA / "before_retention" / "store", path)
    settings = options(CASE) | {"delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0}
    for count in [1] * EXPIRED if in_parts else [EXPIRED]:
        with reput.MessageStore.open(path, files=Disk(), **settings) as store:
            age(path, count)
            assert len(store.delete_expired().commit_log_files) == count
    assert names(path) == names(apaches)
    assert index_sizes(path) == index_sizes(apaches)
    expected = truth(CASE)
    with reput.MessageStore.open(path, files=Disk(), **settings) as store:
        assert (store.min_commit_log_offset, store.max_commit_log_offset) == expected.ends
        found = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in store.queues()}
        assert found == expected.queues
        for queue, messages in expected.messages.items():
            offset = expected.queues[queue][0]
            got: list[int] = []
            while (result := store.get_message(*queue, offset)).status.name == "FOUND":
                got += [message.commit_log_offset for message in result.messages()]
                offset = result.next_begin_offset
            assert got == [int(fields[3]) for fields in messages]
        for topic, queue_id, offset, status, following in expected.nothing:
            result = store.get_message(topic, queue_id, offset)
            assert (result.status.name, result.next_begin_offset) == (status, following)
        check_retained(store, path)
