"""Unique keys of a sink's rows: the same row has the same key however often it is sent; pure.

A key has the 32 hexadecimal digits of RocketMQ's own ids (`MessageClientIDSetter`): 10 bytes that say whose they are, 4
of milliseconds, 2 of a counter. The milliseconds are 0, the begin of a month, so that `mqadmin queryMsgByUniqueKey`
looks from there on.
"""

from __future__ import annotations

import hashlib

_ROWS = 1 << 16


class RowKeys:
    """Keys of the rows of one task.

    Args:
        sink: Id of the query, or of the write; the same when a task or a batch is repeated.
        batch: Number of the stream's batch; 0 of a write.
        partition: Number of the partition.

    Attributes:
        first_turn: Which queue has the task's first turn, so that tasks begin with different ones.
    """

    def __init__(self, sink: str, batch: int, partition: int) -> None:
        self._name = f"{sink}/{batch}/{partition}"
        self.first_turn = partition
        self._block = -1
        self._prefix = ""

    def key(self, row: int) -> str:
        """The key of a row, by its number in the partition from 0 on."""
        block, number = divmod(row, _ROWS)
        if block != self._block:
            self._block = block
            self._prefix = hashlib.sha256(f"{self._name}/{block}".encode()).hexdigest()[:20].upper()
        return f"{self._prefix}00000000{number:04X}"
