"""A page in headless Chromium: what it looks like, and whether it drew itself without errors and without a network.

Chromium's windows are 500 pixels wide at least, so the page lies in a frame of the width that is asked for.
"""

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=10000"
).split()
#: Refuses whatever is not within the page, and writes down errors, refusals and what was loaded, outside of the frame.
_WATCH = """<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<script>
const seen = [], told = parent.document.documentElement.dataset;
const keep = text => { seen.push(String(text)); told.seen = JSON.stringify(seen); };
addEventListener("error", event => keep(event.message || event.target.src));
addEventListener("unhandledrejection", event => keep(event.reason));
addEventListener("securitypolicyviolation", event => keep(event.violatedDirective + " " + event.blockedURI));
const right = element => element.getBoundingClientRect().right;
const isCut = (text, plot) => {
  const [inner, outer] = [text.getBoundingClientRect(), plot.getBoundingClientRect()];
  const isOutside = inner.left < outer.left - 1 || inner.right > outer.right + 1
    || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
  return inner.width > 0 && isOutside;
};
addEventListener("load", () => setTimeout(() => {
  const plots = [...document.querySelectorAll(".plot")].map(plot => ({
    marks: plot.querySelectorAll("svg path").length,
    is_cut: right(plot.querySelector("svg")) > right(plot.parentElement) + 1,
    cut_texts: [...plot.querySelectorAll("text")].filter(text => isCut(text, plot)).map(text => text.textContent),
    inks: [...new Set([...plot.querySelectorAll("text")].map(text => getComputedStyle(text).fill))],
  }));
  told.plots = JSON.stringify(plots);
  const { scrollWidth, clientWidth } = document.documentElement;
  const hints = [...document.querySelectorAll(".hint")].map(hint => hint.textContent);
  const paper = getComputedStyle(document.body).backgroundColor;
  told.page = JSON.stringify([innerWidth, paper, scrollWidth > clientWidth, ...hints]);
}, 500));
addEventListener("load", () => performance.getEntriesByType("resource").forEach(entry => keep(entry.name)));
</script>
"""
_FRAME = """<!doctype html>
<html style="color-scheme: light dark"><body style="margin: 0">
<iframe style="border: 0; width: {width}px; height: 2000px" srcdoc="{page}"></iframe>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What became of a page.

    Attributes:
        marks: how many shapes each plot has drawn.
        cut: how many plots are wider than their place.
        cut_texts: labels and numbers that the edge of their plot cuts.
        complaints: errors of scripts, and everything that was loaded or refused.
        inks: colours of the plots' texts, as CSS writes them.
        paper: colour of the page.
        is_wide: whether the page itself scrolls sideways.
        hints: what each table says about its scrolling.
    """

    marks: list[int]
    cut: int
    cut_texts: list[str]
    complaints: list[str]
    inks: set[str]
    paper: str
    is_wide: bool
    hints: list[str]


def chromium() -> str:
    """The browser's command; FileNotFoundError says what to install."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise FileNotFoundError("no Chromium: apt-get install chromium, or install Google Chrome")


def screenshot(page: Path, picture: Path, width: int, height: int) -> None:
    """Write a PNG of the page's upper part."""
    _run(page, f"--screenshot={picture}", f"--window-size={width},{height}")


def dom(page: Path) -> str:
    """The page as HTML, after its scripts."""
    return _run(page, "--dump-dom")


def draw(page: Path, width: int, *, is_dark: bool = False) -> Drawn:
    """Open the page in a window so many pixels wide, let its scripts run, and look."""
    scheme = f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"
    with tempfile.TemporaryDirectory() as folder:
        watched = Path(folder, "page.html")
        inner = page.read_text(encoding="utf-8").replace("<head>", f"<head>{_WATCH}", 1)
        watched.write_text(_FRAME.format(width=width, page=escape(inner)), encoding="utf-8")
        html = re.search("<html[^>]*>", _run(watched, "--dump-dom", scheme, f"--window-size={width},2000"))
    assert html is not None, "a page has an html element"
    plots, seen = (json.loads(_attribute(html[0], name)) for name in ("plots", "seen"))
    inner_width, paper, is_wide, *hints = json.loads(_attribute(html[0], "page"))
    assert inner_width == width
    return Drawn(
        marks=[plot["marks"] for plot in plots],
        cut=sum(plot["is_cut"] for plot in plots),
        cut_texts=[text for plot in plots for text in plot["cut_texts"]],
        complaints=seen,
        inks={ink for plot in plots for ink in plot["inks"]},
        paper=paper,
        is_wide=is_wide,
        hints=hints,
    )


def _attribute(tag: str, name: str) -> str:
    found = re.search(f' data-{name}="([^"]*)"', tag)
    return unescape(found[1]) if found else "[]"


def _run(page: Path, *options: str) -> str:
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium(), *_OPTIONS, f"--user-data-dir={profile}", *options, page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout
