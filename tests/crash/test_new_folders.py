"""A process that is killed between making a folder, or a file, and syncing its name, and a power cut some time later.

The next start finds the name, and what it writes below is answered.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from tests.support.faulty_files import Crash, FaultyFiles, abandon, crash_at
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, check_store
from tests.support.scenarios import start_again
from tests.support.shares import Share, in_shares

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

OPTIONS = SMALL | {"sync_flush_timeout": 2000, "flush_interval_consume_queue": 60_000}


@in_shares(2)
@pytest.mark.parametrize("closes", [True, False])
def test_folders_whose_maker_was_killed_before_he_synced_their_names_survive_a_power_cut(
    tmp_path: Path, closes: bool, share: Share
) -> None:
    for number in share.of(range(1000)):
        disk, left = tmp_path / str(number), tmp_path / f"{number}-left"
        disk.mkdir()
        files, path = FaultyFiles(crash_at(number)), disk / "above" / "store"
        files.all_is_durable(disk)
        store, ended = None, False
        try:
            store = reput.MessageStore.open(path, files=files, **OPTIONS)
            store.put_message(reput.Message("first", b"x"))
            ended = True
        except Crash:
            pass
        if store is not None:
            abandon(store, files)
        files.abandon()
        acknowledged: list[Acknowledged] = []
        start_again(path, files, left, OPTIONS, acknowledged, closes=closes, disk=disk)
        with reput.MessageStore.open(left / "above" / "store", files=FaultyFiles(), **OPTIONS) as store:
            check_acknowledged(store, acknowledged)
        check_store(left / "above" / "store")
        if ended:
            break
    assert number > 15
