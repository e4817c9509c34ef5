"""Archived log files, read: from the objects of an archive back to the log file, byte for byte.

Nothing is taken on trust. Each object is compared with its SHA-256 before it is decoded, and the log file that was made
of it with its own; so whatever the archive has become, no wrong log file comes of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from reput.errors import CorruptBackupError, StoreError
from reput.files import File, FileLayer
from reput.formats.archive import (
    REST,
    ROWS,
    ArchivedFile,
    ArchiveObject,
    archived_file_name,
    archived_offset,
    decode_archived_file,
)
from reput.formats.backup import LogRange
from reput.kernels.archive.archived_rows import CODED, REST_SCHEMA, ROWS_SCHEMA, restore_rows
from reput.kernels.archive.rest_pieces import restore_rest

_READ_BYTES = 1 << 20
_ADVICE = "put it back from a copy of the archive"


def archived_offsets(archive: str, files: FileLayer) -> list[int]:
    """Offsets of the log files that an archive has, in order."""
    offsets = (archived_offset(name) for name in files.list_names(archive))
    return sorted(offset for offset in offsets if offset is not None)


def read_archived_file(archive: str, start_offset: int, files: FileLayer) -> ArchivedFile:
    """Read the manifest of a log file; raises CorruptBackupError."""
    path = os.path.join(archive, archived_file_name(start_offset))
    try:
        data = files.read_bytes(path)
    except StoreError as error:
        raise CorruptBackupError(path, 0, f"{error}; {_ADVICE}") from error
    file = decode_archived_file(data, path)
    if file.log.begin != start_offset:
        raise CorruptBackupError(path, 0, f"it is the manifest of another file, {file.name}; {_ADVICE}")
    return file


def sha256_of(file: File) -> str:
    """SHA-256 of a file, in hex."""
    digest, position = hashlib.sha256(), 0
    while data := file.read(position, _READ_BYTES):
        digest.update(data)
        position += len(data)
    return digest.hexdigest()


def check_objects(archive: str, archived: ArchivedFile, files: FileLayer) -> None:
    """Compare the objects of a log file with their sizes and hashes; raises CorruptBackupError."""
    for name, expected in archived.objects:
        path = os.path.join(archive, name)
        try:
            with files.open(path) as file:
                found = ArchiveObject(file.size, sha256_of(file))
        except StoreError as error:
            raise CorruptBackupError(path, 0, f"{error}; {_ADVICE}") from error
        if found != expected:
            raise CorruptBackupError(
                path, 0, f"expected {expected.size} bytes with SHA-256 {expected.sha256}, found {found.size} with "
                f"{found.sha256}; {_ADVICE}",
            )  # fmt: skip


def restore_file(archive: str, archived: ArchivedFile, path: str, files: FileLayer) -> None:
    """Make the log file at a new path, whole; it is not synced.

    Raises:
        CorruptBackupError: An object is missing or damaged; what is at the path is no log file then.
        StoreError: The file cannot be written.
    """
    check_objects(archive, archived, files)
    with files.open(path, writable=True, create=True) as file:
        _fill(archive, archived, file, files)


def prove_file(archive: str, archived: ArchivedFile, files: FileLayer) -> None:
    """Make the log file as `restore_file` does, where the system has temporary files (TMPDIR), and give its room back.

    It has no name meanwhile, so a kill leaves nothing of it.

    Raises as `restore_file`.
    """
    check_objects(archive, archived, files)
    folder = files.make_temporary_directory()
    try:
        file = files.open(os.path.join(folder, archived.name), writable=True, create=True)
    finally:
        files.remove_tree(folder)
    with file:
        _fill(archive, archived, file, files)


def _fill(archive: str, archived: ArchivedFile, file: File, files: FileLayer) -> None:
    """Make the log file of its objects, in an empty file."""
    file.allocate(0, archived.log.size)
    mapping = file.map(writable=True)
    out = np.frombuffer(mapping.view, np.uint8)
    _restore_rows(os.path.join(archive, archived.name + ROWS), archived.log, out, files)
    if archived.rest is not None:
        _restore_rest(os.path.join(archive, archived.name + REST), archived.log, out, files)
    del out
    mapping.release()
    found = sha256_of(file)
    if found != archived.log.sha256:
        manifest = os.path.join(archive, archived_file_name(archived.log.begin))
        raise CorruptBackupError(
            manifest, 0, f"the log file that it describes has SHA-256 {archived.log.sha256}, and its objects make one "
            f"with {found}; {_ADVICE}",
        )  # fmt: skip


def _restore_rows(path: str, log: LogRange, out: np.ndarray, files: FileLayer) -> None:
    done = 0
    for batch in _batches(path, ROWS_SCHEMA, files, coded=CODED):
        rows = restore_rows(batch, out, log.begin)
        if rows != batch.num_rows:
            raise CorruptBackupError(path, 0, f"row {done + rows} is no record of the log file; {_ADVICE}")
        done += rows


def _restore_rest(path: str, log: LogRange, out: np.ndarray, files: FileLayer) -> None:
    for batch in _batches(path, REST_SCHEMA, files):
        offsets = np.array(batch["commit_log_offset"].to_numpy())  # Arrow's are read-only, and kernels take others
        pieces = batch["bytes"]
        pieces = pa.concat_arrays([pieces]) if pieces.offset else pieces
        _, begins, data = pieces.buffers()
        done = restore_rest(begins.address, offsets, data.address, out.ctypes.data, out.size, log.begin)
        if done != batch.num_rows:
            raise CorruptBackupError(path, 0, f"piece {done} lies outside of the log file; {_ADVICE}")


def _batches(
    path: str, schema: pa.Schema, files: FileLayer, *, coded: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """Row groups of an object, one at a time: the memory of a row group is all that is taken."""
    with files.open(path) as file:
        mapping = file.map()
    mapping.ask(0, mapping.size)
    try:
        opened = parquet.ParquetFile(pa.BufferReader(pa.py_buffer(mapping.view)), read_dictionary=list(coded))
        if not _plain(opened.schema_arrow).equals(schema):
            raise CorruptBackupError(path, 0, f"it has other columns than {', '.join(schema.names)}; {_ADVICE}")
        for number in range(opened.num_row_groups):
            table = opened.read_row_group(number, use_threads=False)
            for name in coded:  # Parquet's reader believes the places of values in a dictionary, and kernels go there
                table[name].validate(full=True)
            yield from table.unify_dictionaries().combine_chunks().to_batches()
    except pa.ArrowException as error:
        raise CorruptBackupError(path, 0, f"it is no Parquet file ({error}); {_ADVICE}") from error


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with values in place of dictionaries."""
    fields = (
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema
    )
    return pa.schema(list(fields))
