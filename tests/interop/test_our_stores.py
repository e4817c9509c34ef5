"""Stores that reput wrote, opened by Apache RocketMQ: all it reads is what reput says, and reput reads what it adds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.files import DISK
from reput.formats.record_layout import SysFlag
from reput.formats.sink_commit import SinkBatch
from reput.store.sinks.commit import check_store, put_staged
from reput.store.sinks.staging import StagingFile
from tests.support.bit_maps import bit_maps
from tests.support.faulty_files import FaultyFiles
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import STORE_VERSIONS, Apache
from tests.support.rocketmq.stores import SINCE_5, SMALL, Messages, Options, each_store_version, puts, retained
from tests.support.rocketmq.witness import (
    check_agreement,
    check_queries,
    check_rebuild,
    open_apache,
    options_at,
    told_by_apache,
    told_by_reput,
)
from tests.support.writer import write_and_kill

pytestmark = pytest.mark.java


def put_messages(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, **options) as store:
        fields = workload.messages(120)
        for begin in range(0, len(fields), 12):
            store.put_messages([workload.as_message(one) for one in fields[begin : begin + 12]], begin % 3)


def tables(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, **options) as store:
        for seed in range(3):
            store.put_arrow(workload.as_table(workload.messages(80, seed)))


def sink(path: Path, options: Options) -> None:
    """Batches of Spark's sink, each of two tasks' staged records."""
    config = MessageStoreConfig.from_mapping(options)
    check_store(str(path), config, DISK, lock_timeout_ms=0)
    for batch in range(2):
        parts = []
        for task in range(2):
            with StagingFile(DISK, str(path / f"staged-{batch}-{task}"), config) as staging:
                rows = workload.as_table(workload.messages(60, 2 * batch + task)).to_batches()[0]
                staging.write(staging.check(rows, 0))
                assert staging.part is not None
                parts.append(staging.part)
        put_staged(str(path), config, DISK, parts, SinkBatch("copy", batch))


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
            workload.put(store, workload.messages(30, turn))


def killed(way: str) -> Callable[[Path, Options], None]:
    """By a kill -9 of the process that writes."""

    def write(path: Path, options: Options) -> None:
        write_and_kill(path, way, 2, options)
        while _has_empty_file(path):
            shutil.rmtree(path)
            write_and_kill(path, way, 2, options)

    return write


def _has_empty_file(path: Path) -> bool:
    """Whether the kill came between a file's making and its allocation: 4.9.7 loads no such store, its own neither."""
    return any(not file.stat().st_size for file in path.rglob("*") if file.name.isdigit() and file.is_file())


def killed_and_reopened(path: Path, options: Options) -> None:
    killed("single")(path, options)
    reopened(path, options)


def torn(path: Path, options: Options) -> None:
    """Killed, and of the last record's second half nothing reached the disk."""
    with reput.MessageStore.open(path, **options) as store:
        workload.put(store, workload.messages(99))
        last = store.put_message(reput.Message("order", bytes(range(1, 200)), keys=["torn"]))
    shutil.copyfile(path / "lock", path / "abort")
    begin = last.commit_log_offset % options["mapped_file_size_commit_log"]
    with sorted((path / "commitlog").iterdir())[last.commit_log_offset // options["mapped_file_size_commit_log"]].open(
        "r+b"
    ) as log:
        log.seek(begin + last.size // 2)
        log.write(bytes(last.size - last.size // 2))


class Case(NamedTuple):
    """A way to write a store, reput's options, and the RocketMQ versions that know what is in it.

    added: what these put into it; then they delete as many log files as `deleted` says, and what belongs to them.
    """

    write: Callable[[Path, Options], None]
    options: Options = SMALL
    versions: tuple[str, ...] = STORE_VERSIONS
    added: Messages = workload.batches
    deleted: int = 0


EXT: Options = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024}
LIGHT: Options = {"enable_multi_dispatch": True, "enable_lmq": True}
CRC: Options = {"enabled_append_prop_crc": True}
CHECKED: Options = CRC | {"force_verify_prop_crc": True}
#: By age alone, however full the machine's disk is.
RETENTION: Options = {"file_reserved_time": 72, "clean_file_forcibly_enable": False}
CASES = {
    "empty": Case(puts(0)),
    "fresh": Case(puts(5)),
    "rolled": Case(puts(300)),
    "SYNC_FLUSH": Case(puts(30), SMALL | {"flush_disk_type": "SYNC_FLUSH"}),
    "put_messages": Case(put_messages),
    "put_arrow": Case(tables),
    "sink": Case(sink),
    "sink, property CRC": Case(sink, SMALL | CHECKED, SINCE_5),
    "put_batch": Case(puts(120, workload.batches)),
    "inner batches": Case(puts(200, workload.inner_batches), versions=SINCE_5, added=workload.inner_batches),
    "transactions": Case(transactions),
    "delayed": Case(delayed),
    "long topics": Case(long_topics, versions=SINCE_5),
    "ext with bit maps": Case(puts(120), SMALL | EXT | {"bit_maps": bit_maps}),
    "ext, killed": Case(killed("single"), SMALL | EXT),
    "ext, killed and reopened": Case(killed_and_reopened, SMALL | EXT),
    "light queues, ext": Case(puts(120, workload.lmq_messages), SMALL | LIGHT | EXT, added=workload.lmq_messages),
    "property CRC": Case(puts(200, workload.inner_batches), SMALL | CRC, SINCE_5, workload.inner_batches),
    "property CRC, killed": Case(killed("single"), SMALL | CHECKED, SINCE_5),
    "several log folders": Case(
        puts(200), SMALL | {"store_path_commit_log": "{store}/log-1,{store}/log-2,{store}/log-3"}
    ),
    "messages deleted by both, ext": Case(
        retained(workload.messages), SMALL | EXT | RETENTION | {"bit_maps": bit_maps}, deleted=2
    ),
    "batches deleted by both": Case(
        retained(workload.inner_batches), SMALL | RETENTION, SINCE_5, workload.inner_batches, deleted=2
    ),
    "reopened": Case(reopened),
    "killed": Case(killed("single")),
    "killed under SYNC_FLUSH": Case(killed("table"), SMALL | {"flush_disk_type": "SYNC_FLUSH"}),
    "torn": Case(torn),
    "1 index file": Case(puts(150), SMALL | {"max_index_num": 1000}),
    "3 index files": Case(puts(150), SMALL | {"max_index_num": 130}),
    "40 index files": Case(puts(600), SMALL | {"max_index_num": 38}),
}


def of_versions(versions: tuple[str, ...]) -> list[str]:
    """The cases of just these versions.

    The version stays a parameter of its own: pytest would end the Java process after each row of a table of both.
    """
    return [name for name, case in CASES.items() if case.versions == versions]


@each_store_version
@pytest.mark.parametrize("name", of_versions(STORE_VERSIONS))
def test_apache_reads_what_reput_wrote_and_reput_reads_what_apache_adds(
    apache: Apache, name: str, tmp_path: Path
) -> None:
    check_case(apache, name, tmp_path)


@pytest.mark.parametrize("apache", SINCE_5, indirect=True)
@pytest.mark.parametrize("name", of_versions(SINCE_5))
def test_apache_5_reads_what_reput_wrote_and_reput_reads_what_apache_adds(
    apache: Apache, name: str, tmp_path: Path
) -> None:
    check_case(apache, name, tmp_path)


def check_case(apache: Apache, name: str, tmp_path: Path) -> None:
    """Each opens the other's store, and puts messages into it."""
    case = CASES[name]
    options = case.options | {"dispatch_rules": apache.version}
    path = tmp_path / "store"
    case.write(path, options_at(path, options))
    ours = shutil.copytree(path, tmp_path / "ours")
    open_apache(apache, path, options)
    was_killed = (ours / "abort").exists()
    with reput.MessageStore.open(ours, files=FaultyFiles(), **options_at(ours, options)) as store:
        told = check_agreement(store, apache, apache_lost_keys=was_killed)
    added = case.added(40, seed=9)
    results = apache.run("put", messages=added)
    assert all(result["status"] == "PUT_OK" for result in results)
    if case.deleted:
        assert apache.run("delete", log_files=case.deleted)[0] > told.ends[0]
    theirs = told_by_apache(apache)
    apache.run("close")
    with reput.MessageStore.open(path, files=FaultyFiles(), **options_at(path, options)) as store:
        assert not store.recovery.was_killed
        assert told_by_reput(store) == theirs
        check_queries(store, theirs, index_is_whole=not was_killed)
        workload.put(store, added)
        told = told_by_reput(store)
    check_rebuild(path, options, told, index_is_whole=not was_killed)
