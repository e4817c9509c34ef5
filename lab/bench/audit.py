"""The audit of a clean store: every CRC, unit and index entry of a log in the page cache."""

from __future__ import annotations

import numpy as np

from lab.bench import messages
from lab.bench.figures import Figure, Goal, seconds_of
from lab.bench.setting import Setting
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from reput.kernels.machine.crc32 import crc32_slices

_CRC_BYTES = 64 << 20


def measure(setting: Setting) -> list[Figure]:
    """Log bytes a second by one thread and by all, beside the sum of CRCs alone."""
    crc = Figure("CRC-32 of bodies of 256 bytes, one thread", "GB/s", note="of the bodies, not of the log")
    for _ in range(setting.repeats):
        crc.values.append(_crc_rate())
    limit = "memcpy, one thread", setting.limits.get("memcpy, one thread", 0.0)
    one = Figure("audit, one thread", "GB/s", goal=Goal(least=1), limit=limit)
    runner = LocalRunner()
    both = Figure("audit", "GB/s", limit=limit, note=f"local, {runner.threads} threads")
    for figure, of in ((one, LocalRunner(1)), (both, runner)):
        for i in range(1 + setting.repeats):
            result = audit(setting.stock(), runner=of)
            if result.messages != setting.stock_count or result.findings:
                raise AssertionError(f"{result.messages} of {setting.stock_count} messages, {result.findings[:1]}")
            if i:
                figure.values.append(result.log_bytes / result.seconds / 1e9)
    return [crc, one, both]


def _crc_rate() -> float:
    bodies = np.ones(_CRC_BYTES, np.uint8)
    positions = np.arange(0, _CRC_BYTES, messages.BODY_SIZE, dtype=np.int64)
    sizes, sums = np.full(positions.size, messages.BODY_SIZE, np.int64), np.empty(positions.size, np.uint32)
    seconds = seconds_of(lambda: crc32_slices(bodies.ctypes.data, positions, sizes, sums, False))
    return _CRC_BYTES / seconds / 1e9
