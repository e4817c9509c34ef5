"""Tries to lose a message: `make campaign`, or `python -m lab.campaign.main` at the project's root.

Each case is repeated by its part and its seed: `python -m lab.campaign.main --only power --case 4711`. Prints what was
found, and writes it to a JSON file. The exit status is 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.campaign import (
    brokers,
    clocks,
    consumers,
    damage,
    disks,
    fail_overs,
    faults,
    flips,
    frames,
    hostile,
    java_clients,
    kernels,
    kills,
    kinds,
    model,
    network,
    plants,
    power,
    repairs,
    replication,
    states,
    tables,
    turns,
)  # fmt: skip
from lab.campaign.cases import Findings, Part, run_case, run_part
from lab.campaign.pages import source_commit

PARTS: tuple[Part, ...] = (
    power.PART, faults.PART, disks.PART, kills.PART, model.PART, clocks.PART, flips.PART, damage.PART, plants.PART,
    hostile.PART, repairs.PART, kernels.PART, frames.PART, network.PART, turns.PART, states.PART, brokers.PART,
    replication.PART, fail_overs.PART, consumers.PART, *kinds.PARTS, java_clients.PART, tables.PART,
)  # fmt: skip
_NAMES = [part.name for part in PARTS]


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write; the exit status."""
    options = _parse(arguments)
    parts = [part for part in PARTS if part.name in (options.only or _NAMES) and part.name not in options.without]
    if options.case is not None:
        return _repeat(parts, options.case)
    console = Console(stderr=True)
    started = time.perf_counter()
    found: dict[str, Findings] = {}
    for part in parts:
        cases = max(1, round(part.cases * options.share))
        say = _teller(console, part, started)
        found[part.name] = run_part(part, options.seed, cases, options.processes, say, stop=options.stop)
        if options.stop and found[part.name].failures:
            parts = parts[: len(found)]
            break
    _print(parts, found, time.perf_counter() - started)
    if options.output:
        _write(Path(options.output), _figures(parts, found, options.seed))
    return int(any(findings.failures for findings in found.values()))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.campaign.main", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", choices=_NAMES, help="a part; may be repeated")
    without = 'a part that is left out, as "java" where there is no JDK; may be repeated'
    parser.add_argument("--without", action="append", choices=_NAMES, default=[], help=without)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each next one has the next")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of the published run")
    parser.add_argument("--case", type=int, help="repeat one case by its seed, and raise what it finds")
    parser.add_argument("--stop", action="store_true", help="at the first broken promise")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", metavar="FILE.json", help="write the figures there; of parts not run they stay")
    return parser.parse_args(arguments)


def _repeat(parts: list[Part], seed: int) -> int:
    failed = False
    for part in parts:
        counts, failure = run_case(part, seed)
        print(part.name, dict(counts), failure.text if failure else "holds")
        failed |= failure is not None
    return int(failed)


def _teller(console: Console, part: Part, started: float) -> Callable[[int, int], None]:
    def say(done: int, total: int) -> None:
        if done == total or done % max(1, total // 20) == 0:
            seconds = time.perf_counter() - started
            console.print(f"campaign: {seconds:5.0f} s  {part.name}: {done} of {total}", highlight=False)

    return say


def _print(parts: list[Part], found: dict[str, Findings], seconds: float) -> None:
    console = Console()
    table = Table("part", "what", "cases", "promises broken")
    for part in parts:
        findings = found[part.name]
        table.add_row(part.name, part.title, str(findings.cases), str(findings.counts["failures"]))
    console.print(table)
    for part in parts:
        for name, count in sorted(found[part.name].counts.items()):
            console.print(f"  {part.name}: {name} {count}", highlight=False)
        for failure in found[part.name].failures:
            console.print(f"  BROKEN {failure.part} seed {failure.seed}: {failure.text}", markup=False)
    console.print(f"{seconds:.0f} s")


def _figures(parts: list[Part], found: dict[str, Findings], seed: int) -> dict[str, Any]:
    """Of each part: what it is, how it was run, and what it found."""
    commit = source_commit()
    return {
        part.name: {
            "title": part.title,
            "commit": commit,
            "first seed": seed,
            "python": platform.python_version(),
            "processors": len(os.sched_getaffinity(0)),
            "cases": found[part.name].cases,
            "seconds": round(found[part.name].seconds),
            "figures": part.figures,
            "counts": dict(found[part.name].counts),
            "failures": [failure._asdict() for failure in found[part.name].failures],
        }
        for part in parts
    }


def _write(path: Path, figures: dict[str, Any]) -> None:
    before = json.loads(path.read_text())["parts"] if path.exists() else {}
    path.write_text(json.dumps({"parts": before | figures}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
