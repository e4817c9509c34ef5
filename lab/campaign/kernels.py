"""Kernels between pages that nobody may touch: hostile bytes, in a process of their own for each case.

A kernel that reads or writes one byte too far dies; the send kernel stores what the plain decoder reads.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lab.campaign.cases import Part
from tests.support.guarded_memory import SUBJECTS, guarded


def run(folder: Path, seed: int) -> Counter[str]:
    """All kernels, with bytes of this seed."""
    done = guarded(seed, *SUBJECTS)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-1000:])
    counts = Counter({name: int(count) for name, count in map(str.split, done.stdout.splitlines())})
    return counts + Counter({"calls": sum(counts.values()), "calls of the send kernel": counts["send_frames"]})


PART = Part(
    "kernels", "kernels over hostile bytes, between pages that nobody may touch", 12, run,
    ("calls", "calls of the send kernel"),
)  # fmt: skip
