"""Schemas of decoded bodies as text: `id bigint, price double, tags array<string>, at timestamp`.

Type names are Spark's DDL; Arrow's names are read, too. `parse_body_schema` gives back the schema that
`body_schema_text` has written, so a job can keep a schema in a file.
"""

from __future__ import annotations

import re
from typing import NoReturn

import pyarrow as pa

from reput.errors import ConfigError

_UTC = pa.timestamp("us", "UTC")
#: Types by the names that `body_schema_text` writes. No date and no map: Arrow's JSON reader knows neither.
_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": _UTC,
}
_OTHER_NAMES = {
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "int8": pa.int8(),
    "short": pa.int16(),
    "int16": pa.int16(),
    "integer": pa.int32(),
    "int32": pa.int32(),
    "long": pa.int64(),
    "int64": pa.int64(),
    "real": pa.float32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W]+)|([<>(),:]))")
_PLAIN_NAME = re.compile(r"\w+")
_MOST_DIGITS = 38


def parse_body_schema(text: str) -> pa.Schema:
    """Parse the text of a schema. A name with characters other than letters, digits and _ stands in backquotes.

    Raises ConfigError, which names what was expected and the text found in its place.
    """
    return _Parser(text).schema()


def body_schema_text(schema: pa.Schema) -> str:
    """Text of a schema, as `parse_body_schema` reads it.

    Raises ConfigError for a schema with a type that bodies are not decoded to.
    """
    return ", ".join(f"{_quoted(field.name)} {_type_text(field.type, field.name)}" for field in schema)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _type_text(kind: pa.DataType, name: str) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type_text(kind.value_type, name)}>"
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [f"{_quoted(field.name)}: {_type_text(field.type, f'{name}.{field.name}')}" for field in kind]
        return f"struct<{', '.join(fields)}>"
    raise ConfigError(f"schema: bodies are not decoded to {kind}, the type of {name}; {_KNOWN}")


class _Parser:
    """Parser of one text, token by token. `_at` is the position of the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def schema(self) -> pa.Schema:
        """Parse fields up to the end of the text."""
        fields = self._fields("")
        if self._text[self._at :].strip():
            self._fail("a comma or the end")
        return pa.schema(fields)

    def _fields(self, end: str) -> list[pa.Field]:
        """Parse fields, each `name type` or `name: type`, up to the sign `end`, and take the sign."""
        fields: dict[str, pa.Field] = {}
        while True:
            name = self._word("the name of a field")
            if name in fields:
                raise ConfigError(f"schema: {name} is named twice in {self._text!r}")
            self._take(":")
            fields[name] = pa.field(name, self._type())
            if not self._take(","):
                break
        if end and not self._take(end):
            self._fail(f"a comma or {end}")
        return list(fields.values())

    def _type(self) -> pa.DataType:
        begin = self._at
        name = self._word("a type").lower()
        if name in ("array", "list") and self._take("<"):
            item = self._type()
            if not self._take(">"):
                self._fail(">")
            return pa.list_(item)
        if name == "struct" and self._take("<"):
            return pa.struct(self._fields(">"))
        if name in ("decimal", "numeric") and self._take("("):
            precision, scale = self._number(","), self._number(")")
            if not 1 <= precision <= _MOST_DIGITS or scale > precision:
                raise ConfigError(f"schema: decimal({precision},{scale}): at most {_MOST_DIGITS} digits, and no more "
                                  "after the point")  # fmt: skip
            return pa.decimal128(precision, scale)
        kind = _TYPES.get(name) or _OTHER_NAMES.get(name)
        if kind is None:
            self._at = begin
            self._fail(f"a type; {_KNOWN}")
        return kind

    def _number(self, end: str) -> int:
        digits = self._word("a number")
        if not (digits.isascii() and digits.isdigit()):
            self._fail("a number")
        if not self._take(end):
            self._fail(end)
        return int(digits)

    def _word(self, expected: str) -> str:
        token = _TOKEN.match(self._text, self._at)
        if token is None or token[3]:
            self._fail(expected)
        self._at = token.end()
        return token[2] or token[1].replace("``", "`")

    def _take(self, sign: str) -> bool:
        token = _TOKEN.match(self._text, self._at)
        if token is None or token[3] != sign:
            return False
        self._at = token.end()
        return True

    def _fail(self, expected: str) -> NoReturn:
        rest = self._text[self._at :].strip()
        found = repr(rest[:40]) if rest else "the end"
        raise ConfigError(f"schema: expected {expected}, found {found} in {self._text!r}")


_KNOWN = f"known are {', '.join(_TYPES)}, decimal(p,s), array<...> and struct<name: type, ...>"
