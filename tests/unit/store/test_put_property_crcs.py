"""`enabledAppendPropCRC`: written by every way in, checked by readers and recovery, and no hindrance to a copy."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import CorruptRecordError, MessageIllegalError
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.record_layout import FLAG
from tests.oracles.record_scan import bad_property_crc
from tests.support.damage import at, flip
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL, contents, log_records

CORPUS = Path(__file__).parents[2] / "golden" / "5.3.3" / "prop-crc" / "store"
ON = {"enabled_append_prop_crc": True}


def put_all_ways(store: reput.MessageStore) -> int:
    """Messages by every way in, over several files; returns how many."""
    message = reput.Message("t", bytes(500), tags="a", keys=["k"], properties={"__CRC32#": "1234567890", "p": "1"})
    hosts = reput.Message("t", bytes(500), born_host="[2001:db8::1]:1", wait_store_msg_ok=False)
    for one in (message, hosts, reput.Message("t", b"")):
        store.put_message(one)
        store.async_put_message(one).result()
    store.put_messages([message, hosts])
    rows = {"topic": ["t"] * 20, "body": [bytes(300)] * 20, "sys_flag": [0, 4, 8, 12] * 5}
    properties = pa.array([[("a", "1"), ("__CRC32#", "0000000000")], None] * 10, pa.map_(pa.string(), pa.string()))
    store.put_arrow(pa.table(rows).append_column("properties", properties))
    return 28


@pytest.mark.parametrize("on", [True, False])
def test_every_way_in_writes_the_crc_of_the_record_and_none_keeps_that_of_another(
    open_store: OpenStore, path: Path, on: bool
) -> None:
    with open_store(enabled_append_prop_crc=on) as store:
        count = put_all_ways(store)
    records = log_records(path)
    assert len(records) == count
    for record in records:
        position = record.offset % 4096
        data = (path / "commitlog" / f"{record.offset - position:020d}").read_bytes()[position:]
        assert (b"__CRC32#" in record.row["properties"]) == on
        assert not on or not bad_property_crc(data[: record.size], record.row, True)
    assert set(reput.read_log(path).read_all()["status"].to_pylist()) == {"OK"}


def test_what_it_puts_is_what_it_gets(open_store: OpenStore) -> None:
    store = open_store(**ON)
    put_all_ways(store)
    store.wait_dispatched()
    (first, *_) = store.get_message("t", 0, 0).messages()
    assert list(first.properties) == ["p", "__CRC32#"]
    table = store.get_message("t", 0, 0).to_arrow()
    assert dict(table["properties"][0].as_py()) == first.properties
    assert set(table["status"].to_pylist()) == {"OK"}


@pytest.mark.parametrize("on", [True, False])
def test_a_store_of_rocketmq_with_crcs_can_be_put_into_another(open_store: OpenStore, path: Path, on: bool) -> None:
    given = reput.read_log(CORPUS, topics=[f"topic-{n}" for n in range(5)]).read_all()
    with open_store(enabled_append_prop_crc=on, mapped_file_size_commit_log=65_536) as store:
        assert store.put_arrow(given).messages == given.num_rows
    stored = reput.read_log(path).read_all()
    assert set(stored["status"].to_pylist()) == {"OK"}
    for name in ("topic", "body", "tags", "keys", "unique_key", "flag"):
        assert stored[name] == given[name]
    for pairs in zip(given["properties"].to_pylist(), stored["properties"].to_pylist(), strict=True):
        old, new = map(dict, pairs)
        assert old.pop("__CRC32#") != new.pop("__CRC32#", None)
        assert old == new


def test_the_limit_of_the_properties_counts_the_crc(open_store: OpenStore) -> None:
    store = open_store(**ON, mapped_file_size_commit_log=65_536)

    def put(size: int) -> None:
        pairs = pa.array([[("a", "x" * size)]], pa.map_(pa.string(), pa.string()))
        with pytest.raises(MessageIllegalError, match="32767") if size > 32_744 else nullcontext():
            store.put_arrow(pa.table({"topic": ["t"], "body": [b""], "properties": pairs}))
        with pytest.raises(MessageIllegalError, match="32767") if size > 32_744 else nullcontext():
            store.put_message(reput.Message("t", b"", properties={"a": "x" * size}))

    put(32_767 - 3 - 20)
    end = store.max_commit_log_offset
    put(32_767 - 3 - 19)
    assert store.max_commit_log_offset == end > 65_536


def test_a_reader_shows_a_record_whose_crc_does_not_fit_and_says_so(open_store: OpenStore, path: Path) -> None:
    with open_store(**ON) as store:
        offsets = [store.put_message(reput.Message("t", bytes(300), flag=n)).commit_log_offset for n in range(30)]
    flip(*at(path, offsets[11] + FLAG))  # which the CRC of the body does not cover
    table = reput.read_log(path).read_all()
    assert table["flag"].to_pylist() == [n ^ (0x01000000 if n == 11 else 0) for n in range(30)]
    assert [n for n, status in enumerate(table["status"].to_pylist()) if status == "BAD_PROPERTY_CRC"] == [11]


def killed(open_store: OpenStore, path: Path, **options: object) -> list[int]:
    """A killed store of six messages in one file; returns their offsets."""
    files = FaultyFiles()
    store = open_store(files=files, **options)
    offsets = [store.put_message(reput.Message("t", bytes(300))).commit_log_offset for _ in range(6)]
    abandon(store, files)
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(0, 0, 0)))
    return offsets


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_recovery_ends_the_log_at_a_wrong_crc_if_it_is_asked_to_write_them(
    open_store: OpenStore, path: Path, tmp_path: Path
) -> None:
    offsets = killed(open_store, path, **ON)
    flip(*at(path, offsets[4] + FLAG))  # which the CRC of the body does not cover
    other = shutil.copytree(path, tmp_path / "other")
    with open_store(**ON) as store:
        assert store.max_commit_log_offset == offsets[4]
    with reput.MessageStore.open(other, files=FaultyFiles(), **SMALL) as store:
        assert store.max_commit_log_offset > offsets[5]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("on", [True, False])
def test_who_asks_for_a_crc_in_each_record_loses_none_that_has_no_crc(
    open_store: OpenStore, path: Path, on: bool
) -> None:
    offsets = killed(open_store, path, enabled_append_prop_crc=on)
    if on:
        with open_store(force_verify_prop_crc=True) as store:
            assert store.max_commit_log_offset > offsets[5]
        return
    before = contents(path)
    with pytest.raises(CorruptRecordError, match=r"offset 0: .*forceVerifyPropCRC.*nothing was changed.*without"):
        open_store(force_verify_prop_crc=True)
    assert contents(path) == before
    with open_store() as store:
        assert store.max_commit_log_offset > offsets[5]
