"""Resources of processes, second by second, and whether their use stays flat."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

#: Of a run: what passes before anything is compared.
_WARM_UP = 0.1
#: What the last third may have over the first: a share of it, and so much besides.
_GROWTH = 0.1
_BESIDES = {"anonymous": 16.0, "resident": 32.0, "descriptors": 4.0, "maps": 8.0, "threads": 2.0, "disk": 8.0}


class Sample(NamedTuple):
    """Of one process, or of several together: MB of anonymous memory, MB resident (the page cache's shared pages are
    in it), open descriptors, maps, threads.
    """

    anonymous: float
    resident: float
    descriptors: float
    maps: float
    threads: float

    def plus(self, other: Sample) -> Sample:
        """Of both together."""
        return Sample(*(one + another for one, another in zip(self, other, strict=True)))


def look_at(pid: int) -> Sample | None:
    """None where the process is gone, or going."""
    folder = Path("/proc", str(pid))
    try:
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        if "RssAnon" not in fields:
            return None
        anonymous, resident = (int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
        descriptors = len(os.listdir(folder / "fd"))
        maps = (folder / "maps").read_bytes().count(b"\n")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Sample(round(anonymous, 1), round(resident, 1), descriptors, maps, int(fields["Threads"]))


def children_of(pid: int) -> Iterator[tuple[int, str]]:
    """Process id and command of all that a process has started, and what these have."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            head, _, rest = Path("/proc", name, "stat").read_text().rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(rest.split()[1]), []).append((int(name), head.partition("(")[2]))
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            waiting.append(child[0])
            yield child


def disk_mb(folder: Path) -> float:
    """Disk space of the files below a folder in MB."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return round(total / 1e6, 1)


class Thirds(NamedTuple):
    """Medians of the first and the last third of a run, its beginning left out, and what the last one may be; and how
    much a straight line through all values grows in an hour.
    """

    first: float
    last: float
    most: float
    hourly: float

    @property
    def is_flat(self) -> bool:
        """Whether the last third is within what it may be."""
        return self.last <= self.most


def compare_thirds(name: str, seconds: list[float], values: list[float | None]) -> Thirds | None:
    """Slope of values, one at each time in seconds; None if a third has none."""
    begin = seconds[0] + _WARM_UP * (seconds[-1] - seconds[0])
    third = (seconds[-1] - begin) / 3
    known = {
        second: value for second, value in zip(seconds, values, strict=True) if value is not None and second >= begin
    }
    first = [value for second, value in known.items() if second < begin + third]
    last = [value for second, value in known.items() if second >= seconds[-1] - third]
    if not first or not last:
        return None
    before = median(first)
    hourly = linear_regression(list(known), list(known.values())).slope * 3600
    return Thirds(before, median(last), round(before * (1 + _GROWTH) + _BESIDES[name], 1), round(hourly, 1))
