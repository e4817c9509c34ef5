"""Puts of rows: a place or a fault for each, in order, and no waiting."""

from __future__ import annotations

import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from reput import MessageIllegalError, MessageStore, StoreFullError, StorePoisonedError, StoreStateError
from reput.errors import ReputError
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.message_batch import encode_batch
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, SysFlag
from reput.store.puts.put_rows import PutRow, PutRowResult
from reput.store.results import PutMessageStatus
from tests.support.broker import SMALL, SYNCED
from tests.support.faulty_files import FaultyFiles, Operation
from tests.support.held_disk import HeldDisk

HOST = encode_host("10.1.2.3:4")


def row(body: bytes, topic: str = "orders", queue_id: int = 0, **more: object) -> PutRow:
    given: dict[str, object] = {"properties": b"", "flag": 0, "sys_flag": 0, "born_timestamp": 5, "born_host": HOST}
    return PutRow(topic, queue_id, body, **(given | more))  # type: ignore[arg-type]


def places(results: list[PutRowResult | ReputError]) -> list[PutRowResult]:
    found = [one for one in results if isinstance(one, PutRowResult)]
    assert len(found) == len(results), results
    return found


def queue_bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in store.get_message(topic, queue_id, 0).messages()]


def test_rows_are_stored_in_order_as_they_were_sent(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        properties = b"UNIQ_KEY\x01" + b"A" * 32 + b"\x02TAGS\x01t\x02odd\x01\x01\x02"
        results = places(
            writer.put_rows(
                [
                    row(b"a", properties=properties, flag=3, sys_flag=1, reconsume_times=2),
                    row(b"b", "other", 7),
                    row(b"c"),
                ]
            )
        )
        assert [result.queue_offset for result in results] == [0, 0, 1]
        assert [result.commit_log_offsets for result in results] == [
            (0,), (results[0].end_offset,), (results[1].end_offset,),
        ]  # fmt: skip
        while writer.dispatch():
            pass
        first = store.get_message("orders", 0, 0).messages()[0]
        assert properties in first.raw
        assert (first.flag, first.sys_flag, first.reconsume_times) == (3, 1, 2)
        assert (first.born_timestamp, first.born_host, first.tags) == (5, "10.1.2.3:4", "t")
        assert (first.message_id, first.store_timestamp) == (results[0].message_id, results[0].store_timestamp)
        assert (queue_bodies(store), queue_bodies(store, "other", 7)) == ([b"a", b"c"], [b"b"])


def test_a_wrong_row_gets_its_fault_and_the_others_their_places(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", max_message_size=100, **SMALL) as store:
        writer = store.loop_writer()
        rows = [
            row(b"a"),
            row(b"b", "t" * 40_000),
            row(b"c", queue_id=-1),
            row(b"d", properties=b"p" * 40_000),
            row(b"no batch", is_batch=True),
            row(b"e"),
        ]
        results = writer.put_rows(rows)
        faults = [str(one) if isinstance(one, MessageIllegalError) else None for one in results]
        assert [fault is not None for fault in faults] == [False, True, True, True, True, False]
        told = ["topic", "queue_id -1", "40000 bytes", "no batch"]
        for fault, words in zip(faults[1:5], told, strict=True):
            assert fault is not None
            assert words in fault
        while writer.dispatch():
            pass
        assert queue_bodies(store) == [b"a", b"e"]


def test_what_a_client_sends_has_limits_and_room_for_what_comes_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", max_message_size=40_000, **SMALL) as store:
        writer, full = store.loop_writer(), MAX_PROPERTIES_SIZE - 50
        batch = encode_batch([Message("orders", b"1", properties={"x": "x" * (full - 2)})])
        for one, words in (
            (row(bytes(40_001)), "maxMessageSize allows 40000"),
            (row(b"a", properties=bytes(full + 1)), f"{full + 1} bytes; 32767 are allowed, less 50"),
            (row(batch, is_batch=True), f"{full + 2} bytes; 32767 are allowed, less 50"),
        ):
            (fault,) = writer.put_rows([one], 50)
            assert words in str(fault)
            assert isinstance(fault, MessageIllegalError)
            places(writer.put_rows([one]))
        places(writer.put_rows([row(b"a", properties=bytes(full))], 50))


def test_a_batch_is_one_row_with_a_place_for_each_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        body = encode_batch([Message("orders", one) for one in (b"a", b"b", b"c")])
        single, batch, last = places(writer.put_rows([row(b"0"), row(body, is_batch=True), row(b"d")]))
        assert (single.queue_offset, batch.queue_offset, last.queue_offset) == (0, 1, 4)
        while writer.dispatch():
            pass
        messages = store.get_message("orders", 0, 0).messages()
        assert [message.body for message in messages] == [b"0", b"a", b"b", b"c", b"d"]
        assert batch.commit_log_offsets == tuple(message.commit_log_offset for message in messages[1:4])
        assert batch.message_id == ",".join(message.message_id for message in messages[1:4])
        assert batch.end_offset == last.commit_log_offsets[0]


def test_a_batch_too_large_with_its_properties_in_each_message_is_refused_before_it_is_made(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        body = encode_batch([Message("orders", b"")] * 1000)
        properties = b"a\x01" + b"x" * 30_000 + b"\x02"
        tracemalloc.start()
        [result] = writer.put_rows([row(body, is_batch=True, properties=properties)])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert isinstance(result, MessageIllegalError)
        assert "takes 30100000 bytes" in str(result)
        assert peak < 5_000_000


def test_rows_fill_files_and_go_on_in_the_next(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
        results = places(writer.put_rows([row(bytes(200_000)) for _ in range(12)]))
        assert [result.queue_offset for result in results] == list(range(12))
        assert len(list((tmp_path / "s/commitlog").iterdir())) >= 3


def test_a_full_disk_is_the_fault_of_the_rows_that_it_meets(tmp_path: Path) -> None:
    full = threading.Event()

    def judge(operation: Operation) -> None:
        if full.is_set() and operation.kind in ("create", "allocate", "write"):
            raise OSError(28, "No space left on device")

    with MessageStore.open(tmp_path / "s", dispatch="caller", files=FaultyFiles(judge), **SMALL) as store:
        writer = store.loop_writer()
        places(writer.put_rows([row(b"a")]))
        full.set()
        results = writer.put_rows([row(bytes(300_000)) for _ in range(12)])
        faults = [isinstance(one, StoreFullError) for one in results]
        assert any(faults)
        full.clear()
        stored = 1 + faults.count(False)
        (after,) = places(writer.put_rows([row(b"z")]))
        assert after.queue_offset == stored


@pytest.mark.parametrize("keys", [SMALL, SYNCED], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_when_safe_calls_once_for_all_rows_before(tmp_path: Path, keys: dict[str, object]) -> None:
    disk, told, done = HeldDisk(), [], threading.Event()

    def safe(status: object) -> None:
        told.append(status)
        done.set()

    with MessageStore.open(tmp_path / "s", dispatch="caller", files=FaultyFiles(disk.judge), **keys) as store:
        writer = store.loop_writer()
        places(writer.put_rows([row(b"a")]))
        with disk.held():
            results = places(writer.put_rows([row(b"b"), row(b"c")]))
            writer.when_safe(results[-1].end_offset, safe)
            assert done.is_set() == (keys is SMALL)
        assert done.wait(60)
    assert told == [PutMessageStatus.PUT_OK]


def test_when_safe_tells_of_a_failed_sync_and_later_rows_are_refused(tmp_path: Path) -> None:
    disk, told, done = HeldDisk(), [], threading.Event()

    def safe(status: object) -> None:
        told.append(status)
        done.set()

    store = MessageStore.open(tmp_path / "s", dispatch="caller", files=FaultyFiles(disk.judge), **SYNCED)
    writer = store.loop_writer()
    places(writer.put_rows([row(b"a")]))
    disk.fail()
    (result,) = places(writer.put_rows([row(b"b")]))
    writer.when_safe(result.end_offset, safe)
    assert done.wait(60)
    assert [type(one) for one in told] == [StorePoisonedError]
    assert isinstance(writer.put_rows([row(b"c")])[0], StorePoisonedError)
    with pytest.raises(ReputError):
        store.close()


def test_a_closed_store_takes_no_rows(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", dispatch="caller", **SMALL) as store:
        writer = store.loop_writer()
    with pytest.raises(StoreStateError):
        store.loop_writer()
    with pytest.raises(StoreStateError):
        writer.dispatch()
    with pytest.raises(StoreStateError):
        writer.put_rows([row(b"a")])
    with pytest.raises(StoreStateError):
        writer.when_safe(0, print)


def test_a_row_gets_its_offsets_in_light_queues_as_a_message_does(tmp_path: Path) -> None:
    options = {"enable_lmq": True, "enable_multi_dispatch": True, "dispatch": "caller", **SMALL}
    with MessageStore.open(tmp_path / "s", **options) as store:  # type: ignore[arg-type]
        writer = store.loop_writer()
        light = row(b"a", properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02")
        places(writer.put_rows([light, light]))
        while writer.dispatch():
            pass
        assert [store.max_offset(name, 0) for name in ("orders", "%LMQ%a", "%LMQ%b")] == [2, 2, 2]
        second = store.get_message("orders", 0, 1).messages()[0]
        assert second.properties["INNER_MULTI_QUEUE_OFFSET"] == "1,1"


def test_a_row_with_a_long_topic_is_refused_where_such_messages_are(tmp_path: Path) -> None:
    options = {"auto_message_version_on_topic_len": False, "dispatch": "caller", **SMALL}
    with MessageStore.open(tmp_path / "s", **options) as store:  # type: ignore[arg-type]
        refused, stored = store.loop_writer().put_rows([row(b"a", "%RETRY%" + "t" * 130), row(b"b")])
        assert "autoMessageVersionOnTopicLen" in str(refused)
        assert isinstance(stored, PutRowResult)


@pytest.mark.parametrize("with_crc", [False, True], ids=["plain", "property CRC"])
def test_rows_that_come_together_are_the_records_of_rows_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_crc: bool
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_795_386_593.0)  # of the store timestamps
    rows = [
        row(b"a", properties=b"TAGS\x01t\x02", flag=3, sys_flag=1, reconsume_times=2),
        row(b"half", sys_flag=SysFlag.TRANSACTION_PREPARED, prepared_transaction_offset=7),
        row(b"committed", "other", 5, sys_flag=SysFlag.TRANSACTION_COMMIT, prepared_transaction_offset=7),
        row(b"rolled back", sys_flag=SysFlag.TRANSACTION_ROLLBACK),
        row(b"", born_host=encode_host("[2001:db8::1]:4"), properties=b"UNIQ_KEY\x01k"),
        row(bytes(300), "%RETRY%" + "t" * 200, 1),
        row(b"last"),
    ]
    found = []
    for name in ("together", "one by one"):
        with MessageStore.open(tmp_path / name, dispatch="caller", enabled_append_prop_crc=with_crc, **SMALL) as store:
            writer = store.loop_writer()
            if name == "together":
                results = places(writer.put_rows(rows))
            else:
                results = [place for one in rows for place in places(writer.put_rows([one]))]
        log = (tmp_path / name / "commitlog/00000000000000000000").read_bytes()
        found.append((results, log[: results[-1].end_offset]))
    assert found[0] == found[1]
    assert [one.queue_offset for one in found[0][0]] == [0, 0, 0, 0, 1, 0, 2]
