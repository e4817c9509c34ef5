"""Invariants of a store whose oldest log files are gone, by the bytes that are left."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import reput
from tests.oracles.record_scan import keys_of
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import log_records

WEEK_S = 7 * 86_400


class RoomyFiles(FaultyFiles):
    """On a disk with much room, however full the machine's is: files go by their age alone."""

    def disk_used_percent(self, path: str) -> int:
        return 20


def age(store: Path, count: int) -> None:
    """Make the first log files a week old."""
    for file in sorted((store / "commitlog").iterdir())[:count]:
        status = file.stat()
        os.utime(file, (status.st_atime - WEEK_S, status.st_mtime - WEEK_S))


def files_in(store: Path) -> set[Path]:
    """The files of the log, the queues and the index."""
    return {
        file for part in ("commitlog", "consumequeue", "index") for file in (store / part).rglob("*") if file.is_file()
    }


def check_retained(store: reput.MessageStore, path: Path) -> None:
    """Every record that is in the log is served by queue, by offset and by key, and nothing else is."""
    store.wait_dispatched()
    queues: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    keys: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in log_records(path):
        message = store.look_message_by_offset(record.offset)
        assert message is not None
        assert message.body == record.row["body"]
        if record.has_unit:
            queues[record.queue].append((record.row["queue_offset"], record.offset))
        for key in keys_of(record.row):
            keys[record.queue[0], key.decode()].append(record.offset)
    assert store.min_commit_log_offset == min((int(file.name) for file in (path / "commitlog").iterdir()), default=0)
    for queue in store.queues():
        units = queues.pop((queue.topic, queue.queue_id), [])
        first, end = (units[0][0], units[-1][0] + 1) if units else (queue.max_offset, queue.max_offset)
        assert (queue.min_offset, queue.max_offset) == (first, end)
        got: list[tuple[int, int]] = []
        offset = first
        while offset < end:
            result = store.get_message(queue.topic, queue.queue_id, offset)
            got += [(message.queue_offset, message.commit_log_offset) for message in result.messages()]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
        assert got == units
        if first:
            assert store.get_message(queue.topic, queue.queue_id, first - 1).status.name in (
                "OFFSET_TOO_SMALL",
                "OFFSET_OVERFLOW_BADLY",
            )
    assert not queues, f"queues without units: {sorted(queues)}"
    for topic in {topic for topic, _ in keys}:
        # A record can carry a key twice.
        wanted = {key: sorted(set(offsets)) for (name, key), offsets in keys.items() if name == topic}
        found = store.query_messages(topic, list(wanted), max_num=1000)
        assert {key: [message.commit_log_offset for message in messages] for key, messages in found.items()} == wanted
