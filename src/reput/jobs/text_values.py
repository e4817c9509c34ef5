"""Values of rows as text and as JSON, without Arrow."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

#: What follows the name of a field of bytes where it holds base64.
BASE64 = "_base64"


def bytes_fields(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a field with text if they are UTF-8, else as a field `<name>_base64`."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: base64.b64encode(value).decode()}


def plain(value: Any) -> Any:
    """Value of a row as JSON; NaN and infinity are null."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)
