"""`Report`: result of a job, shown on the terminal, as one JSON object, or as one HTML file with plots.

A report is data only: facts, tables, plots and findings, made of texts, numbers and None. The HTML file contains its
script and style, so it opens anywhere, without a network. Printing needs rich, which is imported at the first use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from reput.files import DISK
from reput.jobs.report.page import page
from reput.jobs.report.plot import Plot
from reput.jobs.report.table import Table, Value, format_value, numeric_columns
from reput.jobs.report.terminal_table import draw_fields, draw_table, printable
from reput.jobs.report.units import write_value
from reput.version import __version__

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class Report:
    """Result of a job.

    Attributes:
        title: what was done.
        facts: its counts; `units.py` has the words of a name that mean a unit.
        findings: sentences, each a fault and its file; a job without findings is fine.
        paths: what was read and written, by what it is: "store" to its directory.
        command: of the process, as a shell takes it; empty if there is none.
        made: when the report was made, ISO 8601 in UTC.
    """

    title: str
    facts: Mapping[str, Value] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    findings: Sequence[str] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))

    def to_dict(self) -> dict[str, Any]:
        """Everything as dict, list, str, int, float, bool and None: what `json.dumps` takes."""
        return asdict(self)

    def print(self, console: Console | None = None) -> None:
        """Print facts, tables and findings (plots are for the HTML file). Digits are grouped for people alone."""
        from rich.console import Console
        from rich.text import Text

        console = console or Console()
        text = partial(format_value, grouped=console.is_terminal or console.is_jupyter)
        console.print(Text(printable(self.title), style="bold"))
        facts = {name: Text(printable(text(value))) for name, value in self.facts.items()}
        console.print(draw_fields(facts, console.width))
        for table in self.tables:
            cells = [[printable(text(value)) for value in row] for row in table.rows]
            part = "" if table.total is None else f", {len(table.rows)} of {text(table.total)}"
            console.print(Text(f"\n{table.name}{part}", style="italic"))
            headings = [name.replace("_", " ") for name in table.columns]  # headings wrap at blanks
            console.print(draw_table(headings, cells, numeric_columns(table), (), console.width))
        for finding in self.findings:
            console.print(Text.assemble(("finding  ", "bold red"), printable(finding)), soft_wrap=True)

    def to_html(self) -> str:
        """Whole report as one HTML page that needs no other file."""
        paths = {name: path if "://" in path else os.path.abspath(path) for name, path in self.paths.items()}
        about = {**paths, "command": self.command, "made": write_value(self.made, "made"), "reput": __version__}
        about = {name: text for name, text in about.items() if text}
        return page(self.title, about, self.facts, self.findings, self.plots, self.tables)

    def write_html(self, path: str) -> None:
        """Write `to_html()` to `path` atomically: the file is the old or the new one, never half of one.

        A path that is no text is shown with question marks.
        """
        DISK.write_atomically(path, self.to_html().encode("utf-8", "replace"))
