"""Conversion between frozen dataclasses and the JSON members that fastjson takes from a Java class's getters.

A dataclass has RocketMQ's names in snake_case, and a field `others` for unknown members. Members are sorted by name,
and null members left out (`JavaBeanSerializer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from reput.errors import CorruptMetadataError
from reput.formats.java import INT64_MAX, INT64_MIN

_T = TypeVar("_T")
_OTHERS = "others"
_KINDS = {int: "a whole number of 64 bits", bool: "true or false", str: "a string"}


def decode_bean(kind: type[_T], value: Any, *, keeps_others: bool = True) -> _T:
    """Instance of a dataclass from a value of `decode_fastjson`; a missing or null member has its default.

    `keeps_others`: whether `others` gets the unknown members; a request's are dropped, as by fastjson.

    Raises CorruptMetadataError (path '') if a member has another type, or has no default and is missing.
    """
    bean: _T = _decode(kind, value, "", keeps_others)
    return bean


def encode_bean(value: Any) -> Any:
    """Value for `encode_fastjson` of a dataclass instance, or of tables and lists of instances."""
    if value.__class__ in _KINDS:
        return value
    if is_dataclass(value):
        names = _members(value.__class__)
        plain = {
            name: encode_bean(one) for name, (here, *_) in names.items() if (one := getattr(value, here)) is not None
        }
        plain |= getattr(value, _OTHERS)
        return {name: plain[name] for name in sorted(plain, key=str)}
    if isinstance(value, Mapping):
        return {key: encode_bean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encode_bean(one) for one in value)
    return str(value) if isinstance(value, StrEnum) else value


@cache
def _members(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """RocketMQ's name of each member -> (name here, type, whether it is required); sorted by RocketMQ's names."""
    types = get_type_hints(kind)
    found = {}
    for one in fields(kind):
        head, *rest = one.name.split("_")
        needed = one.default is MISSING and one.default_factory is MISSING
        found[head + "".join(map(str.capitalize, rest))] = one.name, types[one.name], needed
    del found[_OTHERS]
    return dict(sorted(found.items()))


def _refuse(where: str, expected: str, found: object) -> NoReturn:
    raise CorruptMetadataError(
        "", 0, f"{where or 'the file'}: expected {expected}, found {'nothing' if found is None else repr(found)[:60]}"
    )


def _decode(kind: Any, value: Any, where: str, keeps_others: bool) -> Any:
    """A value of the file as a type of this module; `where` names the value in errors."""
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _decode_members(kind, value, where, keeps_others)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        (kind,) = (one for one in arguments if one is not NoneType)
        return _decode(kind, value, where, keeps_others)
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            _refuse(where, "a list", value)
        return origin(_decode(arguments[0], one, f"{where}[{i}]", keeps_others) for i, one in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            _refuse(where, "an object", value)
        names, values = arguments
        return {
            _decode_key(names, key, where): _decode(values, one, f"{where}.{key}", keeps_others)
            for key, one in value.items()
            if one is not None or values is Any
        }
    if kind is int and type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    if kind in (bool, str) and type(value) is kind:
        return value
    if issubclass(kind, StrEnum) and value in list(kind):
        return kind(value)
    _refuse(where, " or ".join(kind) if issubclass(kind, StrEnum) else _KINDS[kind], value)


def _decode_key(kind: type, key: str | int, where: str) -> str | int:
    if kind is str:
        return str(key)
    try:
        return int(key)
    except ValueError:
        _refuse(where, "whole numbers as keys", key)


def _decode_members(kind: Any, value: Any, where: str, keeps_others: bool) -> Any:
    if not isinstance(value, dict):
        _refuse(where, "an object", value)
    members = _members(kind)
    found: dict[str, Any] = {}
    for name, (here, type_of, needed) in members.items():
        one: Any = value.get(name)
        if type(one) is type_of and (type_of in (str, bool) or (type_of is int and INT64_MIN <= one <= INT64_MAX)):
            found[here] = one  # as `_decode` gives it: most members are plain
        elif one is not None:
            found[here] = _decode(type_of, one, f"{where}.{name}".lstrip("."), keeps_others)
        elif needed:
            _refuse(f"{where}.{name}".lstrip("."), "this member", None)
    others = {name: one for name, one in value.items() if keeps_others and name not in members}
    return kind(**found, others=others)
