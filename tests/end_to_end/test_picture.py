"""The report in a browser: it draws itself whole, wide and on a telephone, from nothing but its own file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import get_args

import pytest

from examples.picture import main
from examples.picture.browser import draw, screenshot
from reput.jobs.report.plot import Plot, PlotKind, Series
from reput.jobs.report.report import Report
from reput.jobs.report.table import Table

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parents[2] / "docs" / "report.png"
MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("picture")
    main.write_report(folder / "store", folder / "report.html")
    return folder / "report.html"


def size_of(picture: Path) -> tuple[int, ...]:
    """Width and height of a PNG."""
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


@pytest.mark.parametrize("width", [1160, 400])
def test_every_plot_draws_something_within_its_place(page: Path, width: int) -> None:
    drawn = draw(page, width)
    assert len(drawn.marks) == 3
    assert min(drawn.marks) >= 3
    assert (drawn.cut, drawn.cut_texts, drawn.is_wide) == (0, [], False)
    assert drawn.complaints == []


def brightness(colour: str) -> int:
    """Sum of the parts of rgb(1, 2, 3), 0 to 765."""
    return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))


def test_page_and_plots_follow_the_colours_that_the_reader_prefers(page: Path) -> None:
    light, dark = draw(page, 1160), draw(page, 1160, is_dark=True)
    assert brightness(light.paper) > 700
    assert brightness(dark.paper) < 150
    assert light.inks
    assert max(map(brightness, light.inks)) < 400
    assert min(map(brightness, dark.inks)) > 400


def test_a_table_says_where_it_scrolls_and_the_page_does_not(tmp_path: Path) -> None:
    short = Table("short", ["a"], [[1]])
    wide = Table("wide", [f"a_rather_long_name_{number}" for number in range(12)], [[1] * 12])
    long = Table("long", ["a"], [[number] for number in range(150)])
    Report("tables", tables=[short, wide, long]).write_html(str(tmp_path / "tables.html"))
    drawn = draw(tmp_path / "tables.html", 1160)
    assert drawn.hints == ["", "; the table scrolls sideways", "; the table scrolls down"]
    assert not drawn.is_wide


_NAMES = ["AirTran Airways Corporation (FL)", "US Airways Inc. (US)", "Envoy Air (MQ)"]
_HOURS = [f"{hour:02}:00" for hour in range(5, 24)]
_DELAYS = [Series(airport, _HOURS, list(range(19))) for airport in ("EWR", "JFK")]
_DAYS = [f"2013-{month:02}-01T00:00:00Z" for month in range(1, 13)]
_SECONDS = [0.2 * number for number in range(50)]


def _lines(most: float, y_label: str, *more: Series) -> Plot:
    """Lines up to a number; ECharts may draw the axis up to a longer one."""
    heights = [most * (number + 1) / len(_SECONDS) for number in range(len(_SECONDS))]
    return Plot("line", f"up to {most}", "seconds since the start", y_label, [Series("a", _SECONDS, heights), *more])


#: Plots of each kind, with names and numbers that hardly fit.
GALLERY = [
    Plot("bar", "Rate of each step", "", "mean delay of a departure (minutes)", [Series("r", _NAMES, [1805156, 4, 1])]),
    Plot("bar", "Rate", "", "messages a second", [Series("rate", ["consumed from the store by a group"], [1_486_684])]),
    Plot("bar", "Latency", "topic / tag", "milliseconds", [Series("slowest", ["a / –"], [95_563_022_335])]),
    Plot(
        "line", "Latency: a / –", "stored (UTC)", "milliseconds", [Series("50 % within", [_DAYS[0]], [95_563_022_335])]
    ),
    Plot("area", "Messages", "stored (UTC)", "messages", [Series(_NAMES[0], [_DAYS[0]], [123_456_789])]),
    Plot(
        "area", "Messages over time", "stored (UTC)", "messages", [Series(one, _DAYS, [166] * 12) for one in "abcdef"]
    ),
    Plot("heatmap", "Delay", "scheduled hour of departure (New York)", "airport", _DELAYS, "minutes"),
    *(_lines(most, "messages a second") for most in (0.00098, 0.97, 9.97, 996, 99_999_999)),
    _lines(996, "lag in ms", Series("lag", _SECONDS, _SECONDS, y_label="lag in seconds")),
    _lines(2**41 - 1, "bytes", Series("lag", _SECONDS, [7_199] * 50, y_label="lag in seconds")),
]


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1300, 800, 400])
def test_no_number_and_no_name_lies_outside_of_its_plot(tmp_path: Path, width: int, is_dark: bool) -> None:
    assert {plot.kind for plot in GALLERY} == set(get_args(PlotKind))
    Report("Gallery", plots=GALLERY).write_html(str(tmp_path / "gallery.html"))
    drawn = draw(tmp_path / "gallery.html", width, is_dark=is_dark)
    assert len(drawn.marks) == len(GALLERY)
    assert (drawn.cut, drawn.cut_texts, drawn.is_wide) == (0, [], False)
    assert drawn.complaints == []


def test_errors_and_what_comes_from_elsewhere_are_heard(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<html><head></head><body><img src="https://example.org/a.png"><script>lost()</script></body></html>'
    )
    complaints = " ".join(draw(bad, 400).complaints)
    assert "lost is not defined" in complaints
    assert "img-src https://example.org" in complaints


def test_the_picture_of_the_docs_is_one_of_this_page(page: Path, tmp_path: Path) -> None:
    screenshot(page, tmp_path / "report.png", main.WIDTH, main.HEIGHT)
    assert size_of(tmp_path / "report.png") == size_of(DOCS) == (main.WIDTH, main.HEIGHT)
    for picture in (tmp_path / "report.png", DOCS):
        assert 50_000 < picture.stat().st_size < MOST_BYTES
