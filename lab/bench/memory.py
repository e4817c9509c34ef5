"""The memory of a process: idle, putting a reader that is larger than it may become, and rebuilding."""

from __future__ import annotations

import shutil

from lab.bench.figures import Figure, Goal
from lab.bench.processes import run_child
from lab.bench.setting import Setting


def measure(setting: Setting) -> list[Figure]:
    """MB, each of a process of its own; pages of mapped files count, though they are the page cache's."""
    idle = Figure("resident memory with a filled store open and idle", "MB", goal=Goal(most=200))
    put = Figure("anonymous memory while a reader of 1 GB is put, over the memory before", "MB", goal=Goal(most=200))
    rebuild = Figure("most resident memory of a rebuild, one worker", "MB", goal=Goal(most=500))
    stock = setting.stock()
    for _ in range(setting.repeats):
        idle.values.append(run_child("resident_after_open", stock))
        put.values.append(run_child("anonymous_of_put", setting.folder("reader"), str(setting.count(2_000_000))))
        output = f"{setting.directory}/rebuilt"
        rebuild.values.append(run_child("resident_after_rebuild", stock, output))
        shutil.rmtree(output)
    return [idle, put, rebuild]
