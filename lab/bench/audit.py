"""The audit of a clean store: every CRC, unit and index entry of a log in the page cache."""

from __future__ import annotations

from lab.bench.figures import Figure, Goal
from lab.bench.setting import Setting
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner


def measure(setting: Setting) -> list[Figure]:
    """Log bytes a second by one thread and by all."""
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
    return [one, both]
