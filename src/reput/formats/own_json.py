"""The JSON of files that reput alone writes. RocketMQ's is `reput.formats.fastjson`."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn


def decode_json(data: bytes | str) -> Any:
    """The value; ValueError for what is no JSON, is nested too deeply, or has a number that no computer holds."""
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
