"""kill -9 at random moments: what was acknowledged before is there afterwards, and everything agrees with the log."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

import reput
from tests.crash.faulty_files import FaultyFiles
from tests.crash.invariants import Acknowledged, Record, check_acknowledged, check_rebuild, check_store, contents
from tests.crash.writer import OPTIONS, body_of, write_and_kill

KILLS = 2


def with_places(lines: list[tuple[str, int, int, int, str]], records: list[Record]) -> list[Acknowledged]:
    """The acknowledgements; a row of a table does not know its commit log offset, and takes it from the log."""
    place_of = {(*record.queue, record.row["queue_offset"]): record.offset for record in records}
    return [
        Acknowledged(topic, queue, offset, place_of[topic, queue, offset] if place < 0 else place, key, body_of(key))
        for topic, queue, offset, place, key in lines
    ]


def check_prefixes(records: list[Record]) -> None:
    """Of each table that was cut off, the first rows are there, in their order."""
    rows: dict[str, list[int]] = defaultdict(list)
    for record in records:
        table, _, row = record.row["keys"].decode().rpartition("-")
        rows[table].append(int(row))
    for table, found in rows.items():
        assert found == list(range(len(found))), table


@pytest.mark.parametrize("way", ["single", "table"])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_kill_at_a_random_moment_loses_nothing_acknowledged(tmp_path: Path, flush_disk_type: str, way: str) -> None:
    killed, lines = tmp_path / "killed", []
    options = OPTIONS | {"flush_disk_type": flush_disk_type}
    for kill in range(KILLS):
        lines += write_and_kill(killed, way, 10 * kill + len(way) + len(flush_disk_type), options)
        path = tmp_path / f"recovered-{kill}"
        shutil.copytree(killed, path)
        assert (path / "abort").exists()
        with reput.MessageStore.open(path, files=FaultyFiles(), **options):
            pass
        records = check_store(path, options)
        after = contents(path)
        with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
            assert not store.recovery.was_killed
            assert store.recovery.dispatched_records == 0
            check_acknowledged(store, with_places(lines, records))
        assert contents(path) == after
        check_rebuild(path, tmp_path / f"rebuilt-{kill}", options)
        if way == "table":
            check_prefixes(records)
