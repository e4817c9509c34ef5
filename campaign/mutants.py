"""The code broken on purpose, in each way by itself: a campaign that does not see it is not worth its name.

    python -m campaign.mutants [--only WORD] [--output FILE.json]

Each mutant is the source with some lines changed, in a folder of its own; a short campaign over it must find a broken
promise. The exit status is 1 where one was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Of the cases of a part: what one mutant may take.
_SHARE = 0.08


class Mutant(NamedTuple):
    """What is changed: each old text stands in the source exactly once."""

    title: str
    changes: tuple[tuple[str, str], ...]


def read_mutants() -> list[Mutant]:
    """Those of `mutants.diff`: a title, then lines that stay, go and come, as in a diff; "@@" is between two places."""
    mutants = []
    for text in (Path(__file__).parent / "mutants.diff").read_text().strip().split("\n\n"):
        title, *lines = text.split("\n")
        hunks = [hunk.strip("\n").split("\n") for hunk in "\n".join(lines).split("@@")]
        changes = ((_side(hunk, " -"), _side(hunk, " +")) for hunk in hunks)
        mutants.append(Mutant(title.removeprefix("# "), tuple(changes)))
    return mutants


def _side(hunk: list[str], marks: str) -> str:
    return "".join(f"{line[1:]}\n" for line in hunk if line[0] in marks)


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print what became of each; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m campaign.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="WORD", default="", help="mutants with this in their title")
    parser.add_argument("--output", metavar="FILE.json", help="write what became of each there")
    options = parser.parse_args(arguments)
    found: dict[str, str | None] = {}
    for mutant in read_mutants():
        if options.only in mutant.title:
            started = time.perf_counter()
            found[mutant.title] = _hunt(mutant)
            verdict = found[mutant.title] or "NOT FOUND"
            print(f"{time.perf_counter() - started:5.0f} s  {mutant.title}: {verdict}", flush=True)
    caught = sum(verdict is not None for verdict in found.values())
    print(f"{caught} of {len(found)} found")
    if options.output:
        Path(options.output).write_text(json.dumps(found, indent=1) + "\n")
    return int(caught < len(found))


def _hunt(mutant: Mutant) -> str | None:
    """The first broken promise that a campaign over a mutant finds."""
    with tempfile.TemporaryDirectory(prefix="reput-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for change in mutant.changes:
            _apply(source, *change, mutant.title)
        found = Path(folder) / "found.json"
        command = [sys.executable, "-m", "campaign.main", "--share", str(_SHARE), "--stop", "--output", str(found)]
        command += ["--only", "power", "--only", "faults"]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
        parts = json.loads(found.read_text())["parts"]
    failures = [failure for part in parts.values() for failure in part["failures"]]
    return f"{failures[0]['part']} seed {failures[0]['seed']}: {failures[0]['text'][:120]}" if failures else None


def _apply(source: Path, old: str, new: str, title: str) -> None:
    holders = [path for path in sorted(source.rglob("*.py")) if old in path.read_text()]
    if len(holders) != 1 or holders[0].read_text().count(old) != 1:
        raise SystemExit(f"the mutant {title!r} is out of date: {old!r} stands in {[path.name for path in holders]}")
    holders[0].write_text(holders[0].read_text().replace(old, new))


if __name__ == "__main__":
    sys.exit(main())
