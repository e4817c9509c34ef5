"""Consume queue extensions through an open store; the bytes against RocketMQ's are in tests/golden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import reput
from reput.errors import ConfigError
from reput.files import DISK
from reput.formats.consume_queue import UNIT_SIZE, decode_unit, encode_unit
from reput.formats.consume_queue_ext import encode_address, encode_ext_unit
from reput.formats.paths import offset_to_file_name
from reput.store.queues.consume_queue_ext import ConsumeQueueExt
from tests.support.faulty_files import FaultyFiles
from tests.support.fixtures import OpenStore

ON = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 100}


def ext_files(path: Path) -> list[int]:
    return [int(file.name) for file in sorted((path / "consumequeue_ext/t/0").iterdir())]


def test_the_key_can_be_turned_on_for_a_store_that_has_messages(open_store: OpenStore, path: Path) -> None:
    store = open_store()
    for tags in ("a", "b"):
        store.put_message(reput.Message("t", b"x", tags=tags))
    store.close()
    assert not (path / "consumequeue_ext").exists()
    store = open_store(**ON)
    assert store.recovery.dispatched_records == 0
    for tags in ("a", "b"):
        store.put_message(reput.Message("t", b"y", tags=tags))
    store.wait_dispatched()
    (queue,) = store._queues.queues()
    assert [queue.ext_unit(offset) is None for offset in range(4)] == [True, True, False, False]
    assert [(m.body, m.tags) for m in store.get_message("t", 0, 0, tags="b").messages()] == [(b"x", "b"), (b"y", "b")]
    assert ext_files(path) == [0]


def test_a_filter_sees_through_addresses_in_many_files(open_store: OpenStore, path: Path) -> None:
    store = open_store(**ON, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
    store.put_messages([reput.Message("t", b"x", tags="abc"[i % 3]) for i in range(60)])
    store.wait_dispatched()
    assert len(ext_files(path)) == 15  # four units a file
    for tags, wanted in (("a", {0}), ("b || c", {1, 2}), ("d", set())):
        found = [m.queue_offset for m in store.get_message("t", 0, 0, tags=tags).messages()]
        assert found == [i for i in range(60) if i % 3 in wanted][:32]


def test_files_before_the_first_message_of_a_queue_can_be_removed(open_store: OpenStore, path: Path) -> None:
    store = open_store(**ON, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
    store.put_messages([reput.Message("t", b"x", tags="a") for _ in range(20)])
    store.wait_dispatched()
    (queue,) = store._queues.queues()
    assert queue.ext is not None
    assert ext_files(path) == [0, 100, 200, 300, 400]
    queue.ext.truncate_by_min_address(17)  # a plain tags code
    queue.ext.truncate_by_min_address(encode_address(100))  # RocketMQ keeps a file that ends there
    assert ext_files(path) == [0, 100, 200, 300, 400]
    queue.min_offset = 9
    store._queues.delete_expired(store.min_commit_log_offset, lambda: None)
    assert ext_files(path) == [200, 300, 400]
    assert len(store.get_message("t", 0, 9, tags="a").messages()) == 11
    store.close()
    store = open_store(**ON, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
    store.put_message(reput.Message("t", b"x", tags="b"))
    store.wait_dispatched()
    assert len(store.get_message("t", 0, 9, tags="b").messages()) == 1
    assert ext_files(path) == [200, 300, 400, 500]


@pytest.mark.parametrize("wrong", [[b"x"], pa.array([b"x", b"y"]), pa.array(["x"]), b"x"])
def test_bit_maps_that_do_not_fit_the_records_stop_the_store_and_are_named(
    open_store: OpenStore, wrong: object
) -> None:
    store = open_store(**ON, bit_maps=lambda columns: wrong)
    store.put_message(reput.Message("t", b"x"))
    with pytest.raises(ConfigError, match=r"bit_maps gave .*, expected a pyarrow BinaryArray of 1 values"):
        store.wait_dispatched()
    with pytest.raises(ConfigError):
        store.close()
    store = open_store(**ON)
    assert store.max_offset("t", 0) == 1


def test_a_queue_that_is_gone_takes_its_old_extension_with_it(open_store: OpenStore, path: Path) -> None:
    import shutil

    store = open_store(**ON)
    for _ in range(7):
        store.put_message(reput.Message("t", b"x", tags="a"))
    store.close()
    before = [(path / f"consumequeue_ext/t/0/{start:020d}").read_bytes() for start in (0, 100)]
    shutil.rmtree(path / "consumequeue/t")
    (path / f"consumequeue_ext/t/0/{300:020d}").write_bytes(bytes(100))
    store = open_store(**ON)
    assert store.max_offset("t", 0) == 7
    assert ext_files(path) == [0, 100]
    store.close()
    assert [(path / f"consumequeue_ext/t/0/{start:020d}").read_bytes() for start in (0, 100)] == before


@pytest.mark.parametrize("messages", [1, 5])
def test_where_the_last_ext_unit_is_lost_the_next_one_goes_to_a_new_file(
    open_store: OpenStore, path: Path, messages: int
) -> None:
    """Else an older unit of the queue would point to it. The first ext unit has offset 0."""
    store = open_store(**ON)
    for _ in range(messages):
        store.put_message(reput.Message("t", b"x", tags="old"))
    store.close()
    last = max(ext_files(path))
    (path / f"consumequeue_ext/t/0/{last:020d}").unlink()
    store = open_store(**ON)
    store.put_message(reput.Message("t", b"x", tags="new"))
    store.wait_dispatched()
    assert ext_files(path) == [last + 100]


def test_what_a_recovery_wipes_out_is_synced_by_the_next_flush(open_store: OpenStore, path: Path) -> None:
    """Else it would be there again after a power cut, and RocketMQ would take it for ext units."""
    store = open_store(**ON)
    store.put_messages([reput.Message("t", b"x", tags="a") for _ in range(2)])
    store.close()
    folder, files = path / "consumequeue_ext/t/0", FaultyFiles()
    for wiped in (1, 0):
        ext = ConsumeQueueExt(files, str(folder), 100, [0], on_new_name=lambda name: None, on_map=lambda: None)
        ext.recover(encode_address(0))
        ext.flush()
        synced = [operation.path for operation in files.operations if operation.kind == "sync"]
        assert synced == [str(folder / f"{0:020d}")] * wiped
        files.operations.clear()


@pytest.mark.parametrize("lost", [500, 5000])
def test_a_map_is_held_while_a_lost_unit_stands_between_units_of_its_file(tmp_path: Path, lost: int) -> None:
    """A file with a hole is mapped anew by each read on tmpfs, where `make test` has its folders."""
    with DISK.open(str(tmp_path / offset_to_file_name(0)), writable=True, create=True, size=1 << 20) as file:
        file.write(0, encode_ext_unit(77, 1))
    ext = ConsumeQueueExt(DISK, str(tmp_path), 1 << 20, [0], on_new_name=lambda name: None, on_map=lambda: None)
    addresses = [encode_address(at) for at in (0, lost << 10, 0)]
    units = np.frombuffer(b"".join(encode_unit(0, 100, address) for address in addresses), np.uint8).copy()
    resolved = ext.resolve(units.ctypes.data, 3)
    tags_codes = [decode_unit(resolved.data, at * UNIT_SIZE).tags_code for at in range(3)]
    assert tags_codes == [77, addresses[1], 77]
