"""The twin of `kernels.records.record_batch`: each row through `formats.decode_record`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from reput.formats.record import decode_record
from tests.oracles.record_scan import Row, pairs

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_OWN_COLUMNS = {b"TAGS", b"KEYS", b"UNIQ_KEY"}
TEXT_COLUMNS = ("topic", "tags", "unique_key", "keys", "properties")


def show(data: bytes, row: Row, names: list[str], store: str) -> dict[str, Any]:
    """One row as Python values: times in microseconds, properties as a dict; `row` is the scan's twin's."""
    message = decode_record(data, row["position"], check_crc=False)
    shown: dict[str, Any] = {"store": store}
    faults = ["BAD_BODY_CRC"] if row["status"] & 1 else []
    last = ["BAD_PROPERTY_CRC"] if row["status"] & 16 else []
    if any(_is_replaced(row, name) for name in names):
        faults.append("TEXT_REPLACED")
    for name in ("born_timestamp", "store_timestamp"):
        is_shown = _FIRST_MS <= row[name] <= _LAST_MS
        shown[name] = row[name] * 1000 if is_shown else None
        if not is_shown and name in names and "TIME_OUT_OF_RANGE" not in faults:
            faults.append("TIME_OUT_OF_RANGE")
    shown["status"] = ",".join(faults + last) or "OK"
    shown["keys"] = list(message.keys)
    return {name: shown[name] if name in shown else getattr(message, name) for name in names}


def _is_replaced(row: Row, name: str) -> bool:
    """Whether a column shows U+FFFD for bytes that are no UTF-8."""
    if name == "properties":
        shown = {name: value for name, value in pairs(row["properties"]) if name not in _OWN_COLUMNS}
        return any(_is_broken(name) or _is_broken(value) for name, value in shown.items())
    return name in TEXT_COLUMNS and _is_broken(row[name])


def _is_broken(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False
