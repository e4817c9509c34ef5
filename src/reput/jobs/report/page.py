"""HTML page of a report: one file that contains script and style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from reput.jobs.report.drawing import FONT, draw
from reput.jobs.report.plot import Plot
from reput.jobs.report.table import Table, Value, format_value, numeric_columns

#: Characters of a text that need not wrap.
_SHORT_TEXT = 40


def page(
    title: str,
    facts: Mapping[str, Value],
    findings: Sequence[str],
    plots: Sequence[Plot],
    tables: Sequence[Table],
) -> str:
    """HTML of a whole report; raises ReputError when there are plots and plotly is not installed."""
    script, drawn = draw(plots) if plots else ("", [])
    verdict = "".join(f"<li>{escape(finding)}</li>" for finding in findings)
    terms = (f"<div><dt>{escape(k)}</dt><dd>{escape(format_value(v))}</dd></div>" for k, v in facts.items())
    sections = [
        f"<h1>{escape(title)}</h1>",
        f'<section class="findings"><h2>Findings</h2><ul>{verdict}</ul></section>' if verdict else "",
        f'<dl class="facts">{"".join(terms)}</dl>',
        *(f"<figure><h2>{escape(plot.title)}</h2>{html}</figure>" for plot, html in zip(plots, drawn, strict=True)),
        *map(_html_table, tables),
    ]
    return _PAGE.format(title=escape(title), style=_STYLE, script=script, body="\n".join(sections))


def _short_columns(table: Table) -> list[bool]:
    """Whether all texts of a column are short, by column; short texts stay on one line."""
    return [
        all(len(format_value(row[index])) <= _SHORT_TEXT for row in table.rows) for index in range(len(table.columns))
    ]


def _html_table(table: Table) -> str:
    kinds = zip(numeric_columns(table), _short_columns(table), strict=True)
    classes = ['class="number"' if numeric else 'class="short"' if short else "" for numeric, short in kinds]
    head = "".join(f"<th {css}>{escape(name)}</th>" for css, name in zip(classes, table.columns, strict=True))
    rows = (
        "".join(f"<td {css}>{escape(format_value(v))}</td>" for css, v in zip(classes, row, strict=True))
        for row in table.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<section><h2>{escape(table.name)}</h2>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: #f5f7f9; color: #26303c; font: 15px/1.5 FONT; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 28px; line-height: 1.25; margin: 0 0 20px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 12px; }
section, figure, .facts { background: white; border: 1px solid #e1e6ec; border-radius: 10px; }
section, figure, .facts { padding: 20px 24px; margin: 0 0 18px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 16px 24px; }
.facts dt { color: #667282; font-size: 13px; }
.facts dd { margin: 0; font-size: 17px; font-weight: 600; overflow-wrap: anywhere; }
.findings { border-color: #e3a79c; background: #fdf3f1; }
.findings ul { margin: 0; padding-left: 20px; overflow-wrap: anywhere; }
.scroll { overflow: auto; max-height: max(470px, 90vh); }
thead th { position: sticky; top: 0; background: white; }
figure { overflow: hidden; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; font-size: 13px; color: #667282; white-space: nowrap; }
th, td { padding: 7px 18px 7px 0; border-bottom: 1px solid #e9edf1; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td { min-width: 4em; overflow-wrap: anywhere; }
th:last-child, td:last-child { padding-right: 0; min-width: 9em; }
td:last-child:not(.number, .short) { min-width: 16em; }
.number { text-align: right; }
.number, .short { white-space: nowrap; }
@media (max-width: 640px) { section, figure, .facts { padding: 14px; } h1 { font-size: 23px; } }
@media print { body { background: white; } section, figure { break-inside: avoid; } .scroll { max-height: none; } }
""".replace("FONT", FONT)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<script>{script}</script>
</head>
<body><main>
{body}
</main></body>
</html>
"""
