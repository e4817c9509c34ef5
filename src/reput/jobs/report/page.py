"""HTML page of a report: one file that contains script and style."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape

from reput.jobs.report.drawing import Drawing, draw
from reput.jobs.report.plot import Plot
from reput.jobs.report.table import Table, Value, format_value, numeric_columns
from reput.jobs.report.units import unit_of, write_column, write_name, write_number, write_value

#: Characters of a text that need not wrap, and of one that has a line of its own.
_SHORT_TEXT, _LONG_TEXT = 40, 60
#: Limits of a page, which a mail takes: findings, rows and characters of a table, characters of a cell.
_MOST_FINDINGS, _MOST_ROWS, _MOST_TABLE, _MOST_CELL = 100, 200, 60_000, 1000


def page(
    title: str,
    about: Mapping[str, str],
    facts: Mapping[str, Value],
    findings: Sequence[str],
    plots: Sequence[Plot],
    tables: Sequence[Table],
) -> str:
    """HTML of a whole report. `about` says what it is a report of: store, command, time and version."""
    drawn = draw(plots)
    sections = [
        f"<header><h1>{escape(title)}</h1>{_about(about)}</header>",
        _findings(findings) if findings else "",
        _facts(facts) if facts else "",
        *(_figure(number, plot, drawing) for number, (plot, drawing) in enumerate(zip(plots, drawn, strict=True))),
        *map(_html_table, tables),
    ]
    options = json.dumps([drawing.option for drawing in drawn], ensure_ascii=False, separators=(",", ":"))
    options = options.replace("<", "\\u003c")  # a name must not end the script
    scripts = [
        f"<script>{_file('echarts.min.js')}</script>" if plots else "",
        f"<script>{_file('page.js')}</script>",
        f'<script type="application/json" id="plots">{options}</script>' if plots else "",
    ]
    head = f"<title>{escape(title)}</title>\n<style>{_file('page.css')}</style>\n" + "\n".join(filter(None, scripts))
    return _PAGE.format(head=head, body="\n".join(filter(None, sections)))


@cache
def _file(name: str) -> str:
    """Text of a file that each page contains."""
    return importlib.resources.files(__package__).joinpath("browser", name).read_text(encoding="utf-8")


def _about(about: Mapping[str, str]) -> str:
    return f'<dl class="about">{"".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in about.items())}</dl>'


def _findings(findings: Sequence[str]) -> str:
    shown = [_cut(finding) for finding in findings[:_MOST_FINDINGS]]
    if len(findings) > len(shown):
        shown.append(f"and {write_number(len(findings) - len(shown))} more")
    items = "".join(f"<li>{escape(finding)}</li>" for finding in shown)
    return f'<section class="findings"><h2>Findings</h2><ul>{items}</ul></section>'


def _facts(facts: Mapping[str, Value]) -> str:
    terms = []
    for name, value in facts.items():
        text = _cut(write_value(value, name))
        css = ' class="long"' if len(text) > _LONG_TEXT else ""
        terms.append(f"<div{css}{_exact(value, name)}><dt>{escape(write_name(name))}</dt><dd>{escape(text)}</dd></div>")
    return f'<dl class="facts">{"".join(terms)}</dl>'


def _exact(value: Value, name: str) -> str:
    """Attribute with the number behind a rounded one, which the mouse shows: 1.2 MiB are 1,234,567 bytes."""
    is_rounded = type(value) in (int, float) and unit_of(name) is not None
    return f' title="{escape(format_value(value))} {escape(name)}"' if is_rounded else ""


def _figure(number: int, plot: Plot, drawing: Drawing) -> str:
    names = drawing.legend.items()
    legend = "".join(f'<button style="--colour:{colour}">{escape(name)}</button>' for name, colour in names)
    return (
        f"<figure><h2>{escape(plot.title)}</h2>"
        + (f'<div class="legend">{legend}</div>' if legend else "")
        + f'<div class="plot" id="plot-{number}" style="height:{drawing.height}px"></div>'
        + (f"<figcaption>{escape(drawing.caption)}</figcaption>" if drawing.caption else "")
        + "</figure>"
    )


def _html_table(table: Table) -> str:
    rows = _fitting_rows(table)
    columns = [[row[index] for row in rows] for index in range(len(table.columns))]
    written = [write_column(column, name) for column, name in zip(columns, table.columns, strict=True)]
    numeric = numeric_columns(table)
    classes = [
        ' class="number"' if is_number else ' class="short"' if max(map(len, texts), default=0) <= _SHORT_TEXT
        else ' class="long"'
        for is_number, (_, texts) in zip(numeric, written, strict=True)
    ]  # fmt: skip
    head = "".join(f"<th{css}>{escape(heading)}</th>" for css, (heading, _) in zip(classes, written, strict=True))
    body = []
    for number, row in enumerate(rows):
        cells = zip(classes, table.columns, row, written, strict=True)
        body.append(
            "".join(
                f"<td{css}{_exact(value, name)}>{escape(_cut(texts[number]))}</td>"
                for css, name, value, (_, texts) in cells
            )
        )
    count = _row_count(len(rows), table.total or len(table.rows))
    return (
        f'<section><h2>{escape(table.name)}<small>{count}<span class="hint"></span></small></h2>'
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in body)}</tbody></table></div></section>"
    )


def _fitting_rows(table: Table) -> Sequence[Sequence[Value]]:
    """First rows of a table, as many as a page takes."""
    room = _MOST_TABLE
    for number, row in enumerate(table.rows[:_MOST_ROWS]):
        room -= sum(min(len(str(value)), _MOST_CELL) for value in row)
        if room < 0 and number:
            return table.rows[:number]
    return table.rows[:_MOST_ROWS]


def _row_count(shown: int, rows: int) -> str:
    if shown < rows:
        return f"{write_number(shown)} of {write_number(rows)} rows"
    return f"{write_number(rows)} row{'s' * (rows != 1)}"


def _cut(text: str) -> str:
    """Text as far as a page shows it; a longer one says how long it is."""
    return text if len(text) <= _MOST_CELL else f"{text[:_MOST_CELL]}… ({write_number(len(text))} characters)"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{head}
</head>
<body><main>
{body}
</main></body>
</html>
"""
