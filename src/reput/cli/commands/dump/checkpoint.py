"""Lines of `reput dump --what checkpoint`: its times and offsets, and whether the last exit was clean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reput.cli.display.output import iso_time
from reput.formats.paths import ABORT, CHECKPOINT
from reput.log.directory import StoreDirectory


def checkpoint_lines(directory: StoreDirectory, *, as_hex: bool) -> Iterator[dict[str, Any]]:
    """Lines of the fields, and a line of the file `abort`, which exists while a store is open, and after a kill."""
    checkpoint = directory.checkpoint()
    if checkpoint is None:
        yield {"file": CHECKPOINT, "present": False}
    else:
        for name, value in checkpoint._asdict().items():
            line: dict[str, Any] = {"field": name, "value": value}
            if name.endswith("_timestamp"):
                line["time"] = iso_time(value)
            if as_hex:
                line["hex"] = value.to_bytes(8, "big", signed=True).hex()
            yield line
    yield {"file": ABORT, "present": directory.was_killed}
