"""Histogram of latencies, the times from a message's birth to its store. Its counts add up and give quantiles.

A latency becomes the code of a bucket: a bucket a millisecond up to 256 ms, beyond that 128 buckets between a power of
two and the next. A quantile is the largest latency of its bucket: exact below 256 ms; above, at most 1/128 (0.8 %) more
than the true quantile, and never less. Counts by bucket add up the same in any order, so every runner and every split
agree. A message that was born after it was stored (two clocks disagree) has a negative latency.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_EXACT_BITS = 8
_STEPS = 1 << (_EXACT_BITS - 1)
#: Limit of times, in ms from 1970: a producer may give any time, and differences must not overflow.
_FARTHEST = 1 << 61

#: Columns of quantiles, in ms, and the share of messages with at most that latency.
QUANTILES = {
    "latency_p50_ms": 0.5,
    "latency_p90_ms": 0.9,
    "latency_p99_ms": 0.99,
    "latency_p999_ms": 0.999,
    "latency_max_ms": 1.0,
}


def latency_codes(born_ms: npt.NDArray[np.int64], store_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the bucket code of each latency. Codes have the order of latencies."""
    latencies = np.clip(store_ms, -_FARTHEST, _FARTHEST) - np.clip(born_ms, -_FARTHEST, _FARTHEST)
    sizes = np.abs(latencies)
    if int(sizes.max(initial=0)) >= 2 * _STEPS:
        shifts = np.maximum(np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - _EXACT_BITS, 0)
        sizes = shifts * _STEPS + (sizes >> shifts)
    codes: npt.NDArray[np.int64] = np.where(latencies < 0, -sizes, sizes)
    return codes


def largest_latencies(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n], the largest latency (ms) of each bucket."""
    sizes = np.abs(codes)
    shifts = np.maximum(sizes // _STEPS - 1, 0)
    mantissas = sizes - shifts * _STEPS
    largest: npt.NDArray[np.int64] = np.where(codes < 0, -(mantissas << shifts), ((mantissas + 1) << shifts) - 1)
    return largest


def quantiles(codes: pa.ListArray, counts: pa.ListArray) -> dict[str, pa.Array]:
    """Compute the columns of `QUANTILES` for each group.

    Args:
        codes: list<int64>, the bucket codes of each group, ascending.
        counts: list<int64>, the messages of each bucket, at least 1.
    """
    ends = np.cumsum(np.asarray(counts.flatten()))
    borders = np.asarray(codes.offsets)
    before = np.concatenate([[0], ends])[borders]
    totals = np.diff(before)
    largest = largest_latencies(np.asarray(codes.flatten()))
    columns = {}
    for name, share in QUANTILES.items():
        wanted = np.maximum(np.ceil(totals * share).astype(np.int64), 1)
        columns[name] = pa.array(largest[np.searchsorted(ends, before[:-1] + wanted)])
    return columns
