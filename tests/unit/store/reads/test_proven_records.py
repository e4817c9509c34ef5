"""Records that a loop finds at offsets: those that need no disk, and take a moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reput import Message, MessageStore
from reput.files import DISK
from tests.support.broker import SMALL


def places_of(store: MessageStore, *bodies: bytes) -> list[int]:
    """The commit log offsets of messages that are put and dispatched."""
    places = [store.put_message(Message("orders", body), queue_id=0).commit_log_offset for body in bodies]
    store.wait_dispatched()
    return places


def found(store: MessageStore, *offsets: int) -> int:
    records = store.find_records(np.array(offsets, np.int64))
    return 0 if records is None else records.records


@pytest.mark.parametrize(("sizes", "count"), [((10, 20, 30), 3), ((600_000, 400_000, 400_000), 2), ((1 << 20, 1), 0)])
def test_no_call_reads_more_than_a_loop_has_time_for(tmp_path: Path, sizes: tuple[int, ...], count: int) -> None:
    with MessageStore.open(tmp_path, mapped_file_size_commit_log=1 << 23) as store:
        assert found(store, *places_of(store, *map(bytes, sizes))) == count


def test_a_queue_file_that_is_not_mapped_is_not_opened(tmp_path: Path) -> None:
    keys = SMALL | {"mapped_file_size_consume_queue": 400}
    with MessageStore.open(tmp_path, **keys) as store:
        first, *_, last = places_of(store, *[b"x"] * 50)
    with MessageStore.open(tmp_path, **keys) as store:
        assert store.look_message_by_offset(first) is not None
        assert found(store, last) == 1
        queue_file = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
        DISK.rename(str(queue_file), str(tmp_path / "elsewhere"))
        assert found(store, first) == 0
