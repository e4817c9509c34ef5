import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from reput.jobs.report.plot import Plot, PlotKind, Series
from reput.jobs.report.report import Report
from reput.jobs.report.table import Table, Value, format_value

PLOTS = [
    Plot("bar", "Rates <of> steps", "step", "messages a second", [Series("rate", ["put", "get"], [1_500_000, -3])]),
    Plot("area", "Volume", "day", "messages", [Series("a", ["2013-01-01", "2013-01-02"], [1, 2]), Series("b", [], [])]),
    Plot(
        "line",
        "Delay",
        "day",
        "delay (minutes)",
        [Series("delay", ["2013-01-01"], [2.5]), Series("share", ["2013-01-01"], [None], y_label="cancelled (%)")],
    ),
    Plot("treemap", "Disk use", "topic", "bytes", [Series("bytes", ["orders", "a <b>"], [300, 100])]),
    Plot("heatmap", "By hour", "hour", "airport", [Series("JFK", ["05:00", "06:00"], [0.5, None])], "minutes"),
]
REPORT = Report(
    title="Flights & more",
    facts={"messages": 1_027_730, "share": 0.25, "agrees": True, "nothing": None},
    tables=[Table("Steps", ["step", "count"], [["put <b>", 1_027_730], ["get", None]])],
    plots=PLOTS,
    findings=["queue 3 of weather, offset 17: body differs"],
)


class Page(HTMLParser):
    """Collects what a browser would load, the texts of cells, and the tags left open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.loaded += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (-1234567, "-1,234,567"),
        (0.00123456, "0.00123"),
        (3.14159, "3.14"),
        (123456.7, "123,457"),
        ("text", "text"),
    ],
)
def test_values_are_written_for_people(value: Value, text: str) -> None:
    assert format_value(value) == text


def test_json_is_one_dict_that_gives_the_report_back() -> None:
    read = json.loads(json.dumps(REPORT.to_dict()))
    assert list(read) == [field.name for field in dataclasses.fields(Report)]
    assert Report(**{**read, "tables": [], "plots": []}) == dataclasses.replace(REPORT, tables=[], plots=[])
    assert [Table(**table) for table in read["tables"]] == REPORT.tables
    assert read["plots"][0]["series"] == [{"name": "rate", "x": ["put", "get"], "y": [1_500_000, -3], "y_label": None}]


def test_terminal_shows_facts_tables_and_findings() -> None:
    console = Console(file=io.StringIO(), width=100)
    REPORT.print(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"messages +1,027,730", text)
    assert re.search(r"put <b> +1,027,730", text)
    assert "finding  queue 3 of weather, offset 17: body differs" in text


def test_a_narrow_terminal_cuts_no_fact() -> None:
    console = Console(file=io.StringIO(), width=40)
    path = "/data/a-rather-long-name/of-a-store/commitlog/00000000000000000000"
    Report("title", {"path": path, "messages": 3}).print(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert path in text.replace("path", "", 1).replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("width", [20, 30, 50, 60, 80, 120])
def test_a_wide_table_never_breaks_a_number(width: int) -> None:
    columns = ["topic", "queue_id", "messages", "bytes", "latency_p50_ms", "latency_p99_ms", "latency_max_ms"]
    row = ["order-events", 3, 1_027_730, 98_123_456_789, 12, 345, 678_901]
    console = Console(file=io.StringIO(), width=width)
    Report("title", {"bytes": 123_456_789_012, "log files": 17}, [Table("Groups", columns, [row])]).print(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for value in (*row, 123_456_789_012):
        assert format_value(value) in text
    assert max(map(len, text.splitlines())) <= width


def test_what_a_message_says_is_no_command_to_the_terminal() -> None:
    evil = "\x1b]0;evil\x07"
    console = Console(file=io.StringIO(), width=100)
    Report(evil, facts={"key": evil}, tables=[Table("t", ["key"], [[evil]])], findings=[evil]).print(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text
    assert text.count("\\x1b]0;evil\\x07") == 4


def test_page_loads_nothing_from_elsewhere() -> None:
    page = Page(REPORT.to_html())
    assert page.loaded == []
    assert page.open == []


def test_page_shows_every_text_and_escapes_it() -> None:
    html = REPORT.to_html()
    texts = Page(html).texts
    for text in ("Flights & more", "put <b>", "1,027,730", REPORT.findings[0], "yes"):
        assert text in texts
    assert "put <b>" not in html


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.kind)
def test_page_holds_the_title_and_labels_of_each_plot(plot: Plot) -> None:
    html = Report("title", plots=[plot]).to_html()
    drawing = html[html.rindex("Plotly.newPlot") :]
    assert plot.title in Page(html).texts
    if plot.kind == "treemap":  # it has no axes
        assert '"labels":["orders","a \\u003cb\\u003e"]' in drawing
        return
    labels = [plot.x_label, plot.y_label, *(series.y_label for series in plot.series if series.y_label)]
    for label in [*labels, *([plot.value_label] if plot.value_label else [])]:
        assert f'"text":"{label}"' in drawing


@pytest.mark.parametrize("kind", ["area", "line"])
def test_lines_over_one_x_are_bars(kind: PlotKind) -> None:
    series = [Series("a", ["2026-01-01"], [3]), Series("b", ["2026-01-01"], [5])]
    html = Report("title", plots=[Plot(kind, "Volume", "hour", "messages", series)]).to_html()
    drawing = html[html.rindex("Plotly.newPlot") :]
    assert '"type":"bar"' in drawing
    assert '"type":"scatter"' not in drawing[: drawing.index('"template"')]
    assert '"text":"messages, hour 2026-01-01"' in drawing


def test_areas_and_treemaps_of_a_page_give_a_name_one_colour() -> None:
    area = Plot("area", "Volume", "day", "messages", [Series("x", [1, 2], [1, 1]), Series("y", [1, 2], [2, 2])])
    treemap = Plot("treemap", "Disk", "topic", "bytes", [Series("bytes", ["y", "x"], [2, 1])])
    html = Report("title", plots=[area, treemap]).to_html()
    colours = dict(re.findall(r'"fillcolor":"(#\w+)".*?"name":"(\w)"', html[html.index("Plotly.newPlot") :]))
    (of_treemap,) = re.findall(r'"marker":\{"colors":\[([^]]*)\]', html)
    assert sorted(colours.values()) == ["x", "y"]
    assert [colours[colour] for colour in json.loads(f"[{of_treemap}]")] == ["y", "x"]


def test_page_without_plots_carries_no_script() -> None:
    page = Report("only facts", facts={"a": 1}).to_html()
    assert "Plotly" not in page
    assert len(page) < 10_000


def test_same_report_gives_the_same_page() -> None:
    assert REPORT.to_html() == REPORT.to_html()


def test_written_file_is_the_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("an older one")
    REPORT.write_html(str(path))
    assert path.read_text() == REPORT.to_html()
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Table("t", ["a", "b"], [[1, 2], [1]]), "row 1 has 1 values for 2 columns"),
        (lambda: Series("s", [1, 2], [1]), "2 x for 1 y"),
        (lambda: Plot("bar", "t", "x", "y", []), "no series"),
    ],
    ids=["short row", "short series", "no series"],
)
def test_parts_that_do_not_fit_together_are_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()


def test_import_loads_neither_plotly_nor_rich() -> None:
    code = "import sys, reput.jobs.report.report; print([m for m in ('plotly', 'rich', 'pandas') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
