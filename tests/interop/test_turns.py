"""reput and Apache RocketMQ write one store turn by turn, closed or killed in between: they agree after each turn."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.formats.record import SysFlag
from tests.crash.faulty_files import FaultyFiles, abandon
from tests.golden.bit_maps import bit_maps
from tests.interop import workload
from tests.interop.apache import VERSIONS, Apache
from tests.interop.witness import check_agreement, check_rebuild, open_apache, told_by_reput

#: More by REPUT_TURNS=200 make interop.
EXAMPLES = int(os.environ.get("REPUT_TURNS", "4"))
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32_768,  # the greatest batch fits: of a greater RocketMQ stores nothing
    "mapped_file_size_consume_queue": 20 * 10,
    "mapper_file_size_batch_consume_queue": 46 * 4,
    "max_hash_slot_num": 50,
    "max_index_num": 150,
}
EXT = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 512, "bit_maps": bit_maps}
KINDS = [0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]


class Turn(NamedTuple):
    """Who opens the store, what it puts and how, with property CRCs or without (5.x), and how it ends."""

    side: str
    how: str
    count: int
    seed: int
    kinds: list[int]
    crc: bool
    killed: bool

    def puts(self, number: int, topics: Sequence[str]) -> list[workload.Fields]:
        """Messages, of transactions too; or batches."""
        choices = random.Random(self.seed)
        fields = [workload.message(choices, 1000 * number + index, topics) for index in range(self.count)]
        if self.how == "batches":
            ends = sorted([*choices.sample(range(1, self.count + 1), min(self.count, 4)), self.count])
            return [workload.batch(fields[begin:end]) for begin, end in pairwise([0, *ends]) if begin < end]
        if self.how == "messages":
            for one, kind in zip(fields, self.kinds, strict=False):
                one["sys_flag"] = int(kind)
        return fields


TURNS = st.lists(
    st.builds(
        Turn,
        side=st.sampled_from(["reput", "Apache"]),
        how=st.sampled_from(["messages", "batches", "table"]),
        count=st.integers(0, 25),
        seed=st.integers(0, 1 << 30),
        kinds=st.lists(st.sampled_from(KINDS), max_size=25),
        crc=st.booleans(),
        killed=st.booleans(),
    ),
    min_size=2,
    max_size=5,
)


def turn_of_reput(path: Path, options: dict[str, Any], turn: Turn, puts: list[workload.Fields]) -> None:
    files = FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **options)
    if turn.how == "table" and puts:
        store.put_arrow(workload.as_table(puts))
    else:
        workload.put(store, puts)
    if turn.killed:
        abandon(store, files)
    else:
        store.close()


def turn_of_apache(
    path: Path, options: dict[str, Any], turn: Turn, puts: list[workload.Fields], apache: Apache
) -> None:
    open_apache(apache, path, options)
    results = apache.run("put", messages=puts)
    assert all(result["status"] == "PUT_OK" for result in results)
    if turn.killed:
        apache.kill()
    else:
        apache.run("close")


def check_both(path: Path, options: dict[str, Any], folder: Path, apache: Apache, *, index_is_whole: bool) -> None:
    """Each opens, and recovers, a copy of its own; what they do there changes nothing of the store itself."""
    ours, theirs = (Path(shutil.copytree(path, folder / name)) for name in ("ours", "theirs"))
    was_killed = (path / "abort").exists()
    open_apache(apache, theirs, options)
    with reput.MessageStore.open(ours, files=FaultyFiles(), **options) as store:
        check_agreement(store, apache, apache_lost_keys=was_killed, index_is_whole=index_is_whole)
    apache.run("close")
    shutil.rmtree(ours)
    shutil.rmtree(theirs)


# A killed store's threads end with the Crash that ended it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("apache", VERSIONS, indirect=True)
def test_both_write_one_store_turn_by_turn(apache: Apache) -> None:
    is_5 = apache.version > "5"

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(TURNS, st.booleans())
    def turns_agree(turns: list[Turn], ext: bool) -> None:
        options = OPTIONS | {"dispatch_rules": apache.version} | (EXT if ext else {})
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = folder / "store"
            apache.kill()  # what an example that failed had open
            if is_5:
                with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
                    store.update_topic(workload.BATCH_TOPIC)
            index_is_whole = True
            for number, turn in enumerate(turns):
                if (path / "abort").exists() and turn.side == "Apache":
                    index_is_whole = False  # Apache's recovery loses entries
                puts = turn.puts(number, workload.WITH_BATCH_TOPIC if is_5 else workload.TOPICS)
                its_options = options | {"enabled_append_prop_crc": is_5 and turn.crc}
                if turn.side == "reput":
                    turn_of_reput(path, its_options, turn, puts)
                else:
                    turn_of_apache(path, its_options, turn, puts, apache)
                check_both(path, options, folder, apache, index_is_whole=index_is_whole)
            with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
                told = told_by_reput(store)
            check_rebuild(path, options, told, index_is_whole=index_is_whole)

    turns_agree()
