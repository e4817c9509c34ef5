"""A soak's figures into the docs: `python -m lab.campaign.soak.publish FILE.json`, at the project's root.

Writes lab/soak.json, the picture lab/soak.png (with Chromium), and the tables and the picture between
the two marks of lab/soak.md. `--report FILE.html` keeps the page that the picture is taken of.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from examples.picture.browser import screenshot
from lab.campaign.pages import markdown_table, write_between_marks
from lab.campaign.soak.samples import Sample
from reput.jobs.report.plot import Plot, Series
from reput.jobs.report.report import Report

_LAB = Path(__file__).parents[2]
_WIDTH, _HEIGHT = 1160, 3560
_QUANTITIES = {
    "anonymous": ("Memory of its own", "MB"),
    "resident": ("Resident memory, mapped files included", "MB"),
    "descriptors": ("Open descriptors", "descriptors"),
    "maps": ("Maps", "maps"),
    "threads": ("Threads", "threads"),
}
_PICTURE = "![Memory, descriptors, maps, disk and work over the run](soak.png)\n\n"
_WORK = (
    "messages acknowledged", "got", "queried", "read", "consumed by Java clients", "rows of Spark reads",
    "rows of the Spark stream",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.campaign.soak.publish", description=__doc__.partition("\n")[0])
    parser.add_argument("figures", metavar="FILE.json", help="what `lab.campaign.soak.main --output` has written")
    parser.add_argument("--report", metavar="FILE.html", help="also keep the page")
    parser.add_argument("--folder", metavar="FOLDER", default=str(_LAB), help="of the page (default: lab)")
    options = parser.parse_args(arguments)
    figures, folder = json.loads(Path(options.figures).read_text()), Path(options.folder)
    with tempfile.TemporaryDirectory() as temporary:
        page = Path(options.report or Path(temporary, "report.html"))
        report(figures).write_html(str(page))
        screenshot(page, (folder / "soak.png").absolute(), _WIDTH, _HEIGHT)
    (folder / "soak.json").write_text(json.dumps(figures) + "\n")
    write_between_marks(folder / "soak.md", tables(figures) + _PICTURE)


def report(figures: dict[str, Any]) -> Report:
    """The plots of a run over its minutes."""
    samples = figures["samples"]
    minutes = [round(second / 60, 2) for second in samples["seconds"]]
    plots = [
        Plot("line", title, "minutes", unit, list(_lines(samples["processes"], minutes, quantity)))
        for quantity, (title, unit) in _QUANTITIES.items()
    ]
    disk = [Series("all stores", minutes, samples["disk MB"])]
    plots.append(Plot("line", "Disk space", "minutes", "MB", disk))
    plots.append(Plot("line", "Work", "minutes", "messages/s", list(_rates(samples))))
    return Report("A soak", facts=_facts(figures), plots=plots, findings=figures["failures"])


def _lines(processes: dict[str, Any], minutes: list[float], quantity: str) -> Iterable[Series]:
    place = Sample._fields.index(quantity)
    for role, values in sorted(processes.items()):
        yield Series(role, minutes, [None if value is None else value[place] for value in values])


def _rates(samples: dict[str, Any]) -> Iterable[Series]:
    seconds, minutes = samples["seconds"], [round(second / 60, 2) for second in samples["seconds"]]
    for name in _WORK:
        totals = samples["done"].get(name)
        if totals is not None:
            rates = [
                (after - before) / (end - begin)
                for (before, after), (begin, end) in zip(pairwise(totals), pairwise(seconds), strict=True)
            ]
            yield Series(name, minutes[1:], rates)


def _facts(figures: dict[str, Any]) -> dict[str, Any]:
    options = figures["options"]
    return {
        "minutes": options["minutes"],
        "seed": options["seed"],
        "messages a second and store": options["rate"],
        "commit": figures["commit"][:12],
        "ended": figures["ended"],
        "processors": figures["processors"],
        "failures": len(figures["failures"]),
    }


def tables(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    stores = [(name, *store.values()) for name, store in figures["stores"].items()]
    flat = [
        (name, one["first"], one["last"], one["most"], one["hourly"], "yes" if one["is flat"] else "**no**")
        for name, one in figures["flat"].items()
    ]
    return (
        markdown_table(("the run", ""), list(_facts(figures).items()))
        + markdown_table(("store", "acknowledged", "kills", "bytes of the log deleted"), stores)
        + markdown_table(("done by all", "times"), list(figures["totals"].items()))
        + markdown_table(("must stay flat", "first third", "last third", "at most", "growth an hour", "flat"), flat)
    )


if __name__ == "__main__":
    main()
