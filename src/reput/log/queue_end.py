"""End of a consume queue: where the units of the next records belong."""

from __future__ import annotations

from typing import NamedTuple


class QueueEnd(NamedTuple):
    """End of a consume queue.

    Attributes:
        max_offset: queue offset of the next unit.
        last_file: first byte of the last queue file; -1 without files.
        ext_end: offset after the last ext unit; 0 without an extension.
        is_judged: False if the queue offset of the last unit's record is judged by the queue's next records.
    """

    max_offset: int
    last_file: int = -1
    ext_end: int = 0
    is_judged: bool = True
