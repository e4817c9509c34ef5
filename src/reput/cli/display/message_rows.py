"""Messages as text: lines, JSON lines and CSV, as `reput produce` and `put` read and `reput consume` writes them."""

from __future__ import annotations

import csv
import io
import json
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Literal

from reput.cli.display.messages import body_fields, message_fields
from reput.cli.display.output import iso_time
from reput.errors import ConfigError
from reput.formats.message import Message
from reput.formats.properties import (
    CLUSTER,
    DELAY,
    INNER_BASE,
    INNER_NUM,
    KEY_SEPARATOR,
    KEYS,
    MSG_REGION,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRACE_ON,
    UNIQ_KEY,
    WAIT,
    split_keys,
)
from reput.jobs.text_values import BASE64, body_of, json_object, message_object
from reput.remoting.timer_properties import of_copy

if TYPE_CHECKING:
    from _csv import Reader as CsvRows

    from reput.formats.message_ext import MessageExt

Format = Literal["lines", "json", "csv", "parquet"]
#: What is read and written row by row; Parquet comes as tables (`message_tables`).
RowFormat = Literal["lines", "json", "csv"]
#: Properties of a message that was consumed which its copy does not get: fields of their own, or a broker's.
NOT_COPIED = frozenset({
    TAGS, KEYS, UNIQ_KEY, WAIT, DELAY, REAL_TOPIC, REAL_QID, INNER_NUM, INNER_BASE, MSG_REGION, TRACE_ON, CLUSTER,
})  # fmt: skip
_BODY_BASE64 = f"body{BASE64}"
#: The columns of CSV that are no properties.
_COLUMNS = ("body", _BODY_BASE64, "tags", "keys")
#: Characters of a field: Python's own limit is less than a body may have.
_MAX_FIELD = (1 << 31) - 1
#: The columns of CSV that is written.
_CSV_COLUMNS = (
    "topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys", "properties", "body", _BODY_BASE64,
)  # fmt: skip


# -- reading


def standard_input() -> IO[bytes]:
    """Standard input, for a thread, too, that may still wait there when the process ends.

    Not through the buffer of `sys.stdin`: Python takes its lock at the end, and aborts if a thread reads. Raises
    ConfigError if the shell has closed it (`<&-`).
    """
    if sys.stdin is None:
        raise ConfigError("standard input is closed; give messages there")
    buffer = sys.stdin.buffer
    raw = getattr(buffer, "raw", None)
    return buffer if raw is None else io.BufferedReader(_WaitingInput(raw))  # without, it is in memory


class _WaitingInput(io.RawIOBase):
    """Standard input whose reads wait, though whoever has opened it wants none to (`O_NONBLOCK`, as of Node.js).

    Python's readers take a moment without a byte for the end, and what came after it was lost.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._raw.seekable())

    def seek(self, offset: int, whence: int = 0, /) -> int:
        moved: int = self._raw.seek(offset, whence)
        return moved

    def readinto(self, buffer: Any, /) -> int:
        try:
            while (size := self._raw.readinto(buffer)) is None:
                select.select([self._raw], [], [])
        except OSError as error:  # a command takes it for one of its output
            raise ConfigError(f"standard input cannot be read: {error.strerror}") from None
        return int(size)


def read_messages(file: IO[bytes], format: RowFormat, topic: str) -> Iterator[tuple[int, Message]]:
    """The messages of a file, one at a time, as they come, each with the number of its line; nobody has checked them.

    A line is a body. A JSON object has `body` or `body_base64`, and perhaps `tags`, `keys` and `properties`, as `reput
    get --json` and `reput consume --format json` print them. CSV begins with names of columns: `body`, `body_base64`,
    `tags`, `keys` (separated by blanks), and properties; or `properties`, an object of JSON, as `reput consume` and
    `reput query` write it: then other columns are not of the message, but of where it was, and are left out.

    Raises ConfigError, with the line's number, for what is no message.
    """
    if format == "csv":
        yield from _read_csv(file, topic)
        return
    for number, line in enumerate(file, start=1):
        if format == "lines":
            yield number, Message(topic, line.rstrip(b"\r\n"))
        elif line.strip():
            yield number, _of_json(line, topic, f"line {number}")


def with_defaults(message: Message, tags: str | None, keys: Sequence[str], properties: Mapping[str, str]) -> Message:
    """The message with tags, keys and properties of the command if its row says nothing else."""
    own = message.properties or {}
    return replace(
        message, tags=message.tags or tags, keys=message.keys or tuple(keys), properties={**properties, **own} or None
    )


def _of_json(line: bytes, topic: str, where: str) -> Message:
    value = message_object(line, where)
    keys, properties = value.get("keys") or [], value.get("properties") or {}
    if not (isinstance(keys, list | str) and isinstance(properties, dict)):
        raise ConfigError(f"{where}: expected a list in `keys`, and an object in `properties`")
    return Message(
        topic, body_of(value, where), tags=value.get("tags") or None,
        keys=split_keys(keys) if isinstance(keys, str) else tuple(keys), properties=_copied(properties),
    )  # fmt: skip


def _read_csv(file: IO[bytes], topic: str) -> Iterator[tuple[int, Message]]:
    csv.field_size_limit(_MAX_FIELD)
    rows = csv.reader((line.decode("utf-8", "surrogateescape") for line in file), strict=True)
    try:
        yield from _messages_of(rows, topic)
    except csv.Error as error:
        raise ConfigError(f"line {rows.line_num}: no CSV: {error}") from None


def _messages_of(rows: CsvRows, topic: str) -> Iterator[tuple[int, Message]]:
    columns = next(rows, [])
    columns[:1] = [name.removeprefix("\ufeff") for name in columns[:1]]  # of spreadsheets
    if not {"body", _BODY_BASE64} & set(columns) or len(set(columns)) < len(columns):
        raise ConfigError("line 1: expected names of columns, each once, and `body` among them")
    for row in rows:
        if len(row) != len(columns):
            raise ConfigError(f"line {rows.line_num}: expected {len(columns)} columns, found {len(row)}")
        yield rows.line_num, _of_csv(dict(zip(columns, row, strict=True)), topic, f"line {rows.line_num}")


def _of_csv(value: Mapping[str, str], topic: str, where: str) -> Message:
    properties: dict[str, Any]
    if "properties" in value:
        properties = json_object(value["properties"] or "{}", f"{where}: `properties`")
    else:
        properties = {name: text for name, text in value.items() if name not in _COLUMNS and text}
    text, encoded = value.get("body") or None, value.get(_BODY_BASE64) or None
    body = {"body": text if encoded else text or "", _BODY_BASE64: encoded}
    return Message(
        topic, body_of(body, where), tags=value.get("tags") or None, keys=split_keys(value.get("keys", "")),
        properties=_copied(properties),
    )  # fmt: skip


def _copied(properties: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in of_copy(properties).items() if name not in NOT_COPIED} or None


# -- writing


def writer_of(format: RowFormat, file: IO[bytes]) -> Callable[[Iterable[MessageExt]], None]:
    """Function that writes messages to a file, each as one row; CSV begins with the names of its columns."""
    write_rows = {"lines": _lines, "json": _json_lines, "csv": _csv_rows}[format]
    if format == "csv":
        file.write(",".join(_CSV_COLUMNS).encode() + b"\n")

    def write(messages: Iterable[MessageExt]) -> None:
        file.write(write_rows(messages))
        file.flush()

    return write


def _lines(messages: Iterable[MessageExt]) -> bytes:
    return b"".join([message.body + b"\n" for message in messages])


def _json_lines(messages: Iterable[MessageExt]) -> bytes:
    texts = [json.dumps(message_fields(message, message.body), ensure_ascii=False) + "\n" for message in messages]
    return "".join(texts).encode("utf-8", "replace")


def _csv_rows(messages: Iterable[MessageExt]) -> bytes:
    rows = io.StringIO(newline="")
    csv.writer(rows, lineterminator="\n").writerows(map(_csv_row, messages))
    return rows.getvalue().encode("utf-8", "replace")


def _csv_row(message: MessageExt) -> tuple[str | int, ...]:
    body = body_fields(message.body)
    return (
        message.topic, message.queue_id, message.queue_offset, iso_time(message.store_timestamp), message.tags or "",
        KEY_SEPARATOR.join(message.keys), json.dumps(message.properties, ensure_ascii=False), body.get("body", ""),
        body.get(_BODY_BASE64, ""),
    )  # fmt: skip
