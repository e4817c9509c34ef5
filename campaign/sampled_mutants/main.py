"""Would the tests notice? A random sample of small changes of the code, each against the tests that cover its line.

    python -m campaign.sampled_mutants.main record FOLDER               # which test files run which lines
    python -m campaign.sampled_mutants.main try FOLDER [--seed 8]       # every change; goes on where it ended
    python -m campaign.sampled_mutants.main publish FOLDER [--seed 8]   # into docs/design

A change is made in a copy of the source. It is noticed when a test fails, or takes ten times as long. The exit status
of `publish` is 1 where a change was not noticed and is not known to be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from campaign.pages import markdown_table, source_commit, write_between_marks
from campaign.sampled_mutants.changes import LAYERS, Change, sample
from campaign.sampled_mutants.covering import ROOT, Covering, record
from campaign.sampled_mutants.trial import Outcome, try_change

_DOCS = ROOT / "docs" / "design"
_EQUAL = Path(__file__).parent / "equal.toml"


def main(arguments: list[str] | None = None) -> int:
    """Record, try or publish; the exit status."""
    options = _parse(arguments)
    if options.command == "record":
        record(options.folder, options.processes)
        return 0
    results = _Results(options.folder / f"outcomes-{options.seed}.json")
    changes = sample(options.seed, options.of_each_layer)
    if options.command == "publish":
        return publish(changes, results.outcomes, options.seed)
    known, equal = results.outcomes, equal_changes()
    open_changes = []
    for change in changes:
        name = name_of(change)
        if name not in known or (options.again and not known[name].test and name not in equal):
            open_changes.append(change)
    covering = Covering(options.folder)
    with ThreadPoolExecutor(options.processes) as pool:
        running = {pool.submit(try_change, change, covering): change for change in open_changes}
        for number, done in enumerate(as_completed(running), 1):
            name, outcome = name_of(running[done]), done.result()
            results.add(name, outcome)
            print(f"{number} of {len(running)}: {name}: {outcome.test or 'NOT NOTICED'} {outcome.text}", flush=True)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    summary = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m campaign.sampled_mutants.main", description=summary)
    parser.add_argument("command", choices=["record", "try", "publish"])
    parser.add_argument("folder", type=Path, help="of the record and the outcomes")
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--of-each-layer", type=int, default=25, metavar="CHANGES")
    parser.add_argument("--again", action="store_true", help="try those again that were not noticed")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args(arguments)


def name_of(change: Change) -> str:
    """Name of a change in lists: its file, its function, its line without and with it."""
    repeated = f" ({change.occurrence + 1})" if change.occurrence else ""
    return f"{change.path} {change.function}: {change.before}  =>  {change.after}{repeated}"


def equal_changes() -> dict[str, str]:
    """The reason for each change that is known to leave the code equal, by its name."""
    return {entry["change"]: entry["reason"] for entry in tomllib.loads(_EQUAL.read_text()).get("equal", [])}


class _Results:
    """The outcomes so far, by the names of the changes, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.outcomes = {name: Outcome(*outcome) for name, outcome in known.items()}

    def add(self, name: str, outcome: Outcome) -> None:
        self.outcomes[name] = outcome
        self._path.write_text(json.dumps(self.outcomes, indent=1) + "\n")


def publish(changes: list[Change], outcomes: dict[str, Outcome], seed: int) -> int:
    """Into docs/design/sampled_mutants.json and sampled_mutants.md; 1 where a change has no explanation."""
    reasons = equal_changes()
    entries = [
        {"change": name, "layer": change.layer, "kind": change.kind, **outcomes[name]._asdict()}
        | ({"equal": reasons[name]} if not outcomes[name].test and name in reasons else {})
        for change in changes
        for name in [name_of(change)]
    ]
    figures = {"seed": seed, "commit": source_commit(), "changes": entries}
    (_DOCS / "sampled_mutants.json").write_text(json.dumps(figures, indent=1) + "\n")
    rows: list[tuple[str, int, int, int, int]] = []
    for layer in (*LAYERS, "all"):
        some = [entry for entry in entries if layer in (entry["layer"], "all")]
        noticed, equal = sum(bool(entry["test"]) for entry in some), sum("equal" in entry for entry in some)
        rows.append((layer, len(some), noticed, equal, len(some) - noticed - equal))
    _, count, noticed, equal, missed = rows[-1]
    kinds = Counter(str(entry["kind"]) for entry in entries)
    text = (
        f"\nSeed {seed}: {count} changes ({', '.join(f'{kind} {kinds[kind]}' for kind in sorted(kinds))}). The tests "
        f"notice {noticed} of the {count - equal} that change what the code does: {noticed / (count - equal):.1%}.\n"
        + markdown_table(("layer", "changes", "noticed", "equal code", "not noticed"), rows)
    )
    write_between_marks(_DOCS / "sampled_mutants.md", text)
    print(text)
    for entry in entries:
        if not entry["test"] and "equal" not in entry:
            print("NOT NOTICED:", entry["change"])
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
