"""The sizes of queue files: those of one kind are all of one size, RocketMQ's configuration, and hold whole units.

A queue alone with one file tells no other size than its own, so a cut between two of its units shows only where the
units end (`reput.store.recovery.missing_units`).
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
    """What the files of one kind of queue have in common: folder, bytes of a unit, and the key of their size."""

    folder: str
    unit_size: int
    size_key: str


SIMPLE = QueueKind(CONSUME_QUEUE, UNIT_SIZE, "mappedFileSizeConsumeQueue")
BATCH = QueueKind(BATCH_CONSUME_QUEUE, BATCH_UNIT_SIZE, "mapperFileSizeBatchConsumeQueue")


def check_file_sizes(queues: Sequence[QueueFiles], kind: QueueKind, root: str, configured: int | None = None) -> None:
    """Look at the sizes of a store's queue files of one kind.

    Args:
        queues: All of that kind.
        kind: Which one.
        root: The store's directory.
        configured: The size that they must have; None where the files' own counts.

    Raises:
        StoreFormatError: The first file that does not hold whole units, is of another size than most, or than the
            configured one.
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
