"""Search in the units of queues: where the log begins, also if fillers lie in the middle of a queue."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reput.files import DISK
from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.formats.paths import offset_to_file_name
from reput.store.queues.unit_search import find_begins

UNITS_OF_A_FILE = 8


def queue_of(folder: Path, records: str) -> Any:
    """A queue with a unit for each letter: f a filler, x the unit of a record; the first x is at log offset 0."""
    units, offset = [], 0
    for letter in records:
        units.append(encode_unit(*FILLER) if letter == "f" else encode_unit(offset, 100, 0))
        offset += 100 * (letter == "x")
    for begin in range(0, len(units), UNITS_OF_A_FILE):
        path = folder / offset_to_file_name(begin * UNIT_SIZE)
        content = b"".join(units[begin : begin + UNITS_OF_A_FILE])
        path.write_bytes(content.ljust(UNITS_OF_A_FILE * UNIT_SIZE, b"\0"))
    return SimpleNamespace(
        file_size=UNITS_OF_A_FILE * UNIT_SIZE, min_offset=0, max_offset=len(units),
        file_path=lambda start: str(folder / offset_to_file_name(start)),
    )  # fmt: skip


@pytest.mark.parametrize("records", ["x" * 30, "xxxxfffff" * 3, "fffxxxx" + "f" * 20 + "xx", "fxfxfxfxfxfxfxfx" * 2])
def test_the_first_unit_whose_record_is_there_is_found_whatever_fillers_are_around_it(
    tmp_path: Path, records: str
) -> None:
    queue = queue_of(tmp_path, records)
    places = [place for place, letter in enumerate(records) if letter == "x"]
    for number, place in enumerate(places):
        assert find_begins(DISK, [queue], np.array([100 * number])).tolist() == [place]
    assert find_begins(DISK, [queue], np.array([100 * len(places)])).tolist() == [len(records)]
