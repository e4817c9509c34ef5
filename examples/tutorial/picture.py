"""A figure of plotly's as SVG, drawn by headless Chromium, that reads well on a light and on a dark page."""

from __future__ import annotations

import re
import tempfile
from html import unescape
from pathlib import Path
from urllib.parse import unquote

from plotly.offline import get_plotlyjs

from examples.picture.browser import dom

_PAGE = """<html><head><meta charset="utf-8"><script src="plotly.js"></script></head><body><script>
const figure = FIGURE;
const grid = { gridcolor: "rgba(128, 128, 128, 0.3)", zerolinecolor: "rgba(128, 128, 128, 0.6)" };
const layout = {
  ...figure.layout, template: undefined, width: 760, height: 420,
  paper_bgcolor: "rgba(0, 0, 0, 0)", plot_bgcolor: "rgba(0, 0, 0, 0)", font: { color: "#808080" },
  xaxis: { ...figure.layout.xaxis, ...grid }, yaxis: { ...figure.layout.yaxis, ...grid },
};
Plotly.toImage({ data: figure.data, layout }, { format: "svg" })
  .then(url => { document.documentElement.dataset.picture = url; });
</script></body></html>"""


def picture_of(figure: str) -> str:
    """The SVG of a figure, which is given as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "plotly.js").write_text(get_plotlyjs(), encoding="utf-8")
        page = Path(folder, "page.html")
        page.write_text(_PAGE.replace("FIGURE", figure), encoding="utf-8")
        found = re.search(r'data-picture="data:image/svg\+xml,([^"]*)"', dom(page))
    assert found is not None, "plotly draws the figure"
    return unquote(unescape(found[1]))
