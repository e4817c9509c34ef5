"""kill -9 at random moments: what was acknowledged before is there afterwards, and everything agrees with the log."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import reput
from tests.crash.faulty_files import FaultyFiles
from tests.crash.invariants import Acknowledged, Record, check_acknowledged, check_rebuild, check_store, contents
from tests.crash.writer import OPTIONS, body_of

ROOT = Path(__file__).parents[2]
KILLS = 2


def write_and_kill(store: Path, flush_disk_type: str, way: str, seed: int) -> list[tuple[str, int, int, int, str]]:
    """Let a process write, kill it after a random number of acknowledgements, and return these."""
    command = [sys.executable, "-m", "tests.crash.writer", str(store), flush_disk_type, way, str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = []
        for _ in range(random.Random(seed).choice([1, 60, 300, 700])):
            line = writer.stdout.readline()
            assert line, "the writer ended by itself"
            lines.append(line)
        writer.kill()
        lines += writer.stdout.readlines()
    fields = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return [(topic, int(queue), int(offset), int(place), key) for topic, queue, offset, place, key in fields]


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
        lines += write_and_kill(killed, flush_disk_type, way, 10 * kill + len(way) + len(flush_disk_type))
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
