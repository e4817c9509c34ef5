"""Stores that reput wrote, opened by Apache RocketMQ: all it reads is what reput says, and reput reads what it adds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import reput
from reput.formats.metadata import TopicConfig
from reput.formats.record import SysFlag
from tests.crash.faulty_files import FaultyFiles
from tests.crash.writer import write_and_kill
from tests.interop import workload
from tests.interop.apache import VERSIONS, Apache
from tests.interop.witness import (
    apache_config,
    check_agreement,
    check_queries,
    check_rebuild,
    told_by_apache,
    told_by_reput,
)

Options = dict[str, Any]
#: File sizes so small that a hundred messages roll every kind of them.
SMALL: Options = {
    "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 16_384,
    "mapped_file_size_consume_queue": 20 * 30,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
SINCE_5 = tuple(version for version in VERSIONS if version > "5")


def put_one_by_one(store: reput.MessageStore, fields: Sequence[workload.Fields]) -> None:
    for one in fields:
        store.put_message(workload.as_message(one), one["queue_id"])


def singles(count: int) -> Callable[[Path, Options], None]:
    def write(path: Path, options: Options) -> None:
        with reput.MessageStore.open(path, **options) as store:
            put_one_by_one(store, workload.messages(count))

    return write


def batches(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, **options) as store:
        fields = workload.messages(120)
        for begin in range(0, len(fields), 12):
            store.put_messages([workload.as_message(one) for one in fields[begin : begin + 12]], begin % 3)


def tables(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, **options) as store:
        for seed in range(3):
            store.put_arrow(workload.as_table(workload.messages(80, seed)))


def transactions(path: Path, options: Options) -> None:
    """Prepared messages; half of them committed or rolled back; the log ends in prepared ones, which no queue shows."""
    kinds = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)
    with reput.MessageStore.open(path, **options) as store:
        prepared: list[int] = []
        for number, fields in enumerate(workload.messages(120)):
            kind = kinds[0] if number >= 115 else (0, *kinds)[number % 4]
            offset = prepared.pop() if kind in kinds[1:] and prepared else 0
            fields |= {"sys_flag": int(kind), "prepared_transaction_offset": offset}
            result = store.put_message(workload.as_message(fields), fields["queue_id"])
            if kind == kinds[0]:
                prepared.append(result.commit_log_offset)


def delayed(path: Path, options: Options) -> None:
    """As a broker puts them aside: under the schedule topic, each level a queue; a unit has the time of delivery."""
    with reput.MessageStore.open(path, **options) as store:
        for number, fields in enumerate(workload.messages(60)):
            level = number % 18 + 1
            aside = {"DELAY": str(level), "REAL_TOPIC": fields["topic"], "REAL_QID": str(fields["queue_id"])}
            fields |= {"topic": "SCHEDULE_TOPIC_XXXX", "properties": fields["properties"] | aside}
            store.put_message(workload.as_message(fields), level - 1)


def long_topics(path: Path, options: Options) -> None:
    """Topics over 127 bytes, whose records are of version 2."""
    with reput.MessageStore.open(path, **options) as store:
        for number, fields in enumerate(workload.messages(60)):
            fields |= {"topic": "%RETRY%" + "g" * ((119, 120, 121, 248)[number % 4])}
            store.put_message(workload.as_message(fields), fields["queue_id"])


def reopened(path: Path, options: Options) -> None:
    for turn in range(4):
        with reput.MessageStore.open(path, **options) as store:
            put_one_by_one(store, workload.messages(30, turn))


def killed(way: str) -> Callable[[Path, Options], None]:
    """By a kill -9 of the process that writes."""

    def write(path: Path, options: Options) -> None:
        write_and_kill(path, way, 2, options)

    return write


def torn(path: Path, options: Options) -> None:
    """Killed, and of the last record's second half nothing reached the disk."""
    with reput.MessageStore.open(path, **options) as store:
        put_one_by_one(store, workload.messages(99))
        last = store.put_message(reput.Message("order", bytes(range(1, 200)), keys=["torn"]))
    shutil.copyfile(path / "lock", path / "abort")
    begin = last.commit_log_offset % options["mapped_file_size_commit_log"]
    with sorted((path / "commitlog").iterdir())[last.commit_log_offset // options["mapped_file_size_commit_log"]].open(
        "r+b"
    ) as log:
        log.seek(begin + last.size // 2)
        log.write(bytes(last.size - last.size // 2))


def light_queues(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, **options) as store:
        for number, fields in enumerate(workload.messages(90)):
            if names := ["%LMQ%a", "%LMQ%b"][: number % 3]:
                fields["properties"] = fields["properties"] | {"INNER_MULTI_DISPATCH": ",".join(names)}
            store.put_message(workload.as_message(fields), fields["queue_id"])


def batch_queues(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, **options) as store:
        store.update_topic(TopicConfig("inner", attributes={"queue.type": "BatchCQ"}))
        fields = [one | {"topic": "inner"} for one in workload.messages(120)]
        for begin in range(0, 120, 6):
            store.put_batch([workload.as_message(one) for one in fields[begin : begin + 5]], begin % 4)
            store.put_message(workload.as_message(fields[begin + 5]), begin % 4)


def retention(path: Path, options: Options) -> None:
    """The first two log files are deleted, and what was derived from them."""
    singles(300)(path, options)
    for file in sorted((path / "commitlog").iterdir())[:2]:
        os.utime(file, (0, 0))
    with reput.MessageStore.open(path, **options) as store:
        store.delete_expired()
        assert store.min_commit_log_offset == 2 * options["mapped_file_size_commit_log"]


class Case(NamedTuple):
    """A way to write a store, with reput's options, and the RocketMQ versions that know what is in it."""

    write: Callable[[Path, Options], None]
    options: Options = SMALL
    versions: tuple[str, ...] = VERSIONS
    batch_topics: tuple[str, ...] = ()


CASES = {
    "empty": Case(singles(0)),
    "fresh": Case(singles(5)),
    "rolled": Case(singles(300)),
    "SYNC_FLUSH": Case(singles(30), SMALL | {"flush_disk_type": "SYNC_FLUSH"}),
    "put_messages": Case(batches),
    "put_arrow": Case(tables),
    "transactions": Case(transactions),
    "delayed": Case(delayed),
    "long topics": Case(long_topics, versions=SINCE_5),
    "property CRC": Case(singles(60), SMALL | {"enabled_append_prop_crc": True}, SINCE_5),
    "extensions": Case(
        singles(120), SMALL | {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024}
    ),
    "light queues": Case(light_queues, SMALL | {"enable_multi_dispatch": True, "enable_lmq": True}),
    "batch queues": Case(
        batch_queues, SMALL | {"mapper_file_size_batch_consume_queue": 46 * 10}, SINCE_5, batch_topics=("inner",)
    ),
    "retention": Case(retention),
    "reopened": Case(reopened),
    "killed": Case(killed("single")),
    "killed under SYNC_FLUSH": Case(killed("table"), SMALL | {"flush_disk_type": "SYNC_FLUSH"}),
    "torn": Case(torn),
    "1 index file": Case(singles(150), SMALL | {"max_index_num": 1000}),
    "3 index files": Case(singles(150), SMALL | {"max_index_num": 130}),
    "40 index files": Case(singles(600), SMALL | {"max_index_num": 38}),
}
TABLE = [(version, name) for name, case in CASES.items() for version in case.versions]


@pytest.mark.parametrize(("apache", "name"), TABLE, indirect=["apache"])
def test_apache_reads_what_reput_wrote_and_reput_reads_what_apache_adds(
    apache: Apache, name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    options = case.options | {"dispatch_rules": apache.version}
    path = tmp_path / "store"
    case.write(path, options)
    ours = shutil.copytree(path, tmp_path / "ours")
    apache.run("open", path=str(path), config=apache_config(options), batch_topics=case.batch_topics)
    was_killed = (ours / "abort").exists()
    with reput.MessageStore.open(ours, files=FaultyFiles(), **options) as store:
        check_agreement(store, apache, apache_lost_keys=was_killed)
    added = workload.messages(30, seed=9)
    inner = [workload.inner_batch([one | {"topic": topic} for one in added[:7]]) for topic in case.batch_topics]
    apache.run("put", messages=[*added[:10], workload.batch(added[10:20]), *inner, *added[20:]])
    theirs = told_by_apache(apache)
    apache.run("close")
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        assert not store.recovery.was_killed
        assert told_by_reput(store) == theirs
        check_queries(store, theirs, index_is_whole=not was_killed)
        put_one_by_one(store, added)
        log_begin = store.min_commit_log_offset
    if not log_begin:  # of deleted messages a rebuild makes filler units
        check_rebuild(path, tmp_path / "rebuilt", options, index_is_whole=not was_killed)
