"""An hour of everything at once: `make soak`, or `python -m lab.campaign.soak.main` at the project's root.

Four stores: two whose writers live for the whole run (what leaks?), two whose writers are killed again and again (what
is lost?), one of each under SYNC_FLUSH. Each writer puts messages one by one, several at once and as tables, follows
its queues, queries keys, and deletes what has expired, while another process opens the stores read-only, and Spark
reads them as batches and as a stream. Two brokers, of which one is killed or stopped again and again, have Java clients
that send and consume. What was acknowledged is kept outside. The exit status is 1 where something was
lost, failed, or grew.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

import reput
from lab.campaign.pages import source_commit
from lab.campaign.soak.run import Soak
from lab.campaign.soak.samples import Sample, Thirds, compare_thirds

#: A shorter run is not judged by it: it has not filled its log files and caches.
_SHORTEST_MINUTES_OF_FLATNESS = 10


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write; the exit status."""
    options = _parse(arguments)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="reput-soak-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        soak = Soak(
            Path(folder),
            seed=options.seed,
            rate=options.rate,
            kill_every_s=options.kill_every,
            spark=not options.no_spark,
            brokers=not options.no_brokers,
            minutes=options.minutes,
        )
        soak.run(lambda text: console.print(f"soak: {text}"), options.sample_every)
    flat, unknown = _flatness(soak) if options.minutes >= _SHORTEST_MINUTES_OF_FLATNESS else ({}, [])
    soak.failures += unknown
    figures = _figures(soak, options, flat)
    print(json.dumps({name: value for name, value in figures.items() if name != "samples"}, indent=1))
    if options.output:
        Path(options.output).write_text(json.dumps(figures) + "\n")
    return int(bool(soak.failures) or not all(thirds.is_flat for thirds in flat.values()))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.campaign.soak.main", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the times of the kills")
    parser.add_argument("--rate", type=float, default=150.0, help="messages a second and store (default: 150)")
    parser.add_argument("--kill-every", type=float, default=30.0, metavar="SECONDS", help="on average, of one writer")
    parser.add_argument("--sample-every", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--no-spark", action="store_true", help="without a Spark session beside it")
    parser.add_argument("--no-brokers", action="store_true", help="without brokers and Java clients, so without a JDK")
    parser.add_argument("--folder", help="where the stores are made, and removed at the end")
    parser.add_argument("--output", metavar="FILE.json", help="write the figures there, samples included")
    return parser.parse_args(arguments)


def _flatness(soak: Soak) -> tuple[dict[str, Thirds], list[str]]:
    """Each process and quantity that must not grow; and what cannot be judged, since nothing was seen of it."""
    series: dict[str, tuple[str, list[float | None]]] = {"all stores: disk": ("disk", [*soak.disk])}
    for role in soak.lasting:
        samples = soak.samples.get(role, [None] * len(soak.sampled_at))
        for quantity in Sample._fields:
            values = [None if sample is None else float(getattr(sample, quantity)) for sample in samples]
            series[f"{role}: {quantity}"] = quantity, values
    flat, unknown = {}, []
    for name, (quantity, values) in series.items():
        thirds = compare_thirds(quantity, soak.sampled_at, values)
        if thirds is None:
            unknown.append(f"{name}: a third of the run has no sample")
        else:
            flat[name] = thirds
    return flat, unknown


def _figures(soak: Soak, options: argparse.Namespace, flat: dict[str, Thirds]) -> dict[str, Any]:
    return {
        "reput": reput.__version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "ended": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "options": {name: value for name, value in vars(options).items() if name not in ("folder", "output")},
        "failures": soak.failures,
        "totals": dict(sorted((soak.totals() + soak.counts).items())),
        "stores": {
            writer.role: {
                "acknowledged": writer.ledger.acknowledged,
                "kills": writer.counts["kills"] + 1,
                "log bytes deleted": writer.ledger.may_begin,
            }
            for writer in soak.writers
        },
        "flat": {name: {**thirds._asdict(), "is flat": thirds.is_flat} for name, thirds in sorted(flat.items())},
        "samples": {
            "seconds": soak.sampled_at,
            "disk MB": soak.disk,
            "done": soak.progress,
            "processes": soak.samples,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
