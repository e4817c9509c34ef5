"""Protobuf: messages read and written by the numbers of their fields, without generated code.

A message is a dataclass of fields as `name: Annotated[str, 2]`, with the number that the wire has for the name. What a
peer sends is bounded: no text goes beyond its message, nesting ends where the classes end, and a message has
`MAX_FIELDS` fields at most.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from reput.errors import RemotingDecodeError
from reput.remoting.header import Int32, Int64

__all__ = ["Fields", "Int32", "Int64", "decode", "encode"]

#: Fields of a message, with those of the messages in it: more would hold a loop for longer than 50 ms.
MAX_FIELDS = 1 << 16
#: Groups within groups of a field that nobody knows.
_MAX_GROUPS = 16

_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)
_STRING, _BYTES, _MESSAGE, _MAP, _INT32, _INT64, _BOOL, _FLOAT = range(8)
_WIRE_TYPES = (_DELIMITED,) * 4 + (_VARINT,) * 3 + (_FIXED32,)
_FLOATS = struct.Struct("<f")


class Fields:
    """A message; two of one class are equal if their fields are. ONEOF: fields of which one at most is there."""

    __slots__ = ()
    ONEOF: ClassVar[tuple[str, ...]] = ()


_M = TypeVar("_M", bound=Fields)


class WireField(NamedTuple):
    """A field as the wire has it.

    `kind`: name of its type; `message`: its class, if it is one; `is_explicit`: it may be absent, which is None.
    """

    number: int
    kind: str
    message: type[Fields] | None = None
    is_repeated: bool = False
    is_explicit: bool = False


_KINDS = {
    "string": _STRING, "bytes": _BYTES, "message": _MESSAGE, "map": _MAP, "int32": _INT32, "int64": _INT64,
    "bool": _BOOL, "float": _FLOAT,
}  # fmt: skip
_NAMES: dict[Any, str] = {
    str: "string", bytes: "bytes", bool: "bool", float: "float", Int32: "int32", Int64: "int64", dict[str, str]: "map",
}  # fmt: skip


@cache
def wire_fields(kind: Any) -> dict[str, WireField]:
    """The fields of a class by their names, in the order of their numbers."""
    hints = get_type_hints(kind, include_extras=True)
    found = {each.name: _field(hints[each.name]) for each in fields(kind)}
    return dict(sorted(found.items(), key=lambda item: item[1].number))


def _field(hint: Any) -> WireField:
    plain, number = hint.__origin__, hint.__metadata__[-1]
    if hint.__metadata__[:-1]:  # the number of a number: Annotated[Annotated[int, 32], 3] is Annotated[int, 32, 3]
        plain = Annotated[plain, hint.__metadata__[0]]
    parts = get_args(plain)
    is_explicit, is_repeated = NoneType in parts, get_origin(plain) is Sequence
    if is_explicit or is_repeated:
        plain = parts[0]
    name = _NAMES.get(plain)
    return WireField(number, name or "message", None if name else plain, is_repeated, is_explicit)


# -- reading


class _Reads(NamedTuple):
    """Reading of a tag: the name of its field, its kind, the class of its message, and what it makes absent."""

    name: str
    kind: int
    message: Any
    is_repeated: bool
    others: tuple[str, ...]


@cache
def _reads(kind: Any) -> dict[int, _Reads]:
    found = {}
    for name, wire in wire_fields(kind).items():
        number = _KINDS[wire.kind]
        others = tuple(each for each in kind.ONEOF if each != name) if name in kind.ONEOF else ()
        row = _Reads(name, number, wire.message, wire.is_repeated, others)
        found[wire.number << 3 | _WIRE_TYPES[number]] = row
        if wire.is_repeated and number == _INT32:  # packed, and one by one
            found[wire.number << 3 | _DELIMITED] = row
    return found


def decode(kind: type[_M], data: bytes) -> _M:
    """The message of these bytes; fields that its class has not are passed over.

    Raises RemotingDecodeError for bytes that are no such message, and for one with too many fields.
    """
    message, hashable = kind(), cast("Any", kind)
    try:
        _Reader(data).fill(message, 0, len(data), _reads(hashable))
    except IndexError:
        _refuse(f"{kind.__name__}: the bytes end within a number")
    return message


def _refuse(why: str) -> NoReturn:
    raise RemotingDecodeError(f"no protobuf message: {why}")


class _Reader:
    """Bytes of one message, and how many fields they may still have."""

    __slots__ = ("_data", "_left")

    def __init__(self, data: bytes) -> None:
        self._data, self._left = data, MAX_FIELDS

    def fill(self, message: Any, at: int, end: int, rows: dict[int, _Reads]) -> None:
        """Read the fields of a message."""
        data, left = self._data, self._left
        while at < end:
            left -= 1
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = self._varint(at - 1, 5)
            row = rows.get(tag)
            if row is None or left < 0:
                if left < 0:
                    _refuse(f"it has more than {MAX_FIELDS} fields")
                self._left = left
                at = self._skip(tag, at, end)
                left = self._left
                continue
            name, kind, nested, is_repeated, others = row
            if tag & 7 == _DELIMITED:
                size = data[at]
                at += 1
                if size > 0x7F:
                    size, at = self._varint(at - 1, 5)
                begin, at = at, at + size
                if at > end:
                    _refuse(f"{name} has {size} bytes, {end - begin} before the end")
                if kind == _STRING:
                    value: Any = self._text(name, begin, at)
                elif kind == _MESSAGE:
                    value = None if is_repeated else getattr(message, name)
                    if value is None:
                        value = nested()
                    self._left = left
                    self.fill(value, begin, at, _reads(nested))
                    left = self._left
                elif kind == _MAP:
                    self._left = left
                    key, value = self._entry(name, begin, at)
                    left = self._left
                    getattr(message, name)[key] = value
                    continue
                elif kind == _BYTES:
                    value = data[begin:at]
                else:
                    self._left = left
                    self._packed(message, name, begin, at)
                    left = self._left
                    continue
            elif kind == _FLOAT:
                if at + 4 > end:
                    _refuse(f"{name} ends too early")
                (value,) = _FLOATS.unpack_from(data, at)
                at += 4
            else:
                value, at = self._varint(at, 10)
                if at > end:
                    _refuse(f"{name} ends too early")
                value = _number(kind, value)
            if is_repeated:
                values = getattr(message, name)
                if values:
                    values.append(value)
                else:
                    setattr(message, name, [value])
            else:
                for other in others:
                    setattr(message, other, None)
                setattr(message, name, value)
        if at > end:
            _refuse("a number goes beyond its message")
        self._left = left

    def _varint(self, at: int, most: int) -> tuple[int, int]:
        """A number of at most `most` bytes, and the position after it; of 5 bytes: of 32 bits, of 10: of 64."""
        data, value = self._data, 0
        for shift in range(0, 7 * most, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> (32 if most == 5 else 64):
                    break
                return value, at
        _refuse("a number is too large")

    def _text(self, name: str, begin: int, end: int) -> str:
        try:
            return self._data[begin:end].decode()
        except UnicodeDecodeError:
            _refuse(f"{name} is no UTF-8")

    def _entry(self, name: str, at: int, end: int) -> tuple[str, str]:
        entry = MapEntry()
        self.fill(entry, at, end, _reads(MapEntry))
        return entry.key or "", entry.value or ""

    def _packed(self, message: Any, name: str, at: int, end: int) -> None:
        values = getattr(message, name) or []  # one list for all parts
        while at < end:
            self._left -= 1
            if self._left < 0:
                _refuse(f"it has more than {MAX_FIELDS} fields")
            value, at = self._varint(at, 10)
            values.append(_number(_INT32, value))
        if at > end:
            _refuse(f"{name} goes beyond its message")
        setattr(message, name, values or ())

    def _skip(self, tag: int, at: int, end: int) -> int:
        """Pass over a field that nobody knows; groups, which nobody writes any more, with all that is in them."""
        groups: list[int] = []
        while True:
            number, wire_type = tag >> 3, tag & 7
            if not number:
                _refuse("a field has the number 0")
            if wire_type == _VARINT:
                _, at = self._varint(at, 10)
            elif wire_type == _FIXED64:
                at += 8
            elif wire_type == _FIXED32:
                at += 4
            elif wire_type == _DELIMITED:
                size, at = self._varint(at, 5)
                at += size
            elif wire_type == _GROUP:
                groups.append(number)
                if len(groups) > _MAX_GROUPS:
                    _refuse(f"it has more than {_MAX_GROUPS} groups within groups")
            elif wire_type != _END_GROUP or not groups or groups.pop() != number:
                _refuse(f"field {number} has the wire type {wire_type}")
            if at > end:
                _refuse(f"field {number} goes beyond its message")
            if not groups:
                return at
            self._left -= 1
            if self._left < 0:
                _refuse(f"it has more than {MAX_FIELDS} fields")
            if at >= end:
                _refuse("a group has no end")
            tag, at = self._varint(at, 5)


def _number(kind: int, value: int) -> int:
    """The value of a number: whole ones of 32 bits lose what is above them, as everywhere."""
    if kind == _BOOL:
        return value != 0
    if kind == _INT32:
        value &= 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value
    return value - (1 << 64) if value >> 63 else value


@dataclass(slots=True)
class MapEntry(Fields):
    """An entry of a map. Both are written, also if they are empty, as protobuf's own writers do."""

    key: Annotated[str | None, 1] = ""
    value: Annotated[str | None, 2] = ""


# -- writing


class _Writes(NamedTuple):
    name: str
    kind: int
    tag: bytes
    is_repeated: bool
    is_explicit: bool


@cache
def _writes(kind: Any) -> tuple[_Writes, ...]:
    rows = []
    for name, wire in wire_fields(kind).items():
        number = _KINDS[wire.kind]
        is_packed = wire.is_repeated and number == _INT32
        tag = wire.number << 3 | (_DELIMITED if is_packed else _WIRE_TYPES[number])
        rows.append(_Writes(name, number, _varint(tag), wire.is_repeated, wire.is_explicit))
    return tuple(rows)


def _varint(value: int) -> bytes:
    if value < 0x80:
        if value >= 0:
            return _SHORT[value]
        value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT = [bytes((value,)) for value in range(0x80)]


def encode(message: Fields) -> bytes:
    """The bytes of a message."""
    out: list[bytes] = []
    for name, kind, tag, is_repeated, is_explicit in _writes(cast("Any", type(message))):
        value = getattr(message, name)
        if not value and (value is None or not is_explicit):
            continue
        if kind == _MAP:
            for key, text in value.items():
                entry = encode(MapEntry(key, text))
                out += (tag, _varint(len(entry)), entry)
        elif not is_repeated:
            _write(out, kind, tag, value)
        elif kind == _INT32:
            packed = b"".join(map(_varint, value))
            out += (tag, _varint(len(packed)), packed)
        else:
            for each in value:
                _write(out, kind, tag, each)
    return b"".join(out)


def _write(out: list[bytes], kind: int, tag: bytes, value: Any) -> None:
    if kind == _STRING:
        data = value.encode()
    elif kind == _MESSAGE:
        data = encode(value)
    elif kind == _BYTES:
        data = value
    else:
        out += (tag, _FLOATS.pack(value) if kind == _FLOAT else _varint(int(value)))
        return
    out += (tag, _varint(len(data)), data)
