"""reput and Apache RocketMQ write one store, and delete from it, turn by turn, closed or killed in between.

They agree after each turn.
"""

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
from reput.formats.multi_dispatch import INNER_MULTI_DISPATCH
from reput.formats.record_layout import SysFlag
from tests.support.bit_maps import bit_maps
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.retained import RoomyFiles, age
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import Apache
from tests.support.rocketmq.stores import each_store_version
from tests.support.rocketmq.witness import check_agreement, check_rebuild, open_apache, told_by_reput

pytestmark = pytest.mark.java

#: More by REPUT_TURNS=200 make interop.
EXAMPLES = int(os.environ.get("REPUT_TURNS", "4"))
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32_768,  # the greatest batch fits: of a greater RocketMQ stores nothing
    "mapped_file_size_consume_queue": 20 * 10,
    "mapper_file_size_batch_consume_queue": 46 * 4,
    "max_hash_slot_num": 50,
    "max_index_num": 150,
}
#: By age alone, however full the machine's disk is.
RETENTION = {"file_reserved_time": 72, "clean_file_forcibly_enable": False}
LIGHT = {"enable_multi_dispatch": True, "enable_lmq": True}
EXT = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 512, "bit_maps": bit_maps}
KINDS = [0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]
#: Where these, or messages of a batch topic, name light queues RocketMQ leaves gaps (docs/design/differences.md).
NOT_LIGHT = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class Turn(NamedTuple):
    """Who opens the store, what it puts and how, with property CRCs or without (5.x), and how it ends.

    light_queues: what single messages name. deleted: the oldest log files that go, if there are so many full ones; the
    turn begins with a message that nearly fills one.
    """

    side: str
    how: str
    count: int
    seed: int
    kinds: list[int]
    light_queues: list[str | None]
    crc: bool
    deleted: int
    killed: bool

    def puts(self, number: int, topics: Sequence[str], *, light: bool) -> list[workload.Fields]:
        """Messages, of transactions and in light queues too; or batches."""
        choices = random.Random(self.seed)
        fields = [workload.message(choices, 1000 * number + index, topics) for index in range(self.count)]
        if self.how == "batches":
            ends = sorted([*choices.sample(range(1, self.count + 1), min(self.count, 4)), self.count])
            fields = [workload.batch(fields[begin:end]) for begin, end in pairwise([0, *ends]) if begin < end]
        if self.how == "messages":
            for one, kind in zip(fields, self.kinds, strict=False):
                one["sys_flag"] = int(kind)
            for one, names in zip(fields, self.light_queues, strict=False):
                leaves_gap = one["sys_flag"] in NOT_LIGHT or one["topic"] == workload.BATCH_TOPIC.topic_name
                if light and names and not leaves_gap:
                    one["properties"][INNER_MULTI_DISPATCH] = names
        if self.deleted:
            fields.insert(0, workload.message(choices, 1000 * number + 999) | {"body": bytes(20_000).hex()})
        return fields


TURNS = st.lists(
    st.builds(
        Turn,
        side=st.sampled_from(["reput", "Apache"]),
        how=st.sampled_from(["messages", "batches", "table"]),
        count=st.integers(0, 25),
        seed=st.integers(0, 1 << 30),
        kinds=st.lists(st.sampled_from(KINDS), max_size=25),
        light_queues=st.lists(st.sampled_from(workload.LIGHT_QUEUES), max_size=25),
        crc=st.booleans(),
        deleted=st.sampled_from([0, 0, 1, 2]),
        killed=st.booleans(),
    ),
    min_size=2,
    max_size=5,
)


def full_log_files(path: Path, end: int) -> int:
    """How many files of the log are full, so that RocketMQ may delete them; `end` is behind its last record."""
    file_size = OPTIONS["mapped_file_size_commit_log"]
    return end // file_size - min(int(file.name) for file in (path / "commitlog").iterdir()) // file_size


def turn_of_reput(path: Path, options: dict[str, Any], turn: Turn, puts: list[workload.Fields]) -> None:
    files = RoomyFiles()
    store = reput.MessageStore.open(path, files=files, **options)
    if turn.how == "table" and puts:
        store.put_arrow(workload.as_table(puts))
    else:
        workload.put(store, puts)
    if puts and turn.deleted:
        store.wait_dispatched()
        deleted = min(turn.deleted, full_log_files(path, store.max_commit_log_offset))
        age(path, deleted)
        assert len(store.delete_expired().commit_log_files) == deleted
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
    if puts and turn.deleted:
        begin = int(min(file.name for file in (path / "commitlog").iterdir()))
        deleted = min(turn.deleted, full_log_files(path, results[-1]["commit_log_offset"]))
        ends = apache.run("delete", log_files=deleted)
        assert ends[0] == begin + deleted * OPTIONS["mapped_file_size_commit_log"]
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
@each_store_version
def test_both_write_one_store_turn_by_turn(apache: Apache) -> None:
    is_5 = apache.version > "5"

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(TURNS, st.booleans(), st.booleans())
    def turns_agree(turns: list[Turn], ext: bool, light: bool) -> None:
        options = OPTIONS | RETENTION | {"dispatch_rules": apache.version}
        options |= (EXT if ext else {}) | (LIGHT if light else {})
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
                puts = turn.puts(number, workload.WITH_BATCH_TOPIC if is_5 else workload.TOPICS, light=light)
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
