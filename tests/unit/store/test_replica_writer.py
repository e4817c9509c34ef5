"""Bytes of a master's log are appended as they are, wherever they are cut and however the store's life ends."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from reput import CorruptRecordError, Message, MessageExtBatch, MessageStore, StoreStateError, TopicConfig
from tests.support.fake_master import log_of
from tests.support.shares import sampled

FILE_SIZE = 1 << 14


def open_store(path: Path) -> MessageStore:
    return MessageStore.open(
        path, flush_disk_type="ASYNC_FLUSH", mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=2000
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A store of several files, and its log with the rest of its last file."""
    path, chance = tmp_path_factory.mktemp("replica") / "master", random.Random(3)
    with open_store(path) as store:
        store.put_messages([Message("orders", chance.randbytes(chance.randrange(3000))) for _ in range(60)])
        store.wait_dispatched()
        end = store.max_commit_log_offset
    return path, log_of(path, end)[1]


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@sampled(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_log_cut_anywhere_goes_on_where_its_store_says(
    source: tuple[Path, bytes], tmp_path: Path, seed: int, is_killed: bool
) -> None:
    path, data = source
    chance, copy = random.Random(seed), tmp_path / "copy"
    while True:
        store = open_store(copy)
        writer = store.replica_writer()
        end = writer.end_offset
        cut = min(end + chance.randrange(9000), len(data))
        for begin in range(end, cut, 1500):  # in pieces, of which each leaves what is not whole
            writer.append(array(data[writer.end_offset : min(begin + 1500, cut)]))
        assert writer.end_offset <= cut
        store.wait_dispatched()
        if is_killed:
            kill(store)
        store.close()
        if cut == len(data):
            break
    assert log_of(copy, len(data))[1] == data
    ours, theirs = (
        {one.name: one.read_bytes() for one in (which / "consumequeue/orders/0").iterdir()} for which in (copy, path)
    )
    assert ours == theirs


def kill(store: MessageStore) -> None:
    """Leave the store as a kill does: with its abort marker."""
    marker = Path(store.path) / "abort"
    content = marker.read_bytes()
    store.close()
    marker.write_bytes(content)


def test_a_blank_record_that_ends_elsewhere_is_refused(source: tuple[Path, bytes], tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "copy", mapped_file_size_commit_log=2 * FILE_SIZE) as store:
        writer = store.replica_writer()
        with pytest.raises(CorruptRecordError, match="its files have another size"):
            writer.append(array(source[1]))
        assert 0 < writer.end_offset < FILE_SIZE


def test_a_blank_record_with_anything_in_it_is_refused(source: tuple[Path, bytes], tmp_path: Path) -> None:
    data = bytearray(source[1])
    data[FILE_SIZE - 1] = 1
    with open_store(tmp_path / "copy") as store:
        writer = store.replica_writer()
        with pytest.raises(CorruptRecordError, match="not zero in the blank record"):
            writer.append(array(bytes(data)))
        assert FILE_SIZE - 4000 < writer.end_offset < FILE_SIZE


def test_records_before_a_wrong_one_are_there(source: tuple[Path, bytes], tmp_path: Path) -> None:
    with open_store(tmp_path / "whole") as store:
        writer = store.replica_writer()
        assert writer.append(array(source[1][: FILE_SIZE // 2])) == writer.end_offset
        end = writer.end_offset
    data = bytearray(source[1][: FILE_SIZE // 2])
    data[end - 100] ^= 1  # in the last whole record
    with open_store(tmp_path / "copy") as store:
        writer = store.replica_writer()
        with pytest.raises(CorruptRecordError):
            writer.append(array(bytes(data)))
        assert 0 < writer.end_offset < end
        store.wait_dispatched()
        assert store.get_message("orders", 0, 0, 100).messages()


@sampled(2)
@pytest.mark.parametrize("has_crc", [True, False])
def test_where_each_record_must_have_a_crc_one_without_is_not_appended(tmp_path: Path, has_crc: bool) -> None:
    with MessageStore.open(tmp_path / "master", enabled_append_prop_crc=has_crc) as store:
        store.put_message(Message("orders", b"a"))
        end = store.max_commit_log_offset
    data = log_of(tmp_path / "master", end)[1]
    with MessageStore.open(tmp_path / "copy", force_verify_prop_crc=True) as store:
        writer = store.replica_writer()
        if has_crc:
            assert writer.append(array(data)) == end
        else:
            with pytest.raises(CorruptRecordError, match="does not fit its CRC"):
                writer.append(array(data))
            assert writer.end_offset == 0


def test_only_an_empty_log_can_begin_later_and_only_with_a_file(source: tuple[Path, bytes], tmp_path: Path) -> None:
    with open_store(tmp_path / "copy") as store:
        writer = store.replica_writer()
        with pytest.raises(StoreStateError, match="do not start there"):
            writer.begin_at(FILE_SIZE + 1)
        writer.begin_at(FILE_SIZE)
        assert writer.append(array(source[1][FILE_SIZE : FILE_SIZE + 6000]))
        with pytest.raises(StoreStateError, match="it has messages"):
            writer.begin_at(2 * FILE_SIZE)
    with open_store(tmp_path / "copy") as store:
        assert store.min_commit_log_offset == FILE_SIZE
        assert store.replica_writer().end_offset > FILE_SIZE


def test_topics_that_the_store_does_not_know_are_told_with_their_first_record(tmp_path: Path) -> None:
    with open_store(tmp_path / "master") as store:
        store.put_messages([Message(topic, b"x") for topic in ("orders", "refunds", "bills")])
        store.wait_dispatched()
        end = store.max_commit_log_offset
    data = log_of(tmp_path / "master", end)[1]
    with open_store(tmp_path / "copy") as store:
        store.update_topic(TopicConfig("refunds"))
        writer = store.replica_writer()
        writer.append(array(data[:-1]))  # all of bills but its last byte
        assert writer.unknown_topics == {"orders"}
        writer.append(array(data[writer.end_offset :]))
        assert writer.unknown_topics == {"orders", "bills"}


def test_the_topic_of_an_inner_batch_is_asked_for_before_anything_is_appended(tmp_path: Path) -> None:
    topic = TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"})
    with open_store(tmp_path / "master") as store:
        store.put_message(Message("orders", b"x"))
        store.update_topic(topic)
        store.put_batch(MessageExtBatch.of([Message("batches", b"x")] * 3, unique_key="0" * 32))
        store.wait_dispatched()
        end = store.max_commit_log_offset
    ends = []
    with open_store(tmp_path / "copy") as store:

        def make_topic() -> None:
            ends.append(writer.end_offset)
            store.update_topic(topic)

        writer = store.replica_writer(make_topic)
        assert writer.append(array(log_of(tmp_path / "master", end)[1])) == end
        assert (ends, writer.unknown_topics) == ([0], {"orders"})


def test_a_log_of_copies_takes_no_put_and_goes_on_with_copies(source: tuple[Path, bytes], tmp_path: Path) -> None:
    data = source[1]
    with MessageStore.open(tmp_path / "copy", mapped_file_size_commit_log=FILE_SIZE, dispatch="caller") as store:
        store.loop_writer().take_copies_only()
        writer = store.replica_writer()
        for put in (
            lambda: store.put_message(Message("orders", b"x")),
            lambda: store.put_messages([Message("orders", b"x")]),
            lambda: store.put_message(MessageExtBatch.of([Message("orders", b"x")])),
            lambda: store.loop_writer().append_written(lambda room: 0),
            lambda: store.loop_writer().make_room(1),
        ):
            with pytest.raises(StoreStateError, match="takes copies of its master's log, and no puts"):
                put()
            assert store.loop_writer().put_refusal is None  # nothing is wrong with the disk
        assert store.max_commit_log_offset == 0
        writer.append(array(data))
        assert store.max_commit_log_offset == len(data)
