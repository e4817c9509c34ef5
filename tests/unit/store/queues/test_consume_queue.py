"""One consume queue, through an open store."""

from __future__ import annotations

import shutil
from pathlib import Path

import reput
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.paths import offset_to_file_name
from tests.support.invariants import SMALL


def test_a_new_queue_begins_with_the_file_of_its_first_message(tmp_path: Path) -> None:
    """As `ConsumeQueue.fillPreBlank`: filler units from the begin of that file, and no files before it."""
    path, units = tmp_path / "store", 8  # of a file
    with reput.MessageStore.open(path, **SMALL) as store:  # type: ignore[arg-type]
        for _ in range(60):
            store.put_message(reput.Message("orders", bytes(500)))
    for file in sorted((path / "commitlog").iterdir())[:-3]:
        file.unlink()
    shutil.rmtree(path / "consumequeue")
    first = reput.read_log(path, ["queue_offset"]).read_all()["queue_offset"][0].as_py()
    assert first > 2 * units
    with reput.MessageStore.open(path, **SMALL) as store:  # type: ignore[arg-type]
        assert store.min_offset("orders", 0) == first
        assert store.max_offset("orders", 0) == 60
        assert store.get_message("orders", 0, first).messages()[0].queue_offset == first
    names = sorted(file.name for file in (path / "consumequeue/orders/0").iterdir())
    starts = range(first - first % units, 60, units)
    assert names == [offset_to_file_name(start * UNIT_SIZE) for start in starts]
