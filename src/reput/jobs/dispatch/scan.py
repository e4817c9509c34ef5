"""Scan of a batch: the first phase of a rebuild, for some splits, in a folder that is removed with the batch."""

from __future__ import annotations

import os
from functools import partial

from reput.files import DISK
from reput.jobs.dispatch.plan import BatchPlan
from reput.jobs.rebuild.scan_task import BATCH_UNITS, EXT, KEYS, ScanOutcome, scan_one
from reput.jobs.runner import Runner


def scan_batch(plan: BatchPlan, runner: Runner) -> list[ScanOutcome]:
    """Scan a batch in tasks, which build its units and spill its keys in `plan.scratch`; the outcome of each split."""
    for folder in (KEYS, BATCH_UNITS, EXT):
        DISK.add_directories(os.path.join(plan.scratch, folder))
    task = partial(scan_one, plan.target)
    return runner.run(task, list(plan.splits), description="read the log")
