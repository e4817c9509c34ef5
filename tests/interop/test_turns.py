"""reput and Apache RocketMQ write one store turn by turn, closed or killed in between: they agree after each turn."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.formats.record import SysFlag
from tests.crash.faulty_files import FaultyFiles, abandon
from tests.interop import workload
from tests.interop.apache import VERSIONS, Apache
from tests.interop.witness import apache_config, check_agreement, check_rebuild

#: More by REPUT_TURNS=200 make interop.
EXAMPLES = int(os.environ.get("REPUT_TURNS", "4"))
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32_768,  # the greatest batch fits: of a greater RocketMQ stores nothing
    "mapped_file_size_consume_queue": 20 * 10,
    "max_hash_slot_num": 50,
    "max_index_num": 150,
}


class Turn(NamedTuple):
    """Who opens the store, what it puts and how (`batch`: reput as a table, Apache as one batch), and how it ends."""

    side: str
    count: int
    seed: int
    batch: bool
    kinds: list[int]
    killed: bool

    def messages(self, number: int) -> list[workload.Fields]:
        choices = random.Random(self.seed)
        fields = [workload.message(choices, 1000 * number + index) for index in range(self.count)]
        if not self.batch:
            for one, kind in zip(fields, self.kinds, strict=False):
                one["sys_flag"] = kind
        return fields


TURNS = st.lists(
    st.builds(
        Turn,
        side=st.sampled_from(["reput", "Apache"]),
        count=st.integers(0, 25),
        seed=st.integers(0, 1 << 30),
        batch=st.booleans(),
        kinds=st.lists(
            st.sampled_from(
                [
                    0,
                    0,
                    *(
                        int(flag)
                        for flag in (
                            SysFlag.TRANSACTION_PREPARED,
                            SysFlag.TRANSACTION_COMMIT,
                            SysFlag.TRANSACTION_ROLLBACK,
                        )
                    ),
                ]
            ),
            max_size=25,
        ),
        killed=st.booleans(),
    ),
    min_size=2,
    max_size=5,
)


def turn_of_reput(path: Path, options: dict[str, Any], turn: Turn, number: int) -> None:
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **options)
    fields = turn.messages(number)
    if turn.batch and fields:
        store.put_arrow(workload.as_table(fields))
    else:
        for one in fields:
            store.put_message(workload.as_message(one), one["queue_id"])
    if turn.killed:
        abandon(store, files)
    else:
        store.close()


def turn_of_apache(path: Path, options: dict[str, Any], turn: Turn, number: int, apache: Apache) -> None:
    apache.run("open", path=str(path), config=apache_config(options))
    fields = turn.messages(number)
    results = apache.run("put", messages=[workload.batch(fields)] if turn.batch and fields else fields)
    assert all(result["status"] == "PUT_OK" for result in results)
    if turn.killed:
        apache.kill()
    else:
        apache.run("close")


def check_both(path: Path, options: dict[str, Any], folder: Path, apache: Apache, *, index_is_whole: bool) -> None:
    """Each opens, and recovers, a copy of its own; what they do there changes nothing of the store itself."""
    ours, theirs = (Path(shutil.copytree(path, folder / name)) for name in ("ours", "theirs"))
    was_killed = (path / "abort").exists()
    apache.run("open", path=str(theirs), config=apache_config(options))
    with reput.MessageStore.open(ours, files=FaultyFiles(), **options) as store:
        check_agreement(store, apache, apache_lost_keys=was_killed, index_is_whole=index_is_whole)
    apache.run("close")
    shutil.rmtree(ours)
    shutil.rmtree(theirs)


# A killed store's threads end with the Crash that ended it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("apache", VERSIONS, indirect=True)
def test_both_write_one_store_turn_by_turn(apache: Apache) -> None:
    options = OPTIONS | {"dispatch_rules": apache.version}

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(TURNS)
    def turns_agree(turns: list[Turn]) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = folder / "store"
            if apache.has_open_store:  # the example before this one failed
                apache.kill()
            index_is_whole = True
            for number, turn in enumerate(turns):
                if (path / "abort").exists() and turn.side == "Apache":
                    index_is_whole = False  # Apache's recovery loses entries
                if turn.side == "reput":
                    turn_of_reput(path, options, turn, number)
                else:
                    turn_of_apache(path, options, turn, number, apache)
                check_both(path, options, folder, apache, index_is_whole=index_is_whole)
            with reput.MessageStore.open(path, files=FaultyFiles(), **options):
                pass
            check_rebuild(path, folder / "rebuilt", options, index_is_whole=index_is_whole)

    turns_agree()
