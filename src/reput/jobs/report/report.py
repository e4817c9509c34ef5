"""`Report`: result of a job, shown on the terminal, as one JSON object, or as one HTML file with plots.

A report is data only: facts, tables, plots and findings, made of texts, numbers and None. The HTML file contains its
script and style, so it opens anywhere, without a network. Drawing needs plotly (the extra `report`), printing needs
rich; both are imported at the first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from reput.files import DISK
from reput.jobs.report.page import page
from reput.jobs.report.plot import Plot
from reput.jobs.report.table import Table, Value, format_value, numeric_columns
from reput.jobs.report.terminal_table import draw_fields, draw_table, printable

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class Report:
    """Result of a job. `findings` are sentences, each a fault and its file; a job without findings is fine."""

    title: str
    facts: Mapping[str, Value] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    findings: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as dict, list, str, int, float, bool and None: what `json.dumps` takes."""
        return asdict(self)

    def print(self, console: Console | None = None) -> None:
        """Print facts, tables and findings on the terminal (plots are for the HTML file)."""
        from rich.console import Console
        from rich.text import Text

        console = console or Console()
        console.print(Text(printable(self.title), style="bold"))
        facts = {name: Text(printable(format_value(value))) for name, value in self.facts.items()}
        console.print(draw_fields(facts, console.width))
        for table in self.tables:
            cells = [[printable(format_value(value)) for value in row] for row in table.rows]
            console.print(Text(f"\n{table.name}", style="italic"))
            headings = [name.replace("_", " ") for name in table.columns]  # headings wrap at blanks
            console.print(draw_table(headings, cells, numeric_columns(table), (), console.width))
        for finding in self.findings:
            console.print(Text.assemble(("finding  ", "bold red"), printable(finding)), soft_wrap=True)

    def to_html(self) -> str:
        """Whole report as one HTML page that needs no other file.

        Raises ReputError when there are plots and plotly is not installed.
        """
        return page(self.title, self.facts, self.findings, self.plots, self.tables)

    def write_html(self, path: str) -> None:
        """Write `to_html()` to `path` atomically: the file is the old or the new one, never half of one."""
        DISK.write_atomically(path, self.to_html().encode())
