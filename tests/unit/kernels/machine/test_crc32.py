import os
import random
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from reput.kernels.machine.crc32 import crc32_slices

ROOT = Path(__file__).parents[4]
BYTES = random.Random(1).randbytes(1 << 20)


@pytest.mark.parametrize("by_tables", [False, True])
@pytest.mark.parametrize("content", [BYTES[:400], bytes(400), b"\xff" * 400], ids=["random", "zeros", "ones"])
def test_sums_of_every_short_length_are_zlibs_wherever_they_begin(content, by_tables):
    slices = [(start, size) for start in (0, 1, 7, 16) for size in range(301)]
    positions, sizes = (np.array([pair[i] for pair in slices], np.int64) for i in (0, 1))
    sums, buffer = np.empty(len(slices), np.uint32), np.frombuffer(content, np.uint8)
    crc32_slices(buffer.ctypes.data, positions, sizes, sums, by_tables)
    assert sums.tolist() == [zlib.crc32(content[start : start + size]) for start, size in slices]


@pytest.mark.parametrize("by_tables", [False, True])
@pytest.mark.parametrize("size", [1023, 1024, 4096, 65_537, len(BYTES)])
def test_sums_of_large_bodies_are_zlibs(size, by_tables):
    sums, buffer = np.empty(1, np.uint32), np.frombuffer(BYTES, np.uint8)
    crc32_slices(buffer.ctypes.data, np.zeros(1, np.int64), np.array([size]), sums, by_tables)
    assert sums.tolist() == [zlib.crc32(BYTES[:size])]


@pytest.mark.slow
def test_a_processor_without_carryless_multiplication_gives_the_same_sums_and_scans() -> None:
    plain = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}  # on arm64, too
    code = "from reput.kernels.machine.crc32 import _HAS_CARRYLESS; assert not _HAS_CARRYLESS"
    subprocess.run([sys.executable, "-c", code], env=plain, check=True)
    twins = ["tests/unit/kernels/machine/test_crc32.py", "tests/property/test_kernels.py"]
    twins += ["-k", "sums_of or walk_over_records"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *twins]
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
