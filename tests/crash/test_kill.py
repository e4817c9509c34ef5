"""kill -9 at random moments: what was acknowledged before is there afterwards, and everything agrees with the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import check_acknowledged, check_rebuild, check_store, contents
from tests.support.shares import sampled
from tests.support.writer import OPTIONS, check_prefixes, with_places, write_and_kill


@sampled(2)
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["single", "table"])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_kill_at_a_random_moment_loses_nothing_acknowledged(
    tmp_path: Path, flush_disk_type: str, way: str, kills: int
) -> None:
    killed, lines = tmp_path / "killed", []
    options = OPTIONS | {"flush_disk_type": flush_disk_type}
    for kill in range(kills):
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
