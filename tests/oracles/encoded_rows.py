"""Rows -> the vector of addresses that `record_encode` reads, and calls of its kernels over exact buffers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from reput.formats.record_layout import QUEUE_OFFSET
from reput.kernels.records.column_addresses import ADDRESSES
from reput.kernels.records.record_encode import encode, measure, patch
from tests.oracles.record_encode import EncodeRow

_PORT = b"\0\0\x2a\x9f"
BORN_HOSTS = st.sampled_from([b"\x0a\0\0\1" + _PORT, bytes(15) + b"\1" + _PORT])
STORE_HOSTS = BORN_HOSTS


@dataclass(frozen=True)
class Chunk:
    """The records of one call, patched: their bytes, and where each ends."""

    data: bytes
    ends: list[int]


class EncodedRows:
    """The columns of rows; columns that no row uses are absent, as in a table without them."""

    def __init__(self, rows: list[EncodeRow], *, property_crc: bool = False) -> None:
        self._rows = rows
        self._property_crc = property_crc
        self._arrays: list[npt.NDArray[np.generic]] = []
        self._addresses = dict.fromkeys(ADDRESSES, 0)
        self._queues = list(dict.fromkeys((row.topic, row.queue_id) for row in rows))
        topics = list(dict.fromkeys(topic for topic, _ in self._queues))
        self._numbers("queue", np.int32, [self._queues.index((row.topic, row.queue_id)) for row in rows])
        self._numbers("queue_topic", np.int32, [topics.index(topic) for topic, _ in self._queues])
        self._numbers("queue_id", np.int32, [queue_id for _, queue_id in self._queues])
        self._numbers("topic_is_v2", np.uint8, [len(topic) > 127 for topic in topics])
        self._texts("topic_offsets", "topics", [topic.encode() for topic in topics])
        self._texts("body_offsets", "bodies", [row.body for row in rows])
        self._texts("born_host_offsets", "born_hosts", [row.born_host for row in rows])
        if any(row.tags for row in rows):
            self._texts("tags_offsets", "tags", [row.tags.encode() for row in rows])
        if any(row.unique_key for row in rows):
            self._texts("unique_key_offsets", "unique_keys", [row.unique_key.encode() for row in rows])
        if any(row.keys for row in rows):
            self._lists("keys_lists", [len(row.keys) for row in rows])
            self._texts("keys_offsets", "keys", [key.encode() for row in rows for key in row.keys])
        if any(row.properties for row in rows):
            self._lists("properties_lists", [len(row.properties) for row in rows])
            pairs = [pair for row in rows for pair in row.properties]
            self._texts("name_offsets", "names", [name.encode() for name, _ in pairs])
            self._texts("value_offsets", "values", [value.encode() for _, value in pairs])
        for name, dtype in (
            ("flag", np.int32),
            ("sys_flag", np.int32),
            ("born_timestamp", np.int64),
            ("reconsume_times", np.int32),
            ("prepared_transaction_offset", np.int64),
        ):
            values = [getattr(row, name) for row in rows]
            if any(values):
                self._numbers(name, dtype, values)
        self._vector = np.array([self._addresses[name] for name in ADDRESSES], np.int64)
        self._sizes, self._properties_sizes = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)

    def _keep(self, name: str, array: npt.NDArray[np.generic]) -> None:
        self._arrays.append(array)
        self._addresses[name] = array.ctypes.data

    def _numbers(self, name: str, dtype: type[np.generic], values: Iterable[int]) -> None:
        self._keep(name, np.array([*values, 0], dtype))

    def _lists(self, name: str, sizes: Iterable[int]) -> None:
        self._numbers(name, np.int32, [0, *accumulate(sizes)])

    def _texts(self, offsets: str, data: str, texts: list[bytes]) -> None:
        self._lists(offsets, map(len, texts))
        self._keep(data, np.frombuffer(b"".join(texts) + b"\0", np.uint8))

    def measure(self, store_host: bytes, max_body_size: int = 1 << 20) -> int:
        """What `measure` says: -1, or row * 16 + fault."""
        sizes = self._sizes, self._properties_sizes
        reserved = 20 * self._property_crc
        return int(measure(self._vector, len(self._rows), max_body_size, len(store_host), reserved, *sizes))

    def record_sizes(self) -> list[int]:
        """Bytes of each record, after `measure`."""
        return self._sizes.tolist()

    def queue_offsets(self, offsets: Mapping[tuple[str, int], int]) -> npt.NDArray[np.int64]:
        """The next offset of each queue, in their order."""
        return np.array([offsets[queue] for queue in self._queues], np.int64)

    def offsets_by_queue(self, next_offsets: npt.NDArray[np.int64]) -> dict[tuple[str, int], int]:
        """The inverse of `queue_offsets`."""
        return dict(zip(self._queues, next_offsets.tolist(), strict=True))

    def encode(
        self,
        begin: int,
        store_host: bytes,
        capacity: int,
        next_offsets: npt.NDArray[np.int64],
        base_offset: int,
        store_timestamp: int,
    ) -> Chunk:
        """Encode rows from `begin` into a buffer of `capacity` bytes, and patch them; advances `next_offsets`."""
        host = np.frombuffer(store_host, np.uint8)
        out = np.full(capacity + 16, 0xEE, np.uint8)
        positions = np.full(len(self._rows) - begin + 2, -7, np.int32)
        end = int(
            encode(
                self._vector, begin, len(self._rows), self._sizes, self._properties_sizes, host.ctypes.data,
                len(store_host), out.ctypes.data, capacity, positions,
            )
        )  # fmt: skip
        count = end - begin
        assert positions[count + 1 :].tolist() == [-7] * (positions.size - count - 1)
        size = int(positions[count])
        assert (out[size:] == 0xEE).all(), "bytes behind the last record were written"
        queues = np.array([self._queues.index((row.topic, row.queue_id)) for row in self._rows[begin:]], np.int32)
        commit_log_offsets, queue_offsets = np.empty(count, np.int64), np.empty(count, np.int64)
        patch(
            out.ctypes.data, count, positions, queues, next_offsets, base_offset, store_timestamp, self._property_crc,
            commit_log_offsets, queue_offsets,
        )  # fmt: skip
        data, bounds = out[:size].tobytes(), positions[: count + 1].tolist()
        places = zip(queue_offsets.tolist(), commit_log_offsets.tolist(), strict=True)
        assert list(places) == [struct.unpack_from(">qq", data, begin + QUEUE_OFFSET) for begin in bounds[:-1]]
        return Chunk(data, bounds[1:])
