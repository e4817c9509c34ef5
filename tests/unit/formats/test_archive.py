"""The identity of an archive, and the manifest of an archived file: one wrong bit anywhere is an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptBackupError
from reput.formats.archive import (
    ArchivedFile,
    ArchiveIdentity,
    ArchiveObject,
    archived_file_name,
    archived_offset,
    decode_archived_file,
    decode_identity,
    encode_archived_file,
    encode_identity,
)
from reput.formats.backup import LastBackedUp, LogRange
from reput.formats.java import INT32_MAX

PAGE = Path(__file__).parents[3] / "docs/formats/archive.md"
IDENTITY = ArchiveIdentity("/data/störe", 4096)
FILE = ArchivedFile(
    LogRange(8192, 12_288, "a" * 64),
    17,
    LastBackedUp(12_000, 1_700_000_000_000, 88, 305_419_896),
    ArchiveObject(5000, "b" * 64),
    ArchiveObject(700, "c" * 64),
    8,
)

texts = st.text()
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
objects = st.builds(ArchiveObject, st.integers(1, 1 << 40), hashes)


@st.composite
def archived_files(draw: st.DrawFn) -> ArchivedFile:
    size = draw(st.integers(1, INT32_MAX))
    begin = draw(st.integers(0, 1 << 60))
    last = st.builds(LastBackedUp, st.integers(0, 1 << 60), st.integers(), st.integers(0, 200), st.integers(0, 1 << 31))
    return ArchivedFile(
        LogRange(begin, begin + size, draw(hashes)),
        draw(st.integers(0, size)),
        draw(st.none() | last.filter(lambda one: abs(one.store_timestamp) < 1 << 62)),
        draw(objects),
        draw(st.none() | objects),
        draw(st.integers(0, size)),
    )


@given(archived_files())
def test_a_manifest_comes_back(file: ArchivedFile) -> None:
    assert decode_archived_file(encode_archived_file(file), "x") == file


@given(texts, st.integers(1, INT32_MAX))
def test_an_identity_comes_back(store: str, size: int) -> None:
    identity = ArchiveIdentity(store, size)
    assert decode_identity(encode_identity(identity), "x") == identity


@pytest.mark.parametrize(
    ("data", "decode"),
    [(encode_archived_file(FILE), decode_archived_file), (encode_identity(IDENTITY), decode_identity)],
)
def test_a_wrong_bit_anywhere_is_an_error(data: bytes, decode) -> None:  # type: ignore[no-untyped-def]
    for position in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            with pytest.raises(CorruptBackupError):
                decode(bytes(wrong), "x")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"sha256": 1}', encode_identity(IDENTITY) + b" "])
def test_another_text_is_an_error(data: bytes) -> None:
    for decode in (decode_archived_file, decode_identity):
        with pytest.raises(CorruptBackupError, match="put it back"):
            decode(data, "x")


def test_the_objects_have_the_name_of_the_log_file() -> None:
    assert [name for name, _ in FILE.objects] == [f"{8192:020}.parquet", f"{8192:020}.rest.parquet"]
    assert archived_offset(archived_file_name(8192)) == 8192
    for name in ("archive.json", f"{8192:020}.parquet", f"{8192:020}", f"{8192:019}.json", f"{8192:020}.json.tmp"):
        assert archived_offset(name) is None


def test_the_page_has_a_manifest_that_is_one() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = decode_archived_file(text.encode(), "x")
    assert (file.log.begin, file.log.size, file.messages, file.rest_bytes) == (4096, 4096, 17, 8)
