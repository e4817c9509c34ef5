"""Offset of a stream in Spark's checkpoint: JSON with an entry for each store's path.

    {"/data/store": {"offset": 8192, "last": {"offset": 7900, "storeTimestamp": 1700000000000,
                                              "headerSize": 88, "headerCrc": 305419896}}}

`offset` is the begin of the next record, and `last` identifies the record before it, see `reput.log.resume_points`.
`begin` is the begin of the batch that ends here, if that is not the end of the batch before it: in the first batch of a
store, and after lost records. So a batch that is planned again after a restart is the same.

Spark below 4.2 may ask for an end before it tells where the batch begins. Then `first` stands in place of `begin`: the
begin if the batch turns out to be the first one of the store, and null if the options do not give one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reput.errors import ConfigError
from reput.log.resume_points import LastRecord, ResumePoint

StreamOffset = dict[str, dict[str, Any]]
FIRST = "first"


def to_json(point: ResumePoint, begin: int | None = None) -> dict[str, Any]:
    """Make the entry of one store."""
    entry: dict[str, Any] = {"offset": point.offset}
    if (last := point.last) is not None:
        entry["last"] = {
            "offset": last.offset,
            "storeTimestamp": last.store_timestamp,
            "headerSize": last.header_size,
            "headerCrc": last.header_crc,
        }
    return entry if begin is None else entry | {"begin": begin}


def from_json(entry: Mapping[str, Any]) -> ResumePoint:
    """Resume point of an entry. Raises ConfigError if it is not an entry of this format."""
    try:
        last = entry.get("last")
        if last is not None:
            last = LastRecord(last["offset"], last["storeTimestamp"], last["headerSize"], last["headerCrc"])
        return ResumePoint(entry["offset"], last)
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(f"the checkpoint is of another source than the format reput: it holds {entry!r}") from None


def begin_of(end: Mapping[str, Any], start: Mapping[str, Any] | None) -> ResumePoint:
    """Begin of the batch that ends with the entry `end`, and comes after a batch that ended with `start`."""
    if "begin" in end:
        return ResumePoint(end["begin"])
    assert start is not None, "the first entry of a store says where it begins"
    return from_json(start)


def own_offset(given: Any) -> StreamOffset:
    """Parse an offset as Spark shows it, a text or (Spark Connect) JSON; empty for an offset of another source."""
    try:
        offset = json.loads(given) if isinstance(given, str) else given
    except json.JSONDecodeError:
        return {}
    if not isinstance(offset, dict) or not all(
        isinstance(entry, dict) and "offset" in entry for entry in offset.values()
    ):
        return {}
    return offset
