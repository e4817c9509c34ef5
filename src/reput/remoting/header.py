"""Header classes: dataclasses over the ext fields of a command (`CommandCustomHeader`).

A class has RocketMQ's field names in snake_case. A field without a default is one that RocketMQ requires.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from reput.errors import MissingFieldError
from reput.formats.java import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from reput.remoting.codes import ResponseCode

_H = TypeVar("_H")


#: Types of fields that are int or Integer, long or Long in Java.
Int32 = Annotated[int, 32]
Int64 = Annotated[int, 64]


class HeaderField(NamedTuple):
    """One field of a header class: its name here and on the wire, its type (Int32, Int64, bool or str), and a reader.

    The reader takes the text of the wire and returns the value, or None if the text is none.
    """

    name: str
    wire_name: str
    kind: Any
    is_required: bool
    read: Callable[[str], Any]


def camel_case(name: str) -> str:
    """`queue_id` -> `queueId`; a class has other names in `WIRE_NAMES`."""
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def decode_header(kind: type[_H], ext_fields: dict[str, str] | None, *, is_fast: bool = False) -> _H:
    """An instance of a header class from the fields of a command.

    As RocketMQ does, unknown fields are ignored, and a number that is none leaves the field at its default; a class
    that RocketMQ reads in the fast way (`FastCodesHeader`) takes no such text.

    Raises MissingFieldError if a required field is missing, RocketMQ then fails on null, if it needs the field; and
    for a number that is none, if the field is required or `is_fast`.
    """
    header_class: Any = kind
    given, values = ext_fields or {}, []
    for wire_name, read, default in _readers(header_class):
        text = given.get(wire_name)
        value = None if text is None else read(text)
        if value is None:
            if default is MISSING or (is_fast and text is not None):
                what = "is missing" if text is None else f"is {text[:40]!r}, no number"
                remark = f"{kind.__name__}: the field {wire_name} {what}"
                raise MissingFieldError(ResponseCode.SYSTEM_ERROR, remark, wire_name)
            value = default
        values.append(value)
    return kind(*values)


def required(header: Any, name: str) -> Any:
    """A field of a header that this request needs, and others do not.

    Raises MissingFieldError if it is missing.
    """
    value = getattr(header, name)
    if value is None:
        remark = f"{type(header).__name__}: the field {camel_case(name)} is missing"
        raise MissingFieldError(ResponseCode.SYSTEM_ERROR, remark, camel_case(name))
    return value


@cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[str], Any], Any], ...]:
    """Name on the wire, reader and default of each field, in their order: this is all that reading needs."""
    return tuple(
        (one.wire_name, one.read, field.default) for one, field in zip(header_fields(kind), fields(kind), strict=True)
    )


def encode_header(header: Any) -> dict[str, str]:
    """The fields of a command from an instance of a header class; None is left out."""
    found = {}
    for one in header_fields(header.__class__):
        value = getattr(header, one.name)
        if value is not None:
            found[one.wire_name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return found


@cache
def header_fields(kind: Any) -> tuple[HeaderField, ...]:
    """The fields of a header class, in their order."""
    types = get_type_hints(kind, include_extras=True)
    names = getattr(kind, "WIRE_NAMES", {})
    found = []
    for one in fields(kind):
        plain = next((part for part in get_args(types[one.name]) if part in _READERS), types[one.name])
        wire_name = names.get(one.name) or camel_case(one.name)
        found.append(HeaderField(one.name, wire_name, plain, one.default is MISSING, _READERS[plain]))
    return tuple(found)


def _read_int(low: int, high: int, digits: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        """A number as Java's parseInt and parseLong take it; None for another text."""
        if len(text) < digits and text.isdigit() and text.isascii():  # as most are
            return int(text)
        plain = text[1:] if text[:1] in ("-", "+") else text
        if not (plain.isascii() and plain.isdigit()):
            return None
        plain = plain.lstrip("0") or "0"  # Python's int() refuses thousands of digits, zeros too
        if len(plain) > digits:
            return None
        value = -int(plain) if text[0] == "-" else int(plain)
        return value if low <= value <= high else None

    return read


_READERS: dict[Any, Callable[[str], Any]] = {
    Int32: _read_int(INT32_MIN, INT32_MAX, 10),
    Int64: _read_int(INT64_MIN, INT64_MAX, 19),
    bool: lambda text: text.lower() == "true",
    str: str,
}
