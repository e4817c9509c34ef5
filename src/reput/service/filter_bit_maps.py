"""FilterBitMaps: which filters want a message, in the bit map of its ext unit (`CommitLogDispatcherCalcBitMap`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reput.filter.expression_filter import ExpressionFilter
from reput.formats.metadata import ConsumerFilterData
from reput.kernels.records.columns import RecordColumns
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.store.reads.message_filter import PropertyTexts

if TYPE_CHECKING:
    import pyarrow as pa


class FilterBitMaps:
    """The `bit_maps` of `MessageStore.open` of a broker (docs/formats/consume-queue-ext.md); for any thread.

    A message of a topic with filters has a bit map, in which each filter that wants it sets its bits. If a filter of
    the topic does not compile, its messages have none: a reader would take missing bits for an answer.

    Args:
        manager: Knows the filters.
    """

    def __init__(self, manager: ConsumerFilterManager) -> None:
        self._manager = manager

    def __call__(self, columns: RecordColumns) -> pa.BinaryArray | None:
        """Bit maps for the rows of a scan, null for a row without one; None if no row has one."""
        topics = [topic.decode(errors="replace") for topic, _ in columns.queues()]
        numbers: dict[str, list[int]] = {}
        for number, topic in enumerate(topics):
            numbers.setdefault(topic, []).append(number)
        bit_maps = np.zeros((columns.rows, self._manager.bloom_filter.bit_num // 8), np.uint8)
        has_map = np.zeros(columns.rows, np.bool_)
        for topic, of_topic in numbers.items():
            filters = self._filters(topic)
            if filters:
                rows = np.flatnonzero(np.isin(columns["queue"], of_topic))
                has_map[rows] = True
                bit_maps[rows] = self._of_topic(columns, rows, filters)
        return _as_arrow(bit_maps, has_map) if has_map.any() else None

    def _filters(self, topic: str) -> list[tuple[ConsumerFilterData, ExpressionFilter]]:
        known = self._manager.filters(topic)
        found = [(data, compiled) for data in known if (compiled := self._manager.message_filter(data)) is not None]
        return found if len(found) == len(known) else []

    def _of_topic(
        self,
        columns: RecordColumns,
        rows: npt.NDArray[np.intp],
        filters: list[tuple[ConsumerFilterData, ExpressionFilter]],
    ) -> npt.NDArray[np.uint8]:
        """uint8[rows, bytes]: the bit maps of some rows, all of one topic."""
        pairs = np.column_stack((columns["commit_log_offset"][rows], columns["store_size"][rows].astype(np.int64)))
        names = sorted({name for _, compiled in filters for name in compiled.names})
        wanted = PropertyTexts(names, len(rows))
        buffer = columns.buffer
        wanted.find(buffer.ctypes.data, buffer.size, columns.base_offset, pairs.ctypes.data, 0, len(rows))
        texts = wanted.gather()
        bits = np.zeros((len(rows), self._manager.bloom_filter.bit_num), np.bool_)
        for data, compiled in filters:
            assert data.bloom_filter_data is not None, "the manager keeps no filter without its bits"
            bits[:, data.bloom_filter_data.bit_pos] |= compiled.matches(texts, len(rows))[:, np.newaxis]
        return np.packbits(bits, axis=1, bitorder="little")


def _as_arrow(bit_maps: npt.NDArray[np.uint8], has_map: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    import pyarrow as pa

    rows, size = bit_maps.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
    valid = np.packbits(has_map, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(bit_maps)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)
