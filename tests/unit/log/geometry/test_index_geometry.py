"""Slots and entries of index files: proven by the chains, whatever pairs make the same length, or asked for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.errors import StoreFormatError
from reput.formats.index_file import file_size
from reput.formats.java import index_hash
from reput.log.directory import IndexFilePath
from reput.log.geometry.index_geometry import index_geometry
from tests.oracles.index_file import IndexFile
from tests.support.examples import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL, contents

DEFAULT = (5_000_000, 20_000_000)


def write(path: Path, slots: int, entries: int, keys: list[tuple[int, int, int]]) -> list[IndexFilePath]:
    """An index file with (hash, commit log offset, store time) of each key; as a store's listing."""
    index = IndexFile(slots, entries)
    for key in keys:
        assert index.put_key(*key)
    data = bytes(index.data)
    assert len(data) == file_size(slots, entries)
    path.write_bytes(data)
    return [IndexFilePath(str(path), len(data))]


def keys(count: int, first_offset: int = 0) -> list[tuple[int, int, int]]:
    return [(index_hash(f"t#{n}"), first_offset + 100 * n, 1_700_000_000_000 + n) for n in range(count)]


@pytest.mark.parametrize("first_offset", [0, 1 << 33])
@pytest.mark.parametrize(
    ("slots", "entries", "count"), [(500, 1500, 1499), (7, 20, 19), (5000, 100, 30), (100, 4000, 5)]
)
def test_other_pairs_of_the_same_length_are_ruled_out_even_if_one_of_them_is_configured(
    tmp_path: Path, slots: int, entries: int, count: int, first_offset: int
) -> None:
    found = write(tmp_path / "index", slots, entries, keys(count, first_offset))
    configured = [DEFAULT, (slots, entries)]
    configured += [(slots + 5 * n, entries - n) for n in (-9, -2, -1, 1, 2, 9) if slots + 5 * n > 0]
    for pair in configured:
        assert index_geometry(found, *pair) == (slots, entries), pair


@pytest.mark.parametrize("count", [2, 10, 51])
def test_zeros_are_no_entries_where_the_newest_one_is_of_slot_0(tmp_path: Path, count: int) -> None:
    *others, (_, offset, time) = keys(count)
    found = write(tmp_path / "index", 100, 400, [*others, (100, offset, time)])
    assert index_geometry(found, *DEFAULT) == (100, 400)


def test_a_number_in_a_slot_is_no_offset_of_a_newest_entry_after_zeros(tmp_path: Path) -> None:
    hashes = [*range(1, 9), 76, 100]  # with 25 slots slot 76 is in the tenth entry, and the entries before it are zeros
    found = write(tmp_path / "index", 100, 400, [(one, 100 * n, 1_700_000_000_000) for n, one in enumerate(hashes)])
    assert index_geometry(found, *DEFAULT) == (100, 400)


@given(st.integers(1, 60), st.integers(2, 40), st.data())
@settings(max_examples=examples(60))
def test_what_is_proven_is_true_and_what_is_not_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory, slots: int, entries: int, data: st.DataObject
) -> None:
    hashes = st.integers(0, 2**31 - 1) | st.integers(0, 70)
    offsets = sorted(data.draw(st.lists(st.integers(0, 1 << 40), max_size=entries - 1)))
    found = write(
        tmp_path_factory.mktemp("index") / "file", slots, entries, [(data.draw(hashes), o, 10**12) for o in offsets]
    )
    assert index_geometry(found, slots, entries) == (slots, entries)
    with suppress(StoreFormatError):
        assert index_geometry(found, *DEFAULT) == (slots, entries)


def test_one_key_that_every_pair_explains_is_asked_for_unless_a_pair_is_configured(tmp_path: Path) -> None:
    found = write(tmp_path / "index", 20, 50, [(0, 0, 1_700_000_000_000)])  # its entry is twenty zero bytes, in slot 0
    with pytest.raises(
        StoreFormatError,
        match=r"pairs fit it: 5 and 53, 10 and 52, 15 and 51, \.\.\.\): give maxHashSlotNum and maxIndexNum",
    ):
        index_geometry(found, *DEFAULT)
    assert index_geometry(found, 20, 50) == (20, 50)
    assert index_geometry(found, 15, 51) == (15, 51)


def test_files_without_keys_have_the_configured_numbers_or_are_asked_for(tmp_path: Path) -> None:
    found = write(tmp_path / "index", 20, 50, [])
    assert index_geometry([], 1, 2) == (1, 2)
    assert index_geometry([IndexFilePath("empty", 0)], 1, 2) == (1, 2)
    assert index_geometry([IndexFilePath("empty", 0), *found], 20, 50) == (20, 50)
    with pytest.raises(StoreFormatError, match="does not have the numbers: give"):
        index_geometry(found, *DEFAULT)


def test_a_damaged_file_of_the_configured_length_is_not_asked_about(tmp_path: Path) -> None:
    found = write(tmp_path / "index", 20, 50, keys(30, 1000))
    data = bytearray((tmp_path / "index").read_bytes())
    data[40:] = bytes(len(data) - 40)  # what a power cut may leave: the header alone was written
    (tmp_path / "index").write_bytes(data)
    assert index_geometry(found, 20, 50) == (20, 50)
    with pytest.raises(StoreFormatError, match="counts 30 entries, which fit its content for no number of slots"):
        index_geometry(found, *DEFAULT)


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_that_was_cut_is_named_with_the_length_expected_and_how_the_index_is_built_again(
    tmp_path: Path, number: int
) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    found = [*write(folder / "1", 20, 50, keys(49, 1000)), *write(folder / "2", 20, 50, keys(30, 9000))]
    found[number] = IndexFilePath(found[number].path, 600)
    advice = f"index files derive from the log: move {folder} away"
    with pytest.raises(
        StoreFormatError, match=f"{found[number].path}: 600 bytes long, but the files beside it 1120; .*{advice}"
    ):
        index_geometry(found, *DEFAULT)
    (folder / "1").write_bytes((folder / "1").read_bytes()[:600])  # among its 49 entries
    with pytest.raises(
        StoreFormatError, match=f"{folder}/1: 600 bytes, expected 420000040, .*its header counts 49 entries.*{advice}"
    ):
        index_geometry([IndexFilePath(str(folder / "1"), 600)], *DEFAULT)


def test_a_store_is_not_written_with_numbers_that_its_files_disprove(tmp_path: Path) -> None:
    path, own = tmp_path / "store", SMALL | {"max_hash_slot_num": 7, "max_index_num": 60}
    with reput.MessageStore.open(path, files=FaultyFiles(), **own) as store:  # type: ignore[arg-type]
        for number in range(10):
            store.put_message(reput.Message("t", b"", keys=[f"k{number}"]))
    before = contents(path)
    wrong = own | {"max_hash_slot_num": 12, "max_index_num": 59}
    with pytest.raises(StoreFormatError, match="give maxHashSlotNum=7 and maxIndexNum=60"):
        reput.MessageStore.open(path, files=FaultyFiles(), **wrong)  # type: ignore[arg-type]
    assert contents(path) == before
    with reput.MessageStore.open(path, read_only=True, **wrong) as store:  # type: ignore[arg-type]
        assert len(store.query_message("t", "k3")) == 1
