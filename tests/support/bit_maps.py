"""The bit maps of the corpora with extensions, which stand for the Bloom filters of a broker."""

from __future__ import annotations

import pyarrow as pa

from reput.kernels.records.columns import RecordColumns


def bit_map(commit_log_offset: int) -> bytes | None:
    """None for every third offset, else 14 bytes made from it."""
    if commit_log_offset % 3 == 0:
        return None
    return bytes(((commit_log_offset >> i % 8) * 31 + i) & 0xFF for i in range(14))


def bit_maps(columns: RecordColumns) -> pa.BinaryArray:
    """Bit maps of the rows of a scan."""
    return pa.array([bit_map(offset) for offset in columns["commit_log_offset"].tolist()], pa.binary())
