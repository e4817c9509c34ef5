"""Draws docs/report.png anew: `python -m examples.picture.main`, from the root of the project."""

import argparse
import tempfile
from pathlib import Path

from examples.picture.browser import screenshot
from examples.picture.day import write_day
from reput.cli.commands.stats.report import report_of
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics

WIDTH, HEIGHT = 1160, 1700


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw the report of a made-up day.")
    parser.add_argument("--picture", default="docs/report.png", metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--report", metavar="FILE.html", help="also keep the page")
    parser.add_argument("--width", type=int, default=WIDTH, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--height", type=int, default=HEIGHT, metavar="N", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(options.report or Path(folder, "report.html"))
        write_report(Path(folder, "store"), page)
        screenshot(page, Path(options.picture).absolute(), options.width, options.height)


def write_report(store: Path, page: Path) -> None:
    """Make the store, and the page of its statistics."""
    write_day(store)
    result = statistics(store, runner=LocalRunner(), by=("topic",), bucket="30m", latency=True)
    report = report_of("/data/shop", result)
    report.command = "reput stats /data/shop --by topic --bucket 30m --latency --report shop.html"
    report.write_html(str(page))


if __name__ == "__main__":
    main()
