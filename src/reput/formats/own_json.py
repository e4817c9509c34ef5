"""JSON of files that only reput writes. RocketMQ's JSON is in `reput.formats.fastjson`.

Nothing of such a file is used before it is checked: numbers are in the range of an int64, `number` bounds them further,
and a CRC or a SHA-256 over all members shows a wrong bit.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn

from reput.formats.java import INT64_MAX, INT64_MIN

_CRC, _SHA256 = "crc32", "sha256"


def decode_json(data: bytes | str) -> Any:
    """Value of a JSON text; ValueError for no JSON, too deep nesting, or a number out of the range of its type."""
    try:
        return json.loads(data, parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_with_crc(content: Mapping[str, Any], indent: int | str | None = None) -> bytes:
    """The JSON object, with a member that has the CRC of the others."""
    return json.dumps({**content, _CRC: _checksum(content)}, indent=indent).encode()


def decode_with_crc(data: bytes, *, may_lack: bool = True) -> dict[str, Any]:
    """Inverse of `encode_with_crc`; ValueError for any other value, or a wrong CRC.

    Args:
        data: the file's content.
        may_lack: whether an object without a CRC counts, which an older reput wrote.
    """
    content = decode_json(data)
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, found {str(content)[:40]}")
    found = content.pop(_CRC, None)
    if found is None and may_lack:
        return content
    if found != (expected := _checksum(content)):
        raise ValueError(f"its CRC is {found}, expected {expected}")
    return content


def encode_with_sha256(name: str, content: Mapping[str, Any]) -> bytes:
    """A JSON object of two members: the SHA-256 of the content, and by its name the content, a line a member."""
    members = ",\n".join(f"  {json.dumps(member)}: {json.dumps(value)}" for member, value in content.items())
    return f'{{\n "{_SHA256}": "{_digest(content)}",\n "{name}": {{\n{members}\n }}\n}}\n'.encode()


def decode_with_sha256(data: bytes, name: str) -> Any:
    """Content of `encode_with_sha256`; ValueError, KeyError or TypeError for another value, or a wrong SHA-256."""
    content = decode_json(data)
    found, expected = _digest(content[name]), content[_SHA256]
    if found != expected:
        raise ValueError(f"its SHA-256 is {found}, expected {expected}")
    return content[name]


def number(value: object, least: int = 0, most: int = INT64_MAX) -> int:
    """The value, if it is an integer within these bounds; ValueError for any other."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected a number from {least} to {most}, found {str(value)[:40]}")
    return value


def _checksum(content: Mapping[str, Any]) -> str:
    """CRC-32 of the members, independent of their layout in the file; 8 hex digits."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def _digest(content: object) -> str:
    """SHA-256 of a value in hex, independent of its layout in the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _integer(text: str) -> int:
    return number(int(text) if len(text) <= len(str(INT64_MIN)) else _refuse(text), INT64_MIN)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        _refuse(text)
    return value


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"expected a number, found {text[:40]}")
