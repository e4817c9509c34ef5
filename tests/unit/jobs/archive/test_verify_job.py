"""Verification of archives: a wrong byte anywhere is found, by it and by a restore."""

from __future__ import annotations

import hashlib
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from reput.errors import CorruptBackupError, ReputError, StoreFormatError
from reput.files import DISK
from reput.formats.archive import ArchiveObject, encode_archived_file
from reput.jobs.archive import archive, verify
from reput.jobs.archived_files import read_archived_file
from reput.jobs.backup import restore
from reput.jobs.runner import LocalRunner
from tests.support.archives import FILE_SIZE, log_files, store_with_sealed_files

RUNNER = LocalRunner(1)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and its archive."""
    folder = tmp_path_factory.mktemp("verify")
    store = store_with_sealed_files(folder / "store", 100)
    archive(store, folder / "archive", runner=RUNNER)
    return store, folder / "archive"


def files_of(target: Path) -> list[Path]:
    """Files of an archive that mean something."""
    return sorted(path for path in target.rglob("*") if path.is_file() and path.name != "lock")


def faults(target: Path) -> list[str]:
    try:
        return list(verify(target, runner=RUNNER).findings)
    except ReputError as error:
        return [str(error)]


def test_a_whole_archive_is_proven(archived: tuple[Path, Path]) -> None:
    _, target = archived
    result = verify(target, runner=RUNNER)
    assert (result.findings, result.files * FILE_SIZE) == ((), result.log_bytes)
    assert result.messages > 0


def test_a_wrong_bit_anywhere_is_found_and_makes_no_wrong_log_file(archived: tuple[Path, Path], tmp_path: Path) -> None:
    store, target = archived
    chance = random.Random(48)
    expected = log_files(store)
    copy, restored = tmp_path / "archive", tmp_path / "restored"
    for path in files_of(target):
        for _ in range(3):
            shutil.copytree(target, copy)
            data = bytearray(path.read_bytes())
            position = chance.randrange(len(data))
            data[position] ^= 1 << chance.randrange(8)
            (copy / path.relative_to(target)).write_bytes(data)
            assert faults(copy), (path, position)
            with pytest.raises(ReputError):
                restore(copy, restored, runner=RUNNER)
            for found in tmp_path.glob("restored.unfinished/_reput/store/commitlog/*"):
                assert found.read_bytes() == expected[found.name]
            shutil.rmtree(tmp_path / "restored.unfinished", ignore_errors=True)
            shutil.rmtree(copy)


def test_a_missing_file_is_found(archived: tuple[Path, Path], tmp_path: Path) -> None:
    _, target = archived
    for path in files_of(target):
        copy = Path(shutil.copytree(target, tmp_path / "archive"))
        (copy / path.relative_to(target)).unlink()
        assert faults(copy), path
        shutil.rmtree(copy)


@pytest.mark.parametrize("endings", [(".json",), (".parquet",), (".json", ".parquet", ".rest.parquet")])
def test_files_that_were_swapped_are_found(
    archived: tuple[Path, Path], tmp_path: Path, endings: tuple[str, ...]
) -> None:
    _, target = archived
    copy = Path(shutil.copytree(target, tmp_path / "archive"))
    for ending in endings:
        first, second = copy / f"{0:020}{ending}", copy / f"{FILE_SIZE:020}{ending}"
        if first.exists() and second.exists():
            data = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
    assert faults(copy)


@pytest.mark.parametrize("place", ["body", "a place outside", "properties"])
def test_objects_that_fit_their_hashes_and_make_another_log_file_are_found(
    archived: tuple[Path, Path], tmp_path: Path, place: str
) -> None:
    """As a fault of the writer would leave them, or whoever can write to the folder."""
    _, target = archived
    copy = Path(shutil.copytree(target, tmp_path / "archive"))
    file = read_archived_file(str(copy), 0, DISK)
    path = copy / f"{file.name}.parquet"
    table = pq.read_table(path)
    columns = {
        "body": ("body", pa.array([b"x"] * table.num_rows, pa.binary())),
        "a place outside": ("commit_log_offset", pa.array([FILE_SIZE - 50] * table.num_rows)),
        "properties": ("property_order", pa.array(["." * 99] * table.num_rows)),
    }
    name, column = columns[place]
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, column), path)
    data = path.read_bytes()
    rows = ArchiveObject(len(data), hashlib.sha256(data).hexdigest())
    (copy / f"{file.name}.json").write_bytes(encode_archived_file(replace(file, rows=rows)))
    assert faults(copy)
    with pytest.raises(CorruptBackupError):
        restore(copy, tmp_path / "restored", runner=RUNNER)
    assert not list(tmp_path.glob(f"restored.unfinished/_reput/store/commitlog/{file.name}"))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="no archive"):
        verify(tmp_path, runner=RUNNER)
