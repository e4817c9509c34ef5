"""Marks of a dispatcher: back as they went, and what they name is checked before anything is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptMetadataError
from reput.files import DISK
from reput.formats.index_file import IndexHeader
from reput.formats.paths import is_index_file_name
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import DispatchMark, IndexMark, decode_mark, encode_mark, read_marks, write_marks
from reput.log.resume_points import LastRecord, ResumePoint
from reput.store.dispatch.log_dispatch import LogDispatch

OFFSETS, COUNTS = st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
LAST = st.builds(LastRecord, OFFSETS, TIMES, st.integers(0, 1024), st.integers(0, 2**32 - 1))
HEADERS = st.builds(IndexHeader, TIMES, TIMES, TIMES, TIMES, COUNTS, COUNTS)
NAMES = st.integers(0, 9999 * 10**13 - 1).map(lambda number: f"{number:017d}")
MARKS = st.builds(
    DispatchMark, st.builds(ResumePoint, OFFSETS, st.none() | LAST), st.none() | st.builds(IndexMark, NAMES, HEADERS)
)
ONE = DispatchMark(
    ResumePoint(8192, LastRecord(7900, 1_700_000_000_000, 88, 305_419_896)),
    IndexMark("20231114221320123", IndexHeader(1, 2, 0, 7900, 40, 41)),
)
ODD: list[Any] = [-1, 2**31, 2**63, -(2**63) - 1, 1.5, True, None, "x", "../../notes", "0" * 18, [], {}]


@given(MARKS)
def test_a_mark_comes_back_as_it_went(mark: DispatchMark) -> None:
    assert decode_mark(json.loads(json.dumps(encode_mark(mark)))) == mark


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize(
    "path", [("offset",), ("last", "offset"), ("last", "headerSize"), ("last", "headerCrc"), ("index", "name"),
             ("index", "header", 4), ("index", "header", 5), ("index", "header")],
    ids=str,
)  # fmt: skip
def test_an_odd_value_is_none_that_a_dispatcher_writes(path: tuple[Any, ...], odd: object) -> None:
    content = encode_mark(ONE)
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = odd
    try:
        mark = decode_mark(content)
    except (ValueError, KeyError, TypeError):
        return
    assert type(odd) is int  # 2**31 is an offset, and no count
    assert 0 <= odd < 2**63
    assert decode_mark(encode_mark(mark)) == mark


def test_the_marks_of_a_file_have_a_crc(tmp_path: Path) -> None:
    config = MessageStoreConfig()
    write_marks(str(tmp_path), [ONE], config, DISK)
    assert read_marks(str(tmp_path), DISK) == [ONE]
    path = tmp_path / "config/reputDispatch.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"8192", b"8193"))
    with pytest.raises(CorruptMetadataError, match="its CRC is"):
        read_marks(str(tmp_path), DISK)
    older = json.loads(whole)
    del older["crc32"]
    path.write_text(json.dumps(older))
    assert read_marks(str(tmp_path), DISK) == [ONE]


def test_no_file_outside_the_index_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, small=True) as store:
        store.put_message(reput.Message("t", b"x", keys=["k"]), 0)
    reput.MessageStore.open(path, dispatch="external").close()
    notes = tmp_path / "notes"
    notes.write_bytes(b"notes" * 200_000)
    marks = path / "config/reputDispatch.json"
    content = json.loads(marks.read_bytes())
    del content["crc32"]
    assert is_index_file_name(content["marks"][0]["index"]["name"])
    content["marks"][0]["index"]["name"] = "../../notes"
    marks.write_text(json.dumps(content))
    before = notes.read_bytes()
    with pytest.raises(CorruptMetadataError, match="expected the name of an index file"):
        LogDispatch(StoreDirectory(path), str(path), MessageStoreConfig(), in_store=True)
    assert notes.read_bytes() == before
