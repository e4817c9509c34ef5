"""Units on the border of two sectors, of which a power cut has kept the second one alone, are no end of a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.config.message_store import MessageStoreConfig
from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, NO_COMPACTED_OFFSET, BatchUnit, encode_batch_unit
from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.log.directory import QueueFiles
from reput.store.queues.batch_consume_queue import BatchConsumeQueue
from reput.store.queues.consume_queue_store import ConsumeQueueStore
from reput.store.statistics import TopicCounts

SECTOR = 512
RECORD = 300
#: With so many units the binary search looks at the one that a border cuts behind its eight bytes of offset.
UNITS, BATCH_UNITS = 206, 201
TORN_UNIT, TORN_BATCH_UNIT = 102, 100


def torn(data: bytes, unit_size: int, synced: int, torn_unit: int) -> bytes:
    """What was synced, and the sectors from the one on that the torn unit ends in."""
    border = (torn_unit + 1) * unit_size // SECTOR * SECTOR
    assert border - torn_unit * unit_size == 8
    kept = synced * unit_size
    return data[:kept] + bytes(border - kept) + data[border:]


@pytest.mark.parametrize("synced", [1, 40, TORN_UNIT - 1, TORN_UNIT])
@pytest.mark.parametrize("fillers", [0, 7])
@pytest.mark.parametrize("guess", [0, TORN_UNIT, TORN_UNIT + 1, 150])
def test_a_torn_unit_of_a_queue_does_not_count(tmp_path: Path, synced: int, fillers: int, guess: int) -> None:
    units = [encode_unit(*FILLER)] * fillers + [encode_unit(RECORD * n, RECORD, 5) for n in range(fillers, UNITS)]
    folder = tmp_path / "consumequeue/t/0"
    folder.mkdir(parents=True)
    path = folder / f"{0:020d}"
    path.write_bytes(torn(b"".join(units), UNIT_SIZE, synced, TORN_UNIT))
    store = ConsumeQueueStore(DISK, str(tmp_path), UNITS * UNIT_SIZE, MessageStoreConfig(), writable=False)
    found = [QueueFiles("t", 0, (str(path),), UNITS * UNIT_SIZE)]
    store.load(found, RECORD * synced, {("t", 0): guess})
    (queue,) = store.queues()
    assert (queue.max_offset, queue.max_physical_offset) == (synced, RECORD * synced if synced > fillers else -1)


@pytest.mark.parametrize("synced", [1, 40, TORN_BATCH_UNIT - 1, TORN_BATCH_UNIT])
def test_a_torn_unit_of_a_batch_queue_does_not_count(tmp_path: Path, synced: int) -> None:
    units = [
        encode_batch_unit(BatchUnit(RECORD * n, RECORD, 5, 1, 2 * n, 2, NO_COMPACTED_OFFSET))
        for n in range(BATCH_UNITS)
    ]
    (tmp_path / f"{0:020d}").write_bytes(torn(b"".join(units), BATCH_UNIT_SIZE, synced, TORN_BATCH_UNIT))
    queue = BatchConsumeQueue(DISK, str(tmp_path), "t", 0, BATCH_UNITS * BATCH_UNIT_SIZE, TopicCounts(), [].append)
    queue.load([0], RECORD * synced)
    assert (queue.end_position, queue.max_offset) == (synced * BATCH_UNIT_SIZE, 2 * synced)
