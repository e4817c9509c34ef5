"""The figures of a campaign as the docs show them: `python -m lab.campaign.report [FILE.json] [--write]`.

Prints Markdown; with `--write` it takes the place of the figures in lab/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LAB = Path(__file__).parents[1]
FIGURES, PAGE = _LAB / "campaign.json", _LAB / "reliability.md"
_BEGIN, _END = "<!-- figures: python -m lab.campaign.report -->\n", "<!-- end of figures -->"
_VERDICTS = ("told", "harmless", "silent")
_WITH, _WITHOUT = "with a property CRC", "without a property CRC"


def markdown(figures: dict[str, Any]) -> str:
    """The tables."""
    return "\n".join([*_parts(figures), "", *_flips(figures["parts"]["flips"]["counts"])]) + "\n"


def _parts(figures: dict[str, Any]) -> Iterator[str]:
    parts = figures["parts"]
    seconds = sum(part["seconds"] for part in parts.values())
    yield f"{sum(part['cases'] for part in parts.values())} cases, {seconds} s in all:"
    yield ""
    yield "| part | commit | seeds from | cases | in them | s | promises broken |"
    yield "|---|---|---|---|---|---|---|"
    for name, part in parts.items():
        counts = part["counts"]
        shown = ", ".join(f"{counts.get(figure, 0)} {figure}" for figure in part["figures"])
        cells = (
            name, part["commit"][:12], part["first seed"], part["cases"], shown, part["seconds"],
            counts.get("failures", 0),
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"


def _flips(counts: dict[str, int]) -> Iterator[str]:
    yield "Flips by field; *told* / *harmless* / *silent*:"
    yield ""
    yield f"| field | {_WITH} | {_WITHOUT} |"
    yield "|---|---|---|"
    by_field: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for name, count in counts.items():
        verdict, _, rest = name.partition(": ")
        store, _, field = rest.partition(": ")
        if verdict in _VERDICTS and field:
            by_field[field][store.partition(",")[0], verdict] += count
    for field in sorted(by_field):
        cells = []
        for store in (_WITH, _WITHOUT):
            numbers = [by_field[field][store, verdict] for verdict in _VERDICTS]
            cells.append(" / ".join(map(str, numbers)) if any(numbers) else "")
        yield f"| {field} | {cells[0]} | {cells[1]} |"
    totals = [sum(by_field[field][store, "silent"] for field in by_field) for store in (_WITH, _WITHOUT)]
    yield f"| silent in all | {totals[0]} | {totals[1]} |"


def page_with(figures: dict[str, Any], page: str) -> str:
    """The page with other figures."""
    before, _, rest = page.partition(_BEGIN)
    return before + _BEGIN + "\n" + markdown(figures) + "\n" + _END + rest.partition(_END)[2]


def main(arguments: list[str] | None = None) -> int:
    """Print, or write."""
    parser = argparse.ArgumentParser(prog="python -m lab.campaign.report", description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", default=FIGURES, type=Path, help="what `lab.campaign.main --output` wrote")
    parser.add_argument("--write", action="store_true", help=f"put them into {PAGE.name}")
    options = parser.parse_args(arguments)
    figures = json.loads(options.file.read_text())
    if options.write:
        PAGE.write_text(page_with(figures, PAGE.read_text()))
    else:
        print(markdown(figures), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
