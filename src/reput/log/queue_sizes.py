"""Check of queue file sizes: all files of a kind have one size, RocketMQ's configuration, and hold whole units.

A single queue with a single file shows no other size than its own. A cut between two of its units is therefore only
visible where the units end (`reput.store.recovery.missing_units`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from reput.errors import StoreFormatError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from reput.log.directory import QueueFiles, build_again, usual_file_size


class QueueKind(NamedTuple):
    """Kind of queue: its folder, the bytes of a unit, and the configuration key of the file size."""

    folder: str
    unit_size: int
    size_key: str


SIMPLE = QueueKind(CONSUME_QUEUE, UNIT_SIZE, "mappedFileSizeConsumeQueue")
BATCH = QueueKind(BATCH_CONSUME_QUEUE, BATCH_UNIT_SIZE, "mapperFileSizeBatchConsumeQueue")


def check_file_sizes(queues: Sequence[QueueFiles], kind: QueueKind, root: str, configured: int | None = None) -> None:
    """Check the sizes of a store's queue files of one kind.

    Args:
        queues: All queues of that kind.
        kind: The kind.
        root: The store's directory.
        configured: The size that the files must have; None: the size that most of them have.

    Raises:
        StoreFormatError: A file does not hold whole units, differs from most, or does not have the configured size.
    """
    usual = usual_file_size(queues) if queues else 0
    advice = build_again(os.path.join(root, kind.folder))
    for queue in queues:
        path, size = queue.paths[0], queue.file_size
        if size % kind.unit_size:
            raise StoreFormatError(
                f"{path}: {size} bytes long, expected a multiple of {kind.unit_size}, the bytes of a unit; it was cut, "
                f"or comes from elsewhere; {advice}"
            )
        if size != usual:
            raise StoreFormatError(
                f"{path}: {size} bytes long, but the files of most queues {usual}; it was cut, or comes from "
                f"elsewhere; {advice}"
            )
    if configured not in (None, usual) and queues:
        raise StoreFormatError(
            f"{queues[0].paths[0]}: {usual} bytes, but {kind.size_key} is {configured}; give {kind.size_key}={usual} "
            f"(to a command: --set) if the store was written with it; if not, the file was cut: {advice}"
        )
