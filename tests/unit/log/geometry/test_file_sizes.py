"""Sizes of a store's files: found the same way for whoever refuses an odd file and for whoever reports it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFormatError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue_ext import encode_ext_unit
from reput.formats.message import Message
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from reput.log.directory import StoreDirectory, usual_size
from reput.log.geometry.file_sizes import BATCH, SIMPLE, OddSize, find_file_sizes, find_writer_sizes
from tests.support.fixtures import LogWriter

CONFIG = MessageStoreConfig()
FIRST = f"{0:020d}"


@pytest.mark.parametrize(
    ("sizes", "unit_size", "usual"),
    [
        ([], 1, 0),
        ([60, 60, 80], 1, 60),
        ([60, 80], 1, 80),
        ([61, 61, 80], 20, 80),
        ([61, 61, 81], 20, 61),
        ([0, 0, 60], 1, 60),
    ],
)
def test_the_usual_size_is_the_most_frequent_one_of_whole_units(sizes: list[int], unit_size: int, usual: int) -> None:
    assert usual_size(iter(sizes), unit_size) == usual


def store_of(path: Path, files: Mapping[str, int]) -> StoreDirectory:
    """A store with files of these sizes, full of zeros."""
    (path / "commitlog").mkdir(parents=True)
    for name, size in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(size))
    return StoreDirectory(path)


def queues(folder: str, *sizes: int) -> dict[str, int]:
    """A queue with one file of each size."""
    return {f"{folder}/t/{number}/{FIRST}": size for number, size in enumerate(sizes)}


@pytest.mark.parametrize("odd", OddSize)
def test_each_kind_of_queue_has_the_size_of_its_files(odd: OddSize, tmp_path: Path) -> None:
    files = queues(CONSUME_QUEUE, 160, 160) | queues(BATCH_CONSUME_QUEUE, 2 * BATCH_UNIT_SIZE)
    found = find_file_sizes(store_of(tmp_path, files), CONFIG, odd, index=False)
    assert found.values == {SIMPLE.key: 160, BATCH.key: 2 * BATCH_UNIT_SIZE}
    assert found.findings == []


def test_a_kind_without_files_has_the_configured_size_where_it_is_built(tmp_path: Path) -> None:
    directory = store_of(tmp_path, {})
    assert find_file_sizes(directory, CONFIG).values == {}
    assert find_file_sizes(directory, CONFIG, OddSize.REPORT).values == {
        "mapped_file_size_consume_queue": 6_000_000,
        "mapper_file_size_batch_consume_queue": 13_800_000,
        "max_hash_slot_num": 5_000_000,
        "max_index_num": 20_000_000,
    }


@pytest.mark.parametrize(("odd_bytes", "refusal"), [(100, "the files of most queues 160"), (161, "a multiple of 20")])
def test_a_cut_file_is_refused_or_reported(odd_bytes: int, refusal: str, tmp_path: Path) -> None:
    directory = store_of(tmp_path, queues(CONSUME_QUEUE, 160, 160, odd_bytes))
    with pytest.raises(StoreFormatError, match=refusal):
        find_file_sizes(directory, CONFIG)
    found = find_file_sizes(directory, CONFIG, OddSize.REPORT)
    assert found.values[SIMPLE.key] == 160
    assert [text.partition(":")[0] for text in found.findings] == [f"{tmp_path}/{CONSUME_QUEUE}/t/2/{FIRST}"]


def test_of_two_sizes_that_are_equally_likely_the_user_must_give_one(tmp_path: Path) -> None:
    directory = store_of(tmp_path, queues(CONSUME_QUEUE, 160, 80))
    with pytest.raises(StoreFormatError, match="as many files of each size: give the broker's own with --set mapped"):
        find_file_sizes(directory, CONFIG, OddSize.REPORT)
    found = find_file_sizes(directory, CONFIG, OddSize.REPORT, given={SIMPLE.key})
    assert SIMPLE.key not in found.values
    assert not found.findings


def test_extensions_are_told_even_where_their_size_is_given(tmp_path: Path) -> None:
    directory = store_of(tmp_path, {})
    file = tmp_path / CONSUME_QUEUE_EXT / "t" / "0" / FIRST
    file.parent.mkdir(parents=True)
    file.write_bytes(encode_ext_unit(1, 2).ljust(256, b"\0"))
    extensions = {"enable_consume_queue_ext": True}
    size = {"mapped_file_size_consume_queue_ext": 256}
    assert find_file_sizes(directory, CONFIG).values == extensions | size
    assert find_file_sizes(directory, CONFIG, given=size).values == extensions


def test_a_writer_is_told_the_size_of_log_files_too(write_log: LogWriter, tmp_path: Path) -> None:
    write_log([Message("t", b"x")], 4096)
    directory = StoreDirectory(tmp_path / "store")
    assert find_writer_sizes(directory, CONFIG) == {"mapped_file_size_commit_log": 4096}
