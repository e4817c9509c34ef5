"""Names in an archive of a store's log, its identity, and manifests of archived files (docs/formats/archive.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reput.errors import CorruptBackupError
from reput.formats.backup import LastBackedUp, LogRange, last_from_list, last_to_list, sha256_of_text
from reput.formats.java import INT32_MAX
from reput.formats.own_json import decode_with_sha256, encode_with_sha256, number
from reput.formats.paths import file_name_to_offset, offset_to_file_name

#: Marks a folder as an archive, and names the store; written before everything else.
ARCHIVE_FILE = "archive.json"
FORMAT = "reput archive 1"
#: Endings of the objects of a log file: its messages, all other bytes, and the manifest, which is written last.
ROWS, REST, _MANIFEST = ".parquet", ".rest.parquet", ".json"
_IDENTITY, _FILE = "archive", "file"


@dataclass(frozen=True, slots=True)
class ArchiveIdentity:
    """The store that an archive is of: path of its directory, and size of its log files in bytes."""

    store: str
    log_file_size: int


@dataclass(frozen=True, slots=True)
class ArchiveObject:
    """File of an archive beside a manifest: size in bytes, and SHA-256 in hex."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """Manifest of an archived log file.

    Attributes:
        log: the bytes of the log file, all of them.
        messages: rows: records that the columns give back.
        last: the last record that proves itself; None without one.
        rows: the file with the rows.
        rest: the file with all other bytes that are not zero; None if there are none.
        rest_bytes: these bytes.
    """

    log: LogRange
    messages: int
    last: LastBackedUp | None
    rows: ArchiveObject
    rest: ArchiveObject | None
    rest_bytes: int

    @property
    def name(self) -> str:
        """Name of the log file."""
        return offset_to_file_name(self.log.begin)

    @property
    def objects(self) -> tuple[tuple[str, ArchiveObject], ...]:
        """(name, object) of the files with rows and rest."""
        pairs = ((self.name + ROWS, self.rows), (self.name + REST, self.rest))
        return tuple((name, one) for name, one in pairs if one is not None)

    @property
    def archived_bytes(self) -> int:
        """Bytes of the files with rows and rest."""
        return sum(one.size for _, one in self.objects)


def archived_file_name(start_offset: int) -> str:
    """Name of the manifest of the log file that begins at an offset; the file is archived if its manifest exists."""
    return offset_to_file_name(start_offset) + _MANIFEST


def archived_offset(name: str) -> int | None:
    """Offset of the log file whose manifest has this name; None for any other file."""
    return file_name_to_offset(name.removesuffix(_MANIFEST)) if name.endswith(_MANIFEST) else None


def encode_identity(identity: ArchiveIdentity) -> bytes:
    """Bytes of `archive.json`."""
    content = {"format": FORMAT, "store": identity.store, "logFileSize": identity.log_file_size}
    return encode_with_sha256(_IDENTITY, content)


def decode_identity(data: bytes, path: str) -> ArchiveIdentity:
    """Inverse of `encode_identity`.

    Raises:
        CorruptBackupError: The bytes are no identity of an archive, or a damaged one.
    """
    try:
        content = decode_with_sha256(data, _IDENTITY)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r:.40}, expected {FORMAT!r}")
        identity = ArchiveIdentity(_text(content["store"]), number(content["logFileSize"], 1, INT32_MAX))
        _check_is_canonical(data, encode_identity(identity))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"not the file that an archive begins with ({error}); put it back from a copy"
        raise CorruptBackupError(path, getattr(error, "pos", 0), reason) from None
    return identity


def encode_archived_file(file: ArchivedFile) -> bytes:
    """Bytes of a manifest, with its checksum."""
    content = {
        "beginOffset": file.log.begin,
        "endOffset": file.log.end,
        "sha256": file.log.sha256,
        "messages": file.messages,
        "last": None if file.last is None else last_to_list(file.last),
        "rows": _object_to_list(file.rows),
        "rest": None if file.rest is None else _object_to_list(file.rest),
        "restBytes": file.rest_bytes,
    }
    return encode_with_sha256(_FILE, content)


def decode_archived_file(data: bytes, path: str) -> ArchivedFile:
    """Inverse of `encode_archived_file`. One wrong bit anywhere is an error.

    Raises:
        CorruptBackupError: The bytes are no manifest of an archived file, or a damaged one.
    """
    try:
        file = _file(decode_with_sha256(data, _FILE))
        _check_is_canonical(data, encode_archived_file(file))
    except (ValueError, KeyError, TypeError) as error:
        reason = (
            f"not the manifest that an archive has written ({error}); put it back from a copy, or remove it: while the "
            "store has the log file, `reput archive` archives it again"
        )
        raise CorruptBackupError(path, getattr(error, "pos", 0), reason) from None
    return file


def _file(content: Mapping[str, Any]) -> ArchivedFile:
    begin = number(content["beginOffset"])
    size = number(content["endOffset"], begin + 1, begin + INT32_MAX) - begin
    last, rest = content["last"], content["rest"]
    return ArchivedFile(
        LogRange(begin, begin + size, sha256_of_text(content["sha256"])),
        number(content["messages"], 0, size),
        None if last is None else last_from_list(*last),
        _object(*content["rows"]),
        None if rest is None else _object(*rest),
        number(content["restBytes"], 0, size),
    )


def _check_is_canonical(data: bytes, encoded: bytes) -> None:
    """Raise ValueError if the bytes are not those that are written: a bit may differ where JSON does not care."""
    if data != encoded:
        raise ValueError("it has the members that are expected, but not their bytes")


def _object(size: object, sha256: object) -> ArchiveObject:
    return ArchiveObject(number(size, 1), sha256_of_text(sha256))


def _object_to_list(one: ArchiveObject) -> list[int | str]:
    return [one.size, one.sha256]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, found {str(value)[:40]!r}")
    return value
