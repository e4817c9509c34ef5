"""Latencies as numbers that add up: order, bounds of the error, quantiles."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from reput.jobs.statistics.latency import QUANTILES, largest_latencies, latency_codes, quantiles

LATENCIES = st.one_of(st.integers(-300, 5000), st.integers(-(1 << 61), 1 << 61))


def codes_of(latencies: list[int]) -> np.ndarray:
    return latency_codes(np.zeros(len(latencies), np.int64), np.array(latencies, np.int64))


@given(latencies=st.lists(LATENCIES, min_size=1))
@example(latencies=[0, 1, 255, 256, 257, 511, 512, (1 << 53) - 1, (1 << 60) - 1, 1 << 60, -256, -257])
def test_a_bucket_s_largest_latency_is_never_less_and_at_most_a_128th_more(latencies: list[int]) -> None:
    codes = codes_of(latencies)
    for latency, largest in zip(latencies, largest_latencies(codes).tolist(), strict=True):
        assert latency <= largest <= latency + abs(latency) / 128
    order = np.argsort(latencies, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()


def test_times_at_the_ends_of_int64_have_the_latency_of_their_sign() -> None:
    ends = np.array([-(1 << 63), (1 << 63) - 1])
    codes = latency_codes(ends, ends[::-1].copy())
    assert codes[0] > latency_codes(np.zeros(1, np.int64), np.array([1 << 60]))[0]
    assert codes[1] < 0


def test_latencies_below_256_ms_are_exact() -> None:
    assert largest_latencies(codes_of(list(range(-255, 256)))).tolist() == list(range(-255, 256))


@given(groups=st.lists(st.lists(LATENCIES, min_size=1, max_size=40), min_size=1, max_size=5))
def test_quantiles_of_counts_are_those_of_the_sorted_latencies(groups: list[list[int]]) -> None:
    codes, counts = [], []
    for group in groups:
        found, times = np.unique(codes_of(group), return_counts=True)
        codes.append(found.tolist())
        counts.append(times.tolist())
    kind = pa.list_(pa.int64())
    columns = quantiles(pa.array(codes, kind), pa.array(counts, kind))
    for name, part in QUANTILES.items():
        for group, value in zip(groups, columns[name].to_pylist(), strict=True):
            exact = sorted(group)[max(math.ceil(len(group) * part), 1) - 1]
            assert exact <= value <= exact + abs(exact) / 128
