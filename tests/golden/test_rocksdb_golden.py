"""Queues that RocketMQ 5.5.1 keeps in a RocksDB: each unit is its record's, and a reader gets all messages."""

from __future__ import annotations

from pathlib import Path

import reput
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.jobs.audit.job import audit
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.log.all_queues import database_queues
from reput.log.directory import StoreDirectory
from tests.support.invariants import contents
from tests.support.rocksdb import StoredUnit, units_of

STORE = Path(__file__).parent / "queues_in_rocksdb" / "store"
MESSAGES, LIGHT_UNITS = 40, 32


def test_each_unit_is_its_records() -> None:
    before = contents(STORE)
    result = audit(STORE, runner=LocalRunner(1))
    assert [str(finding) for finding in result.findings] == []
    assert (result.messages, result.units) == (MESSAGES, MESSAGES + LIGHT_UNITS)
    assert contents(STORE) == before


def test_the_units_are_those_that_a_rebuild_makes_in_files(tmp_path: Path) -> None:
    rebuild(STORE, tmp_path / "built", runner=LocalRunner(1))
    found = database_queues(StoreDirectory(STORE))
    assert found is not None
    told = [
        StoredUnit(queue.topic, queue.queue_id, number, *decode_unit(data, number * UNIT_SIZE))
        for queue in found.queues
        for data in [found.files.read_bytes(found.files.paths(queue)[0])]
        for number in range(queue.end)
    ]
    built = list(units_of(tmp_path / "built"))
    assert sorted(told) == sorted(built)
    assert len(built) == MESSAGES + LIGHT_UNITS


def test_a_reader_gets_all_messages_by_their_queues() -> None:
    with reput.MessageStore.open(STORE, read_only=True) as store:
        assert store.recovery.damage is None
        offsets, units = set(), 0
        for topic, queue_id, offset, end in store.queues():
            while offset < end:
                pulled = store.get_message(topic, queue_id, offset)
                offsets |= {message.commit_log_offset for message in pulled.messages()}
                units += len(pulled)
                offset = pulled.next_begin_offset
    assert (len(offsets), units) == (MESSAGES, MESSAGES + LIGHT_UNITS)
