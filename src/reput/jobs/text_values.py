"""Values of rows as text and as JSON, written and read, without Arrow."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from reput.errors import ConfigError

#: What follows the name of a field of bytes if it holds base64.
BASE64 = "_base64"


def bytes_fields(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a field with text if they are UTF-8, else as a field `<name>_base64`."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: base64.b64encode(value).decode()}


#: Fields of a message that it may lack.
_MAY_BE_LEFT_OUT = ("tags", "keys", "properties")
#: Likeness of two names, as difflib counts it: `property` is near to `properties`, `flags` is not to `tags`.
_NEAR = 0.76
_EPOCH = datetime.fromtimestamp(0, UTC)
#: How JSON may write half of a pair of surrogates, which is no text.
_SURROGATE = re.compile(r"\\u[dD]")
_MILLISECOND = timedelta(milliseconds=1)
_TO_JSON = json.JSONEncoder(ensure_ascii=False).encode


def plain(value: Any) -> Any:
    """Value of a row as `json_text` takes it; NaN and infinity are null, a time without a zone is UTC."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int | Decimal) else str(value)


def json_text(value: Any) -> str:
    """JSON of a plain value, on one line; decimals have all their digits."""
    try:
        return _TO_JSON(value)
    except TypeError:  # there is a decimal in it, which `json` cannot write as a number
        if isinstance(value, dict):
            return "{" + ", ".join([f"{_TO_JSON(name)}: {json_text(one)}" for name, one in value.items()]) + "}"
        if isinstance(value, list):
            return "[" + ", ".join([json_text(one) for one in value]) + "]"
        return f"{value:f}"


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, of which each name is one value: one of two would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there twice")
    return found


_OF_JSON = json.JSONDecoder(object_pairs_hook=_members).decode


def json_object(text: bytes | str, where: str) -> dict[str, Any]:
    """The object that a text of JSON is; raises ConfigError, with where it is, for anything else.

    An object with a name twice is refused, and so is one that is nested more deeply than Python reads JSON.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")  # `json` takes half of a pair, too
        value = _OF_JSON(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # half of a pair of surrogates is no text
    except ValueError as error:
        raise ConfigError(f"{where}: expected a JSON object: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: expected a JSON object: nested too deeply") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def message_object(text: bytes | str, where: str) -> dict[str, Any]:
    """The message that a text of JSON is, as `json_object`. Fields that no message has are left to whoever reads it.

    But a slip for a field that the object lacks, as `tag` for `tags`, is refused with a ConfigError: the message would
    be stored without its tag, and no consumer that asks for it would get it.
    """
    value = json_object(text, where)
    for name in value:
        if (meant := _meant(name)) is not None and meant not in value:
            raise ConfigError(f"{where}: a message has no field {name!r}; did you mean {meant!r}?")
    return value


@lru_cache(1024)
def _meant(name: str) -> str | None:
    """The field of a message for which a name is a slip; None for a field, and for a name that is near to none."""
    nearest = get_close_matches(name.lower(), _MAY_BE_LEFT_OUT, 1, cutoff=_NEAR)
    return nearest[0] if nearest and nearest[0] != name else None


def body_of(row: Mapping[str, Any], where: str) -> bytes:
    """The body of a row, of `body` or `body_base64`; raises ConfigError, with where it is, if both are no text."""
    body, encoded = row.get("body"), row.get(f"body{BASE64}")
    if body is not None and encoded is not None:
        raise ConfigError(f"{where}: expected text in `body` or in `body_base64`, found both")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogateescape")
    if not isinstance(encoded, str):
        raise ConfigError(f"{where}: expected text in `body` or `body_base64`")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise ConfigError(f"{where}: `body_base64`: {error}") from None
