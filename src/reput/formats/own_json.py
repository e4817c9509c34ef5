"""JSON of files that only reput writes. RocketMQ's JSON is in `reput.formats.fastjson`."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn


def decode_json(data: bytes | str) -> Any:
    """Value of a JSON text; ValueError for no JSON, too deep nesting, or a number out of range."""
    try:
        return json.loads(data, parse_float=_finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        _refuse(text)
    return value


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"expected a number, found {text[:40]}")
