"""RecordFinder: records at commit log offsets that others name, each proven by the unit of its queue."""

from __future__ import annotations

from bisect import bisect_right
from ctypes import string_at
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer, Mapping
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.records import proven_records as kernels
from reput.kernels.records.proven_records import P_FIRST, P_HIGH, P_LOW, P_QUEUE_ID, P_TOPIC, P_TOPIC_SIZE, PLACE_WORDS
from reput.store.log.commit_log import CommitLog
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.tables import QueueTables
from reput.store.reads.pages import Pages
from reput.store.reads.scratch import Scratch

#: Records of one call.
_MOST_RECORDS = 64
#: Bytes of these, so that a loop looks at few pages, and copies them in a moment. Nothing proves a size before.
_MOST_BYTES = 1 << 20
#: Units of a queue that are looked at for one call: 64 KiB of them.
_MOST_UNITS = 3276
#: Words of the scratch: runs of the records and of units, then places.
_UNIT_RUN = 2 * _MOST_RECORDS
_PLACES = _UNIT_RUN + 2


class ProvenRecords(NamedTuple):
    """Records in the mapped log.

    Attributes:
        runs: Address of their runs, two native int64, address and size; good until the thread's next call.
        records: How many they are.
        mapping: Their file's map, which must live as long as they are read.
    """

    runs: int
    records: int
    mapping: Mapping


class RecordFinder:
    """Finds records for a loop, without waiting for the disk.

    Args:
        log, queues, files: The store's.
    """

    def __init__(self, log: CommitLog, queues: QueueTables, files: FileLayer) -> None:
        self._log, self._queues, self._pages = log, queues, Pages(files)
        self._scratch = Scratch(8 * (_PLACES + PLACE_WORDS * _MOST_RECORDS))

    def find(self, offsets: npt.NDArray[np.int64]) -> ProvenRecords | None:
        """See `MessageReader.find_records`."""
        file = self._log.queue.find(int(offsets[0]))
        if file is None or not file.is_mapped:
            return None
        mapping, start, pages = file.mapping, file.start_offset, self._pages
        end = min(start + file.size, self._log.confirm_offset)
        runs, at, step = self._scratch.address, offsets.ctypes.data, offsets.strides[0]
        places, numbers = runs + 8 * _PLACES, self._scratch.numbers
        count = min(len(offsets), _MOST_RECORDS)
        count = kernels.run_heads(at, step, count, start, end, mapping.address - start, runs)
        if not count or not pages.are_in_memory(mapping, runs, count):
            return None
        count = self._few_of(kernels.measure_records(at, step, count, end, runs))
        if not count or not pages.are_in_memory(mapping, runs, count):
            return None
        count, first = kernels.place_records(runs, count, places), 0
        while first < count:
            if numbers[_PLACES + PLACE_WORDS * first + P_FIRST // 8] == first:
                units = self._units(first)
                if units is None:
                    count = first
                    break
                address, most, _ = units
                count = kernels.first_unproven(at, step, count, runs, places, first, address, most)
            first += 1
        return ProvenRecords(runs, count, mapping) if count else None

    def _few_of(self, count: int) -> int:
        """Number of records, of the first `count`, that a loop may read."""
        sizes = self._scratch.numbers[1 : 2 * count : 2].tolist()
        if sum(sizes) <= _MOST_BYTES:
            return count
        return bisect_right(list(accumulate(sizes)), _MOST_BYTES)

    def _units(self, first: int) -> tuple[int, int, Mapping] | None:
        """Address of the first unit of a queue's records, the number of units from there on, and their map.

        None if the queue lacks it, or it is not in memory.
        """
        scratch, place = self._scratch, _PLACES + PLACE_WORDS * first
        words = scratch.numbers
        topic = string_at(words[place + P_TOPIC // 8], words[place + P_TOPIC_SIZE // 8]).decode(errors="replace")
        queue, low = self._queues.find(topic, words[place + P_QUEUE_ID // 8]), words[place + P_LOW // 8]
        if type(queue) is not ConsumeQueue or low < queue.min_offset or not queue.is_at_hand(low):
            return None
        found = queue.units_from(low)
        if found is None:
            return None
        address, count, mapping = found
        count = min(count, words[place + P_HIGH // 8] - low + 1, _MOST_UNITS)
        words[_UNIT_RUN], words[_UNIT_RUN + 1] = address, count * UNIT_SIZE
        is_there = self._pages.are_in_memory(mapping, scratch.address + 8 * _UNIT_RUN, 1)
        return (address, count, mapping) if is_there else None
