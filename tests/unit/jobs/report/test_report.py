import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import reput
from reput.jobs.report.over_time import stacked_over_time
from reput.jobs.report.plot import Plot, PlotKind, Series, bars_by_size
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
    bars_by_size("Disk use", "topic", {"orders": 300 << 20, "a </script>": 1 << 20}),
    Plot("heatmap", "By hour", "hour", "airport", [Series("JFK", ["05:00", "06:00"], [0.5, None])], "minutes"),
]
REPORT = Report(
    title="Flights & more",
    facts={"messages": 1_027_730, "share": 0.25, "agrees": True, "nothing": None},
    tables=[Table("Steps", ["step", "count"], [["put <b>", 1_027_730], ["get", None]])],
    plots=PLOTS,
    findings=["queue 3 of weather, offset 17: body differs"],
    paths={"store": "/data/store", "backups": "s3://backups/shop"},
    command="reput stats /data/store --by 'a <b>'",
    made="2026-11-26T07:30:05Z",
)
MOST_BYTES = 1_500_000


def drawings(report: Report) -> list[dict[str, Any]]:
    """What the page hands to ECharts, by plot."""
    (options,) = re.findall('<script type="application/json" id="plots">(.*?)</script>', report.to_html())
    drawn: list[dict[str, Any]] = json.loads(options)
    return drawn


def legends(page: str) -> dict[str, str]:
    """Colours by name, in all legends."""
    return {name: colour for colour, name in re.findall('<button style="--colour:(#[0-9a-f]{6})">([^<]*)<', page)}


def bar_colours(drawing: dict[str, Any]) -> dict[str, str]:
    """Colours of bars by their names."""
    return {
        name: point["itemStyle"]["color"]
        for series in drawing["series"]
        for name, point in zip(drawing["yAxis"]["data"], series["data"], strict=True)
    }


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
    assert read["plots"][0]["series"] == [
        {"name": "rate", "x": ["put", "get"], "y": [1_500_000, -3], "y_label": None, "topics": None}
    ]


@pytest.mark.parametrize(("is_terminal", "number"), [(True, "1,027,730"), (False, "1027730")])
def test_terminal_shows_facts_tables_and_findings(is_terminal: bool, number: str) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=is_terminal, color_system=None)
    REPORT.print(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(rf"messages +{number}", text)
    assert re.search(rf"put <b> +{number}", text)
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
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
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
    for text in ("Flights & more", "put <b>", "1\u202f027\u202f730", REPORT.findings[0], "yes"):
        assert text in texts
    assert "put <b>" not in html
    assert drawings(REPORT)[3]["yAxis"]["data"] == ["orders", "a </script>"]


def test_page_says_what_when_with_which_version_and_of_which_store() -> None:
    texts = Page(REPORT.to_html()).texts
    about = dict(pairwise(texts[texts.index("store") : texts.index("Findings")]))
    assert about["store"] == "/data/store"
    assert about["backups"] == "s3://backups/shop"
    assert about["command"] == REPORT.command
    assert about["made"] == "2026-11-26 07:30:05 UTC"
    assert about["reput"] == reput.__version__


def test_page_names_the_whole_path_and_the_time_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = datetime.now(UTC).replace(microsecond=0)
    report = Report("Audit", paths={"store": "shop"})
    assert str(tmp_path / "shop") in Page(report.to_html()).texts
    assert before <= datetime.fromisoformat(report.made) <= datetime.now(UTC)


def test_a_path_that_is_no_text_does_not_lose_the_report(tmp_path: Path) -> None:
    Report("Audit", paths={"store": "/data/\udcff"}).write_html(str(tmp_path / "report.html"))
    assert "/data/?" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.title)
def test_page_holds_the_title_and_labels_of_each_plot(plot: Plot) -> None:
    report = Report("title", plots=[plot])
    assert plot.title in Page(report.to_html()).texts
    (drawing,) = drawings(report)
    axes = [drawing["xAxis"], drawing["yAxis"]]
    shown = [axis.get("name") for either in axes for axis in (either if isinstance(either, list) else [either])]
    if plot.kind == "bar":  # the unit stands behind each number
        assert f"<figcaption>by {plot.x_label}</figcaption>" in report.to_html()
        return
    labels = [plot.x_label, plot.y_label, *(series.y_label for series in plot.series if series.y_label)]
    assert set(labels) <= set(shown)
    assert plot.value_label is None or drawing["visualMap"]["text"] == ["0.5 minutes", "0.5"]


@pytest.mark.parametrize("kind", ["area", "line"])
def test_lines_over_one_x_are_bars(kind: PlotKind) -> None:
    x = "2026-01-01T00:00:00Z"
    series = [Series("a", [x], [3]), Series("b", [x], [5])]
    report = Report("title", plots=[Plot(kind, "Volume", "stored (UTC)", "messages", series)])
    (drawing,) = drawings(report)
    assert [one["type"] for one in drawing["series"]] == ["bar"]
    assert drawing["yAxis"]["data"] == ["a", "b"]
    assert "<figcaption>messages, stored (UTC) 2026-01-01 00:00</figcaption>" in report.to_html()


def test_one_topic_has_one_colour_in_every_plot_and_no_other_topic_has_it() -> None:
    area = Plot("area", "Volume", "day", "messages", [Series("x", [1, 2], [1, 1]), Series("y", [1, 2], [2, 2])])
    by_queue = Series("messages", ["x / 0", "y / 0", "x / 1"], [3, 2, 1], topics=["x", "y", "x"])
    kinds = [Series("missing", ["x"], [2]), Series("extra", ["x"], [1])]
    plots = [
        bars_by_size("Disk", "topic", {"y": 5, "z": 2, "x": 1}),
        area,
        Plot("bar", "Groups", "topic / queue", "messages", [by_queue]),
        Plot("bar", "Differences", "topic", "messages", kinds),
        Plot("bar", "Rate", "step", "messages a second", [Series("rate", ["put"], [1])]),
    ]
    report = Report("title", plots=plots)
    disk, volume, groups, _, rate = drawings(report)
    colours = bar_colours(disk)
    assert len(set(colours.values())) == 3
    assert {series["name"]: series["color"] for series in volume["series"]} == {name: colours[name] for name in "xy"}
    assert bar_colours(groups) == {"x / 0": colours["x"], "y / 0": colours["y"], "x / 1": colours["x"]}
    legend = legends(report.to_html())
    assert legend.items() >= {name: colours[name] for name in "xy"}.items()
    others = [legend["missing"], legend["extra"], *bar_colours(rate).values()]
    assert len({*colours.values(), *others}) == 3 + len(others)


def test_lines_of_one_plot_are_told_apart_when_the_palette_is_used_up() -> None:
    names = [f"n{number}" for number in range(24)]
    plots = [Plot("line", "t", "x", "y", [Series(name, [1], [1], "y") for name in names[:12]])]
    plots.append(Plot("line", "t", "x", "y", [Series(name, [1], [1], "y") for name in ["n3", *names[12:20]]]))
    plots.append(bars_by_size("t", "topic", {"n0": 3, "n23": 2}))
    first, second, disk = drawings(Report("title", plots=plots))
    before = {series["name"]: series["color"] for series in first["series"]}
    after = {series["name"]: series["color"] for series in second["series"]}
    assert len(set(before.values())) == 12
    assert len(set(after.values())) == 9
    assert after["n3"] == before["n3"]
    assert bar_colours(disk)["n0"] == before["n0"]
    assert bar_colours(disk)["n23"] not in before.values()


def test_small_bars_are_one_more_and_grey() -> None:
    plot = bars_by_size("Disk", "topic", {f"t{number}": 100 - number for number in range(40)})
    assert plot.series[0].x[-1] == "20 others"
    assert sum(plot.series[0].y) == sum(100 - number for number in range(40))  # type: ignore[arg-type]
    whole = bars_by_size("Disk", "topic", {f"t{number}": 100 - number for number in range(21)})
    assert "t20" in whole.series[0].x
    (drawing,) = drawings(Report("title", plots=[plot]))
    colours = bar_colours(drawing)
    assert colours["20 others"] == colours["t19"] != colours["t0"]


def test_axes_have_round_numbers_of_the_unit_that_reads_well() -> None:
    sizes = Series("bytes", [1, 2], [3 << 20, 5 << 19])
    lags = Series("lag in seconds", [1, 2], [90, 7200], y_label="lag in seconds")
    (drawing,) = drawings(Report("title", plots=[Plot("line", "t", "minutes", "bytes", [sizes, lags])]))
    assert [axis["name"] for axis in drawing["yAxis"]] == ["MiB", "lag in h"]
    assert [[y for _, y in series["data"]] for series in drawing["series"]] == [[3.0, 2.5], [0.025, 2.0]]
    assert [series["unit"] for series in drawing["series"]] == ["MiB", "h"]
    (bars,) = drawings(Report("title", plots=[Plot("bar", "t", "", "messages a second", [Series("r", ["a"], [1200])])]))
    assert bars["series"][0]["data"][0]["text"] == "1\u202f200\u202fmsg/s"


def test_the_caption_of_bars_has_no_unit_beside_that_of_their_numbers() -> None:
    series = [Series("slowest", ["2026-01-01T00:00:00Z"], [95_563_022_335])]
    report = Report("title", plots=[Plot("line", "Latency", "stored (UTC)", "milliseconds", series)])
    (drawing,) = drawings(report)
    assert [point["text"] for point in drawing["series"][0]["data"]] == ["26\u202f545\u202fh"]
    assert "<figcaption>stored (UTC) 2026-01-01 00:00</figcaption>" in report.to_html()


def test_areas_without_some_x_are_stacked_on_what_is_below_them() -> None:
    series = [Series("a", ["2026-01-01", "2026-01-03"], [1, 3]), Series("b", ["2026-01-02", "2026-01-03"], [5, None])]
    (drawing,) = drawings(Report("title", plots=[Plot("area", "t", "day", "messages", series)]))
    first, second = (one["data"] for one in drawing["series"])
    assert [x for x, _ in first] == [x for x, _ in second]
    assert [y for _, y in first] == [1, 0, 3]
    assert [y for _, y in second] == [0, 5, 0]


def test_times_of_an_axis_are_utc() -> None:
    series = Series("a", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+01:00", "2026-01-02"], [1, 2, 3])
    (drawing,) = drawings(Report("title", plots=[Plot("line", "t", "stored (UTC)", "messages", [series])]))
    assert drawing["xAxis"][0]["type"] == "time"
    assert [x - 1_767_225_600_000 for x, _ in drawing["series"][0]["data"]] == [0, 3_600_000, 86_400_000]


def test_a_table_says_how_many_rows_it_shows_of_how_many() -> None:
    tables = [
        Table("one", ["a"], [[1]]),
        Table("cut by the job", ["a"], [[1], [2]], total=1000),
        Table("cut by the page", ["a"], [[number] for number in range(5000)]),
    ]
    texts = Page(Report("title", tables=tables).to_html()).texts
    for text in ("1 row", "2 of 1\u202f000 rows", "200 of 5\u202f000 rows"):
        assert text in texts


def test_a_long_cell_is_cut_and_says_how_long_it_is() -> None:
    html = Report("title", tables=[Table("bodies", ["body"], [["x" * 70_000]])]).to_html()
    assert "… (70\u202f000 characters)" in html
    assert len(html) < 30_000


def test_the_largest_page_is_a_file_that_a_mail_takes() -> None:
    names = [f"a-topic-with-a-rather-long-name-{number:05}" for number in range(10_000)]
    times = [datetime.fromtimestamp(60 * number, UTC).isoformat() for number in range(100_000)]
    largest = Report(
        "title",
        facts={"statement": "x" * 100_000},
        findings=["y" * 10_000] * 10_000,
        plots=[
            stacked_over_time({name: dict.fromkeys(times, 1_000_000) for name in names[:9]}, "stored (UTC)"),
            bars_by_size("Disk", "topic", dict.fromkeys(names, 1 << 40)),
            Plot("bar", "Groups", "topic", "messages", [Series("messages", names, [1] * len(names), topics=names)]),
        ],
        tables=[Table("rows", names[:10], [["z" * 100_000] * 10] * 1000)] * 3,
    )
    html = largest.to_html()
    assert 1_000_000 < len(html.encode()) < MOST_BYTES
    assert "(60 of 10\u202f000)" in html


def test_page_without_plots_carries_no_script() -> None:
    page = Report("only facts", facts={"a": 1}).to_html()
    assert "echarts.init=" not in page
    assert len(page) < 15_000


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
        (lambda: Series("s", [1, 2], [1, 2], topics=["a"]), "1 topics for 2 x"),
        (lambda: Plot("bar", "t", "x", "y", []), "no series"),
    ],
    ids=["short row", "short series", "few topics", "no series"],
)
def test_parts_that_do_not_fit_together_are_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()


def test_import_loads_neither_rich_nor_pandas() -> None:
    code = "import sys, reput.jobs.report.report; print([m for m in ('rich', 'pandas') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
