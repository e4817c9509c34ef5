"""Figures as a table for people, and the goals that were met and missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.bench.figures import Figure

_MILLION, _THOUSAND = 1e6, 1e3


def format_value(value: float) -> str:
    """Three digits that count: 1.62 M, 234 k, 98.1, 0.0123."""
    if abs(value) >= _MILLION:
        return f"{_three_digits(value / _MILLION)} M"
    if abs(value) >= 10 * _THOUSAND:
        return f"{_three_digits(value / _THOUSAND)} k"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_figures(console: Console, answers: Mapping[str, Sequence[Figure]]) -> None:
    """A table with a section a question."""
    table = Table(
        "figure", "median", "unit", "min .. max", "goal", "of the limit that bounds it", "note", box=box.SIMPLE_HEAD
    )
    for column in table.columns[1:4]:
        column.no_wrap = True
    table.columns[0].min_width = 30
    for figures in answers.values():
        for figure in figures:
            table.add_row(*map(Text, _cells(figure)))
        table.add_section()
    console.print(table)


def _cells(figure: Figure) -> list[str]:
    return [
        figure.name,
        format_value(figure.median),
        figure.unit,
        _range(figure.values),
        _goal(figure),
        f"{figure.ratio:.2f} of {figure.limit[0]}" if figure.limit and figure.ratio is not None else "",
        figure.note,
    ]


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    bound = ">=" if figure.goal.least is not None else "<="
    return f"{bound} {format_value(figure.goal.value)}" + _stretch(figure.goal.stretch)


def _stretch(bound: float | None) -> str:
    return "" if bound is None else f" ({format_value(bound)})"


def print_others(console: Console, answers: Mapping[str, Sequence[Figure]]) -> None:
    """A table of the figures that somebody else has too; behind a goal, in brackets, the better one to reach for."""
    ours_and_theirs = ("figure", "unit", "ours", "min .. max", "beside", "theirs", "min .. max")
    names = (*ours_and_theirs, "times as fast", "min .. max", "goal", "")
    table = Table(*names, box=box.SIMPLE_HEAD)
    for column in table.columns:
        column.no_wrap = True
    for figures in answers.values():
        for figure in figures:
            if figure.other is not None and figure.times is not None:
                other = figure.other
                ours, others = (format_value(one.median) for one in (figure, other))
                ranges = map(_range, (figure.values, other.values))
                cells = [figure.name, figure.unit, ours, next(ranges), other.name, others, next(ranges)]
                table.add_row(*map(Text, [*cells, *_comparison(figure)]))
        table.add_section()
    console.print(table)


def _comparison(figure: Figure) -> tuple[str, ...]:
    """Cells: times as fast, or the part of theirs; its least and most in a round; the goal; whether it was met."""
    assert figure.other is not None
    least, most = figure.other.least, figure.other.most
    value = f"{figure.times:.2f}" if most is None else f"{figure.part:.2f} of it"
    rounds = f"{min(figure.rounds):.2f} .. {max(figure.rounds):.2f}" if len(figure.rounds) > 1 else ""
    if least is None and most is None:
        return value, rounds, "", ""
    goal = (f">= {least:g}" if most is None else f"<= {most:g}") + _stretch(figure.other.stretch)
    return value, rounds, goal, "met" if figure.keeps_up else "missed"


def _range(values: Sequence[float]) -> str:
    return f"{format_value(min(values))} .. {format_value(max(values))}" if len(values) > 1 else ""


def print_verdicts(console: Console, answers: Mapping[str, Sequence[Figure]]) -> None:
    """A line for each goal: met or missed."""
    for figures in answers.values():
        for figure in figures:
            if figure.goal is not None:
                verdict = "met   " if figure.goal.is_met(figure.median) else "missed"
                value = f"{format_value(figure.median)} {figure.unit}"
                console.print(Text(f"{verdict}  {figure.name}: {value}, goal {_goal(figure)}"), soft_wrap=True)
