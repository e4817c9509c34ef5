"""Messages that one dispatch has brought, by queue: for pulls that wait for messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(eq=False)
class Arrivals:
    """Records of one dispatch (`NotifyMessageArrivingListener`); it owns its values.

    Attributes:
        records: Number of records. 0 if dispatch went on to the next log file.
        queues: (topic, queue id) of their queues.
        max_offsets: The queue offset of each queue's next message.
        numbers: int32[rows], the number of each row's queue. A record has a row for each of its queues.
        codes: int32[rows], the low half of each row's tags code.
    """

    records: int
    queues: Sequence[tuple[str, int]]
    max_offsets: Sequence[int]
    numbers: npt.NDArray[np.int32]
    codes: npt.NDArray[np.int32]

    @cached_property
    def tags_codes(self) -> list[set[int]]:
        """The tags codes of each queue's rows; made when it is first asked for."""
        found: list[set[int]] = [set() for _ in self.queues]
        for number, code in zip(self.numbers.tolist(), self.codes.tolist(), strict=True):
            found[number].add(code)
        return found
