"""Source of an import that is text: files of CSV, or of JSON lines, with the columns as `reput.jobs.text_rows` says.

A file is one part: where a row of CSV begins is known only after all rows before it. Each file is read twice: as a
whole before anything is imported, so that a wrong line is found while the source may still be changed, and as a part.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow.fs import LocalFileSystem

from reput.errors import ConfigError, StoreFormatError
from reput.formats.java import INT32_MAX
from reput.formats.properties import split_keys
from reput.jobs.text_rows import TextKind
from reput.jobs.text_values import BASE64, body_of, json_object, message_object
from reput.kernels.records.message_columns import ASSIGNED
from reput.kernels.records.record_batch import SCHEMA

#: Where the row was: what files are put into order by.
_ORDER = "commit_log_offset"
#: Columns that are read, by name, of files with such a column.
_TYPES: dict[str, pa.DataType] = {
    field.name: field.type for field in SCHEMA if field.name not in ASSIGNED or field.name == _ORDER
}
_BODY = f"body{BASE64}"
_BLOCK_BYTES = 64 << 20
_ROWS = 8192
_FIRST_ROW = 1


@dataclass(frozen=True, slots=True)
class TextPart:
    """One file; picklable.

    Attributes:
        path: of the file.
        kind: of text.
        rows: count of rows.
        size: bytes of the file.
        columns: columns of messages that are read.
        topic: of all rows; None: the rows have a topic.
    """

    path: str
    kind: TextKind
    rows: int
    size: int
    columns: tuple[str, ...]
    topic: str | None

    @property
    def first_row(self) -> int:
        """Number of the first row in the file: rows of text count from 1, as lines do; the header of CSV is none."""
        return _FIRST_ROW

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        fields = [(name, _type(name, self.kind)) for name in self.columns]
        return pa.schema(fields if self.topic is None else [*fields, ("topic", pa.string())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows in order and on demand; raises as `read_text_file`, if the file has changed."""
        for batch in _batches(self.path, self.kind, self.columns):
            if self.topic is not None:
                batch = batch.append_column("topic", pa.repeat(pa.scalar(self.topic), batch.num_rows))
            yield batch


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file after it was read once: its part, its first offset in a log (-1 without), its hash."""

    part: TextPart
    first_offset: int
    digest: str


def read_text_file(
    path: str, kind: TextKind, *, folder_topic: str | None, topic: str | None, columns: Sequence[str] | None
) -> TextFile:
    """Read a file once.

    Args:
        folder_topic: topic that the file's folder names.
        topic: of all messages, whatever file and folder say; None: as they say.
        columns: columns to read; None: all.

    Raises:
        StoreFormatError: no such text.
        ConfigError: a missing column, no topic, or a line or row that is no message, with its number.
    """
    there = _columns(path, kind)
    if kind == "csv":
        _check_quotes(path)
    for name in columns or ():
        if name not in there and not (name == "topic" and folder_topic is not None):
            raise ConfigError(f"columns: {path} has no column {name!r}; it has {', '.join(there)}")
    given = topic or folder_topic
    names = tuple(
        name
        for name in there
        if (name == _ORDER or columns is None or name in columns)
        and not (name == "topic" and given is not None)
        and (name == _ORDER or name not in ASSIGNED)
    )
    rows, first, has_topics = 0, -1, given is not None
    for batch in _batches(path, kind, names):
        if not rows and batch.num_rows and _ORDER in batch.schema.names:
            offset = batch[_ORDER][0].as_py()
            first = -1 if offset is None else offset
        has_topics = has_topics or ("topic" in names and batch["topic"].null_count < batch.num_rows)
        rows += batch.num_rows
    if rows and not has_topics:
        listed = f"; it has {', '.join(there)}" if kind == "csv" else ""  # lines of JSON may have any
        raise ConfigError(
            f"topic: {path} has no column topic, nor folders topic=...; say to which the messages go{listed}"
        )
    with _content(path) as content:
        digest = hashlib.blake2b(digest_size=16)
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
        part = TextPart(path, kind, rows, content.size(), names, given)
    return TextFile(part, first, digest.hexdigest())


def _type(name: str, kind: TextKind) -> pa.DataType:
    """Type of a column; text for what is no column of messages, which is refused where the rows go."""
    is_count = kind == "jsonl" and name == "born_timestamp"  # milliseconds
    return pa.int64() if is_count else _TYPES.get(name, pa.string())


def _columns(path: str, kind: TextKind) -> list[str]:
    """Columns of messages that a file has; JSON lines may have any."""
    if kind == "jsonl":
        return list(_TYPES)
    names = _header(path)
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: a column twice: {', '.join(names)}")
    return list(dict.fromkeys("body" if name == _BODY else name for name in names))


def _content(path: str) -> pa.NativeFile:
    """A file of Arrow's own: its threads read ahead.

    One that gave bytes of Python's back when the interpreter ends would be ended by it in the middle of C++, and the
    program with it.
    """
    return LocalFileSystem().open_input_file(path)


def _batches(path: str, kind: TextKind, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _content(path) as content:
        if content.size():
            yield from (_of_csv if kind == "csv" else _of_json)(path, content, columns)


# -- CSV


def _header(path: str) -> list[str]:
    """The names of columns; later bytes that are no UTF-8 are no matter of them."""
    file = io.BufferedReader(_content(path))
    with io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as text:
        try:
            names = next(csv.reader(text), [])
        except csv.Error as error:
            raise StoreFormatError(f"{path}: no CSV of messages: names of columns: {error}") from None
    if any(map(_has_surrogates, names)):
        raise StoreFormatError(f"{path}: no CSV of messages: names of columns: not UTF-8: {names}")
    return names


def _check_quotes(path: str) -> None:
    """Refuse a quote that is not closed, or that its value goes on behind: Arrow takes other rows for a part of it."""
    with _content(path) as content:
        if not any(b'"' in block for block in iter(partial(content.read, _BLOCK_BYTES), b"")):
            return
    csv.field_size_limit(max(csv.field_size_limit(), INT32_MAX))  # bodies are longer than 128 KiB
    line = 1
    with io.TextIOWrapper(io.BufferedReader(_content(path)), errors="surrogateescape", newline="") as text:
        rows = csv.reader(text, strict=True)
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error as error:
            raise StoreFormatError(f"{path}: no CSV of messages: line {line}: a quote: {error}") from None


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _csv_reader(path: str, content: pa.NativeFile, convert: arrow_csv.ConvertOptions) -> Any:
    # a row may be larger than a block of Arrow's own size
    read = arrow_csv.ReadOptions(use_threads=False, block_size=min(content.size() + 1, _BLOCK_BYTES))
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    try:
        return arrow_csv.open_csv(content, read, parse, convert)
    except pa.ArrowInvalid as error:
        raise _no_csv(path, error) from error


def _of_csv(path: str, content: pa.NativeFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = [name for name in _header(path) if ("body" if name == _BODY else name) in columns]
    types = {name: kind for name, kind in _TYPES.items() if not (pa.types.is_nested(kind) or pa.types.is_binary(kind))}
    convert = arrow_csv.ConvertOptions(
        column_types={name: types.get(name, pa.string()) for name in wanted},
        include_columns=wanted,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    reader, row = _csv_reader(path, content, convert), _FIRST_ROW
    try:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except pa.ArrowInvalid as error:
                raise _no_csv(path, error) from error
            for begin in range(0, batch.num_rows, _ROWS):
                yield _csv_messages(path, batch.slice(begin, _ROWS), row + begin, columns)
            row += batch.num_rows
    finally:
        del reader  # it waits for its thread, which reads `content`


def _no_csv(path: str, error: pa.ArrowInvalid) -> StoreFormatError:
    """Error with Arrow's words, which count lines with the names of columns from 1 and name none for bad bytes."""
    text = str(error).splitlines()[0]
    if "invalid UTF8" in text:
        with _content(path) as content:
            lines = enumerate(io.BufferedReader(content), start=1)
            text = next(
                (f"line {number}: not UTF-8: {line[:80]!r}" for number, line in lines if not _is_utf8(line)), text
            )
    return StoreFormatError(f"{path}: no CSV of messages: {text.replace('Row #', 'line ')}")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _csv_messages(path: str, batch: pa.RecordBatch, first_row: int, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "keys" in arrays:
        arrays["keys"] = _keys(arrays["keys"])
    if "properties" in arrays:
        arrays["properties"] = _properties(arrays["properties"], path, first_row)
    if "body" in columns:
        arrays["body"] = _bodies(arrays.get("body"), arrays.pop(_BODY, None), path, first_row)
    return pa.RecordBatch.from_pydict({name: arrays[name] for name in columns})


def _keys(texts: pa.Array) -> pa.Array:
    return pa.array([split_keys(text or "") for text in texts.to_pylist()], _TYPES["keys"])


def _bodies(texts: pa.Array | None, encoded: pa.Array | None, path: str, first_row: int) -> pa.Array:
    """Bodies of both columns; nothing in both is an empty body."""
    if encoded is None or encoded.null_count == len(encoded):
        count = len(encoded) if texts is None and encoded is not None else 0
        return (pa.nulls(count, pa.string()) if texts is None else texts).fill_null("").cast(pa.binary())
    plain = [""] * len(encoded) if texts is None else texts.to_pylist()
    values = zip(plain, encoded.to_pylist(), strict=True)
    return pa.array(
        [
            body_of({"body": text or (None if code else ""), _BODY: code or None}, f"{path}, row {first_row + i}")
            for i, (text, code) in enumerate(values)
        ],
        pa.binary(),
    )


def _properties(texts: pa.Array, path: str, first_row: int) -> pa.Array:
    pairs = []
    for row, text in enumerate(texts.to_pylist(), start=first_row):
        found = json_object(text or "{}", f"{path}, row {row}: `properties`")
        if not all(isinstance(value, str) for value in found.values()):
            raise ConfigError(f"{path}, row {row}: `properties`: expected text in each, found {text[:80]}")
        pairs.append(list(found.items()))
    return pa.array(pairs, _TYPES["properties"])


# -- JSON lines


def _of_json(path: str, content: pa.NativeFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Blank lines are none; fields that are no column of a message are left out."""
    lines = enumerate(io.BufferedReader(content), start=1)
    numbered = ((number, message_object(line, f"{path}, line {number}")) for number, line in lines if line.strip())
    while some := list(islice(numbered, _ROWS)):
        yield pa.RecordBatch.from_pydict({name: _json_column(name, some, path) for name in columns})


def _json_column(name: str, some: Sequence[tuple[int, Mapping[str, Any]]], path: str) -> pa.Array:
    values: list[Any] = [value.get(name) for _, value in some]
    if name == "body":
        values = [body_of(value, f"{path}, line {number}") for number, value in some]
    elif name == "keys":
        values = [split_keys(value) if isinstance(value, str) else value for value in values]
    elif name == "properties":
        values = [list(value.items()) if isinstance(value, dict) else value for value in values]
    kind = _type(name, "jsonl")
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for (number, _), value in zip(some, values, strict=True):
            try:
                pa.array([value], kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise ConfigError(f"{path}, line {number}: `{name}`: {error}") from None
        raise
