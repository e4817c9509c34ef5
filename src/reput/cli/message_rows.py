"""Messages as text: lines, JSON lines and CSV, as `reput produce` reads and `reput consume` writes them."""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Literal

from reput.cli.messages import message_fields
from reput.cli.output import iso_time
from reput.errors import ConfigError
from reput.formats.message import Message
from reput.formats.properties import DELAY, INNER_BASE, INNER_NUM, KEYS, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, WAIT

if TYPE_CHECKING:
    from reput.formats.message_ext import MessageExt

Format = Literal["lines", "json", "csv", "parquet"]
#: What is read and written row by row; Parquet comes as tables (`message_tables`).
RowFormat = Literal["lines", "json", "csv"]
#: Properties of a message that was consumed which its copy does not get: fields of their own, or a broker's.
NOT_COPIED = frozenset({
    TAGS, KEYS, UNIQ_KEY, WAIT, DELAY, REAL_TOPIC, REAL_QID, INNER_NUM, INNER_BASE, "MSG_REGION", "TRACE_ON", "CLUSTER",
})  # fmt: skip
#: The columns of CSV that are no properties; the first must be there.
_COLUMNS = ("body", "tags", "keys")
#: The columns of CSV that is written.
_CSV_COLUMNS = ("topic", "queue_id", "queue_offset", "stored", "tags", "keys", "body")


# -- reading


def read_messages(file: IO[bytes], format: RowFormat, topic: str) -> Iterator[tuple[int, Message]]:
    """The messages of a file, one at a time, as they come, each with the number of its line; nobody has checked them.

    A line is a body. A JSON object has `body` or `body_base64`, and perhaps `tags`, `keys` and `properties`, as `reput
    get --json` and `reput consume --json` print them. CSV begins with names of columns: `body`, `tags`, `keys`
    (separated by blanks), and properties.

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


def _of_json(line: bytes, topic: str, where: str) -> Message:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a JSON object, found {type(value).__name__}")
    keys, properties = value.get("keys") or [], value.get("properties") or {}
    if not (isinstance(keys, list | str) and isinstance(properties, dict)):
        raise ConfigError(f"{where}: expected a list in `keys`, and an object in `properties`")
    return Message(
        topic, _json_body(value, where), tags=value.get("tags") or None,
        keys=tuple(keys.split() if isinstance(keys, str) else keys), properties=_copied(properties),
    )  # fmt: skip


def _json_body(value: Mapping[str, Any], where: str) -> bytes:
    body, encoded = value.get("body"), value.get("body_base64")
    if isinstance(body, str):
        return body.encode()
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ConfigError(f"{where}: `body_base64`: {error}") from None
    raise ConfigError(f"{where}: expected text in `body` or `body_base64`; --format lines sends a line as it is")


def _read_csv(file: IO[bytes], topic: str) -> Iterator[tuple[int, Message]]:
    rows = csv.reader(line.decode("utf-8", "surrogateescape") for line in file)
    columns = next(rows, [])
    if "body" not in columns or len(set(columns)) < len(columns):
        raise ConfigError("line 1: expected names of columns, each once, and `body` among them")
    for row in rows:
        if len(row) != len(columns):
            raise ConfigError(f"line {rows.line_num}: expected {len(columns)} columns, found {len(row)}")
        value = dict(zip(columns, row, strict=True))
        properties = {name: text for name, text in value.items() if name not in _COLUMNS and text}
        message = Message(
            topic, value["body"].encode("utf-8", "surrogateescape"), tags=value.get("tags") or None,
            keys=tuple(value.get("keys", "").split()), properties=_copied(properties),
        )  # fmt: skip
        yield rows.line_num, message


def _copied(properties: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in properties.items() if name not in NOT_COPIED} or None


# -- writing


def writer_of(format: RowFormat, file: IO[bytes]) -> Callable[[Iterable[MessageExt]], None]:
    """What writes messages to a file, each as one row; CSV begins with the names of its columns."""
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
    """Bytes that are no UTF-8 stay as they are."""
    rows = io.StringIO(newline="")
    csv.writer(rows, lineterminator="\n").writerows(
        [one.topic, one.queue_id, one.queue_offset, iso_time(one.store_timestamp), one.tags or "", " ".join(one.keys),
         one.body.decode("utf-8", "surrogateescape")]
        for one in messages
    )  # fmt: skip
    return rows.getvalue().encode("utf-8", "surrogateescape")
